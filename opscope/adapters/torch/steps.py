"""Finds the end of each training step: the step of the optimizer, of the last one if there are several."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, Final

from torch.optim import optimizer as optimizers

from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session
from opscope.core.capture.hooked_steps import next_step

from .dynamo import untraced

_Optimizer: Final = optimizers.Optimizer


class Steps:
    """Ends a training step after the optimizer's step; with several optimizers, after the last of a round.

    A round is complete once every live optimizer has stepped, or one steps a second time. From then on the
    optimizer that was last in it ends each training step (a GAN's generator). Backward passes without an
    optimizer step (gradient accumulation) belong to the training step that the optimizer ends. Where the user
    calls ``opscope.step()``, only that call counts.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._living = Living(failed)
        self._round: list[weakref.ref[Any]] = []
        self._first: weakref.ref[Any] | None = None
        self._last: weakref.ref[Any] | None = None

    def install(self) -> None:
        """Begin to count optimizers."""
        session.emitter(session.STEP_FRAMEWORK)  # make it now, not in step 0: it takes milliseconds
        self._living.install()

    def uninstall(self) -> None:
        """Stop counting optimizers."""
        self._living.uninstall()

    @staticmethod
    def begin() -> bool:
        """Begin step 0 if none has begun; return whether later forward passes need no further call."""
        if session.steps_by_user:
            return True
        if session.are_steps_held():
            return False
        if session.current_step() < 0:
            session.begin_step()
        return True

    def stepped(self, optimizer: Any) -> None:
        """Count a step of ``optimizer``, which may end the training step."""
        if session.steps_by_user:
            return
        first, last = self._first, self._last
        # the usual case: a single optimizer, which is the first and the last of each round
        usual = last is not None and last() is optimizer and not self._round
        if (usual and first is not None and first() is not None) or self._ends(optimizer):
            next_step()

    def _ends(self, optimizer: Any) -> bool:
        """Whether this step of ``optimizer`` is the last of its round."""
        first = None if self._first is None else self._first()
        last = None if self._last is None else self._last()
        if first is None:
            first = optimizer
            self._first = weakref.ref(optimizer)
        again = any(reference() is optimizer for reference in self._round)
        if self._round and (again or (optimizer is first and optimizer is last)):
            # A new round begins: from now on the last optimizer of the previous round ends each step.
            self._last = last_ref = self._round[-1]
            self._round = []
            last = last_ref()
        if last is optimizer:
            self._round = []
            return True
        self._round.append(weakref.ref(optimizer))
        if last is None and len(self._round) >= self._living.count(self._round):
            self._last = self._round.pop()
            self._round = []
            return True
        return False


class Living:
    """The program's live optimizers, registered by their constructor.

    A search among all objects at the first optimizer step took tens of milliseconds, in the middle of step 0.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        #: By id: an optimizer class of the user may define equality, and then has no hash.
        self._made: dict[int, weakref.ref[Any]] = {}
        #: Ids of optimizers that stepped in an earlier round or existed before opscope.
        self._old: set[int] = set()
        self._patches = Patches()

    def install(self) -> None:
        """Patch the constructor of optimizers, and find those that exist already."""
        if self._patches:
            return
        original = _Optimizer.__init__
        add, failed = self._add, self._failed

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            try:
                add(self)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("an optimizer could not be counted")

        self._patches.set(_Optimizer, "__init__", untraced(__init__, below=False))
        if _any_was_made():
            # By type, because isinstance reads the __class__ of proxies and so may run any code.
            for thing in gc.get_objects():
                if issubclass(type(thing), _Optimizer):
                    self._add(thing)
                    self._old.add(id(thing))

    def uninstall(self) -> None:
        """Restore the constructor, unless another tool has patched on top of ours."""
        self._patches.restore()
        self._made.clear()
        self._old.clear()

    def count(self, stepped: list[weakref.ref[Any]]) -> int:
        """Return the number of live optimizers with parameters, including those that ``stepped`` in this
        round."""
        these = [optimizer for reference in stepped if (optimizer := reference()) is not None]
        for optimizer in these:
            self._add(optimizer)
        now = {id(optimizer) for optimizer in these}
        count = self._count()
        if count > len(these) and any(
            self._there(number) is not None for number in self._old - now
        ):
            gc.collect()  # optimizers of an earlier model may be garbage that is not yet collected
            count = self._count()
        self._old |= now
        return count

    def _add(self, optimizer: Any) -> None:
        # a copied or unpickled optimizer comes here at its first step
        number = id(optimizer)
        if self._there(number) is not optimizer:
            self._made[number] = weakref.ref(optimizer)
            self._old.discard(number)

    def _there(self, number: int) -> Any:
        reference = self._made.get(number)
        return None if reference is None else reference()

    def _count(self) -> int:
        for number in [number for number, reference in self._made.items() if reference() is None]:
            del self._made[number]
            self._old.discard(number)
        living = (reference() for reference in self._made.values())
        return sum(1 for optimizer in living if getattr(optimizer, "param_groups", None))


def _any_was_made() -> bool:
    """Whether this process has made an optimizer: PyTorch then marks the ``step`` of its class."""
    kinds = [_Optimizer]
    while kinds:
        kind = kinds.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        kinds.extend(type.__subclasses__(kind))
    return False
