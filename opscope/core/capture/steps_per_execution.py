"""Count steps when a framework runs several per execution and calls back only between executions."""

from __future__ import annotations


class Executions:
    """Counts steps by the batch numbers that Keras passes when an execution begins and ends.

    At the end of an execution Keras passes the number of its last batch; before Keras 3.11, of its first
    batch. In the latter case ``per_execution`` steps count, or fewer at the end of an epoch of known length.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._passes_last = False

    def begins(self, batch: int) -> None:
        """Note that an execution begins with ``batch``, counted from 0 in each epoch."""
        self._begun = batch

    def expected(self, per_execution: int | None, of_epoch: int | None) -> int:
        """Return how many steps the execution that begins will have, at most if the epoch has no length.

        Arguments as those of ``ends``.
        """
        most = max(per_execution or 1, 1)
        return most if of_epoch is None else max(min(most, of_epoch - self._begun), 1)

    def ends(self, batch: int, per_execution: int | None, of_epoch: int | None) -> int:
        """Return the number of steps of the execution that ends with ``batch``.

        ``per_execution``: most steps per execution; ``of_epoch``: steps per epoch; both None if not known.
        """
        count = batch - self._begun + 1
        self._passes_last |= count > 1
        if self._passes_last or not per_execution:
            return count
        left = per_execution if of_epoch is None else of_epoch - self._begun
        return max(count, min(per_execution, left))
