"""Files whose numbers are exchanged one at a time, for the test that each is read or refused."""

from __future__ import annotations

import json
import re
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests import plain_values
from tests.readers import protobuf

#: What takes a number's place in a text: beyond 64 bits and 32, negative, beyond doubles, not a number,
#: longer than Python turns into an int, of another type.
WRITTEN = (
    "9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e400", "9" * 5000, "NaN", "-1e400",
    "4294967296", "-1", "1e19", "1e300", "0.5", "true", '"x"', "[1]", "{}", "null",
)  # fmt: skip
#: What takes its place inside a text: digits alone.
DIGITS = (*(text for text in WRITTEN if text.strip("-").isdigit()), "1e400")
#: What takes its place in a database, and the 64 bits that take its place in bytes.
STORED: tuple[Any, ...] = (
    2**63 - 1, -(2**63), 1e308, float("inf"), -1, 2**62, 2**31, "9" * 5000, "x", b"\xff", 0.5, None,
)  # fmt: skip
BITS = (2**63, 2**64 - 1, 2**63 - 1, 2**62, 2**32, 2**31, 0x7FF0 << 48, 0x7FF8 << 48, 0x7FE1 << 48)
#: What takes its place among the values of a pickle or of MessagePack, which have types.
VALUES: tuple[Any, ...] = (*STORED, 2**64 - 1, float("nan"), True, [1], {})
#: One exchange of one number: what is exchanged and by what, and the file's new content.
Change = tuple[str, bytes]
_DIGITS = re.compile(r"\d+")
_MARK = "\u241a"
_LONGEST = 12


def changes(file: Path) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    """Yield the place of each number of a file, and the contents of the file with another in that place."""
    data = file.read_bytes()
    values = plain_values.decoded(file, data)
    if values is not None:
        yield from _of_values(*values)
    elif data.startswith(b"SQLite"):
        yield from _of_database(file)
    elif file.suffix == ".jsonl":
        for number, line in enumerate(data.splitlines(keepends=True)):
            for place, made in _of_json(line):
                before, after = data.split(line, 1)
                yield f"{number}{place}", [_around(before, one, after) for one in made]
    elif data[:1] in b"{[" and file.suffix != ".dict":
        yield from _of_json(data)
    elif file.suffix in (".csv", ".txt", ".log", ".dict"):
        yield from _of_lines(data)
    elif file.suffix in protobuf.SUFFIXES:
        yield from _of_protobuf(data, protobuf.encoded)
    elif file.suffix != ".parquet":
        yield from _of_bytes(data)


def _around(before: bytes, one: Callable[[], bytes], after: bytes) -> Callable[[], bytes]:
    return lambda: before + one().rstrip(b"\n") + b"\n" + after


def _of_json(data: bytes) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    whole = json.loads(data)
    yield from _of_values(whole, lambda: json.dumps(whole).encode(), as_json=True)


def _of_values(
    whole: Any, encode: Callable[[], bytes], as_json: bool = False
) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    for node, key, path in _numbers(whole):
        if isinstance(key, tuple):
            yield path, [_key(encode, node, key[0], text) for text in DIGITS]
        elif isinstance(node[key], str):
            yield path, [_inside(encode, node, key, text) for text in DIGITS]
        elif as_json:
            yield path, [_instead(whole, node, key, text) for text in WRITTEN]
        else:
            yield path, [_value(encode, node, key, value) for value in VALUES]


def _numbers(whole: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield each place of a number: what contains it, its key there (in a tuple: the key is it), its path."""
    seen: set[str] = set()

    def look(node: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, value in items:
            long = isinstance(node, list) and len(node) > _LONGEST
            here = f"{path}[]" if long else f"{path}.{key}"
            if isinstance(value, (dict, list)):
                kind = f"({value.get('cat')}{value.get('name')})" if isinstance(value, dict) else ""
                yield from look(value, here + kind)
            elif here not in seen and not (isinstance(value, str) and not _DIGITS.search(value)):
                seen.add(here)
                yield node, key, here
            if isinstance(key, str) and key.isdigit():
                yield node, (key,), f"{here} key"

    yield from look(whole, "")


def _instead(whole: Any, node: Any, key: Any, text: str) -> Callable[[], bytes]:
    def encode() -> bytes:
        written = json.dumps(whole, ensure_ascii=False)
        return written.replace(f'"{_MARK}"', text).encode()

    return _value(encode, node, key, _MARK)


def _value(encode: Callable[[], bytes], node: Any, key: Any, value: Any) -> Callable[[], bytes]:
    def made() -> bytes:
        was, node[key] = node[key], value
        written = encode()
        node[key] = was
        return written

    return made


def _inside(encode: Callable[[], bytes], node: Any, key: Any, text: str) -> Callable[[], bytes]:
    return _value(encode, node, key, _DIGITS.sub(text, node[key]))


def _key(encode: Callable[[], bytes], node: Any, key: str, text: str) -> Callable[[], bytes]:
    def made() -> bytes:
        node[text] = node.pop(key)
        written = encode()
        node[key] = node.pop(text)
        return written

    return made


def _of_lines(data: bytes) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    seen: set[tuple[str, int]] = set()
    for number, line in enumerate(lines):
        for place, found in enumerate(re.finditer(r"-?\d[\d.]*(e[+-]?\d+)?", line)):
            form = _DIGITS.sub("#", line), place
            if form in seen:
                continue
            seen.add(form)
            made = [_line(lines, number, found.span(), text) for text in WRITTEN]
            yield f"{number}:{found.start()}", made


def _line(lines: list[str], number: int, span: tuple[int, int], text: str) -> Callable[[], bytes]:
    def made() -> bytes:
        line = lines[number]
        with_it = line[: span[0]] + text + line[span[1] :]
        whole = "\n".join([*lines[:number], with_it, *lines[number + 1 :]])
        return whole.encode("utf-8", "surrogateescape")

    return made


def _of_database(file: Path) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    data = file.read_bytes()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [
            (table, row[1])
            for table in tables
            for row in db.execute(f'PRAGMA table_info("{table}")')
        ]
    for table, column in columns:
        first = f'rowid = (SELECT min(rowid) FROM "{table}")'
        for where in (first, "1"):
            yield (
                f"{table}.{column} {where[:5]}",
                [_cell(data, table, column, where, value) for value in STORED],
            )


def _cell(data: bytes, table: str, column: str, where: str, value: Any) -> Callable[[], bytes]:
    def made() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.sqlite"
            copy.write_bytes(data)
            with closing(sqlite3.connect(copy)) as db, suppress(sqlite3.Error):
                db.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {where}', (value,))
                db.commit()
            return copy.read_bytes()

    return made


def _of_protobuf(
    data: bytes, encode: Callable[[list[Any]], bytes]
) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    nodes = protobuf.tree(data)
    seen: dict[str, int] = {}

    def look(inner: list[Any], path: str) -> Iterator[tuple[Any, str]]:
        for node in inner:
            here = f"{path}.{node[0]}"
            if isinstance(node[2], list):
                yield from look(node[2], here)
            else:
                seen[here] = seen.get(here, 0) + 1
                if seen[here] <= 12:
                    yield node, f"{here}#{seen[here]}"

    def exchanged(node: Any, value: Any) -> Callable[[], bytes]:
        def made() -> bytes:
            was, node[2] = node[2], value
            written = encode(nodes)
            node[2] = was
            return written

        return made

    for node, path in look(nodes, ""):
        if node[1] == 0:
            yield path, [exchanged(node, bits) for bits in BITS]
        elif node[1] == 1:
            yield path, [exchanged(node, struct.pack("<Q", bits)) for bits in BITS]
        elif node[1] == 2 and isinstance(node[2], bytes) and re.search(rb"\d", node[2]):
            yield path, [exchanged(node, re.sub(rb"\d+", t.encode(), node[2])) for t in DIGITS]


def _of_bytes(data: bytes) -> Iterator[tuple[str, list[Callable[[], bytes]]]]:
    for at in range(0, len(data) - 7, 4):
        yield f"@{at}", [_word(data, at, bits) for bits in BITS] + [_half(data, at)]


def _word(data: bytes, at: int, bits: int) -> Callable[[], bytes]:
    return lambda: data[:at] + struct.pack("<Q", bits) + data[at + 8 :]


def _half(data: bytes, at: int) -> Callable[[], bytes]:
    return lambda: data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
