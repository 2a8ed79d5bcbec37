"""Modes: the words that restrict which frameworks are observed. Most are DLProf's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from . import known

#: Observe every framework; observe none.
AUTO: Final = "auto"
SIMPLE: Final = "simple"
#: DLProf's names of frameworks whose module has another name. ``tensorflow1`` means programs with sessions
#: (``tf.compat.v1``), which current TensorFlow runs; an installed TensorFlow 1 is refused because of its
#: version.
ALIASES: Final[Mapping[str, str]] = {
    "pytorch": "torch",
    "tensorflow2": "tensorflow",
    "tensorflow1": "tensorflow",
}
#: Libraries built on a framework. A mode observes them too, because they have the layers and steps of
#: programs that use them.
_UPON: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("keras", "transformers"),
    "tensorflow": ("keras",),
    "jax": ("keras", "flax", "optax"),
    "onnxruntime": ("onnxruntime_genai",),
}


def names() -> list[str]:
    """Return every mode: ``auto``, ``simple``, DLProf's names, and the names of the other adapters."""
    others = set(known.available()) - set(ALIASES.values())
    return [AUTO, SIMPLE, *ALIASES, *sorted(others)]


def frameworks(mode: str) -> tuple[str, ...] | None:
    """Return the adapters that a mode installs; None for all. Raises ValueError for an unknown mode."""
    if mode == AUTO:
        return None
    if mode == SIMPLE:
        return ()
    name, targets = ALIASES.get(mode, mode), known.available()
    if name not in targets:
        raise ValueError(f"no mode {mode!r}{closest(mode, [*names(), *ALIASES.values()])}")
    return tuple(framework for framework in (name, *_UPON.get(name, ())) if framework in targets)


def closest(name: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean …?``, if one of the names is similar, and all of them."""
    from difflib import get_close_matches  # needed only for a wrong name

    listed = list(dict.fromkeys(candidates))
    close = get_close_matches(name.lower().replace("-", "").replace("_", ""), listed, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{meant} choose from: {', '.join(listed)}"


def allowed(environ: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the adapters that ``opscope run --mode`` allows in this process; None for all."""
    mode = environ.get(known.MODE, "")
    return frameworks(mode) if mode else None


def is_simple(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``opscope run --mode simple`` started this process."""
    return environ.get(known.MODE) == SIMPLE
