"""The Grain adapter: supported versions, what it hooks, what that emits, and removal.

While something listens, it hooks the iterator of ``DataLoader`` and the creation of the iterator at the end
of a dataset's pipeline. It then hooks that iterator's class, which iterators inside a pipeline share. Each
wait of the program for an element has a range (``adapters/shared/loaders.py``).
"""

from __future__ import annotations

import functools
import logging
import weakref
from importlib import import_module
from typing import Any, ClassVar

from opscope.adapters.shared.loaders import Description, LoaderAdapter, Waits

_log = logging.getLogger(__name__)


class GrainAdapter(LoaderAdapter):
    """Grain, the data loader of JAX programs."""

    name: ClassVar[str] = "grain"
    title: ClassVar[str] = "Grain"
    module: ClassVar[str] = "grain"
    #: 0.2.18 is the version that is tested.
    requires: ClassVar[str] = ">=0.2.10"

    def __init__(self) -> None:
        super().__init__()
        #: The iterators at the ends of pipelines, from which the program itself takes elements.
        self._ends: weakref.WeakSet[Any] = weakref.WeakSet()

    def _hook(self, waits: Waits) -> None:
        loader = import_module("grain._src.python.data_loader")
        dataset = import_module("grain._src.python.dataset.dataset")
        kinds = [
            getattr(loader, name, None) for name in ("DataLoaderIterator", "PyGrainDatasetIterator")
        ]
        for kind in filter(None, kinds):
            self._patches.wrap(kind, "__next__", lambda of: waits.around(of, _loader))
        end = getattr(dataset, "_OutputIterDataset", None)
        if end is None:  # a private name, which older versions lack
            _log.info(
                "opscope: this version of Grain does not show the ends of datasets' pipelines"
            )
        else:
            self._patches.wrap(end, "__iter__", self._made)
        # for iterators that were made while an earlier listener was attached
        for iterator in list(self._ends):
            self._watch(iterator)

    def _made(self, original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            iterator = original(dataset, *args, **kwargs)
            try:
                self._watch(iterator)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self.failed("the iterator of a dataset could not be hooked")
            return iterator

        return __iter__

    def _watch(self, iterator: Any) -> None:
        self._ends.add(iterator)
        kind = type(iterator)
        if not self._patches.has(kind, "__next__"):
            self._patches.wrap(kind, "__next__", self._following)

    def _following(self, original: Any) -> Any:
        waits = self._waits
        assert waits is not None
        asked = waits.around(original, _dataset)

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            return asked(iterator) if iterator in self._ends else original(iterator)

        return __next__


def _loader(iterator: Any) -> Description:
    """Return the description of the iterator of a ``DataLoader``."""
    loader = getattr(iterator, "_data_loader", None)
    source = getattr(loader, "_data_source", None)
    return "grain.DataLoader", {
        "dataset": None if source is None else type(source).__name__,
        "workers": getattr(getattr(loader, "_multiprocessing_options", None), "num_workers", None),
    }


def _dataset(iterator: Any) -> Description:
    """Return the description of the iterator at the end of a dataset's pipeline."""
    return "grain", {"dataset": type(iterator).__name__.strip("_")}
