"""Which graphs are being captured: asked before a window ends, for waiting then would invalidate them."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from opscope.core import capturing


class Graph:
    pass


@pytest.fixture(autouse=True)
def none_left():
    yield
    assert not capturing.capturing_graph()


def test_a_graph_is_captured_from_its_begin_to_its_end():
    one, other = Graph(), Graph()
    assert not capturing.capturing_graph()
    capturing.graph_begins(one)
    capturing.graph_begins(other)
    capturing.graph_ends(one)
    assert capturing.capturing_graph()
    capturing.graph_ends(other)
    capturing.graph_ends(other)  # once too often
    assert not capturing.capturing_graph()


def test_every_thread_sees_it():
    one, seen = Graph(), []
    capturing.graph_begins(one)
    thread = threading.Thread(target=lambda: seen.append(capturing.capturing_graph()))
    thread.start()
    thread.join()
    capturing.graph_ends(one)
    assert seen == [True]


def test_a_graph_that_is_dropped_before_its_end_is_none():
    one = Graph()
    capturing.graph_begins(one)
    del one
    gc.collect()
    assert not capturing.capturing_graph()


def test_none_begins_while_they_are_held():
    order, one = [], Graph()

    def capture():
        capturing.graph_begins(one)
        order.append("begun")

    thread = threading.Thread(target=capture)
    with capturing.graphs_held() as free:
        thread.start()
        thread.join(0.2)
        order.append("released")
    thread.join()
    assert free
    assert order == ["released", "begun"]
    with capturing.graphs_held() as free:
        assert not free
    capturing.graph_ends(one)


def test_one_that_is_held_for_too_long_begins(monkeypatch):
    """What holds it may wait for the very thread that captures."""
    monkeypatch.setattr(capturing, "HELD_S", 0.01)
    one = Graph()
    with capturing.graphs_held():
        capturing.graph_begins(one)
        assert capturing.capturing_graph()
    capturing.graph_ends(one)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_captures_nothing():
    one = Graph()
    capturing.graph_begins(one)
    child = os.fork()
    if not child:
        os._exit(int(capturing.capturing_graph()))
    assert os.waitpid(child, 0)[1] == 0
    capturing.graph_ends(one)
