"""``--json``: a schema, little by default, and in ``--full`` all there is."""

from __future__ import annotations

import json

import pytest

from opscope.cli import start
from opscope.reports import files
from tests import traces

TRACES = (
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/sampled_rank0.json.gz",
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "nvprof/language_model.sqlite",
    "nsys/fsdp_h100x2_2026.sqlite",
    "onnxruntime/resnet_inference_gemmini.json",
    "xplane/jax_conv_mi300.xplane.pb",
)


@pytest.fixture
def printed(monkeypatch, capsys):
    """Runs a command in this process, which reads a trace once; gives the text of its JSON."""
    monkeypatch.setattr("opscope.profile.load", traces.load)

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *map(str, args), "--json"])
        status = start.run()
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    return call


@pytest.mark.parametrize("name", TRACES)
def test_a_report_is_small_and_has_the_facts_of_the_first_screen(printed, shared, name):
    text = printed("report", shared / name)
    assert len(text.encode()) <= files.SMALL
    told = json.loads(text)
    assert next(iter(told.items())) == ("schema", "opscope.report/1")
    assert {"summary", "diagnosis", "wall_time", "by_kind", "by_op", "advice", "next"} <= set(told)
    profile = traces.load(shared / name)
    assert [row["text"] for row in told["diagnosis"]] == profile.diagnosis()["text"].to_list()
    advice = profile.advice()
    assert [row["finding"] for row in told["advice"]] == advice["finding"].to_list()[
        : len(told["advice"])
    ]
    assert told["cut"].get("advice", len(told["advice"])) == len(advice)
    assert any(line.startswith("opscope advise ") for line in told["next"])


@pytest.mark.parametrize("name", TRACES[:3])
def test_advice_is_small_and_says_what_is_cut(printed, shared, name):
    small, whole = (
        json.loads(printed("advise", shared / name, *more)) for more in ((), ("--full",))
    )
    assert len(json.dumps(small)) <= files.SMALL
    assert small["schema"] == whole["schema"] == "opscope.advise/1"
    cut = small.pop("cut")
    assert list(small) == list(whole)
    for key, rows in whole.items():
        if isinstance(rows, list):
            assert small[key] == rows[: len(small[key])]
            assert cut.get(key, len(small[key])) == len(rows)


def test_a_difference_is_small_and_full_is_all_of_it(printed, shared):
    runs = [shared / f"kineto/resnet50_nw{n}_step_span1.pt.trace.json.gz" for n in (0, 4)]
    text = printed("diff", *runs)
    assert len(text.encode()) <= files.SMALL
    small, whole = json.loads(text), json.loads(printed("diff", *runs, "--full"))
    assert small["schema"] == whole["schema"] == "opscope.diff/1"
    assert set(small) == {*whole, "cut"}
    assert small["cut"]["ops"] == len(whole["ops"]) > len(small["ops"])
    assert small["ops"] == whole["ops"][: len(small["ops"])]
    (one,) = json.loads(printed("diff", *runs, "--top", 1))["ops"]
    assert one == whole["ops"][0]


def test_rows_are_halved_until_the_object_is_small():
    texts = {20: "x" * 300_000, 10: "x" * 150_000, 5: "x" * 10}
    assert files.fitting(texts.__getitem__) == "x" * 10
    assert files.fitting(lambda rows: "x" * 200_000) == "x" * 200_000  # what no row is part of


@pytest.mark.parametrize("command", ["report", "advise"])
def test_full_is_an_option_of_json(command, shared, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["opscope", command, str(shared / TRACES[0]), "--full"])
    assert start.run() == 2
    assert "--full is an option of --json" in capsys.readouterr().err
