"""Read a pickle as plain values: dictionaries, lists, tuples, texts and numbers. Names of code are refused.
The opcodes are those of Python's ``pickletools``. A stranger's file may put any of them in any order, so the
number of values that are kept, of numbered values (the memo), of open marks and of digits are bounded."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

#: The most containers and texts that are kept at once: each takes 100 to 250 bytes.
MOST_KEPT: Final = 1 << 22
#: The most numbered values; a snapshot of a million changes has two or three million.
MOST_NUMBERED: Final = 1 << 25
#: The most values on the stack: PyTorch's own writer puts a whole list there before it closes it.
MOST_STACKED: Final = 1 << 25
#: The most marks that are open at once: files of PyTorch have seven.
DEEPEST: Final = 64
#: The most bytes of an integer: 8, and a sign.
_LONGEST_NUMBER: Final = 9
#: A number of the memo may skip at most this many; Python's and PyTorch's writers leave no gap.
_GAP: Final = 256
#: Instructions between two reports of progress.
_STEPS: Final = 1 << 16
#: A list whose values were all seen before, as most stacks of frames are.
_SEEN: Final = re.compile(rb"(?:h.|j.{4})+e", re.DOTALL)
#: The effect of each refused opcode.
_CODE: Final = {
    ord("c"): "GLOBAL", ord("i"): "INST", ord("o"): "OBJ", ord("R"): "REDUCE", ord("b"): "BUILD",
    0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
    ord("P"): "PERSID", ord("Q"): "BINPERSID",
}  # fmt: skip


class PickleError(ValueError):
    """The bytes are not a pickle of plain values, or exceed a bound."""


class Record(dict[Any, Any]):
    """A dictionary, with its number in the memo (-1: none)."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = -1


class Items(list[Any]):
    """A list, with its number in the memo (-1: none)."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = -1


class _Mark:
    __slots__ = ()


_MARK: Final = _Mark()
#: Replaces a value that was taken while the file was read.
TAKEN: Final = None


def values(
    data: Any, take: Callable[[Record], bool], moved: Callable[[int], None] = lambda at: None
) -> Any:
    """Return the value that the pickle ``data`` (bytes, or a mapped file) describes. Raises PickleError.

    ``take`` is called with each complete dictionary. If it returns true, the dictionary is not kept:
    ``TAKEN`` replaces it, so that a long list of dictionaries takes no memory. A list whose values were all
    seen before becomes a tuple, the same one for the same values. ``moved`` is called with the byte position
    reached.
    """
    machine = _Machine(data, take)
    try:
        machine.run(moved)
    except (IndexError, struct.error):
        raise PickleError(f"it ends, or lacks a value, at byte {machine.at:,}") from None
    except TypeError:
        raise PickleError(f"a value of the wrong kind at byte {machine.at:,}") from None
    return machine.stack.pop()


class _Machine:
    """The stack, the memo and the position of a pickle that is being read."""

    __slots__ = ("at", "data", "depth", "kept", "memo", "runs", "stack", "take")

    def __init__(self, data: Any, take: Callable[[Record], bool]) -> None:
        self.data, self.take = data, take
        self.at = self.depth = self.kept = 0
        self.stack: list[Any] = []
        self.memo: list[Any] = []
        self.runs: dict[bytes, tuple[Any, ...]] = {}

    def run(self, moved: Callable[[int], None]) -> None:
        """Execute the instructions up to STOP, which leaves one value."""
        data, steps = self.data, _STEPS
        while True:
            code = data[self.at]
            self.at += 1
            act = _ACTS.get(code)
            if act is None:
                if code == _STOP and len(self.stack) == 1 and not self.depth:
                    return
                raise self._refused(code)
            act(self)
            steps -= 1
            if not steps:
                steps = _STEPS
                moved(self.at)
                if len(self.stack) > MOST_STACKED:
                    raise PickleError(f"more than {MOST_STACKED:,} values in one list")

    def _refused(self, code: int) -> PickleError:
        """Return the error about a refused instruction."""
        name = _CODE.get(code)
        if name is None:
            return PickleError(f"the unknown instruction {code:#04x} at byte {self.at - 1:,}")
        return PickleError(
            f"it names code to run ({name} at byte {self.at - 1:,}): opscope builds plain values only"
        )

    # ------------------------------------------------------------------------------ texts, numbers

    def chunk(self, size: int) -> bytes:
        """The next bytes."""
        part: bytes = self.data[self.at : self.at + size]
        if size < 0 or len(part) != size:
            raise IndexError
        self.at += size
        return part

    def unsigned(self, size: int) -> int:
        """The next bytes as a number."""
        return int.from_bytes(self.chunk(size), "little")

    def line(self) -> bytes:
        """The next line, of a number or a short text."""
        end = self.data.find(b"\n", self.at, self.at + (1 << 16))
        if end < 0:
            raise PickleError(f"a line without an end at byte {self.at:,}")
        part: bytes = self.data[self.at : end]
        self.at = end + 1
        return part

    def keep(self, value: Any) -> None:
        """Put a new container or text on the stack."""
        self.kept += 1
        if self.kept > MOST_KEPT:
            raise PickleError(f"more than {MOST_KEPT:,} values")
        self.stack.append(value)

    def text(self, size: int) -> None:
        """Put the text of the next bytes on the stack."""
        self.keep(self.chunk(size).decode("utf-8", "replace"))

    def long(self, size: int) -> None:
        """Put the integer of the next bytes on the stack."""
        if size > _LONGEST_NUMBER:
            raise PickleError(f"an integer of {size:,} bytes at byte {self.at:,}")
        self.stack.append(int.from_bytes(self.chunk(size), "little", signed=True))

    def decimal(self) -> None:
        """Put the integer of the next line on the stack; ``00`` and ``01`` are truth values."""
        digits = self.line().rstrip(b"L")
        if digits in (b"00", b"01"):
            self.stack.append(digits == b"01")
        elif re.fullmatch(rb"-?[0-9]{1,20}", digits):
            self.stack.append(int(digits))
        else:
            raise PickleError(f"not an integer, or one of too many digits, at byte {self.at:,}")

    def quoted(self) -> None:
        """Put the text in quotes of the next line on the stack."""
        line = self.line()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1] or b"\\" in line:
            raise PickleError(f"a text with escapes or without quotes at byte {self.at:,}")
        self.keep(line[1:-1].decode("utf-8", "replace"))

    def real(self) -> None:
        """Put the real number of the next line on the stack."""
        try:
            self.stack.append(float(self.line()[:40]))
        except ValueError:
            raise PickleError(f"not a number at byte {self.at:,}") from None

    # ------------------------------------------------------------------------------ containers

    def mark(self) -> None:
        """Begin the values of a container; a list of values that are all in the memo is made at once."""
        match = _SEEN.match(self.data, self.at)
        if match is not None and self.stack and type(self.stack[-1]) is Items:
            run = match.group()
            value = self.runs.get(run)
            if value is None:
                value = self._known(run[:-1])
                self.kept += len(value)
                self.runs[run] = value
            self.at = match.end()
            self._replace(value)
            return
        self.depth += 1
        if self.depth > DEEPEST:
            raise PickleError(f"more than {DEEPEST} containers within each other")
        self.stack.append(_MARK)

    def _known(self, calls: bytes) -> tuple[Any, ...]:
        items, at = [], 0
        while at < len(calls):
            size = 1 if calls[at] == _BINGET else 4
            items.append(self.memo[int.from_bytes(calls[at + 1 : at + 1 + size], "little")])
            at += 1 + size
        if self.kept + len(items) > MOST_KEPT:
            raise PickleError(f"more than {MOST_KEPT:,} values")
        return tuple(items)

    def _replace(self, value: Any) -> None:
        """Replace the container at the top by ``value``, in the memo too."""
        number = self.stack[-1].number
        if number >= 0:
            self.memo[number] = value
        self.stack[-1] = value
        self.kept -= 1

    def since_mark(self) -> list[Any]:
        """Take the values since the last mark off the stack."""
        stack = self.stack
        at = len(stack) - 1
        # the mark is near, except in a list that is written all at once
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        part = stack[at + 1 :]
        del stack[at:]
        self.depth -= 1
        return part

    def set_items(self, pairs: list[Any]) -> None:
        """Add keys and values to the dictionary at the top, and offer it to ``take``."""
        record = self.stack[-1]
        if type(record) is not Record or len(pairs) % 2:
            raise TypeError
        record.update(zip(pairs[::2], pairs[1::2], strict=True))
        if self.take(record):
            self._replace(TAKEN)

    def extend(self, items: list[Any]) -> None:
        """Add values to the list at the top."""
        if type(self.stack[-1]) is not Items:
            raise TypeError
        self.stack[-1].extend(items)

    def grouped(self, size: int) -> None:
        """Make a tuple of the values at the top."""
        if len(self.stack) < size:
            raise IndexError
        part = tuple(self.stack[len(self.stack) - size :]) if size else ()
        if _MARK in part:
            raise IndexError
        del self.stack[len(self.stack) - size :]
        self.keep(part)

    # ------------------------------------------------------------------------------ the memo

    def number(self, index: int) -> None:
        """Give the value at the top a number for later reference."""
        memo = self.memo
        if index > len(memo) + _GAP or index > MOST_NUMBERED:
            raise PickleError(f"the reference {index:,} to a value is too large")
        while index >= len(memo):
            memo.append(TAKEN)
        top = self.stack[-1]
        if top is _MARK:
            raise IndexError
        memo[index] = top
        if type(top) in (Record, Items):
            top.number = index

    def recall(self, index: int) -> None:
        """Put the value with that number on the stack."""
        self.stack.append(self.memo[index])

    def dictionary(self) -> None:
        """Make a dictionary of the values since the mark."""
        pairs = self.since_mark()
        self.keep(Record())
        self.set_items(pairs)

    def listed(self) -> None:
        """Make a list of the values since the mark."""
        items = self.since_mark()
        self.keep(Items())
        self.extend(items)

    def drop_mark(self) -> None:
        """Forget the values since the mark."""
        self.since_mark()

    def pair(self) -> None:
        """Add one key and value to a dictionary."""
        value, key = self.top(), self.top()
        self.set_items([key, value])

    def one_more(self) -> None:
        """Add one value to a list."""
        self.extend([self.top()])

    def top(self) -> Any:
        """Take the value at the top off the stack."""
        value = self.stack.pop()
        if value is _MARK:
            raise IndexError
        return value


_STOP: Final = ord(".")
_BINGET: Final = ord("h")
_DOUBLE: Final = struct.Struct(">d")
_ACTS: Final[dict[int, Callable[[_Machine], object]]] = {
    0x80: lambda m: m.chunk(1),
    0x95: lambda m: m.chunk(8),
    0x94: lambda m: m.number(len(m.memo)),
    ord("q"): lambda m: m.number(m.unsigned(1)),
    ord("r"): lambda m: m.number(m.unsigned(4)),
    ord("p"): lambda m: m.number(_index(m.line())),
    _BINGET: lambda m: m.recall(m.unsigned(1)),
    ord("j"): lambda m: m.recall(m.unsigned(4)),
    ord("g"): lambda m: m.recall(_index(m.line())),
    ord("("): _Machine.mark,
    ord("0"): _Machine.top,
    ord("1"): _Machine.drop_mark,
    ord("}"): lambda m: m.keep(Record()),
    ord("]"): lambda m: m.keep(Items()),
    ord(")"): lambda m: m.stack.append(()),
    ord("u"): lambda m: m.set_items(m.since_mark()),
    ord("s"): _Machine.pair,
    ord("d"): _Machine.dictionary,
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("a"): _Machine.one_more,
    ord("l"): _Machine.listed,
    ord("t"): lambda m: m.keep(tuple(m.since_mark())),
    0x85: lambda m: m.grouped(1),
    0x86: lambda m: m.grouped(2),
    0x87: lambda m: m.grouped(3),
    ord("K"): lambda m: m.stack.append(m.unsigned(1)),
    ord("M"): lambda m: m.stack.append(m.unsigned(2)),
    ord("J"): lambda m: m.long(4),
    0x8A: lambda m: m.long(m.unsigned(1)),
    0x8B: lambda m: m.long(m.unsigned(4)),
    ord("I"): _Machine.decimal,
    ord("L"): _Machine.decimal,
    ord("F"): _Machine.real,
    ord("G"): lambda m: m.stack.append(_DOUBLE.unpack(m.chunk(8))[0]),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("N"): lambda m: m.stack.append(None),
    ord("X"): lambda m: m.text(m.unsigned(4)),
    0x8C: lambda m: m.text(m.unsigned(1)),
    0x8D: lambda m: m.text(m.unsigned(8)),
    ord("T"): lambda m: m.text(m.unsigned(4)),
    ord("U"): lambda m: m.text(m.unsigned(1)),
    ord("B"): lambda m: m.text(m.unsigned(4)),
    ord("C"): lambda m: m.text(m.unsigned(1)),
    0x8E: lambda m: m.text(m.unsigned(8)),
    ord("V"): lambda m: m.keep(m.line().decode("raw_unicode_escape", "replace")),
    ord("S"): _Machine.quoted,
}


def _index(line: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,9}", line):
        raise PickleError("a reference to a value is not a number")
    return int(line)
