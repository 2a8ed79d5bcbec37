"""The native observer: ops seen by a C++ callback of PyTorch's own, at native speed."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

import torch

from opscope.adapters.base import Options
from opscope.adapters.shared.ready import leave_word
from opscope.core.capture.emit import Emitter

from .binary import MEMORY, BuildError, build, plan

if TYPE_CHECKING:
    from ..state import Threads
    from .observer import NativeMode

_log = logging.getLogger(__name__)

#: ``auto``, ``native`` (an error where it cannot be had) or ``dispatch``.
VARIABLE: Final = "OPSCOPE_TORCH_OPS"


def prepare(options: Options) -> None:
    """Build what ``options`` need, before the program's first op. What cannot be had is told when needed."""
    if os.environ.get(VARIABLE, "auto") == "dispatch":
        return
    with contextlib.suppress(BuildError, OSError):
        build(plan())
        if options.memory:
            build(plan(MEMORY))
    leave_word("torch", torch.__file__)


def native_mode(emitter: Emitter, threads: Threads, options: Options) -> NativeMode | None:
    """The native observer for ``emitter``; None where the dispatch mode is to see the ops.

    Raises BuildError where ``OPSCOPE_TORCH_OPS=native`` asks for what cannot be had.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    # It writes to the emitter's sinks by itself, and knows only those of the real one.
    if wanted == "dispatch" or not isinstance(emitter, Emitter):
        return None
    try:
        from .observer import NativeMode, load

        library = load(build(plan()))
        if emitter.nvtx and not library.has_nvtx:
            raise BuildError(
                "an NVTX tool is attached, and there are no NVTX headers (nvidia-nvtx)"
            )
        return NativeMode(library, emitter, threads, options)
    except (BuildError, OSError) as error:
        if wanted == "native":
            raise BuildError(str(error)) from error
        _log.warning("opscope: ops are observed from Python, at 10 µs each: %s", error)
        return None
