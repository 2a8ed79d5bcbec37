"""What is done about gradients outside the backward pass: it is backward's or the optimizer's, not forward.

``backward()`` makes the gradients that it begins with in Python, before autograd's engine runs. Between that
and the optimizer gradients are scaled back and clipped.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer

from opscope.adapters.shared.patch import Patches

from .dispatch import OpMode
from .dynamo import shielded, untraced
from .state import Threads, ThreadState
from .threads import enter

BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
#: FSDP's own clipping, where that is loaded.
_FSDP: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"
#: What clips gradients, or finds their norm.
_CLIPPING: Final = (
    "clip_grad_norm_", "clip_grad_value_", "_get_total_norm", "_clip_grads_with_norm_",
)  # fmt: skip


class Gradients:
    """Tells the category of what these functions run. ``install`` while something listens."""

    def __init__(self, mode: OpMode, threads: Threads, failed: Callable[[str], None]) -> None:
        self._mode = mode
        self._threads = threads
        self._failed = failed
        self._patches = Patches()

    def install(self) -> None:
        """Wrap them."""
        if self._patches:
            return
        for owner, name, category in _functions():
            self._patches.wrap(owner, name, functools.partial(self._working, category))

    def uninstall(self) -> None:
        """Put them back."""
        self._patches.restore()

    def _working(self, category: str, original: Any) -> Any:
        mode, tracing, compiler = self._mode, torch.compiler.is_dynamo_compiling, torch.compiler
        begin, end = shielded(self._begin), shielded(self._end)

        @functools.wraps(original)
        def working(*args: Any, **kwargs: Any) -> Any:
            if tracing() or compiler._is_compiling_flag or not mode.on:
                return original(*args, **kwargs)
            state = begin(category)
            try:
                return original(*args, **kwargs)
            finally:
                if state is not None:
                    end(state)

        return untraced(working, below=False)

    def _begin(self, category: str) -> ThreadState | None:
        """The state of its thread; None within another such function, and where it could not be begun."""
        try:
            if self._mode.native is None:
                enter(self._mode)
            state = self._threads.current()
            if state.works is not None:
                return None
            state.works = category
            state.switched()
            return state
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("work on gradients could not be begun")
            return None

    def _end(self, state: ThreadState) -> None:
        try:
            state.works = None
            state.switched()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("work on gradients could not be ended")


def _functions() -> Iterator[tuple[Any, str, str]]:
    """(owner, name, category) of each function: a private one is passed over where it is not there."""
    if hasattr(torch.autograd, "_make_grads"):
        yield torch.autograd, "_make_grads", BACKWARD
    for name in _CLIPPING:
        function = getattr(clip_grad, name, None)
        if function is not None:
            cell = _within(function)
            yield (clip_grad, name, OPTIMIZER) if cell is None else (cell, _CONTENTS, OPTIMIZER)
    yield GradScaler, "unscale_", OPTIMIZER
    yield GradScaler, "update", OPTIMIZER
    yield Optimizer, "zero_grad", OPTIMIZER
    module = sys.modules.get(_FSDP)
    if module is not None:
        yield module.FullyShardedDataParallel, "clip_grad_norm_", OPTIMIZER


_CONTENTS: Final = "function"


class _Within:
    """What PyTorch's wrapper of a function (``no_grad``) calls, as an attribute.

    Programs hold the wrapper by names of their own (``from torch.nn.utils import clip_grad_norm_``), so
    what is inside it is exchanged.
    """

    _cell: Any

    def __init__(self, cell: Any) -> None:
        super().__setattr__("_cell", cell)
        super().__setattr__(_CONTENTS, cell.cell_contents)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._cell.cell_contents = value


def _within(function: Any) -> _Within | None:
    """The one function that ``function`` wraps by its closure; None where it is otherwise made."""
    cells = getattr(function, "__closure__", None) or ()
    inner = [cell for cell in cells if isinstance(cell.cell_contents, FunctionType)]
    same = len(inner) == 1 and inner[0].cell_contents is getattr(function, "__wrapped__", None)
    return _Within(inner[0]) if same else None
