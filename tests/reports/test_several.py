"""Many reports, made in two threads."""

from __future__ import annotations

import threading
import time

import pytest
from polars.testing import assert_frame_equal

from opscope.core.question.registry import reports
from opscope.profile import Profile, load
from opscope.profile.stored import STORED, stored_frame
from opscope.reports import console, registry, several

NAMES = [f"report {number}" for number in range(20)]


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(several, "_processors", lambda: 2)


def test_each_is_made_once_in_the_order_of_the_names_by_two_threads():
    made, threads = [], set()

    def make(name: str) -> str:
        time.sleep(0.001)
        made.append(name)
        threads.add(threading.get_ident())
        return name.upper()

    assert list(several.made(NAMES, make).items()) == [(name, name.upper()) for name in NAMES]
    assert sorted(made) == sorted(NAMES)
    assert len(threads) == 2


@pytest.mark.parametrize("bad", [NAMES[0], NAMES[-1]])
def test_an_error_reaches_the_caller_from_either_end(bad):
    def make(name: str) -> str:
        if name == bad:
            raise KeyError(name)
        time.sleep(0.002)
        return name

    with pytest.raises(KeyError, match=bad):
        several.made(NAMES, make)


def test_few_reports_and_one_processor_need_no_thread(monkeypatch):
    threads = []

    def make(name: str) -> None:
        threads.append(threading.get_ident())

    several.made(NAMES[:3], make)
    monkeypatch.setattr(several, "_processors", lambda: 1)
    several.made(NAMES, make)
    assert set(threads) == {threading.get_ident()}


@pytest.fixture
def profile(trace_of) -> Profile:
    place = {"process": 0, "thread": 1}
    ranges = [
        {**place, "text": text, "domain": "opscope.torch", "category": "forward",
         "kind": "pushpop", "start": 100 * n, "end": 100 * n + 90}
        for n, text in enumerate(["aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]", "some::op(f32[2])"] * 20)
    ]  # fmt: skip
    calls = [
        {**place, "start": 100 * n + 5, "end": 100 * n + 9, "name": "cudaLaunchKernel", "correlation": n}
        for n in range(40)
    ]  # fmt: skip
    kernels = [
        {"process": 0, "device": 0, "stream": 7, "start": 1000 + 50 * n, "end": 1040 + 50 * n,
         "name": f"k{n % 3}", "correlation": n}
        for n in range(40)
    ]  # fmt: skip
    return Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels))


def test_two_threads_give_the_answers_of_one(profile, tmp_path, monkeypatch):
    profile.save(tmp_path / "one.opscope")
    names = list(reports())
    for _ in range(5):
        together = registry.frames(load(tmp_path / "one.opscope"), names)
        tables = console.tables(load(tmp_path / "one.opscope"), names)
        monkeypatch.setattr(several, "_processors", lambda: 1)
        whole = load(tmp_path / "one.opscope")
        alone = registry.frames(whole, names)
        assert list(together) == list(alone)
        for name, frame in alone.items():
            assert_frame_equal(together[name], frame, check_row_order=True)
        assert tables == console.tables(load(tmp_path / "one.opscope"), names)
        monkeypatch.setattr(several, "_processors", lambda: 2)


def test_every_stored_frame_is_made_by_a_method_of_its_name(profile):
    for name in STORED:
        assert stored_frame(profile, name).columns
        assert name in profile._frames


def test_notes_are_made_when_all_others_are_wherever_they_stand():
    seen: list[str] = []
    names = ["notes", *NAMES]
    found = several.made(names, lambda name: seen.append(name) or len(seen))
    assert list(found) == names
    assert seen[-1] == "notes"
    assert found["notes"] == len(names)
