"""Read a literal of Python from a stranger: nothing is evaluated, and depth and count are bounded. It reads
dictionaries, lists, tuples, strings, numbers, ``True``, ``False`` and ``None``. Python's own
``ast.literal_eval`` parses any expression first, and deeply nested ones crash some versions of Python."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

#: The most nested brackets, and the most values of one literal.
DEPTH: Final = 16
VALUES: Final = 20_000
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>u?(?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"))
    | (?P<whole>[-+]?(?:0{1,40}|[1-9]\d{0,39}))[Ll]?(?![\w.])
    | (?P<number>[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?)(?![\w.])
    | (?P<name>True|False|None)(?!\w)
    | (?P<sign>[\[\](){},:])
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NAMES: Final = {"True": True, "False": False, "None": None}
_CLOSES: Final = {")": "(", "]": "[", "}": "{"}
#: What is expected next: a value or a closing bracket; a colon; a comma or a closing bracket.
_VALUE, _COLON, _COMMA = range(3)


class NotLiteral(ValueError):
    """The text is not a literal that this module reads; the message says why, and after how many
    characters."""


def literal(text: str, depth: int = DEPTH, values: int = VALUES) -> Any:
    """Return the value of the literal ``text``. Raises NotLiteral."""
    outer: list[tuple[str, list[Any], bool]] = []
    bracket, items, commas, wanted = "", list[Any](), False, _VALUE
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[match.lastgroup or 0]
        if kind == "end":
            break
        if kind == "sign" and token in "([{":
            if wanted != _VALUE or len(outer) >= depth:
                raise _fault(match, "brackets are too deep" if wanted == _VALUE else None)
            outer.append((bracket, items, commas))
            bracket, items, commas = token, [], False
            continue
        if kind == "sign" and token in ")]}":
            if bracket != _CLOSES[token] or wanted == _COLON or (token == "}" and len(items) % 2):
                raise _fault(match)
            value = _value_of(bracket, items, commas, match)
            bracket, items, commas = outer.pop()
        elif kind == "sign":
            if wanted != (_COMMA if token == "," else _COLON) or not bracket:
                raise _fault(match)
            wanted, commas = _VALUE, commas or token == ","
            continue
        elif kind == "other" or wanted != _VALUE:
            raise _fault(match)
        else:
            value = _scalar(kind, token, match)
            values -= 1
            if values < 0:
                raise _fault(match, "there are too many values")
        items.append(value)
        wanted = _COLON if bracket == "{" and len(items) % 2 else _COMMA
    if bracket or len(items) != 1:
        raise NotLiteral(f"it ends after {len(text):,} characters inside a literal")
    return items[0]


def _scalar(kind: str | None, token: str, match: re.Match[str]) -> Any:
    if kind == "name":
        return _NAMES[token]
    if kind == "whole":
        return int(token)
    if kind == "number":
        if token.lstrip("+-").isdigit():  # leading zeros, which meant octal in Python 2
            raise _fault(match)
        return float(token)
    if "\\" not in token:
        return token.removeprefix("u")[1:-1]
    try:
        text: str = ast.literal_eval(token)  # a single string: ``literal_eval`` reads its escapes
    except (SyntaxError, ValueError):
        raise _fault(match, "a string has a wrong escape") from None
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate is not text


def _value_of(bracket: str, items: list[Any], commas: bool, match: re.Match[str]) -> Any:
    if bracket == "[":
        return items
    if bracket == "(":
        return items[0] if len(items) == 1 and not commas else tuple(items)
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise _fault(match, "a key is a list or a dictionary") from None


def _fault(match: re.Match[str], why: str | None = None) -> NotLiteral:
    return NotLiteral(f"{why or 'it is no literal of Python'}, after {match.start():,} characters")


def json_object(text: str | None) -> dict[str, Any]:
    """Return the object that ``text`` (JSON) holds; an empty one if it holds none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
