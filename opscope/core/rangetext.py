"""Write an OpCall as one line of text for a timeline, and parse that text back exactly.

    aten::addmm(f16[4096], f16[64,1024], f16[1024,4096]{0,1}) -> f16[64,4096] {beta=1} on cuda:0 @a.py:4

The grammar is in ``docs/range-text.md``. ``parse(format_call(call)) == call`` for every call whose
text is not cut. Texts from a trace are untrusted: nothing in them is ever evaluated.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final, NoReturn

from .schema import LAYOUTS, Arg, Dim, Frame, OpCall, ParamValue, SameAs, TensorSpec
from .sizes import is_size

#: A text for NVTX is cut above this many bytes of UTF-8.
TEXT_LIMIT: Final = 4096
CUT: Final = "<cut>"
#: The same limit for the call in a spec, which follows the spec's graph and key.
SPEC_LIMIT: Final = 3072
#: More deeply nested lists are refused, so that no text can exhaust the stack.
MAX_DEPTH: Final = 32
#: Largest number of tensors in one text, counting repetitions.
MAX_LEAVES: Final = 100_000
#: The mark that tests an NVTX domain made by hand. In older traces it is a range.
DOMAIN_TEST: Final = "opscope: the domain is live"

_NAME = re.compile(r"[\w:./$+-]+\Z")
_NAME_AT = re.compile(r"[\w:./$+-]+")
_DTYPE = re.compile(r"[A-Za-z?]\w*\Z")
_DTYPE_AT = re.compile(r"[A-Za-z?]\w*")
_INT_AT = re.compile(r"-?[0-9]{1,20}")
_SYMBOL = re.compile(r"[A-Za-z_]\w*\Z")
_SYMBOL_AT = re.compile(r"[A-Za-z_]\w*")
_FRAME_AT = re.compile(r"([\w:./$+-]+):([0-9]{1,10})(?![\w:./$+-])")
_LINE_AT = re.compile(r":([0-9]{1,10})")
# A layout without strides, and the number of elements that it stores.
_LAYOUT_AT = re.compile(rf"({'|'.join(LAYOUTS)})(?::([0-9]{{1,19}}))?\}}")
_KEY_AT = re.compile(r"\w+")
_KEY = re.compile(r"\w+\Z")
# A node's name in a graph: any text without spaces and quotes.
_NODE_AT = re.compile(r"[^\s\"]+")
_NODE = re.compile(r"[^\s\"]+\Z")
_GRAPH_AT = re.compile(r"[\w:.$+()-]+")
_GRAPH = re.compile(r"[\w:.$+()-]+\Z")
_decode_json = json.JSONDecoder().raw_decode


class RangeTextError(ValueError):
    """The text is not a call in opscope's notation."""


# ---------------------------------------------------------------------------------- writing


def format_call(call: OpCall, limit: int | None = TEXT_LIMIT) -> str:
    """Return the text of ``call``. A text over ``limit`` bytes is cut between two arguments.

    The device and the user's source lines follow the cut, so that only arguments are lost.
    """
    pieces, location = _pieces(call), _place(call)
    text = "".join([*pieces, *([CUT] if call.truncated else []), *location])
    if limit is None or (len(text) * 4 <= limit) or len(text.encode()) <= limit:
        return text
    fitting_place, used = _fitting(location, limit // 2)
    fitting, _ = _fitting(pieces, limit - len(CUT) - used)
    if not fitting:  # not even the name fits: shorten it
        name = json.loads(pieces[0]) if pieces[0].startswith('"') else pieces[0]
        # an escaped character takes up to 12 bytes
        fitting = [_quote(name[: (limit - len(CUT) - used - 2) // 12], _NAME)]
    return "".join(fitting).rstrip(" ") + CUT + "".join(fitting_place)


def _fitting(pieces: list[str], room: int) -> tuple[list[str], int]:
    """Return the leading pieces that fit into ``room`` bytes, and the number of bytes that they take."""
    used = 0
    for number, piece in enumerate(pieces):
        size = len(piece.encode())
        if used + size > room:
            return pieces[:number], used
        used += size
    return pieces, used


def _pieces(call: OpCall) -> list[str]:
    """Return the text before the device in pieces; the text may be cut between any two of them."""
    pieces = [_quote(call.name, _NAME), "("]
    _args(pieces, call.inputs)
    pieces.append(")")
    if call.outputs is not None:
        if len(call.outputs) == 1 and not isinstance(call.outputs[0], tuple):
            pieces.append(" -> ")
            _arg(pieces, call.outputs[0])
        else:
            pieces.append(" -> (")
            _args(pieces, call.outputs)
            pieces.append(")")
    if call.params:
        pieces.append(" {")
        for number, (key, value) in enumerate(call.params):
            pair = f"{_quote(key, _KEY)}={format_value(value)}"
            pieces.append(pair if number == 0 else f", {pair}")
        pieces.append("}")
    return pieces


def _place(call: OpCall) -> list[str]:
    """Return the end of the text in pieces: the device and the source lines."""
    pieces = [] if call.device is None else [f" on {_quote(call.device, _NAME)}"]
    for number, (file, line) in enumerate(call.frames):
        pieces.append(f"{' < ' if number else ' @'}{_quote(file, _NAME)}:{line}")
    return pieces


def _args(pieces: list[str], args: tuple[Arg, ...]) -> None:
    for number, arg in enumerate(args):
        if number:
            pieces.append(", ")
        _arg(pieces, arg)


def _arg(pieces: list[str], arg: Arg) -> None:
    if arg is None:
        pieces.append("_")
    elif isinstance(arg, TensorSpec):
        pieces.append(format_tensor(arg))
    elif isinstance(arg, SameAs):
        pieces.append(f"={arg.index}")
    elif len(arg) > 1 and all(item == arg[0] for item in arg[1:]):
        pieces.append("[")
        _arg(pieces, arg[0])
        pieces.append(f"]*{len(arg)}")
    else:
        pieces.append("[")
        _args(pieces, arg)
        pieces.append("]")


@lru_cache(maxsize=65_536)
def format_tensor(tensor: TensorSpec) -> str:
    """Return the text of a tensor: ``f16[64,1024]{0,1}``. Raises RangeTextError for a bad dtype or layout."""
    if not _DTYPE.match(tensor.dtype):
        raise RangeTextError(f"not a dtype name: {tensor.dtype!r}")
    text = f"{tensor.dtype}[{','.join(map(_dim, tensor.shape))}]"
    if tensor.minor_to_major is not None:
        text += "{" + ",".join(map(str, tensor.minor_to_major)) + "}"
    elif tensor.strides is not None:
        text += "{s:" + ",".join(map(_dim, tensor.strides)) + "}"
    elif tensor.layout is not None:
        if tensor.layout not in LAYOUTS:
            raise RangeTextError(f"not a layout name: {tensor.layout!r}")
        text += "{" + tensor.layout + ("" if tensor.stored is None else f":{tensor.stored}") + "}"
    return text


def _dim(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) or dim == "?" else _quote(dim, _SYMBOL)


def _quote(text: str, plain: re.Pattern[str]) -> str:
    if plain.match(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def format_value(value: ParamValue) -> str:
    """Return a parameter as JSON, with ``NaN`` and ``Infinity`` as Python's JSON writes them."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return json.dumps(value)


def clean_value(value: object, depth: int = 0) -> ParamValue:
    """Return ``value`` as a parameter that the text can represent.

    Scalars and lists keep their type. Ints of more than 64 bits become hexadecimal text, other values text
    of up to 256 characters. Lists are cut to 256 items and ``…``; lists nested deeper than 4 become text.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        # above 64 bits JSON readers disagree, and Python limits the number of digits it converts
        return int(value) if abs(value) < 1 << 64 else hex(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (list, tuple)) and depth < 4:
        items = tuple(clean_value(item, depth + 1) for item in value[:256])
        return (*items, "…") if len(value) > 256 else items
    return str(value)[:256]


# ---------------------------------------------------------------------------------- reading


class _CutHere(Exception):
    """The parser has reached the mark of the cut; the parts parsed so far are the call's prefix."""


@lru_cache(maxsize=65_536)
def parse(text: str) -> OpCall:
    """Return the call that ``text`` describes. Raises RangeTextError if it describes none."""
    return _Parser(text).call()


def call_of(text: str) -> OpCall | None:
    """Return the call that ``text`` describes; None if it describes none."""
    try:
        return parse(text)
    except RangeTextError:
        return None


class _Parser:
    __slots__ = ("at", "count", "may_be_cut", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.count = 0
        self.may_be_cut = False

    def fail(self, problem: str) -> NoReturn:
        # no token begins like the mark; inside a JSON string the mark is ordinary text
        if self.may_be_cut and self.text.startswith(CUT, self.at):
            raise _CutHere
        raise RangeTextError(f"{problem} at column {self.at} of {self.text[:80]!r}")

    def take(self, token: str) -> bool:
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.skip_to_cut(token)
            self.fail(f"expected {token!r}")

    def skip_to_cut(self, *tokens: str) -> None:
        """Move to the mark of the cut if only the beginning of one of these tokens precedes it."""
        for token in tokens:
            for size in range(1, len(token)):
                if self.text.startswith(token[:size] + CUT, self.at):
                    self.at += size
                    return

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(f"expected {expected}")
        self.at = match.end()
        return match

    def json(self) -> object:
        try:
            value, self.at = _decode_json(self.text, self.at)
        except (ValueError, RecursionError):
            self.fail("expected JSON")
        return value

    def word(self, pattern: re.Pattern[str], expected: str) -> str:
        if self.text.startswith('"', self.at):
            value = self.json()
            assert isinstance(value, str)
            return value
        return self.match(pattern, expected).group()

    def call(self) -> OpCall:
        if not self.text:
            raise RangeTextError("the text is empty")
        name = self.word(_NAME_AT, "a name")
        inputs: list[Arg] = []
        outputs: list[Arg] | None = None
        params: list[tuple[str, ParamValue]] = []
        device: str | None = None
        frames: list[Frame] = []
        truncated = False
        self.may_be_cut = True
        try:
            self.expect("(")
            self.args(inputs, ")", 0)
            if self.take(" -> "):
                outputs = []
                if self.take("("):
                    self.args(outputs, ")", 0)
                else:
                    outputs.append(self.arg(0))
            if self.take(" {"):
                self.params(params)
            device, frames = self.place()
            if self.at != len(self.text):
                self.skip_to_cut(" -> (", " {")
                self.fail("unexpected text")
        except _CutHere:
            truncated, self.may_be_cut = True, False
            self.at += len(CUT)
            # else an older opscope wrote it and cut everything from here on
            if self.at < len(self.text):
                device, frames = self.place()
            if self.at < len(self.text):
                self.fail("unexpected text")
        return OpCall(
            name,
            tuple(inputs),
            None if outputs is None else tuple(outputs),
            tuple(params),
            device,
            tuple(frames),
            truncated,
        )

    def place(self) -> tuple[str | None, list[Frame]]:
        """Parse the device and the frames, if they follow here."""
        device = self.word(_NAME_AT, "a device") if self.take(" on ") else None
        frames: list[Frame] = []
        if self.take(" @"):
            frames.append(self.frame())
            while self.take(" < "):
                frames.append(self.frame())
        return device, frames

    def args(self, into: list[Arg], close: str, depth: int) -> None:
        if self.take(close):
            return
        while True:
            into.append(self.arg(depth))
            if self.take(close):
                return
            self.expect(", ")

    def arg(self, depth: int) -> Arg:
        self.count += 1
        if self.count > MAX_LEAVES:
            raise RangeTextError(f"more than {MAX_LEAVES} arguments in {self.text[:80]!r}")
        if self.take("["):
            if depth >= MAX_DEPTH:
                raise RangeTextError(f"lists nested too deep in {self.text[:80]!r}")
            items: list[Arg] = []
            before = self.count
            try:
                self.args(items, "]", depth + 1)
            except _CutHere:
                if not items:
                    raise
                return tuple(items)  # the caller finds the mark
            if self.take("*"):
                times = int(self.match(_INT_AT, "a count").group())
                self.count += (times - 1) * (self.count - before)
                if times < 0 or times * len(items) > MAX_LEAVES or self.count > MAX_LEAVES:
                    raise RangeTextError(f"a list repeated {times} times in {self.text[:80]!r}")
                items = items * times
            return tuple(items)
        if self.take("="):
            return SameAs(int(self.match(_INT_AT, "an index").group()))
        if self.text.startswith("_", self.at):
            self.at += 1
            return None
        return self.tensor()

    def tensor(self) -> TensorSpec:
        dtype = self.match(_DTYPE_AT, "a tensor").group()
        self.expect("[")
        shape = self.dims("]")
        if not self.text.startswith("{", self.at):
            return TensorSpec(dtype, shape)
        self.at += 1
        if self.take("s:"):
            return TensorSpec(dtype, shape, None, self.dims("}"))
        named = _LAYOUT_AT.match(self.text, self.at)
        if named is not None:
            self.at = named.end()
            stored = None if named[2] is None else int(named[2])
            return TensorSpec(dtype, shape, layout=named[1], stored=stored)
        order = self.dims("}")
        if not all(isinstance(dim, int) for dim in order):
            raise RangeTextError(
                f"a layout that is not an order of dimensions in {self.text[:80]!r}"
            )
        return TensorSpec(dtype, shape, tuple(int(dim) for dim in order))

    def dims(self, close: str) -> tuple[Dim, ...]:
        if self.take(close):
            return ()
        dims: list[Dim] = []
        while True:
            dims.append(self.dim())
            if self.take(close):
                return tuple(dims)
            self.expect(",")

    def dim(self) -> Dim:
        if self.take("?"):
            return "?"
        number = _INT_AT.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            size = int(number.group())
            return size if size < 0 or is_size(size) else "?"
        return self.word(_SYMBOL_AT, "a dimension")

    def params(self, into: list[tuple[str, ParamValue]]) -> None:
        if self.take("}"):
            return
        while True:
            key = self.word(_KEY_AT, "a parameter")
            self.expect("=")
            into.append((key, self.value(self.json(), 0)))
            if self.take("}"):
                return
            self.expect(", ")

    def value(self, value: object, depth: int) -> ParamValue:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list) and depth < MAX_DEPTH:
            return tuple(self.value(item, depth + 1) for item in value)
        raise RangeTextError(f"a parameter that is neither scalar nor list in {self.text[:80]!r}")

    def frame(self) -> Frame:
        if self.text.startswith('"', self.at):
            file = self.word(_NAME_AT, "a file")
            return file, int(self.match(_LINE_AT, "a line number").group(1))
        match = self.match(_FRAME_AT, "a file and line")
        return match.group(1), int(match.group(2))


# ------------------------------------------------------------------------- results and specs


def format_result(outputs: tuple[Arg, ...], device: str | None = None) -> str:
    """Return the text of a result mark, which gives the outputs of a range pushed before they were known.

    ``-> f32[2,3]``, or with ``device``, if only the outputs show it, ``-> f32[2,3] on cuda:0``.
    """
    return format_call(OpCall("_", (), outputs, device=device))[len("_() ") :]


def parse_result(text: str) -> OpCall:
    """Parse a result mark into a call named ``_`` with ``outputs``, ``device`` if given, and ``truncated``.

    Raises RangeTextError if the text is not a result mark.
    """
    call = parse(f"_() {text}")
    if call.outputs is None or call.inputs or call.params or call.frames:
        raise RangeTextError(f"not a result: {text[:80]!r}")
    return call


def format_spec(graph: str, key: str, call: OpCall) -> str:
    """Return the spec of node ``key`` in ``graph``: ``train_step/dense/MatMul = MatMul(f32[8,4], …)``.

    The graph's name is JSON-quoted if it has a slash or another unusual character, the key if it has a
    space or a quote.
    """
    return f"{_quote(graph, _GRAPH)}/{_quote(key, _NODE)} = {format_call(call, SPEC_LIMIT)}"


def parse_spec(text: str) -> tuple[str, str, str]:
    """Return ``(graph, key, text of the call)`` of a spec. Raises RangeTextError if it is not a spec."""
    parser = _Parser(text)
    graph = parser.word(_GRAPH_AT, "a graph")
    parser.expect("/")
    key = parser.word(_NODE_AT, "a key")
    parser.expect(" = ")
    return graph, key, text[parser.at :]
