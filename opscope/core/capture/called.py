"""The name of an instruction's callee, as the program writes it: ``time.sleep``, ``self.lock.acquire``. A
function that is written in C has no frame, so the innermost frame of a waiting thread shows only its line."""

from __future__ import annotations

import opcode
import sys
from itertools import islice
from types import CodeType
from typing import Final

_HAS_POSITIONS: Final = sys.version_info >= (3, 11)
#: Opcodes that enter a ``with`` block, and opcodes that may stand between them and the entered expression.
_ENTERS: Final = ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL")
_BETWEEN: Final = ("CACHE", "COPY", "SWAP", "LOAD_SPECIAL", "PUSH_NULL", "NOP", "EXTENDED_ARG")
#: How many bits an opcode's argument is shifted from the index of a name.
_SHIFTS: Final = {
    "LOAD_GLOBAL": 1 if _HAS_POSITIONS else 0,
    "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0,
    "LOAD_METHOD": 0,
    "LOAD_NAME": 0,
    "LOAD_SUPER_ATTR": 2,
}
_LOCALS: Final = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
#: The longest code that is examined, in bytes.
_LONGEST: Final = 1 << 17
_MOST_WORDS: Final = 8


def called(code: CodeType, at: int) -> str | None:
    """Return the name of the object that the instruction at byte ``at`` calls; None if it calls nothing or
    that is unknown."""
    text = code.co_code
    if not 0 <= at < min(len(text), _LONGEST):
        return None
    name = opcode.opname[text[at]]
    special = at >= 2 and opcode.opname[text[at - 2]] == "LOAD_SPECIAL"
    enters = name in _ENTERS or (special and name == "CALL")
    if not enters and (
        name.startswith("CALL_INTRINSIC") or not name.startswith(("CALL", "PRECALL"))
    ):
        return None
    if not _HAS_POSITIONS:
        words = _by_stack(code, text, at)
    elif enters:
        before = at - 2
        while before > 0 and opcode.opname[text[before]] in _BETWEEN:
            before -= 2
        words = _by_position(code, text, before)
    else:
        words = _by_position(code, text, at)
    return ".".join([*words[-_MOST_WORDS:], *(["__enter__"] if enters else [])]) if words else None


def _by_position(code: CodeType, text: bytes, at: int) -> list[str]:
    """Return the names whose source text begins where the call begins, in order: the words of the call."""
    places = list(islice(code.co_positions(), at // 2 + 1))  # type: ignore[attr-defined,unused-ignore]
    line, end_line, column, end_column = places[at // 2]
    if line is None or column is None:
        return []
    words: list[str] = []
    more = 0
    for index in range(0, at + 2, 2):
        name, argument = opcode.opname[text[index]], text[index + 1] | more
        more = argument << 8 if name == "EXTENDED_ARG" else 0
        here = places[index // 2]
        if here[0] == line and here[2] == column and here[1:4:2] <= (end_line, end_column):
            word = _word(code, name, argument)
            if word is not None:
                # a single name begins a new expression: earlier words belong to an earlier expression
                words = [*words, word] if name in ("LOAD_ATTR", "LOAD_METHOD") else [word]
    return words


def _by_stack(code: CodeType, text: bytes, at: int) -> list[str]:
    """Return the name by a backward search for the instruction that put the called object on the stack
    (Python 3.10)."""
    name, count = opcode.opname[text[at]], text[at + 1]
    below = {"CALL_FUNCTION": 1, "CALL_METHOD": 1, "CALL_FUNCTION_KW": 2, "SETUP_WITH": 1}
    if name not in below:
        return []
    wanted = below[name] + (0 if name == "SETUP_WITH" else count)
    words: list[str] = []
    for index in range(at - 2, -1, -2):
        number, argument = text[index], text[index + 1]
        word = _word(code, opcode.opname[number], argument)
        if wanted == 1 and word and opcode.opname[number] in ("LOAD_ATTR", "LOAD_METHOD"):
            words.insert(0, word)
            continue
        try:
            has_argument = number >= opcode.HAVE_ARGUMENT
            wanted -= opcode.stack_effect(number, argument if has_argument else None, jump=False)
        except ValueError:
            return []
        if wanted <= 0:
            return words if word is None else [word, *words]
    return words


def _word(code: CodeType, name: str, argument: int) -> str | None:
    shift = _SHIFTS.get(name)
    if shift is not None:
        names = code.co_names
        return names[argument >> shift] if argument >> shift < len(names) else None
    if name in _LOCALS:
        return code.co_varnames[argument] if argument < len(code.co_varnames) else None
    if name == "LOAD_DEREF":
        free = (*code.co_cellvars, *code.co_freevars)
        # cells are numbered after the local variables; a cell may also be a local variable
        if _HAS_POSITIONS:
            free = (*code.co_varnames, *(c for c in free if c not in code.co_varnames))
        return free[argument] if argument < len(free) else None
    return None
