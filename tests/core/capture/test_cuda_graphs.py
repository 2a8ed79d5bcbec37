"""Which graphs are being captured: asked before a profiler begins or ends, which would invalidate them."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from opscope.backends.cuda_graph_captures import Methods
from opscope.core.capture.cuda_graphs import Captures


class Graph:
    """As PyTorch's."""

    def __init__(self):
        self.done = []

    def capture_begin(self):
        self.done.append("begin")

    def capture_end(self):
        self.done.append("end")

    def replay(self):
        self.done.append("replay")


@pytest.fixture
def captures():
    return Captures()


def test_a_graph_is_captured_from_its_begin_to_its_end(captures):
    one, other = Graph(), Graph()
    assert not captures.threads
    captures.begins(one)
    captures.begins(other)
    captures.ends(one)
    assert captures.threads == {threading.get_ident()}
    captures.ends(other)
    captures.ends(other)  # once too often
    assert not captures.threads


def test_every_thread_sees_it(captures):
    one, seen = Graph(), []
    captures.begins(one)
    thread = threading.Thread(target=lambda: seen.append(captures.threads))
    thread.start()
    thread.join()
    captures.ends(one)
    assert seen == [{threading.get_ident()}]


def test_a_graph_that_is_dropped_before_its_end_is_none(captures):
    one = Graph()
    captures.begins(one)
    del one
    gc.collect()
    assert not captures.threads


def test_none_begins_while_they_are_kept_out(captures):
    order, one = [], Graph()

    def capture():
        captures.begins(one)
        order.append("begun")

    with captures.kept_out() as quiet:
        assert quiet
        thread = threading.Thread(target=capture)
        thread.start()
        thread.join(0.05)
        order.append("free")
    thread.join()
    assert order == ["free", "begun"]
    with captures.kept_out() as quiet:
        assert not quiet
    captures.ends(one)


def test_in_a_forked_child_nothing_is_captured():
    from opscope.core.capture.cuda_graphs import OF_PROCESS

    one = Graph()
    OF_PROCESS.begins(one)
    try:
        child = os.fork()
        if not child:
            os._exit(len(OF_PROCESS.threads))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        OF_PROCESS.ends(one)


def test_where_an_adapter_tells_a_replay_counts_once(captures):
    """The methods may be wrapped by both: by a backend first, then by an adapter."""
    methods = Methods(captures)
    methods.install(Graph)
    try:
        one = Graph()
        one.capture_begin()
        assert captures.threads
        one.capture_end()
        captures._sizes[one] = 5
        one.replay()
        assert captures.replayed == 5
        captures.reported_by_adapter = True
        captures.replays(one)
        one.replay()
        one.capture_begin()
        assert captures.replayed == 10
        assert not captures.threads
        assert one.done == ["begin", "end", "replay", "replay", "begin"]
    finally:
        captures.reported_by_adapter = False
        methods.uninstall()
    assert "capture_begin" in vars(Graph)
    assert not hasattr(Graph.capture_begin, "__wrapped__")
    captures.reported_by_adapter = True
    methods.install(Graph)
    assert not hasattr(Graph.replay, "__wrapped__")
