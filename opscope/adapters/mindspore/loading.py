"""Push a range around each wait for the next element of a MindSpore dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mindspore.dataset.engine import iterators

from opscope.adapters.shared.loaders import Description, Waits
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter

#: How far up a dataset's pipeline its source is looked for.
_DEPTH: Final = 64


class Loading:
    """The hook of the iterators of datasets, which ``Model.train`` uses too unless it sinks data."""

    def __init__(
        self, emitter: Emitter, sources: Sources | None, failed: Callable[[str], None]
    ) -> None:
        self._waits = Waits(sources, failed, emitter)

    def install(self, patches: Patches) -> None:
        """Hook them."""
        patches.wrap(iterators.Iterator, "__next__", lambda of: self._waits.around(of, _describe))


def _describe(iterator: Any) -> Description:
    dataset = getattr(iterator, "dataset", None)
    workers, batch, source = getattr(dataset, "num_parallel_workers", None), None, dataset
    for _ in range(_DEPTH):
        size = getattr(source, "batch_size", None)
        batch = size if batch is None and type(size) is int else batch
        children = getattr(source, "children", None)
        if not children:
            break
        source = children[0]
    return "mindspore.dataset", {
        "dataset": None if source is None else type(source).__name__,
        "workers": workers,
        "batch": batch,
    }
