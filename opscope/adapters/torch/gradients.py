"""Labels work on gradients outside the backward pass as ``backward`` or ``optimizer``, not ``forward``.

``backward()`` makes the initial gradients in Python, before autograd's engine runs. Between the backward pass
and the optimizer, gradients are unscaled and clipped.
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
#: The module of FSDP's own clipping, patched if it is loaded.
_FSDP: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"
#: The functions that clip gradients or compute their norm.
_CLIPPING: Final = (
    "clip_grad_norm_", "clip_grad_value_", "_get_total_norm", "_clip_grads_with_norm_",
)  # fmt: skip


class Gradients:
    """Sets the category of all ops that the functions of ``_functions`` run, while something listens."""

    def __init__(self, mode: OpMode, threads: Threads, failed: Callable[[str], None]) -> None:
        self._mode = mode
        self._threads = threads
        self._failed = failed
        self._patches = Patches()

    def install(self) -> None:
        """Wrap the functions."""
        if self._patches:
            return
        for owner, name, category in _functions():
            self._patches.wrap(owner, name, functools.partial(self._working, category))

    def uninstall(self) -> None:
        """Restore the functions."""
        self._patches.restore()

    def _working(self, category: str, original: Any) -> Any:
        """Return ``original`` wrapped so that its ops have ``category``."""
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
        """Set the category on this thread; return the thread's state.

        None inside another of the functions, or if a fault of ours prevented it.
        """
        try:
            if self._mode.native is None:
                enter(self._mode)
            state = self._threads.current()
            if state.forced_category is not None:
                return None
            state.forced_category = category
            state.switched()
            return state
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the start of work on gradients could not be recorded")
            return None

    def _end(self, state: ThreadState) -> None:
        try:
            state.forced_category = None
            state.switched()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the end of work on gradients could not be recorded")


def _functions() -> Iterator[tuple[Any, str, str]]:
    """Yield (owner, name, category) of each function. Skip a private one where this PyTorch lacks it."""
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
    # another thread may just be importing it: then the program can use it in the next capture at the earliest
    sharded = getattr(sys.modules.get(_FSDP), "FullyShardedDataParallel", None)
    if hasattr(sharded, "clip_grad_norm_"):
        yield sharded, "clip_grad_norm_", OPTIMIZER


_CONTENTS: Final = "function"


class _Within:
    """The function inside PyTorch's wrapper of it (``no_grad``), as an attribute that can be patched.

    Programs import the wrapper under names of their own (``from torch.nn.utils import clip_grad_norm_``), so
    the function inside the wrapper is replaced.
    """

    _cell: Any

    def __init__(self, cell: Any) -> None:
        super().__setattr__("_cell", cell)
        super().__setattr__(_CONTENTS, cell.cell_contents)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._cell.cell_contents = value


def _within(function: Any) -> _Within | None:
    """The function in the closure of wrapper ``function``; None where it is not exactly one function."""
    cells = getattr(function, "__closure__", None) or ()
    inner = [cell for cell in cells if isinstance(cell.cell_contents, FunctionType)]
    same = len(inner) == 1 and inner[0].cell_contents is getattr(function, "__wrapped__", None)
    return _Within(inner[0]) if same else None
