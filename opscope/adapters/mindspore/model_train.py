"""Count the steps and epochs of ``Model.train`` and ``Model.fit``, by callbacks that are added to the user's.

``Model.eval`` and ``Model.predict`` are phases, in no step.

``install`` hooks what both call, ``uninstall`` restores it. While one of them runs, nothing else counts steps
on its thread (``session.steps_held``). Callbacks that wait (``opscope.callbacks.mindspore.StepRange.attach``)
are added too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

from mindspore.train import Model
from mindspore.train.callback import Callback

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.phase import in_phase
from opscope.core.capture import session, trainings
from opscope.core.capture.emit import Emitter

NAME: Final = "mindspore"
#: What ``train`` and ``fit`` call. In ``model.train(1, data, callbacks=[StepRange(…)])`` Python looks up
#: ``train`` before the callback is made, which may be the first that observes MindSpore: too late for a hook.
_INNER: Final = "_train"
#: The phases of methods that do not train, named as in Keras.
EVALUATE, PREDICT = "evaluate", "predict"
_patches = Patches()


def install(emitter: Emitter, failed: Callable[[str], None], steps: bool = True) -> None:
    """Hook what ``Model.train`` and ``Model.fit`` call. A second call does nothing.

    ``failed`` is the adapter's. Without ``steps`` no steps are counted, and only waiting callbacks are added.
    """
    if _patches:
        return
    for name in (_INNER,) if hasattr(Model, _INNER) else ("train", "fit"):
        _patches.wrap(Model, name, lambda of: _with_callbacks(of, emitter, failed, steps))
    for name, phase in (("eval", EVALUATE), ("predict", PREDICT)):
        _patches.wrap(Model, name, functools.partial(_in_phase, emitter, phase))


def uninstall() -> None:
    """Restore the hooked function. A training that is running ends without counting further steps."""
    _patches.restore()


def _in_phase(emitter: Emitter, phase: str, original: Any) -> Any:
    around = in_phase(original, emitter, phase, lambda: emitter.active)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        with session.between_steps():
            return around(*args, **kwargs)

    return run


def _with_callbacks(
    original: Any, emitter: Emitter, failed: Callable[[str], None], steps: bool
) -> Any:
    position = list(inspect.signature(original).parameters).index("callbacks")

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        ours = None
        try:
            by_place = len(args) > position
            users = args[position] if by_place else kwargs.get("callbacks")
            added = _add(users, emitter, failed, steps)
            # passed unchanged: MindSpore's decorators recognise a checkpoint's callback by its name
            if added is not None and by_place:
                args, ours = (*args[:position], added[0], *args[position + 1 :]), added[1]
            elif added is not None:
                kwargs, ours = {**kwargs, "callbacks": added[0]}, added[1]
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            failed("callbacks could not be added to a training")
        if ours is None:
            return original(*args, **kwargs)
        try:
            # otherwise the adapter's other parts would count the optimizer, or runs of the training graph
            with session.steps_held():
                return original(*args, **kwargs)
        finally:
            ours.over()

    return train


def _add(
    users: Any, emitter: Emitter, failed: Callable[[str], None], steps: bool
) -> tuple[Any, Steps] | None:
    """Return the user's callbacks with ours around them; None if they are no callbacks: leave them alone.

    A step ends before the user's callbacks run, and begins after them: a callback that starts or stops a
    capture records whole steps. MindSpore waits for PyNative's queue before all of them. A list stays a list,
    because MindSpore looks for its own callbacks only in lists.
    """
    if users is None:
        users = []
    elif isinstance(users, Callback):
        users = [users]
    if not isinstance(users, (list, tuple)):
        return None
    counts = Steps(emitter, failed, steps)
    have = {id(user) for user in users}
    waiting = [callback for callback in trainings.waiting(NAME) if id(callback) not in have]
    both = [Ends(counts), *users, *waiting, counts]
    return (both if isinstance(users, list) else tuple(both)), counts


class Steps(Callback):  # type: ignore[misc] # mindspore is not typed here
    """Counts steps over all epochs, and opens a range for each epoch and evaluation.

    With dataset sink in graph mode MindSpore calls back once for all steps that it sinks: one range covers
    them.
    """

    def __init__(self, emitter: Emitter, failed: Callable[[str], None], counts: bool) -> None:
        super().__init__()
        self._emitter = emitter
        self._failed = failed
        self._counts = counts
        self._open: list[bool] = []
        self._number = 0
        self._done = 0
        self._many = 1
        self._begun = False
        self._noted: Any = None
        self._idle = False
        self._entered = 0

    def __enter__(self) -> Steps:
        self._entered += 1  # an evaluation between epochs enters the callbacks again
        return self

    def __exit__(self, *error: object) -> None:
        """Close what an exception left open, before one of the user's callbacks ends its capture."""
        self._entered -= 1
        if not self._entered:
            self.over()

    def on_train_begin(self, run_context: Any) -> None:
        """Continue the step numbers of an earlier training."""
        self._guard(self._begin, run_context)

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Open a range for the epoch."""
        self._guard(self._epoch, run_context)

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Close the epoch's range."""
        self._guard(self._leave)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Begin the step, or the first of several steps that MindSpore runs together."""
        self._guard(self._step, run_context)

    def on_eval_begin(self, run_context: Any) -> None:
        """Open a range for the evaluation that ``fit`` makes between epochs."""
        self._guard(self._enter, EVALUATE)

    def on_eval_end(self, run_context: Any) -> None:
        """Close the evaluation's range."""
        self._guard(self._leave)

    def ended(self) -> None:
        """End the step, or the last of several."""
        self._guard(self._end)

    def over(self) -> None:
        """Close what an exception left open: a step that did not end is not counted."""
        self._guard(self._close)

    def _begin(self, run_context: Any) -> None:
        self._number = session.current_step() + 1
        # a training that MindSpore resumes after a fault begins at the number that it reached
        self._done = int(run_context.original_args().cur_step_num)

    def _epoch(self, run_context: Any) -> None:
        self._enter(f"epoch {int(run_context.original_args().cur_epoch_num) - 1}")
        if self._counts and not session.steps_by_user:
            session.step_comes(self._number)

    def _step(self, run_context: Any) -> None:
        # the number of the last of the steps that MindSpore runs together now, counted from 1
        last = int(run_context.original_args().cur_step_num)
        self._many = max(last - self._done, 1)
        self._done = last
        if self._counts and not session.steps_by_user:
            session.begin_step(self._number)
            self._begun = True

    def _end(self) -> None:
        self._number += self._many
        if not self._begun:
            return
        self._begun = False
        session.end_step()
        recorder = session.recorder()
        if self._many > 1 and recorder is not None and recorder is not self._noted:
            self._noted = recorder
            recorder.note(
                "info",
                f"MindSpore ran {self._many} steps at a time (dataset sink): each step range covers that "
                "many steps and has the number of the first",
            )

    def _close(self) -> None:
        if self._begun:
            self._begun = False
            session.leave_step()
        session.no_step_comes()
        while self._open:
            self._leave()

    def _enter(self, text: str) -> None:
        active = self._emitter.active
        self._open.append(active)
        if active:
            self._emitter.push(self._emitter.prepare(text, "phase"))

    def _leave(self) -> None:
        if self._open and self._open.pop():
            self._emitter.pop()

    def _guard(self, act: Callable[..., None], *args: Any) -> None:
        if self._idle:
            return
        try:
            act(*args)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._idle = True
            self._failed("the steps of a training could not be counted")


class Ends(Callback):  # type: ignore[misc] # mindspore is not typed here
    """Ends each step. It is the first callback, so a step has ended when another callback stops a capture."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def on_train_step_end(self, run_context: Any) -> None:
        """End the step."""
        self._steps.ended()
