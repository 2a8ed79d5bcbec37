"""``opscope build``: compile ahead what opscope otherwise compiles for this machine on first use."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

from opscope.adapters import known
from opscope.adapters.shared.ready import sources

from . import common, declared

#: What is built without importing a framework: the helper of the CUPTI backend, light mode's clock, and what
#: hears reads of arrays' memory and writes ranges.
_OWN = ("cupti", "light", "jax")


def build(
    subject: Annotated[
        str,
        declared.Argument(
            metavar="WHAT", help="What to build: torch, tensorflow, jax, cupti or light."
        ),
    ],
) -> None:
    """Compile a framework's native parts ahead of the first capture.

    Use it for container images, and for machines that will have no compiler later. The binary is written
    to the cache (OPSCOPE_CACHE, else XDG_CACHE_HOME/opscope, else ~/.cache/opscope).
    """
    if subject in _OWN:
        return _build_own(subject)
    targets = known.available()
    native = [name for name in targets if sources(name)]
    if subject not in native:
        common.fail(
            f"nothing to build for {subject!r}; choose one of: {', '.join(sorted([*native, *_OWN]))}"
        )
    if importlib.util.find_spec(subject) is None:
        common.fail(f"{subject} is not installed in this Python environment")
    importlib.import_module(subject)
    try:
        for path in known.load(targets[subject]).build():
            common.emit(str(path))
    except RuntimeError as error:  # the adapters' BuildErrors
        common.fail(str(error))


def _build_own(subject: str) -> None:
    from opscope.adapters.shared import compiled, ranges, reads
    from opscope.backends import light_clock
    from opscope.backends.cupti import helper

    try:
        jax = (reads.SOURCE, ranges.SOURCE)
        for source in ((helper.SOURCE,), (light_clock.SOURCE,), jax)[_OWN.index(subject)]:
            common.emit(str(compiled.built(source)))
    except compiled.BuildError as error:
        common.fail(str(error))
