"""How many steps an execution held, where a framework calls back only between executions of several."""

from __future__ import annotations


class Executions:
    """Counts by the numbers of batches that Keras tells as an execution begins and ends.

    Keras tells an execution's last batch as it ends; before Keras 3.11 its first one again. Then
    ``per_execution`` steps are counted, and fewer at the end of an epoch whose length is known.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._tells_last = False

    def begins(self, batch: int) -> None:
        """An execution begins with this batch, counted from 0 in each epoch."""
        self._begun = batch

    def ends(self, batch: int, per_execution: int | None, of_epoch: int | None) -> int:
        """It ends: how many steps it held, of ``per_execution`` at most and ``of_epoch`` in all."""
        many = batch - self._begun + 1
        self._tells_last |= many > 1
        if self._tells_last or not per_execution:
            return many
        left = per_execution if of_epoch is None else of_epoch - self._begun
        return max(many, min(per_execution, left))
