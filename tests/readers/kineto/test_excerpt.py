"""The part of a large Kineto file that gives a first answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.cli import provisional, report_tables
from opscope.readers.kineto import excerpt
from tests.command import opscope as command

#: µs of a step, and how many there are.
_STEP, _STEPS, _OPS = 1_000, 1_200, 4
#: Steps from here on wait for the host; those before keep the GPU at work.
_SLOW = 900


def _events() -> list[dict[str, Any]]:
    """Return a training's events as Kineto writes them: one thread's after another's, each in order."""
    host: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for step in range(_STEPS):
        begin = 5_000_000 + step * _STEP
        host.append(
            _event(
                "user_annotation",
                f"ProfilerStep#{step}",
                begin,
                _STEP - 2,
                {"External id": 10**7 + step},
            )
        )
        for op in range(_OPS):
            number, at = step * _OPS + op + 1, begin + 10 + op * 200
            host.append(
                _event(
                    "cpu_op",
                    "aten::mm",
                    at,
                    100,
                    {"External id": number, "Input Dims": [[64, 64]] * 2},
                )
            )
            launch = {"correlation": number, "External id": number}
            calls.append(_event("cuda_runtime", "cudaLaunchKernel", at + 20, 8, launch))
            lasts = 195 if step < _SLOW else 20
            # work runs long after its launch
            kernels.append(
                _event(
                    "kernel",
                    "void gemm<{lambda(int)#1}>",
                    at + 330,
                    lasts,
                    {**launch, "device": 0, "stream": 7},
                )
            )
    names = {
        "name": "process_name",
        "ph": "M",
        "ts": 0,
        "pid": 9,
        "tid": 0,
        "args": {"name": "python"},
    }
    return [*host, *calls, *kernels, names]  # fmt: skip


def _event(kind: str, name: str, start: int, lasts: int, args: dict[str, Any]) -> dict[str, Any]:
    device = kind == "kernel"
    return {"ph": "X", "cat": kind, "name": name, "pid": 0 if device else 9, "tid": 7 if device else 1, "ts": start, "dur": lasts, "args": args}  # fmt: skip


def _write(path: Path, events: list[dict[str, Any]]) -> Path:
    head = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],\n"traceEvents": [\n'
    texts = ("  {\n    " + json.dumps(event)[1:-1] + "\n  }" for event in events)
    path.write_text(head + ",\n".join(texts) + "\n],\n" + '"baseTimeNanoseconds": 1000}\n')
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("large") / "large.json", _events())


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt, "_PART", 1 << 13)
    monkeypatch.setattr(excerpt, "_PROBE", 1 << 11)
    monkeypatch.setattr(excerpt, "_EDGE", 1 << 12)
    monkeypatch.setattr(excerpt, "BUDGET", 60_000)


def test_a_part_has_whole_steps_with_all_their_kernels(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "part.json"
    share = excerpt.cut(large, target, 60_000)
    assert share is not None
    assert 0.005 < share < 0.1
    part = json.loads(target.read_text())
    everything = {json.dumps(event) for event in json.loads(large.read_text())["traceEvents"]}
    assert {json.dumps(event) for event in part["traceEvents"]} <= everything
    assert part["baseTimeNanoseconds"] == 1000
    assert part["traceEvents"][-1]["args"] == {"name": "python"}
    profile = opscope.load(target)
    steps = int(profile.summary()["steps"].item())
    kernels = profile.kernels()
    assert steps >= 3
    assert len(kernels) == steps * _OPS
    assert kernels["op"].to_list() == ["aten::mm"] * len(kernels)
    steps_named = [event["name"] for event in part["traceEvents"] if "Step#" in event["name"]]
    numbers = [int(name.split("#")[1]) for name in steps_named]
    assert numbers == list(range(numbers[0], numbers[0] + steps))  # fmt: skip
    assert _STEPS * 0.4 < numbers[0] < _STEPS * 0.6


def test_events_in_no_order_give_no_part(tmp_path: Path) -> None:
    events = _events()
    random.Random(1).shuffle(events)
    target = tmp_path / "part.json"
    assert excerpt.cut(_write(tmp_path / "mixed.json", events), target, 60_000) is None
    assert not target.exists()


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"traceEvents": []}', b'{"traceEvents": [' + b'{"ph": "X"' * 9_000]
)
def test_other_texts_give_no_part(tmp_path: Path, text: bytes) -> None:  # fmt: skip
    (tmp_path / "a.json").write_bytes(text)
    assert excerpt.cut(tmp_path / "a.json", tmp_path / "part.json") is None
    assert not (tmp_path / "part.json").exists()


def test_a_report_of_a_large_file_answers_before_it_is_read(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("report", large)
    monkeypatch.setattr(report_tables, "LARGE", 1)
    monkeypatch.setattr(excerpt.cut, "__defaults__", (60_000,))
    early = command("report", large)
    assert (early.returncode, early.stdout) == (0, plain.stdout)
    assert "provisional" not in plain.stderr
    line, *more = early.stderr.splitlines()
    assert line.startswith("opscope: provisional, from ")
    assert "steps near its middle" in line
    assert plain.stdout.splitlines()[1].partition(" ")[0].rstrip(":") in line or more


def test_a_part_that_shows_something_else_is_corrected(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_tables, "LARGE", 1)
    monkeypatch.setattr(provisional, "say_provisional", lambda path: "input-bound")
    run = command("report", large)
    finding = opscope.load(large).diagnosis()["finding"][0]
    assert f"corrected: input-bound was provisional; all of the file shows {finding}" in run.stderr


def test_a_selection_or_json_gets_no_provisional_answer(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_tables, "LARGE", 1)
    for words in (("--json",), ("--iter-start", "3"), ("--reports", "kinds")):
        assert "provisional" not in command("report", large, *words).stderr
