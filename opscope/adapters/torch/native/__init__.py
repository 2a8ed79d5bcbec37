"""The native observer: records ops with a C++ callback of PyTorch's ``RecordFunction``, at native speed."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

import torch

from opscope.adapters.base import Options
from opscope.adapters.shared.ready import leave_marker
from opscope.core.capture.emit import Emitter

from .binary import MEMORY, BuildError, build, plan

if TYPE_CHECKING:
    from ..state import Threads
    from .observer import NativeMode

_log = logging.getLogger(__name__)

#: ``auto``, ``native`` (an error where it cannot be built or loaded) or ``dispatch``.
VARIABLE: Final = "OPSCOPE_TORCH_OPS"


def prepare(options: Options) -> None:
    """Build the libraries that ``options`` need, before the program's first op. A failure is reported when
    the library is needed."""
    if os.environ.get(VARIABLE, "auto") == "dispatch":
        return
    with contextlib.suppress(BuildError, OSError):
        build(plan())
        if options.memory:
            build(plan(MEMORY))
    leave_marker("torch", torch.__file__)


def native_mode(emitter: Emitter, threads: Threads, options: Options) -> NativeMode | None:
    """Return the native observer for ``emitter``; None if the dispatch mode records the ops instead.

    Raises BuildError where ``OPSCOPE_TORCH_OPS=native`` is set and the library cannot be built or loaded.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    # The native observer writes to the emitter's sinks itself, and knows only the sinks of an ``Emitter``,
    # not of a substitute.
    if wanted == "dispatch" or not isinstance(emitter, Emitter):
        return None
    try:
        from .observer import NativeMode, load

        library = load(build(plan()))
        if emitter.nvtx and not library.has_nvtx:
            raise BuildError(
                "an NVTX tool is attached, but the library was built without NVTX headers"
                " (install nvidia-nvtx)"
            )
        return NativeMode(library, emitter, threads, options)
    except (BuildError, OSError) as error:
        if wanted == "native":
            raise BuildError(str(error)) from error
        _log.warning("opscope: ops are observed from Python, at 10 µs each: %s", error)
        return None
