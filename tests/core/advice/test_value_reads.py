"""Loops that read values one by one: told from single reads and from those of an optimizer, by line."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu

MS, US = 1_000_000, 1000


def looping(
    reads=32,
    every=20 * US,
    read="aten::_local_scalar_dense(i64[]) -> ()",
    way="forward",
    taken="aten::select.int(i64[32]) @train.py:11",
    layer=None,
):
    """Six steps of 10 ms, in which a loop of two lines takes an element and reads it, ``reads`` times."""
    rows = []
    for step in range(6):
        at = step * 10 * MS
        rows.append({"text": f"step {step}", "start": at, "end": at + 10 * MS, "category": "step"})
        rows.append(
            {"text": "aten::mm(f32[8,8], f32[8,8]) @train.py:9", "start": at, "end": at + MS}
        )
        for n in range(reads):
            begin = at + 2 * MS + n * every
            value = f"{read} @train.py:12"
            if layer:
                end = begin + 3 * US
                rows.append({"text": layer, "start": begin, "end": end, "category": "layer"})
            rows.append({"text": taken, "start": begin, "end": begin + 2 * US, "category": way})
            rows.append(
                {"text": value, "start": begin + 5 * US, "end": begin + 6 * US, "category": way}
            )
    return on_cpu(rows)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a loop that takes elements of a tensor and reads each, on a CPU", looping)


def find(profile):
    return asked("value_reads", profile)


def test_a_loop_is_named_with_its_line_its_reads_a_step_and_its_time():
    (found,) = find(looping())
    took = 31 * 20 * US + US  # from the first read to the end of the last
    assert found.time == 6 * took
    assert found.saving_most == pytest.approx(6 * took * 31 / 32, abs=6)
    assert "loops at train.py:12 read values of arrays one by one, 32 a step" in found.what
    assert found.rows.select("source", "count").row(0) == ("train.py:12", 6 * 32)
    assert found.edit.host["factor"].unique().to_list() == [1 / 32]


def test_reads_between_which_a_model_runs_are_no_loop():
    """A policy's action, a token: the next turn needs it."""
    product = "aten::addmm(f32[8], f32[1,8], f32[8,8]) @train.py:11"
    assert find(looping(taken=product))
    assert find(looping(taken=product, layer="policy.0")) == []


@pytest.mark.parametrize("read", ["aten::item(i64[])", "aten::is_nonzero(bool[])"])
def test_all_ways_to_read_one_value_count(read):
    (found,) = find(looping(read=read))
    assert "32 a step" in found.what


def test_a_few_reads_and_those_of_an_optimizer_are_no_loop():
    assert find(looping(reads=8)) == []
    assert find(looping(way="optimizer")) == []
    assert find(looping(reads=16, every=7 * US)) == []  # 1.1 % of the steps


def test_it_cannot_tell_without_steps_or_of_a_framework_whose_reads_are_not_recorded():
    op = {"text": "aten::item(i64[])", "start": 0, "end": US}
    assert isinstance(find(on_cpu([op])), CannotTell)
    step = {"text": "step 0", "start": 0, "end": MS, "category": "step"}
    for framework in ("jax", "onnxruntime"):
        answer = find(on_cpu([step, op], framework=framework))
        assert isinstance(answer, CannotTell)
        assert framework in answer.reason


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "mindspore"])
def test_reads_that_opscope_records_of_other_frameworks_count_with_the_programs_between(framework):
    rows = []
    for step in range(6):
        at = step * 10 * MS
        rows.append({"text": f"step {step}", "start": at, "end": at + 10 * MS, "category": "step"})
        for n in range(32):
            begin = at + 2 * MS + n * 20 * US
            taken = {"text": "jit_get", "start": begin, "end": begin + 2 * US, "category": "graph"}
            read = {"text": "Array() @train.py:12", "start": begin + 5 * US, "end": begin + 6 * US}
            rows += [taken, read | {"domain": "opscope.read"}]
    (found,) = find(on_cpu(rows, framework=framework))
    assert found.time == 6 * (31 * 20 * US + US)
    assert "loops at train.py:12 read values of arrays one by one, 32 a step" in found.what
    assert "torch" not in found.recommendation
