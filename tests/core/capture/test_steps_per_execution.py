"""How many steps an execution held, as each way of telling it has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.core.capture.steps_per_execution import Executions

SIZE = st.integers(1, 9)


def counted(per_execution, epoch, epochs, tells_last, known):
    """What is counted of epochs of so many steps, run ``per_execution`` at a time."""
    executions, found = Executions(), []
    for _ in range(epochs):
        for first in range(0, epoch, per_execution):
            last = min(first + per_execution, epoch) - 1
            executions.begins(first)
            if known:
                assert executions.expected(per_execution, epoch) == last - first + 1
            assert executions.expected(per_execution, None) == per_execution
            told = last if tells_last else first
            found.append(executions.ends(told, per_execution, epoch if known else None))
    return found


@given(per_execution=SIZE, epoch=SIZE, epochs=SIZE)
def test_all_steps_are_counted(per_execution, epoch, epochs):
    for tells_last in (True, False):
        found = counted(per_execution, epoch, epochs, tells_last, True)
        assert sum(found) == epoch * epochs
        assert max(found) == min(per_execution, epoch)


@given(per_execution=SIZE, whole=SIZE, epochs=SIZE)
def test_full_executions_need_no_length_of_the_epoch(per_execution, whole, epochs):
    found = counted(per_execution, per_execution * whole, epochs, False, False)
    assert found == [per_execution] * whole * epochs


def test_without_a_number_of_steps_per_execution_the_batches_count():
    executions = Executions()
    executions.begins(4)
    assert executions.expected(None, 5) == 1
    assert executions.ends(4, None, 5) == 1
