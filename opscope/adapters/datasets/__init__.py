"""The adapter of Hugging Face's datasets: supported versions, what it hooks, what that emits, and removal.

While something listens, it hooks the iteration over a ``Dataset`` and an ``IterableDataset``, by examples
and by batches. Each wait of the program for the next one has a range (``adapters/shared/loaders.py``). A
dataset inside a ``DataLoader`` is a part of the waits for that; ``Trainer`` and Accelerate use one.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, ClassVar

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.loaders import Waits
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter


class DatasetsAdapter(Adapter):
    """Hugging Face's datasets."""

    name: ClassVar[str] = "datasets"
    title: ClassVar[str] = "Hugging Face's datasets"
    module: ClassVar[str] = "datasets"
    #: 5.2 is the version that is tested.
    requires: ClassVar[str] = ">=2.14"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._waits: Waits | None = None
        self._patches = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the iterations if something already listens."""
        if self._emitter is not None or not options.steps:
            return
        self.broken = False
        self._emitter = emitter
        self._waits = Waits(Sources() if options.source else None, self.failed, emitter)
        self.listen()

    def listen(self) -> None:
        """Hook the iterations while the emitter is active, else unhook them."""
        if self._emitter is None or self._waits is None or self.broken:
            return
        try:
            if not (self._emitter.active or session.light() is not None):
                self._patches.restore()
            elif not self._patches:
                datasets = import_module("datasets")
                for kind in (datasets.Dataset, datasets.IterableDataset):
                    for name in ("__iter__", "iter"):
                        self._patches.wrap(kind, name, self._iterated)
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _iterated(self, original: Any) -> Any:
        @functools.wraps(original)
        def iterated(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            examples = original(dataset, *args, **kwargs)
            waits, emitter = self._waits, self._emitter
            listens = (emitter is not None and emitter.active) or session.light() is not None
            if waits is None or not listens:
                return examples
            return waits.each(examples, ("datasets", {"dataset": type(dataset).__name__}))

        return iterated

    def uninstall(self) -> None:
        """Remove every hook. An iteration that has begun records nothing more."""
        self._patches.restore()
        self._emitter = self._waits = None
