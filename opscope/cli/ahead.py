"""Compile the native parts that a program will need before it starts, so that compiling does not slow it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from opscope.adapters import known, modes
from opscope.adapters.shared import native_stacks, ranges
from opscope.adapters.shared.compiled import CXX, BuildError, find_compiler
from opscope.adapters.shared.ready import is_ready, sources
from opscope.core.capture import host_stacks

from . import common

#: Bytes of a program's text that are searched.
_MOST: Final = 1 << 20
#: Words that show which framework a program uses, beside the framework's own name.
_ALSO: Final = {"torch": ("torchrun", "transformers", "lightning")}
_PREFIX: Final = "opscope: "
#: Words that show that a program uses a framework, beside the framework's own name.
_BUILD: Final = (
    "import {framework}\n"
    "from opscope.adapters import Options, known\n"
    "known.load({target!r}).prepare(Options(memory={memory}))"
)


def build(command: list[str], settings: Mapping[str, str]) -> None:
    """Build the native parts, if ``command`` runs in this Python and its text names a framework.

    For other programs the parts are built when they import the framework, before the first op. Prints a
    line when something is built. Never raises: the adapter reports what cannot be built.
    """
    if not is_ours(command[0]):
        return
    env = {**os.environ, **settings}
    if env.get(host_stacks.VARIABLE, "") == "":
        with contextlib.suppress(OSError, BuildError):  # then stacks are sampled from Python
            native_stacks.build()
    with contextlib.suppress(OSError, BuildError):  # then ranges are written from Python
        ranges.build()
    text = _text(command)
    allowed = modes.allowed(env)
    for name, target in known.available().items():
        if allowed is not None and name not in allowed:
            continue
        with contextlib.suppress(OSError, ValueError, ImportError, subprocess.SubprocessError):
            if sources(name) and _names(text, name) and _is_missing(name, env):
                _build(name, target, env)


def _names(text: str, framework: str) -> bool:
    """Return whether a program's text shows that it uses the framework."""
    words = (framework, *_ALSO.get(framework, ()))
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words)


def _build(name: str, target: str, env: Mapping[str, str]) -> None:
    memory = env.get("OPSCOPE_MEMORY") == "1"
    code = _BUILD.format(framework=name, target=target, memory=memory)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as builder:
        assert builder.stderr is not None
        for line in builder.stderr:  # source lines inside the framework do not help here
            if line.startswith(_PREFIX):
                common.say(line.removeprefix(_PREFIX).strip())


def is_ours(program: str) -> bool:
    """Return whether ``program`` is this Python, or a command installed for it."""
    program_path = shutil.which(program)
    if program_path is None:
        return False
    mine = Path(sys.executable)
    return (
        Path(program_path).absolute().parent == mine.parent
        or Path(program_path).resolve() == mine.resolve()
    )


def _text(command: list[str]) -> str:
    """Return the command's words and the text of the first Python file among them."""
    words = " ".join(
        map(os.path.basename, command)
    )  # base names only: a virtual environment's folder may be named after a framework
    script = next((Path(word) for word in command if word.endswith(".py")), None)
    if script is None or not script.is_file():
        return words
    with script.open(encoding="utf-8", errors="replace") as file:
        return f"{words}\n{file.read(_MOST)}"


def _is_missing(name: str, env: Mapping[str, str]) -> bool:
    """Return whether something is left to build and a compiler can build it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or env.get("OPSCOPE_TORCH_OPS", "auto") == "dispatch":
        return False
    if find_compiler("CXX", CXX) is None or not sys.platform.startswith("linux"):
        return False
    return not is_ready(name, spec.origin, env)
