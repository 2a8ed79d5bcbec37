"""Demangle the linker symbols of kernels into C++ names.

A symbol is a stranger's data, and its name may double in length with every few bytes of the symbol
(``f(a<S0, S0>)``, and so on: 230 bytes would make gigabytes). A symbol with a name of bounded length is
read in this process, every other symbol in a child process with a limit of time and memory. A symbol stays
as it is if its name would be longer than ``LONGEST`` or if the child does not finish within the limit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

#: Most characters of a symbol, and of a name.
LONGEST: Final = 65_536
#: Symbols with names of at most this many bytes are read in this process.
_SMALL: Final = 1 << 24
#: The most characters that a name has for each character of its symbol (``Ss`` is std::basic_string<char,
#: …>).
_EACH: Final = 80
#: References to something earlier in the symbol. Packs and conversions (_OTHERWISE) multiply or look ahead.
_AGAIN: Final = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
#: ``_BitInt(8)``.
_BIT_INT: Final = re.compile(r"DB(\d+)_")
_OTHERWISE: Final = re.compile(r"Dp|sp|cv")
#: Limits of a child: processor seconds per symbol, bytes of memory, and how many children are started.
_SECONDS: Final = 0.5
_MEMORY: Final = 1 << 29
_TRIES: Final = 3
#: Wall seconds that a child may take for all symbols of a trace, even on a busy machine.
_PATIENCE: Final = 120
#: The most names from child processes that are kept.
_MOST_FOUND: Final = 65_536
_found: dict[str, str] = {}


def demangled(symbol: str | None) -> str | None:
    """Return ``at::native()`` for ``_ZN2at6nativeEv``; a text that is not a symbol is returned unchanged."""
    return all_demangled([symbol])[0]


def all_demangled(symbols: Sequence[str | None]) -> list[str | None]:
    """Return the names of many symbols; one child reads all that need a child."""
    wanting = [
        symbol
        for symbol in dict.fromkeys(symbols)
        if symbol is not None
        and _is_symbol(symbol)
        and not _stays_small(symbol)
        and symbol not in _found
    ]
    if wanting and _library() is not None:
        if len(_found) + len(wanting) > _MOST_FOUND:
            _found.clear()
        _found.update(_apart(wanting))
    return [
        symbol if symbol is None or not _is_symbol(symbol) else _name(symbol) for symbol in symbols
    ]


def _is_symbol(text: str) -> bool:
    return text.startswith("_Z") and len(text) <= LONGEST and "\n" not in text


def _name(symbol: str) -> str:
    return _here(symbol) if _stays_small(symbol) else _found.get(symbol, symbol)


@lru_cache(maxsize=65_536)
def _stays_small(symbol: str) -> bool:
    """Return whether the name is certainly at most ``_SMALL`` long. A reference repeats an earlier part, so
    its text is no longer than everything before the first reference to it. A text that may contain a
    template's parameter can be longer the next time."""
    if _OTHERWISE.search(symbol):
        return False
    size, read, fixed = 0, 0, True
    longest: dict[str, int] = {}
    for again in _AGAIN.finditer(symbol):
        size += (again.start() - read) * _EACH
        read = again.end()
        fixed = fixed and again.group()[0] == "S"
        if fixed:
            longest.setdefault(again.group(), size + _EACH)
        size += longest.get(again.group(), size + _EACH)
        if size > _SMALL:
            return False
    return True


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return ``__cxa_demangle`` of libstdc++ and ``free``; None if there is none (names stay symbols)."""
    name = ctypes.util.find_library("stdc++") or "libstdc++.so.6"
    try:
        library = ctypes.CDLL(name)
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int),
        ]  # fmt: skip
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free.restype = None
    except (OSError, AttributeError):
        return None
    return library.__cxa_demangle, free


@lru_cache(maxsize=65_536)
def _here(symbol: str) -> str:
    """Return the symbol's name, read in this process; the symbol itself if it cannot be read."""
    bare = symbol.removesuffix(".kd")  # AMD's name of a kernel's descriptor
    name = _read(bare)
    if name is not None:
        return name
    # libstdc++ cannot read bfloat16 before GCC 13, nor _BitInt before 14: decimals replace them
    rewritten, widths = bare.replace("DF16b", "De"), set(_BIT_INT.findall(bare))
    if len(widths) == 1:
        rewritten = _BIT_INT.sub("Df", rewritten)
    if rewritten == bare or "decimal" in bare or len(widths) > 1:
        return symbol
    name = _read(rewritten)
    if name is None:
        return symbol
    name = name.replace("decimal128", "std::bfloat16_t")
    return name.replace("decimal32", f"_BitInt({''.join(widths)})")


def _read(symbol: str) -> str | None:
    functions = _library()
    if functions is None:
        return None
    demangle, free = functions
    status = ctypes.c_int()
    pointer = demangle(symbol.encode("utf-8", "replace"), None, None, ctypes.byref(status))
    if not pointer:
        return None
    try:
        name = ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        free(pointer)
    return name if len(name) <= LONGEST else None


def _apart(symbols: list[str]) -> dict[str, str]:
    """Return symbol → name, read by a child; symbols that ended the child, or are left after the last try,
    stay as they are."""
    names = dict(zip(symbols, symbols, strict=True))
    if not sys.executable or getattr(sys, "frozen", False):
        return names  # this program is not an interpreter that could be started as a child
    left = symbols
    for _ in range(_TRIES):
        if not left:
            break
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", __file__],
                input="".join(f"{symbol}\n" for symbol in left).encode("utf-8", "replace"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as error:
            done = error.stdout or b""
        except OSError:
            break  # no child can be started: the symbols stay
        read = done.decode("utf-8", "replace").split("\n")[:-1]
        names.update(zip(left, read, strict=False))
        left = left[len(read) + 1 :]  # the symbol after the last one that was read ended the child
    return names


def _serve() -> None:
    """Do the child's work: write a line for each line of input, or end at a limit."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for line in sys.stdin.buffer:
        symbol = line.decode("utf-8", "replace").rstrip("\n")
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # no handler: the signal ends the process
        name = _here(symbol).replace("\n", " ")
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(name.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
