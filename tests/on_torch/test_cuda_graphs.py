"""CUDA graphs, by a graph of our own: what is captured and replayed has ranges that name it."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch")
graphs = pytest.importorskip("torch.cuda.graphs")

from opscope.adapters.torch.graphs import classes
from opscope.core.capture.cuda_graphs import OF_PROCESS


class Graph:
    """What stands for ``torch.cuda.CUDAGraph`` where there is no GPU."""

    def __init__(self):
        self.log = []

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.log.append(("begin", pool, capture_error_mode))

    def capture_end(self):
        self.log.append("end")

    def replay(self):
        self.log.append("replay")
        return "replayed"


class Refusing(Graph):
    def capture_begin(self):
        raise RuntimeError("no capture")


class Invalid(Graph):
    def capture_begin(self):
        pass

    def capture_end(self):
        raise RuntimeError("the capture was invalidated")


class AcceleratorGraph:
    """What stands for ``torch.accelerator.Graph``, whose capture is told everything when it is made."""

    def __init__(self):
        self.log = []

    def capture_begin(self):
        self.log.append(("begin", None, "global"))

    def capture_end(self):
        self.log.append("end")

    def replay(self):
        self.log.append("replay")
        return "replayed"


@pytest.fixture(params=["cuda", "accelerator"])
def graph(request, monkeypatch):
    if request.param == "cuda":
        monkeypatch.setattr(graphs, "CUDAGraph", Graph)
        return Graph
    monkeypatch.setattr(torch.accelerator, "Graph", AcceleratorGraph, raising=False)
    return AcceleratorGraph


def named(emitter):
    return [(r.text, r.category) for r in emitter.ranges if r.category == "graph"]


def test_a_capture_holds_its_ops_and_a_replay_names_it(watched, graph):
    emitter = watched.install()
    first, second = graph(), graph()
    for one in (first, second):
        one.capture_begin()
        torch.ones(2).add(1)
        one.capture_end()
    assert first.replay() == "replayed"
    second.replay()
    first.replay()
    assert named(emitter) == [
        (f"CUDA graph {number} {what}", "graph")
        for number, what in (
            (1, "capture"),
            (2, "capture"),
            (1, "replay"),
            (2, "replay"),
            (1, "replay"),
        )
    ]
    assert [add.parents[-1].text for add in emitter.named("aten::add.Tensor")] == [
        "CUDA graph 1 capture",
        "CUDA graph 2 capture",
    ]
    assert all(one.closed for one in emitter.ranges)
    assert first.log == [("begin", None, "global"), "end", "replay", "replay"]
    assert not watched.broken


def test_a_graph_that_is_captured_again_is_another(watched, graph):
    emitter = watched.install()
    one = graph()
    for _ in range(2):
        one.capture_begin()
        one.capture_end()
        one.replay()
    assert [text for text, _ in named(emitter)] == [
        "CUDA graph 1 capture",
        "CUDA graph 1 replay",
        "CUDA graph 2 capture",
        "CUDA graph 2 replay",
    ]


def test_a_capture_that_fails_leaves_nothing_open(watched, graph):
    emitter = watched.install()
    one = graph()
    one.capture_begin()
    with pytest.raises(RuntimeError, match="shapes"):
        torch.nn.Linear(2, 2)(torch.ones(1, 3))
    one.capture_end()  # as torch.cuda.graph does when what is in it raises
    torch.ones(3)
    assert all(one.closed for one in emitter.ranges)
    assert emitter.named("aten::ones")[-1].parents == ()
    assert not watched.broken


def test_a_capture_that_is_refused_is_no_range(watched, monkeypatch):
    monkeypatch.setattr(graphs, "CUDAGraph", Refusing)
    emitter = watched.install()
    with pytest.raises(RuntimeError, match="no capture"):
        Refusing().capture_begin()
    assert named(emitter) == []


def test_a_capture_begun_before_the_recording_only_replays(watched, graph):
    emitter = watched.install()
    emitter.active = False
    watched.adapter.listen()
    one = graph()
    one.capture_begin()
    emitter.active = True
    watched.adapter.listen()
    one.capture_end()
    one.replay()
    assert [text for text, _ in named(emitter)] == ["CUDA graph 1 replay"]
    assert not watched.broken


def test_the_methods_are_put_back_and_graphs_are_not_kept(watched, graph):
    before = dict(vars(graph))
    watched.install()
    assert vars(graph)["replay"] is not before["replay"]
    one = graph()
    one.replay()
    part = next(p for p in watched.adapter._parts if type(p).__name__ == "CudaGraphs")
    assert len(part._numbers) == 1
    del one
    gc.collect()
    assert not part._numbers
    watched.adapter.uninstall()
    assert dict(vars(graph)) == before


def test_what_a_capture_is_given_reaches_it(watched, monkeypatch):
    monkeypatch.setattr(graphs, "CUDAGraph", Graph)
    watched.install()
    one = Graph()
    one.capture_begin(pool=7, capture_error_mode="relaxed")
    one.capture_end()
    assert one.log == [("begin", 7, "relaxed"), "end"]


def test_a_capture_is_known_whether_or_not_something_listens(watched, graph):
    emitter = watched.install()
    emitter.active = False
    watched.adapter.listen()
    one = graph()
    one.capture_begin()
    assert OF_PROCESS.threads
    one.capture_end()
    assert not OF_PROCESS.threads
    emitter.active = True
    watched.adapter.listen()
    one.capture_begin()
    assert OF_PROCESS.threads
    one.capture_end()
    assert not OF_PROCESS.threads


def test_a_capture_that_is_refused_or_cannot_be_ended_is_over(watched, monkeypatch):
    monkeypatch.setattr(graphs, "CUDAGraph", Refusing)
    watched.install()
    with pytest.raises(RuntimeError, match="no capture"):
        Refusing().capture_begin()
    assert not OF_PROCESS.threads
    monkeypatch.undo()
    watched.adapter.uninstall()
    monkeypatch.setattr(graphs, "CUDAGraph", Invalid)
    watched.install()
    one = Invalid()
    one.capture_begin()
    with pytest.raises(RuntimeError, match="invalidated"):
        one.capture_end()
    assert not OF_PROCESS.threads


def test_the_real_classes_have_what_is_patched():
    """Where torch moves these, its captures would silently have no ranges."""
    found = classes()
    assert graphs.CUDAGraph in found
    assert len(found) == 1 + hasattr(torch.accelerator, "Graph")
    for one in found:
        for name in ("capture_begin", "capture_end", "replay"):
            assert name in vars(one)
