"""The facts about each session: its number in the process, its model's name, inputs, outputs, device."""

from __future__ import annotations

import itertools
import weakref
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from opscope.core.schema import TensorSpec

from .values import declared_specs

if TYPE_CHECKING:
    from .profiled import Profile

#: The first word of a provider's name → the device that it runs on, as frameworks name devices.
_DEVICES: Final = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "Tensorrt": "tensorrt",
    "NvTensorRTRTX": "tensorrt",
    "ROCM": "rocm",
    "MIGraphX": "migraphx",
}


class KnownSession:
    """A session as its runs are described: ``number`` counts the sessions of the process from 1."""

    __slots__ = (
        "device", "heard", "inputs", "name", "number", "outputs", "params", "profile", "without",
    )  # fmt: skip

    def __init__(self, number: int, session: Any, without: str) -> None:
        self.number = number
        self.name = model_name(session)
        self.device = device_of(session)
        self.inputs: dict[str, TensorSpec | None] = declared_specs(session._inputs_meta or ())
        self.outputs: dict[str, TensorSpec | None] = declared_specs(session._outputs_meta or ())
        self.params = (("model", self.name), ("session", number))
        #: The running profile, if there is one; and otherwise the reason why a recording gets no node times.
        self.profile: Profile | None = None
        self.without = without
        #: The recording in which it has run last.
        self.heard: Any = None


class KnownSessions:
    """The sessions of this process that still exist. It does not keep them alive."""

    def __init__(self, without: str) -> None:
        self._numbers = itertools.count(1)
        #: Why a session that is first seen when it runs has no node times.
        self.without = without
        self._known: weakref.WeakKeyDictionary[Any, KnownSession] = weakref.WeakKeyDictionary()

    def of(self, session: Any) -> KnownSession:
        """Return the facts about a session; they are read from a new session now."""
        entry = self._known.get(session)
        if entry is None:
            entry = self._known[session] = KnownSession(next(self._numbers), session, self.without)
        return entry

    def profile(self, session: Any) -> Profile | None:
        """Return the profile of a session, if one runs."""
        entry = self._known.get(session)
        return None if entry is None else entry.profile

    def anew(self, session: Any) -> KnownSession:
        """Return the facts about a session that has just been made, or made again on other providers."""
        self._known.pop(session, None)
        return self.of(session)


def model_name(session: Any) -> str:
    """Return the name of the model's file without its ending, else that of its graph, else ``model``."""
    path = getattr(session, "_model_path", None)
    if path:
        return PurePath(path).stem
    meta = getattr(session, "_model_meta", None)
    return str(getattr(meta, "graph_name", "") or "model")


def device_of(session: Any) -> str | None:
    """Return the device of the session's first provider: ``cpu``, ``cuda:0``; None if it has none."""
    providers = session._providers or ()
    return device_name(providers[0], session._provider_options) if providers else None


def device_name(provider: str, options: Any = None) -> str:
    """Return the device that a provider runs on: ``cpu`` for ``CPUExecutionProvider``."""
    kind = provider.removesuffix("ExecutionProvider")
    device = _DEVICES.get(kind, kind.lower())
    number = (options or {}).get(provider, {}).get("device_id")
    return device if number is None or device == "cpu" else f"{device}:{number}"
