"""Decode steps without graphs: found where the device waits for them, not where a graph runs."""

from __future__ import annotations

from opscope.core.advice.detectors.decode_outside_graphs import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import PRODUCT, US, Step, served, serving

MANY = tuple((PRODUCT, 4 * US) for _ in range(30))


def steps(graph: int | None) -> list[Step]:
    """Decodes of 30 small kernels, launched one by one or by a graph."""
    made = serving()
    for step in made:
        if "context_0" in step.name:
            step.work, step.took, step.graph = MANY, 500 * US, graph
    return made


def _example() -> Profile:
    return Profile(served(steps(None)))


EXAMPLE = ("a made server whose decode steps launch 30 small kernels each", _example)


def test_the_waits_of_decode_steps_without_a_graph_are_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    # of each of the 15 steps of 500 us all but its 30 kernels of 4 us
    assert found.time == found.saving_most == 15 * (500 - 120) * US
    assert found.saving_least == 0
    assert found.what.startswith("15 of 15 decode steps replay no CUDA graph")
    assert "of 16 requests with 30 kernels" in found.evidence
    assert len(found.rows) == 15


def test_steps_that_a_graph_runs_are_left_alone():
    assert list(DETECTOR.find(Profile(served(steps(7))))) == []


def test_few_kernels_need_no_graph():
    assert list(DETECTOR.find(Profile(served(serving())))) == []


def test_it_cannot_tell_without_engine_steps():
    made = [Step(None) for _ in range(8)]
    assert isinstance(DETECTOR.find(Profile(served(made))), CannotTell)
