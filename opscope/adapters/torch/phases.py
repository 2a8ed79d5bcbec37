"""Steps and phases of training, recorded from the optimizer, the backward pass and the data loader."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

from opscope.adapters.shared.loaders import Description, Waits
from opscope.adapters.shared.open_ranges import close, in_layer
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.saves import Saves
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.schema import COMPILE

from .dispatch import OpMode
from .dynamo import shielded, untraced
from .state import STAMP, Threads, ThreadState
from .steps import Steps
from .threads import enter, leave

FORWARD, BACKWARD, OPTIMIZER, INPUT = "forward", "backward", "optimizer", "input"
#: The autograd node that this thread evaluates. For an accelerator autograd uses a thread of its own, which
#: has no open ranges: what a checkpoint recomputes or differentiates there begins no phase.
_node: Final = torch._C._current_autograd_node
#: The most nodes that one call stamps with their forward thread, so that a huge graph does not stall.
MAX_STAMPS: Final = 100_000


class Phases:
    """Opens and closes ranges of category ``phase`` on each thread."""

    def __init__(self, emitter: Emitter, threads: Threads) -> None:
        self._emitter = emitter
        self._threads = threads
        self._prepared: dict[str, Prepared] = {}

    def begin(self, state: ThreadState, name: str) -> None:
        """Open phase ``name`` on this thread; close the forward phase first, where that is innermost."""
        prepared = self._prepared.get(name) or self._prepare(name)
        ranges = state.open
        if ranges and ranges[-1] == FORWARD:
            ranges.pop()
            self._emitter.pop()
        ranges.append(name)
        self._emitter.push(prepared)

    def _prepare(self, name: str) -> Prepared:
        prepared = self._prepared[name] = self._emitter.prepare(name, "phase")
        return prepared

    def end(self, state: ThreadState, name: str) -> None:
        """Close phase ``name``, if it was opened in this capture."""
        ranges = state.open
        if ranges and ranges[-1] == name:
            ranges.pop()
            self._emitter.pop()
        elif name in ranges:
            close(self._emitter, state, name)

    def entering(self, state: ThreadState, training: bool) -> None:
        """Begin the training step and the forward phase, at the call of an outermost model.

        The forward phase lasts, loss included, until the backward pass, the optimizer or the
        next batch; where the model is not trained, until it returns. It begins in an optimizer's phase too:
        then the optimizer's closure calls the model.
        """
        if len(state.open) > state.optimizing or _node() is not None:
            return
        if training and torch.is_grad_enabled() and Steps.begin():
            prepared = self._prepared.get(FORWARD) or self._prepare(FORWARD)
            state.begun(FORWARD, prepared)
        self.begin(state, FORWARD)

    def leaving(self, state: ThreadState, training: bool, result: Any) -> None:
        """End the forward phase when a model that is not trained returns; else stamp the autograd nodes of
        its result."""
        if not training or not torch.is_grad_enabled():
            if state.open and state.open[-1] == FORWARD:
                self.end(state, FORWARD)
        elif len(self._threads.makers) > 1:
            stamp(_grad_fns(result), state.number)


class OptimizerHooks:
    """The optimizer's hooks, installed also while nothing listens: captures begin by step number."""

    def __init__(
        self, mode: OpMode, threads: Threads, phases: Phases, failed: Callable[[str], None],
        steps: bool,
    ) -> None:  # fmt: skip
        self._mode = mode
        self._threads = threads
        self._phases = phases
        self._failed = failed
        self._steps = Steps(failed) if steps else None
        #: Optimizer steps that have begun and not ended, on all threads. May count steps that raised.
        self._inside = 0
        self._handles: list[Any] = []
        self._undo: Callable[[], None] | None = None
        #: The number of running calls of ``GradScaler.step``, and per thread whether an optimizer has
        #: stepped within one.
        self._scaling = 0
        self._scaled = threading.local()
        self._patches = Patches()

    def install(self) -> None:
        if self._steps is not None:
            self._steps.install()
            if not self._patches:
                self._patches.wrap(GradScaler, "step", self._scaled_step)
        before, after = self._hooks()
        self._handles = [
            optimizers.register_optimizer_step_pre_hook(before),
            optimizers.register_optimizer_step_post_hook(after),
        ]
        # the framework that reports an optimizer outside PyTorch (Keras) reports its training steps too
        self._undo = session.on_optimizer(*self._others())

    def uninstall(self) -> None:
        self._patches.restore()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._steps is not None:
            self._steps.uninstall()
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _others(self) -> tuple[Callable[[], None], Callable[[], None]]:
        mode, hooks = self._mode, self

        def begins() -> None:
            if mode.on or mode.ever_entered:
                hooks._before()

        def ends() -> None:
            if mode.on or hooks._inside:
                hooks._after(None)

        return begins, ends

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        # the two conditions of ``torch.compiler.is_compiling``, in fewer calls
        tracing, compiler = torch.compiler.is_dynamo_compiling, torch.compiler
        begins, ends, mode, hooks = self._before, self._after, self._mode, self
        stepped = None if self._steps is None else self._steps.stepped
        light = session.light()
        optimizes = None if light is None else light.optimizes
        optimized = None if light is None else light.optimized

        # While nothing listens, the thread's state is not read: that costs as much as all the rest.
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if tracing() or compiler._is_compiling_flag:
                return
            if optimizes is not None:
                optimizes()
            if mode.on or mode.ever_entered:
                begins()

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if tracing() or compiler._is_compiling_flag:
                return
            if optimized is not None:
                optimized()
            if hooks._scaling:
                hooks._scaled.stepped = True
            if mode.on or hooks._inside:
                ends(optimizer)
            elif stepped is not None:
                try:
                    stepped(optimizer)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    hooks._failed("a step could not be counted")

        return untraced(before), untraced(after)

    def _scaled_step(self, step: Any) -> Any:
        """Wrap ``GradScaler.step``, which skips the optimizer's step where gradients overflow: the training
        step ends there all the same."""

        @functools.wraps(step)
        def scaled(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._scaling += 1
            self._scaled.stepped = False
            try:
                done = step(scaler, optimizer, *args, **kwargs)
            finally:
                self._scaling -= 1
            if not self._scaled.stepped:
                self._left_out(optimizer)
            return done

        return untraced(scaled, below=False)

    def _left_out(self, optimizer: Any) -> None:
        try:
            # a class that does not derive from PyTorch's Optimizer, or a wrapper of one, has no hooks
            if self._steps is not None and isinstance(optimizer, optimizers.Optimizer):
                light = session.light()
                if light is not None:
                    light.optimized()  # from here on it is opscope's own work
                self._steps.stepped(optimizer)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a step could not be counted")

    def _before(self) -> None:
        try:
            state = self._threads.current()
            if not self._mode.on:
                if state.entered:
                    leave(self._mode)  # the end of a capture could not reach this thread
            else:
                if self._mode.native is None:
                    enter(self._mode)
                if state.optimizing and not in_layer(state):
                    self._phases.end(state, OPTIMIZER)  # the previous optimizer step raised
                    self._inside -= state.optimizing
                    state.optimizing = 0
                self._phases.begin(state, OPTIMIZER)
                state.optimizing += 1
                self._inside += 1
                state.switched()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the start of an optimizer step could not be recorded")

    def _after(self, optimizer: Any) -> None:
        try:
            state = self._threads.current()
            if state.optimizing:
                state.optimizing -= 1
                self._inside -= 1
                state.switched()
                self._phases.end(state, OPTIMIZER)
            if self._steps is not None and optimizer is not None and not state.optimizing:
                self._steps.stepped(optimizer)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the end of an optimizer step could not be recorded")


#: Functions that save a checkpoint.
_SAVES: Final = (
    "torch:save",
    "torch.serialization:save",
    "torch.distributed.checkpoint.state_dict_saver:_save_state_dict",
    "safetensors.torch:serialize_file",
)


class BackwardAndInput:
    """Patches what PyTorch has no hook for: the entry of the backward pass, a data loader's next batch, and
    what saves a checkpoint: ``torch.save``, distributed checkpoints, safetensors."""

    def __init__(
        self,
        mode: OpMode,
        threads: Threads,
        phases: Phases,
        sources: Sources | None,
        failed: Callable[[str], None],
    ) -> None:
        self._mode = mode
        self._threads = threads
        self._phases = phases
        self._failed = failed
        self._waits = Waits(sources, failed)
        self._patches = Patches()
        self._saves = Saves(failed)

    def install(self) -> None:
        if self._patches:
            return
        name = "_engine_run_backward"
        run = torch.autograd.graph._engine_run_backward
        around = self._backward(run)
        self._patches.set(torch.autograd.graph, name, around)
        if getattr(torch.autograd, name, None) is run:
            self._patches.set(torch.autograd, name, around)
        iterator = dataloader._BaseDataLoaderIter
        self._patches.set(iterator, "__next__", self._fetch(iterator.__next__))
        self._saves.install(*_SAVES)

    def uninstall(self) -> None:
        self._patches.restore()
        self._saves.uninstall()

    def _backward(self, run: Any) -> Any:
        mode = self._mode
        begin, end = shielded(self._begin_backward), shielded(self._end_backward)

        @functools.wraps(run)
        def backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not mode.on:
                return run(outputs, *args, **kwargs)
            creating = len(args) > 2 and bool(args[2])
            state = begin(outputs, creating)
            try:
                return run(outputs, *args, **kwargs)
            finally:
                if state is not None:
                    end(state, creating)

        return untraced(backward, below=False)

    def _begin_backward(self, outputs: Any, creating: bool) -> ThreadState | None:
        """Begin the backward phase; return the thread's state, or None if a fault of ours prevented it."""
        try:
            if self._mode.native is None:
                enter(self._mode)
            state = self._threads.current()
            # a compilation runs backward passes while it traces: they are not a phase
            if not state.backward and COMPILE not in state.open and _node() is None:
                self._phases.begin(state, BACKWARD)
            state.backward += 1
            if len(self._threads.makers) > 1:
                roots = [output.grad_fn for output in outputs if hasattr(output, "grad_fn")]
                stamp(roots, None, self._threads)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the start of a backward pass could not be recorded")
            return None
        if creating:
            self._mode.create(1)
        return state

    def _end_backward(self, state: ThreadState, creating: bool) -> None:
        if creating:
            self._mode.create(-1)
        try:
            if state.backward:
                state.backward -= 1
                if not state.backward:
                    self._phases.end(state, BACKWARD)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the end of a backward pass could not be recorded")

    def _fetch(self, following: Any) -> Any:
        mode = self._mode
        begin, end = shielded(self._begin_fetch), shielded(self._end_fetch)

        @functools.wraps(following)
        def __next__(loader: Any) -> Any:
            if not mode.on:
                return following(loader)
            waits = begin(loader, sys._getframe(1))
            try:
                return following(loader)
            finally:
                end(waits)

        return untraced(__next__, below=False)

    def _begin_fetch(self, loader: Any, frame: FrameType) -> bool:
        """Begin the input phase and the range of the wait; return whether the latter was opened."""
        try:
            state = self._threads.current()
            self._phases.begin(state, INPUT)
            state.wait += 1
            state.switched()
            return self._waits.begin(loader, _describe, frame, _ready(loader))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the start of a data loader's fetch could not be recorded")
            return False

    def _end_fetch(self, waits: bool) -> None:
        try:
            if waits:
                self._waits.end()
            state = self._threads.current()
            if state.wait:
                state.wait -= 1
                state.switched()
                self._phases.end(state, INPUT)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the end of a data loader's fetch could not be recorded")


def _describe(iterator: Any) -> Description:
    """Return the known facts about the iterator of a ``DataLoader``."""
    sampler = getattr(iterator, "_index_sampler", None)
    return "DataLoader", {
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
        "workers": getattr(iterator, "_num_workers", None),
        "prefetch": getattr(iterator, "_prefetch_factor", None),
        "batch": getattr(sampler, "batch_size", None),
    }


def _ready(iterator: Any) -> int:
    """Return how many batches its workers have ready; -1 if it has no workers, or the system does not say."""
    queue = getattr(iterator, "_data_queue", None)
    if queue is None:
        return -1
    try:
        # batches that came out of order
        kept = len(iterator._task_info) - iterator._tasks_outstanding
        return int(queue.qsize() + kept)
    except (AttributeError, NotImplementedError):  # private names; macOS does not give the size
        return -1


def _grad_fns(result: Any, depth: int = 0) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result.grad_fn]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)) and depth < 4:
        return [node for output in result for node in _grad_fns(output, depth + 1)]
    return []


def stamp(roots: list[Any], number: int | None, threads: Threads | None = None) -> None:
    """Write the forward thread into the metadata of each node, from ``roots`` on, that lacks it.

    ``number`` is the thread that has just made the nodes; without it, the thread is derived from each node's
    sequence number and name. Needed only where more than one thread has made nodes, because each counts its
    nodes from 0.
    """
    left = MAX_STAMPS
    pending = [node for node in roots if node is not None]
    while pending and left:
        left -= 1
        node = pending.pop()
        metadata = node.metadata
        if STAMP in metadata:
            continue
        maker = number
        if threads is not None:
            maker_state = threads.maker(node._sequence_nr(), node)
            maker = 0 if maker_state is None else maker_state.number
        metadata[STAMP] = maker
        pending.extend(child for child, _ in node.next_functions if child is not None)
