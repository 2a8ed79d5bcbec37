"""Profiles without steps: found, with how to get them; not where steps are marked, nor where nothing ran."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.no_iterations import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import one, profile, ranged, step

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a small network recorded by DLProf, which said the same of it",
    "dlprof/nsys_profile.sqlite",
)
OP = "aten::mm(f32[8,8], f32[8,8])"


def test_ops_without_steps_are_told_how_to_get_them():
    found = one(DETECTOR, profile(ranges=[ranged(0, 9, OP)]))
    assert "opscope.step()" in found.recommendation
    assert "--key" in found.recommendation
    assert (found.time, found.saving, found.saving_most) == (0, 0, 0)


def test_marked_steps_are_enough():
    assert DETECTOR.find(profile(ranges=[step(0, 0, 100), ranged(1, 9, OP)])) == []


def test_a_key_node_makes_steps():
    ranges = [ranged(10 * at, 10 * at + 5, f"aten::{name}()")
              for at, name in enumerate(("mm", "relu", "sum") * 5)]  # fmt: skip
    made = profile(ranges=ranges)
    assert len(DETECTOR.find(made)) == 1
    assert DETECTOR.find(made.select(key="aten::sum")) == []


def test_inferred_iterations_are_less_sure():
    ranges = [
        ranged(100 * at, 100 * at + 50, f"aten::op{at % 8}(f32[{at % 8 + 1}])") for at in range(80)
    ]
    found = one(DETECTOR, profile(ranges=ranges))
    assert found.confidence in ("low", "high")
    assert (found.confidence == "low") == ("inferred" in found.evidence)


def test_a_servers_engine_steps_are_iterations():
    ranges = []
    for at in range(20):
        decode = f"execute_context_0(0)_generation_{14 + at}({14 + at})"
        name = decode if at % 5 else f"execute_context_1({800 + at})_generation_0(0)"
        ranges.append(ranged(100 * at, 100 * at + 90, name, domain="user"))
        ranges.append(ranged(100 * at + 9, 100 * at + 50, OP))
    assert DETECTOR.find(profile(ranges=ranges)) == []


@pytest.mark.parametrize("made", [profile(), profile(calls=[])])
def test_where_nothing_ran_it_cannot_tell(made):
    assert isinstance(DETECTOR.find(made), CannotTell)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("dlprof/nsys_profile.sqlite", "high"),  # DLProf said so itself: key op not found
        ("nvprof/language_model.sqlite", "high"),
        ("nsys/fsdp_h100x2_2026.sqlite", "low"),  # repeats, with no text that names the place
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", None),
        ("kineto/nccl_meta.json.gz", None),
        ("mindspore/mindinsight_run2_ascend910", None),
        ("tensorrt/trex", CannotTell),  # totals: there are no times
        ("nsys/multiprocessing_nogpu_2020.sqlite", CannotTell),  # no ops and no kernels
    ],
)
def test_real_traces(shared, name, outcome):
    answer = DETECTOR.find(traces.load(shared / name))
    if outcome is CannotTell:
        assert isinstance(answer, CannotTell)
    else:
        assert [one.confidence for one in answer] == ([outcome] if outcome else [])
