"""Names of a megabyte in the places of a small trace that have a text, whatever its format."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from tests import plain_values
from tests.readers import protobuf

#: Texts of JSON that say what an event is.
_KINDS = ("ph", "cat", "s", "bp", "Type", "Location", "LayerType", "ParameterType", "op_name")
_WORD = re.compile(rb"[A-Za-z_]{4,}")


def lengthen(path: Path, tail: str, most: int = 25) -> int:
    """Append ``tail`` to up to ``most`` texts of a file, or of each file of a folder; return to how many."""
    if path.is_dir():
        return sum(lengthen(file, tail, most) for file in sorted(path.rglob("*")) if file.is_file())
    data = path.read_bytes()
    values = plain_values.decoded(path, data)
    if values is not None:
        whole, encode = values
        count = _json(whole, tail, most)
        path.write_bytes(encode())
        return count
    if data.startswith(b"SQLite"):
        return _database(path, tail, most)
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        count = _json(lines, tail, most)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return count
    if path.suffix == ".dict":  # PyProf's: a dictionary a line, in Python's syntax
        lines = [ast.literal_eval(line.decode()) for line in data.splitlines()]
        count = _json(lines, tail, most)
        path.write_text("".join(f"{line}\n" for line in lines))
        return count
    if data[:1] in (b"{", b"["):
        whole = json.loads(data)
        if path.name == "meta.json":  # a profile's own list of its files
            return 0
        count = _json(whole, tail, most)
        path.write_text(json.dumps(whole))
        return count
    if path.suffix in protobuf.SUFFIXES:
        return _protobuf(path, data, tail, most)
    if path.suffix == ".parquet":
        return _parquet(path, tail)
    if path.suffix in (".csv", ".txt", ".log"):
        head, *rows = data.split(b"\n")
        plain = re.sub(r'[,"\n]', "", tail).encode()
        long = [_WORD.sub(lambda word: word[0] + plain, row, count=1) for row in rows[:most]]
        path.write_bytes(b"\n".join([head, *long, *rows[most:]]))
        return len(long)
    return 0


def _json(whole: Any, tail: str, most: int) -> int:
    places = list(_texts(whole))
    step = max(1, len(places) // most)
    for node, key in places[::step][:most]:
        node[key] += tail
    return len(places[::step][:most])


def _texts(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(inner, (dict, list)):
            yield from _texts(inner)
        elif isinstance(inner, str) and inner and key not in _KINDS:
            yield node, key


def _database(path: Path, tail: str, most: int) -> int:
    count = 0
    with closing(sqlite3.connect(path)) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if table.startswith("META_DATA"):  # what says the version
                continue
            for column in [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]:
                if count < most:
                    name = f'"{column}"'
                    long = f"UPDATE \"{table}\" SET {name} = {name} || ? WHERE typeof({name}) = 'text' AND rowid < 12"
                    count += db.execute(long, (tail,)).rowcount
        db.commit()
    return count


def _protobuf(path: Path, data: bytes, tail: str, most: int) -> int:
    nodes = protobuf.tree(data)
    texts = [node for _, node in protobuf.places(nodes) if node[1] == 2 and _is_text(node[2])]
    for node in texts[:: max(1, len(texts) // most)][:most]:
        node[2] += tail.encode()
    path.write_bytes(protobuf.encoded(nodes))
    return min(most, len(texts))


def _is_text(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) > 4 and value.isascii()


def _parquet(path: Path, tail: str) -> int:
    frame = pl.read_parquet(path)
    names = [name for name, kind in frame.schema.items() if kind == pl.String and len(frame)]
    first = pl.int_range(pl.len()) < 3
    longer = (
        pl.when(first).then(pl.col(name) + tail).otherwise(name).alias(name) for name in names
    )
    frame.with_columns(longer).write_parquet(path)
    return len(names)
