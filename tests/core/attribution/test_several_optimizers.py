"""Steps of programs with several optimizers end where a round of them does, whatever the hook could know."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.core.attribution.several_optimizers import ends_of_rounds
from opscope.core.schema import OPTIMIZER_STEPS
from opscope.profile import Profile
from tests.core.attribution.test_step_bodies import program


def ends(order: str, marked: str, batches: list[int] | None = None) -> list[int] | None:
    """``order``: a letter for the optimizer of each step; ``marked``: ``|`` below each that the hook marked."""
    numbers = np.array([ord(letter) for letter in order], np.int64)
    loaded = np.zeros(len(order), np.int64) if batches is None else np.array(batches, np.int64)
    marks = np.flatnonzero(np.array(list(marked.ljust(len(order)))) == "|")
    chosen = ends_of_rounds(numbers, marks, loaded)
    return None if chosen is None else chosen.tolist()


def test_a_generator_after_each_discriminator_ends_the_step_as_marked():
    assert ends("DGDGDGDG", " | | | |") is None


def test_five_steps_of_a_critic_and_one_of_a_generator_are_one():
    assert ends("DDDDDG" * 4, " |||| " * 4) == [5, 11, 17, 23]


def test_a_generator_that_steps_twice_ends_the_step_with_its_second():
    assert ends("DGG" * 4, " ||" * 4) == [2, 5, 8, 11]


def test_what_is_trained_after_another_loses_no_step():
    assert ends("AAAABBBBB", " ||| ||||") == list(range(9))


def test_a_step_is_a_batch_where_the_batches_are_seen():
    loaded = [1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9]
    assert ends("DDDG" * 3, " || " * 3, loaded) == [0, 1, 3, 4, 5, 7, 8, 9, 11]


@pytest.mark.parametrize("order", ["DDGDGGGDDDGDGGDD", "DDDD"])
def test_no_order_leaves_the_marks(order):
    assert ends(order, "".join("| "[n % 3 == 0] for n in range(len(order)))) is None


def test_steps_of_a_recorded_critic_and_generator(trace_of):
    """A round of the hook's marks is not one of the program's."""
    rows = program("-init " + ("f1 b1 oD " + "f1 b1 oD | " * 2 + "f2 b2 oG ") * 4)
    notes = [{"severity": "info", "what": OPTIMIZER_STEPS, "how_many": 1}]
    steps = Profile(trace_of(ranges=rows, notes=notes)).iterations()
    assert (len(steps), set(steps["found_by"])) == (4, {"optimizer"})


def test_gradients_that_are_filled_with_zeros_are_no_step_of_another_optimizer(trace_of):
    """``zero_grad(set_to_none=False)`` runs ops of the optimizer's, at another line than its steps."""
    fill = {"domain": "opscope.torch", "category": "optimizer", "text": "aten::zero_(f32[4]) -> =0"}
    rows = program("-init f1 b1 oA | " + "-data -zero f1 b1 oA | " * 3)
    rows = [row | fill if row["text"].startswith("x::zero") else row for row in rows]
    notes = [{"severity": "info", "what": OPTIMIZER_STEPS, "how_many": 1}]
    assert len(Profile(trace_of(ranges=rows, notes=notes)).iterations()) == 4
