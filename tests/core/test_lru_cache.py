"""The cache of what was used last: its bound, its order, and threads that want one value at once."""

from __future__ import annotations

import threading

import pytest

from opscope.core.lru_cache import LRUCache


def test_the_value_used_longest_ago_goes_first():
    cache, gone = LRUCache(2), []
    for key in ("a", "b", "a", "c"):
        assert cache.get(key, key.upper, dropped=gone.append) == key.upper()
    assert gone == ["B"]
    assert cache.get("a", lambda: "made again") == "A"
    assert cache.get("b", lambda: "made again") == "made again"


def test_sizes_are_summed_and_a_value_above_the_bound_is_not_kept():
    cache, gone = LRUCache(10), []
    for key, size in (("a", 4), ("b", 6), ("huge", 11), ("c", 5)):
        cache.get(key, lambda key=key: key, lambda _, size=size: size, gone.append)
    assert gone == ["a", "b"]
    assert cache.get("huge", lambda: "made again") == "made again"


def test_a_value_that_is_forgotten_is_made_again_and_leaves_room():
    cache, first = LRUCache(2), object()
    cache.get("a", lambda: first)
    cache.get("b", object)
    cache.forget(first)
    gone = []
    assert cache.get("a", lambda: "made again", dropped=gone.append) == "made again"
    assert not gone


def test_threads_that_want_one_value_make_it_once():
    cache, made, go = LRUCache(2), [], threading.Event()

    def make() -> object:
        go.wait(10)
        made.append(object())
        return made[-1]

    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get("a", make))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert found == made * 4


def test_a_value_that_could_not_be_made_is_asked_for_again():
    cache = LRUCache(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 / 0)
    assert cache.get("a", lambda: 1) == 1
