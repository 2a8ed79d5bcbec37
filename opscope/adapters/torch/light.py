"""Light mode's hooks: the next batch, the backward pass, the optimizer, and calls that wait for other ranks.

No op and no module's call is hooked, and the native observer is not installed. The hooks stay installed while
steps are recorded in full, in addition to the hooks of the full recording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.data import dataloader

from opscope.adapters.shared.patch import Patches
from opscope.core.capture.light import BACKWARD, COLLECTIVE, INPUT, Clock

from .dynamo import untraced

#: Functions of ``torch.distributed`` that wait for other ranks, or begin to.
_COLLECTIVES: Final = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list",
    "gather", "gather_object", "monitored_barrier", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
)  # fmt: skip


class LightHooks:
    """Reports the phases of a step to light mode's clock."""

    def __init__(self, clock: Clock, failed: Callable[[str], None]) -> None:
        self._clock = clock
        self._failed = failed
        self._patches = Patches()

    def install(self) -> None:
        """Set the hooks."""
        if self._patches:
            return
        clock = self._clock
        name = "_engine_run_backward"
        run = torch.autograd.graph._engine_run_backward
        around = untraced(clock.around(run, BACKWARD), below=False)
        self._patches.set(torch.autograd.graph, name, around)
        if getattr(torch.autograd, name, None) is run:
            self._patches.set(torch.autograd, name, around)
        iterator = dataloader._BaseDataLoaderIter
        fetch = untraced(clock.around(iterator.__next__, INPUT), below=False)
        self._patches.set(iterator, "__next__", fetch)
        # PyTorch's own optimizers are hooked where their steps are counted (``OptimizerHooks``)
        if torch.distributed.is_available():
            self._collectives(clock)

    def _collectives(self, clock: Clock) -> None:
        from torch.distributed import distributed_c10d

        for owner in (distributed_c10d, torch.distributed):
            for name in _COLLECTIVES:
                if hasattr(owner, name):
                    self._patches.wrap(owner, name, _phased(clock))
        self._patches.wrap(torch._C._distributed_c10d.Work, "wait", _phased(clock))

    def uninstall(self) -> None:
        """Restore everything."""
        self._patches.restore()


def _phased(clock: Clock) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return untraced(clock.around(original, COLLECTIVE), below=False)

    return make
