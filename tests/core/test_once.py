"""A property that several threads ask for at once."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from opscope.core.once import lock_of, once


class Answer:
    """Counts how often its property is computed."""

    def __init__(self) -> None:
        self.computed = 0
        self.gate = threading.Event()

    @once
    def value(self) -> int:
        """The value."""
        self.gate.wait(10)
        self.computed += 1
        return 42


class Plain:
    @once
    def value(self) -> list[int]:
        return [1]

    @once
    def fails(self) -> int:
        raise ValueError("no")


def test_threads_that_want_a_value_at_once_compute_it_once():
    answer, found = Answer(), []
    threads = [threading.Thread(target=lambda: found.append(answer.value)) for _ in range(8)]
    for one in threads:
        one.start()
    answer.gate.set()
    for one in threads:
        one.join(10)
    assert found == [42] * 8
    assert answer.computed == 1


def test_each_object_has_its_own_value_and_may_be_given_one():
    one, other = Plain(), Plain()
    assert one.value is one.value
    assert one.value is not other.value
    other = Plain()
    other.value = [7]
    assert other.value == [7]
    assert Plain.value.__doc__ is None
    assert Answer.value.__doc__ == "The value."


def test_a_value_that_cannot_be_computed_is_tried_again():
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            _ = Plain().fails


def test_an_object_with_locks_can_be_copied_and_pickled():
    one = Plain()
    assert one.value == [1]
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301 - our own
        assert other.value == [1]
        assert lock_of(other, "value") is not lock_of(one, "value")
