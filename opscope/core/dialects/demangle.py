"""The C++ names of kernels that a trace gives by their linker symbols.

A symbol is a stranger's data, and may stand for a text that doubles with every few bytes of it
(``f(a<S0, S0>)``, and so on: 230 bytes would make gigabytes). A symbol that cannot grow is read in
this process, every other one in a child that is allowed so much time and memory a symbol and no more.
What would be longer than ``LONGEST``, or is not done by then, stays a symbol.
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

#: Characters of a symbol and of a name that are taken.
LONGEST: Final = 65_536
#: Bytes that a symbol may make at most to be read in this process.
_SMALL: Final = 1 << 24
#: A character of a symbol stands for so many at most (``Ss`` is std::basic_string<char, …>).
_EACH: Final = 80
#: What stands for something that came before; packs and conversions multiply or look ahead.
_AGAIN: Final = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
#: ``_BitInt(8)``.
_BIT_INT: Final = re.compile(r"DB(\d+)_")
_OTHERWISE: Final = re.compile(r"Dp|sp|cv")
#: The child's processor seconds a symbol, bytes in all, and how many symbols may use these up.
_SECONDS: Final = 0.5
_MEMORY: Final = 1 << 29
_TRIES: Final = 3
#: Wall seconds for all symbols of a trace together, on a machine however busy.
_PATIENCE: Final = 120
#: Names kept of those that a child read.
_KEPT: Final = 65_536
_found: dict[str, str] = {}


def demangled(symbol: str | None) -> str | None:
    """``_ZN2at6nativeEv`` as ``at::native()``; whatever is no such symbol as it is."""
    return all_demangled([symbol])[0]


def all_demangled(symbols: Sequence[str | None]) -> list[str | None]:
    """The same of many: what needs a child is read by one."""
    wanting = [
        one
        for one in dict.fromkeys(symbols)
        if one is not None and _is_symbol(one) and not _stays_small(one) and one not in _found
    ]
    if wanting and _library() is not None:
        if len(_found) + len(wanting) > _KEPT:
            _found.clear()
        _found.update(_apart(wanting))
    return [one if one is None or not _is_symbol(one) else _named(one) for one in symbols]


def _is_symbol(text: str) -> bool:
    return text.startswith("_Z") and len(text) <= LONGEST and "\n" not in text


def _named(symbol: str) -> str:
    return _here(symbol) if _stays_small(symbol) else _found.get(symbol, symbol)


@lru_cache(maxsize=65_536)
def _stays_small(symbol: str) -> bool:
    """Whether what it stands for is surely within ``_SMALL``.

    What is referred to came before: it is no longer than all that had been read when it was referred
    to for the first time. What may hold a template's parameter can be longer the next time.
    """
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
    """libstdc++ with ``__cxa_demangle``, or None where there is none (the names stay symbols)."""
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
    """What the symbol stands for, read in this process."""
    bare = symbol.removesuffix(".kd")  # AMD's name of a kernel's descriptor
    name = _read(bare)
    if name is not None:
        return name
    # libstdc++ before GCC 13 knows no bfloat16, before 14 no _BitInt: decimals take their places
    known, widths = bare.replace("DF16b", "De"), set(_BIT_INT.findall(bare))
    if len(widths) == 1:
        known = _BIT_INT.sub("Df", known)
    if known == bare or "decimal" in bare or len(widths) > 1:
        return symbol
    name = _read(known)
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
    """What each stands for, read by a child; one at which it ended, and all after the last try, stay."""
    names = dict(zip(symbols, symbols, strict=True))
    if not sys.executable or getattr(sys, "frozen", False):
        return names  # this program is no interpreter that could be a child
    left = symbols
    for _ in range(_TRIES):
        if not left:
            break
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", __file__],
                input="".join(f"{one}\n" for one in left).encode("utf-8", "replace"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as error:
            done = error.stdout or b""
        except OSError:
            break  # no child to be had: symbols they stay
        read = done.decode("utf-8", "replace").split("\n")[:-1]
        names.update(zip(left, read, strict=False))
        left = left[len(read) + 1 :]  # the next one is what the child ended at
    return names


def _serve() -> None:
    """A child's work: a line of output for each line of input, or its own end."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for line in sys.stdin.buffer:
        symbol = line.decode("utf-8", "replace").rstrip("\n")
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # nobody handles it: the process ends
        name = _here(symbol).replace("\n", " ")
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(name.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
