"""The adapter of Hugging Face's datasets: supported versions, what it hooks, what that emits, and removal.

While something listens, it hooks the iteration over a ``Dataset`` and an ``IterableDataset``, by examples and
by batches. Each wait of the program for the next one has a range (``adapters/shared/loaders.py``). Waits for
a dataset inside a ``DataLoader`` (which ``Trainer`` and Accelerate use) are part of the loader's waits.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, ClassVar

from opscope.adapters.shared.loaders import LoaderAdapter, Waits


class DatasetsAdapter(LoaderAdapter):
    """Hugging Face's datasets."""

    name: ClassVar[str] = "datasets"
    title: ClassVar[str] = "Hugging Face's datasets"
    module: ClassVar[str] = "datasets"
    #: 5.2 is the version that is tested.
    requires: ClassVar[str] = ">=2.14"

    def _hook(self, waits: Waits) -> None:
        datasets = import_module("datasets")
        for kind in (datasets.Dataset, datasets.IterableDataset):
            for name in ("__iter__", "iter"):
                self._patches.wrap(kind, name, self._iterate)

    def _iterate(self, original: Any) -> Any:
        @functools.wraps(original)
        def iterated(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            examples = original(dataset, *args, **kwargs)
            waits = self._waits
            if waits is None or not self._listens():
                return examples
            return waits.each(examples, ("datasets", {"dataset": type(dataset).__name__}))

        return iterated
