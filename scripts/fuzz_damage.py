"""Damage one trace: its values, its structure, its texts or its bytes, by the rules of its format."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

#: Numbers that replace others: the limits of 8 to 64 bits and of doubles, and numbers beyond them.
NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 255, 65_536, 2**31 - 1, 2**31, -(2**31) - 1, 2_191_500_840, 2**32, 2**53 + 1, 2**60, 2**61,
    2**62, -(2**62), 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 10**30, 0.5, -0.0, 1e18, 1e19, 1e308,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
TEXTS = (
    "", "0", "-1", "nan", "inf", "9" * 40, "x" * 5000, "\x00", "\ud800", "é\u202e", "[[[", '{"a":1}',
    "aten::mm(f32[3,4], f32[4,5]) -> f32[3,5]", "aten::mm(f32[99999999999999999999,4], f32[4,5])",
    "aten::conv2d(f32[1,1,0,0], f32[0,0,0,0])", "_Z" + "N1a" * 60, "stream 99999999999999999999",
    "regs:2191500840 grid:4294967296,0,-1 block:99999999999999999999,1,1 size:99999999999999999999",
    "addmm, seq = 99999999999999999999", "step 99999999999999999999",
    "/etc/passwd", "../../../etc/passwd", "/dev/zero", "é\udcff.py", "[1, 2", "a" * 300 + "/b.py",
)  # fmt: skip
#: What a name of a megabyte consists of: a pattern that looks at each start, or at each pair, takes minutes.
UNITS = (
    "x", " ", "0", "(", "[", "aten::", "f32[3,4], ", "_ZN2at6native", "layer.block1.", "a/b/", "<b>", '"', "\\", "a=",
    "{'mod': 'a', ", "é", "\n", "@a.py:1 ", "-> ", "1x", "void a<int, ", "::", "$_", "ncclDevKernel_", "A",
)  # fmt: skip
LENGTH = 1_000_000
#: How many names of a megabyte a file gets at most.
MANY = 25
#: Values that replace numbers, texts and objects.
ODD: tuple[Any, ...] = (
    None, True, *NUMBERS, *TEXTS, [], [[]], [1, "a", None], {}, {"a": {"b": []}},
)  # fmt: skip
BLOBS = (b"\xff\xfe\x00", b"\xc3", b"\x80abc", b"\x00" * 40, b"")
_TIMES = re.compile(r"start|end|stop|time|ts|dur|id|bytes|address", re.IGNORECASE)


def damaged(source: Path, target: Path, dice: random.Random) -> int | None:
    """Write a damaged copy of ``source``, a file or a folder, to ``target``.

    Returns what its kernels come to, in ns, where only records were doubled or dropped; else None.
    """
    if source.is_dir():
        shutil.copytree(source, target)
        _folder(target, dice)
        return None
    shutil.copyfile(source, target)
    if dice.random() < 0.15:
        with suppress(ValueError, RecursionError, sqlite3.Error):
            kernel_time = records_of(target, dice)
            if kernel_time is not None:
                return kernel_time
    _file(target, dice)
    return None


def _folder(target: Path, dice: random.Random) -> None:
    """Damage a folder's files, or exchange one of them by what is no file."""
    inner = dice.choice(sorted(one for one in target.rglob("*") if one.is_file()))
    if dice.random() < 0.05:
        return no_file(inner, dice)
    if (target / "meta.json").is_file():
        return profile_of(target, dice)
    if any(target.glob("part-*")):
        return recording_of(target, dice)
    if any(target.rglob("*.parquet")):
        return parquet_of(target, dice)
    if dice.random() < 0.1:
        return inner.unlink()
    _file(inner, dice)


def no_file(path: Path, dice: random.Random) -> None:
    """Replace a file by a link to a device, out of the folder or to itself, or by a pipe or a folder."""
    path.unlink()
    kind = dice.choice(("/dev/zero", "/etc/passwd", "/dev/null", path.name, "..", "pipe", "folder"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(kind)


def long_name(dice: random.Random) -> str:
    """A name of a megabyte: a text that is usual there, and then one unit again and again."""
    unit = dice.choice(UNITS)
    return dice.choice(("", "", "aten::mm(", "_Z", "layer:")) + unit * (LENGTH // len(unit))


# ------------------------------------------------------------------------ records, side files

#: Tables of databases whose rows are kernels, and have a correlation id that makes two equal rows one.
KERNELS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)


def records_of(file: Path, dice: random.Random) -> int | None:
    """Double or drop kernels; return what the distinct ones come to, in ns, or None for other formats."""
    head, dropped = file.read_bytes()[:16], dice.random() < 0.5
    share, part = dice.choice((1, 2, 3)), dice.randrange(3)
    if head.startswith(b"SQLite"):
        total = None
        with closing(sqlite3.connect(file)) as db:
            tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master")}
            for table in sorted(tables & {*KERNELS}):
                where = f"rowid % {share + dropped} = {part % (share + dropped)}"
                db.execute(f"DELETE FROM {table} WHERE {where}" if dropped else
                           f"INSERT INTO {table} SELECT * FROM {table} WHERE {where}")  # fmt: skip
                query = f'SELECT sum("end" - start) FROM (SELECT DISTINCT * FROM {table})'
                total = (total or 0) + (db.execute(query).fetchone()[0] or 0)
            db.commit()
        return total
    if head[:1] != b"{":
        return None
    whole = json.loads(file.read_bytes())
    events = whole.get("traceEvents", ())
    kernels = [event for event in events if event.get("cat") == "kernel"]
    if not kernels or "dur" not in kernels[0]:
        return None
    chosen = kernels[part % 2 :: share + dropped]
    if dropped:
        whole["traceEvents"] = [event for event in events if event not in chosen]
    else:
        events += chosen
    file.write_text(json.dumps(whole))
    left = {json.dumps(e, sort_keys=True): e["dur"] for e in whole["traceEvents"] if e in kernels}
    return round(1000 * sum(left.values()))


def sides_of(file: Path, dice: random.Random) -> None:
    """Leave a database as a writer that was killed leaves it, or lay beside it what is no log of it."""
    if dice.random() < 0.3:
        side = file.with_name(file.name + dice.choice(("-wal", "-journal", "-shm")))
        head = dice.choice((b"\x37\x7f\x06\x82", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", b""))
        side.write_bytes(head + dice.randbytes(dice.choice((0, 28, 5000))))
        return
    origin = file.with_name("writing")
    file.rename(origin)
    with closing(sqlite3.connect(origin, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {dice.choice(('wal', 'delete'))}")
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN")
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in dice.sample(tables, min(3, len(tables))):
            with suppress(sqlite3.Error):
                db.execute(f'DELETE FROM "{table}" WHERE rowid % 2')
        db.execute("CREATE TABLE filler AS SELECT randomblob(100000) AS words")
        if dice.random() < 0.7:
            db.execute("COMMIT")
        for suffix in ("", "-wal", "-journal", "-shm"):
            side = origin.with_name(origin.name + suffix)
            if side.is_file() and (not suffix or dice.random() < 0.9):
                shutil.copy(side, file.with_name(file.name + suffix))
    for path in file.parent.glob("writing*"):
        path.unlink()
    if dice.random() < 0.5:
        bytes_of(dice.choice(sorted(file.parent.glob(f"{file.name}*"))), dice)


# ------------------------------------------------------------------------------------ bytes


def _file(target: Path, dice: random.Random) -> None:
    """Damage a file in a way that fits what it holds."""
    head = target.read_bytes()[:16]
    fitting: Callable[[Path, random.Random], None] = bytes_of
    if head.startswith(b"SQLite"):
        fitting = sides_of if dice.random() < 0.1 else sqlite_of
    elif head[:1] in (b"{", b"[") or re.search(r"\.json(\.gz)?\Z", target.name):
        fitting = json_of
    elif ".xplane.pb" in target.name:
        fitting = protobuf_of
    elif target.name.endswith(".partial.parquet"):
        fitting = partial_of
    elif target.suffix == ".run":
        fitting = baseline_of
    elif target.suffix in (".csv", ".txt"):
        fitting = cells_of
    return (fitting if dice.random() < 0.9 else bytes_of)(target, dice)


def bytes_of(file: Path, dice: random.Random) -> None:
    """Flip bits; overwrite, double or delete stretches of bytes; or cut off the file."""
    data = bytearray(file.read_bytes())
    for _ in range(dice.choice((1, 1, 3, 20))):
        if not data:
            break
        at, many = dice.randrange(len(data)), dice.choice((1, 1, 4, 64, 4096))
        kind = dice.randrange(6)
        if kind == 0:
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            data[at : at + many] = bytes(dice.choice((0, 0xFF)) for _ in data[at : at + many])
        elif kind == 2:
            data[at:at] = data[at : at + many]
        elif kind == 3:
            data[at : at + many] = dice.randbytes(many)
        elif kind == 4:
            del data[at : at + many]
        else:
            del data[at:]
    file.write_bytes(data)


#: Cells that a table's column may not be ready for.
CELLS = (
    b"", b"-1", b"nan", b"inf", b"1e400", b"9" * 19, b"9" * 400, b'"', b'""', b"N/A", b"\xff", b"a,b", b"0x1f", b"\0",
    b"[1,2", b"-9223372036854775808", b"99999999999999999999.5", b"1" + b"0" * 15,
)  # fmt: skip


def cells_of(file: Path, dice: random.Random) -> None:
    """Replace cells of a table, or of a text of lines; double or delete a line."""
    lines = file.read_bytes().split(b"\n")
    for _ in range(dice.choice((1, 1, 3, 20))):
        at = dice.randrange(len(lines))
        kind = dice.randrange(8)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines[at:at] = [lines[at]] * (dice.choice((1, 1000)) if len(lines[at]) < 10_000 else 1)
        else:
            parts = re.split(rb"([,; ])", lines[at])
            cell = long_name(dice).encode() if dice.random() < 0.02 else dice.choice(CELLS)
            parts[dice.randrange(len(parts))] = cell
            lines[at] = b"".join(parts)
    file.write_bytes(b"\n".join(lines))


# ----------------------------------------------------------------------------------- JSON


def json_of(file: Path, dice: random.Random) -> None:
    """Replace values of a JSON file by odd ones, duplicate or delete events, break the JSON."""
    packed = file.read_bytes()[:2] == b"\x1f\x8b"
    text = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):  # damaged before
        return bytes_of(file, dice)
    if dice.random() < 0.03 and isinstance(whole, dict):  # as if nothing had been recorded
        whole["traceEvents"] = [e for e in whole.get("traceEvents", ()) if e.get("ph") == "M"][:2]
    elif dice.random() < 0.04:
        long_names(whole, dice)
    elif dice.random() < 0.3:
        everywhere(whole, dice)
    else:
        here_and_there(whole, dice)
    data = json.dumps(whole).encode("utf-8", "surrogatepass")
    if dice.random() < 0.2:
        odd = (b"[" * 10**5, b"9" * 5000, b"-", b"1e999", b'"\\u', b'"\xff\xfe"', b"NaN")
        data = data.replace(b"null", dice.choice(odd))
    file.write_bytes(gzip.compress(data, 1) if packed else data)


def long_names(whole: Any, dice: random.Random) -> None:
    """Replace some texts, of one key or of any, by names of a megabyte."""
    holders: list[tuple[Any, Any]] = []

    def look(node: Any) -> None:
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(inner, (dict, list)):
                look(inner)
            elif isinstance(inner, str):
                holders.append((node, key))

    look(whole)
    keys = sorted({key for _, key in holders if isinstance(key, str)})
    key = dice.choice(keys) if keys and dice.random() < 0.7 else None
    fitting = [(node, at) for node, at in holders if key in (None, at)]
    name, kinds = (
        long_name(dice),
        {node["ph"] for node, _ in holders if isinstance(node, dict) and "ph" in node},
    )
    for number, (node, at) in enumerate(dice.sample(fitting, min(MANY, len(fitting)))):
        if node[at] not in kinds:  # they say what the event is
            node[at] = f"{name}{number}"


def here_and_there(whole: Any, dice: random.Random) -> None:
    """Replace, delete or duplicate single values in random places."""
    for _ in range(dice.choice((1, 3, 30, 300))):
        node = whole
        for _ in range(dice.choice((1, 2, 2, 3, 4, 5))):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(node[key], (dict, list)) and node[key] and dice.random() < 0.9:
                node = node[key]
                continue
            deed = dice.random()
            if deed < 0.15:
                del node[key]
            elif deed < 0.3 and isinstance(node, list):
                node.insert(dice.randrange(len(node)), deepcopy(node[key]))
            elif deed < 0.4 and type(node[key]) in (int, float):
                node[key] = -node[key]
            else:
                node[key] = deepcopy(dice.choice(ODD))
            break


def everywhere(whole: Any, dice: random.Random) -> None:
    """Replace the value of one key by one odd value, in all objects that have the key or some of them."""
    found: list[tuple[dict[str, Any], str]] = []

    def look(node: Any) -> None:
        if isinstance(node, dict):
            found.extend((node, key) for key in node)
        for inner in node.values() if isinstance(node, dict) else node:
            if isinstance(inner, (dict, list)):
                look(inner)

    look(whole)
    for _ in range(dice.choice((1, 1, 2))):
        keys = sorted({key for _, key in found} - {"traceEvents"})
        if not keys:
            return
        key = dice.choice(keys)
        value, share = dice.choice(ODD), dice.choice((0.1, 0.5, 1))
        for node, name in found:
            if name == key and dice.random() < share:
                node[name] = deepcopy(value)


# ----------------------------------------------------------------------------------- SQLite


def sqlite_of(file: Path, dice: random.Random) -> None:
    """Replace values of a database by odd ones; duplicate rows; delete or rename tables and columns."""
    with closing(sqlite3.connect(file)) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice((1, 1, 2, 5, 20))):
            table = dice.choice(tables)
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            if not columns:
                continue
            timed = [name for name in columns if _TIMES.search(name)]
            column = dice.choice(timed if timed and dice.random() < 0.5 else columns)
            for sql, given in _deed(table, column, dice.choice(columns), dice):
                with suppress(sqlite3.Error):
                    db.execute(sql, given)
            if len(tables) > 1:
                tables = [
                    n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                ]
        db.commit()


def _deed(
    table: str, column: str, other: str, dice: random.Random
) -> list[tuple[str, tuple[Any, ...]]]:
    value = dice.choice(BLOBS) if dice.random() < 0.2 else dice.choice(ODD)
    if isinstance(value, (list, dict)):
        value = json.dumps(value).encode()
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    elif isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    if dice.random() < 0.03:
        text = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? || rowid WHERE rowid <= {MANY}'
        return [(text, (long_name(dice),))]
    where = dice.choice(("1", "rowid % 7 = 1", "rowid = 1", "rowid % 2", "rowid % 5 = 3"))
    exchanged = (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {where}', (value,))
    if dice.random() < 0.55:
        return [exchanged]
    if isinstance(value, bytes) and dice.random() < 0.5:  # bytes that claim to be a text
        return [(f'UPDATE "{table}" SET "{column}" = CAST(? AS TEXT) WHERE {where}', (value,))]
    generated = dice.choice((
        f'"{other}"', "printf('%.*c', 1000000, 'x')", "9223372036854775807", "zeroblob(100000)",
        "1e999", f'abs("{other}") / 0',
    ))  # fmt: skip
    return dice.choice((
        [(f'UPDATE OR IGNORE "{table}" SET "{column}" = "{other}" WHERE {where}', ())],
        [(f'UPDATE OR IGNORE "{table}" SET "{column}" = -"{column}" WHERE {where}', ())],
        [(f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE {where}', ())],
        [(f'DELETE FROM "{table}" WHERE {where}', ())],
        [(f'DROP TABLE "{table}"', ())],
        [(f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ())],
        [
            (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "was_{column}"', ()),
            (f'ALTER TABLE "{table}" ADD COLUMN "{column}" AS ({generated})', ()),
        ],
        [
            (f'ALTER TABLE "{table}" RENAME TO "was_{table}"', ()),
            (f'CREATE VIEW "{table}" AS SELECT * FROM "was_{table}"', ()),
        ],
    ))  # fmt: skip


# ------------------------------------------------------------------------- protobuf, Parquet


def protobuf_of(file: Path, dice: random.Random) -> None:
    """Replace, duplicate, renumber or delete fields of messages, and adjust the lengths."""
    from tests.readers import protobuf

    nodes = protobuf.tree(file.read_bytes())
    for _ in range(dice.choice((1, 2, 8))):
        if dice.random() < 0.5:
            protobuf.damaged(
                nodes, dice.randrange(1 << 30), dice.randrange(6), dice.randrange(1 << 30)
            )
            continue
        holder, node = dice.choice(protobuf.places(nodes))
        if node[1] == 0:
            number = dice.choice([n for n in NUMBERS if isinstance(n, int)])
            node[2] = number & (2**64 - 1)
        elif node[1] == 2 and isinstance(node[2], bytes):
            name = long_name(dice) if dice.random() < 0.03 else dice.choice(TEXTS)
            text = name.encode("utf-8", "surrogatepass")
            node[2] = dice.choice((text, dice.choice(BLOBS), _widened(node[2], dice)))
        elif dice.random() < 0.2:
            holder.remove(node)
    file.write_bytes(protobuf.encoded(nodes))


def _widened(text: bytes, dice: random.Random) -> bytes:
    """Return the text with some numbers replaced."""
    number = str(dice.choice(NUMBERS)).encode()
    return re.sub(rb"\d+", lambda found: number if dice.random() < 0.5 else found[0], text)


def parquet_of(folder: Path, dice: random.Random) -> None:
    """Damage Parquet tables of a folder: delete columns, change their type or values; or damage bytes."""
    import polars as pl

    for _ in range(dice.choice((1, 1, 2, 4))):
        file = dice.choice(sorted(folder.rglob("*.parquet")))
        if dice.random() < 0.1:
            bytes_of(file, dice)
            continue
        with suppress(pl.exceptions.PolarsError, OSError):
            frame = _frame_of(pl.read_parquet(file), dice)
            frame.write_parquet(file)


def partial_of(file: Path, dice: random.Random) -> None:
    """Damage what a rank's partial says of itself, or its tables, which are Arrow streams in cells."""
    import polars as pl

    from opscope.scale import packed

    rows = pl.read_parquet(file)
    names, counts, data = (rows[name].to_list() for name in ("name", "rows", "data"))
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = 0 if dice.random() < 0.2 else dice.randrange(len(names))
        if place == 0:
            about = json.loads(data[0])
            here_and_there(about, dice)
            data[0] = json.dumps(about).encode("utf-8", "surrogatepass")
            continue
        with suppress(pl.exceptions.PolarsError):
            frame = pl.read_ipc_stream(io.BytesIO(data[place]))
            frame = _frame_of(frame, dice)
            held = io.BytesIO()
            frame.write_ipc_stream(held)
            data[place], counts[place] = held.getvalue(), len(frame)
        if dice.random() < 0.1:
            names[place], counts[place] = dice.choice(names), dice.choice((0, 1, -1, 2**31))
    if dice.random() < 0.8:  # as one who wants it to be read
        data[-1] = packed._digest(zip(names[:-1], counts[:-1], data[:-1], strict=True))
    made = {"name": names, "rows": counts, "data": data}
    pl.DataFrame(made, schema=rows.schema).write_parquet(file)


def baseline_of(file: Path, dice: random.Random) -> None:
    """Damage the tables of a baseline's run, which are columns in compressed JSON."""
    from opscope.baselines.stored import MAGIC

    whole = json.loads(lzma.decompress(file.read_bytes().removeprefix(MAGIC)))
    (everywhere if dice.random() < 0.3 else here_and_there)(whole, dice)
    file.write_bytes(
        MAGIC + lzma.compress(json.dumps(whole).encode("utf-8", "surrogatepass"), preset=0)
    )


def _frame_of(frame: Any, dice: random.Random) -> Any:
    import polars as pl

    if not frame.width:  # its last column was dropped
        return frame
    timed = [name for name in frame.columns if _TIMES.search(name)]
    name = dice.choice(timed if timed and dice.random() < 0.5 else frame.columns)
    kind = frame.schema[name]
    some = pl.int_range(pl.len()) % dice.choice((1, 2, 5)) == 0
    deed = dice.randrange(10)
    if deed == 0:
        return frame.drop(name)
    if deed == 1:
        return frame.head(dice.choice((0, 1, len(frame) // 2)))
    if deed == 2:
        return pl.concat([frame, frame.head(dice.choice((1, 5)))])
    if deed == 3:
        others = (pl.String, pl.Float64, pl.UInt8, pl.UInt64, pl.Binary, pl.Boolean, pl.Date)
        return frame.with_columns(pl.col(name).cast(dice.choice(others), strict=False))
    if deed == 4:
        return frame.with_columns(pl.lit(None, kind).alias(name))
    if deed == 5:
        value = float(dice.choice(NUMBERS))
        return frame.with_columns(pl.when(some).then(pl.lit(value)).otherwise(name).alias(name))
    if deed == 6:
        return frame.with_columns(pl.concat_list(name).alias(name))
    if kind.is_integer():
        value = dice.choice([v for v in NUMBERS if type(v) is int and abs(v) < 2**63])
        odd = pl.lit(value, pl.Int64).cast(kind, strict=False)
        return frame.with_columns(pl.when(some).then(odd).otherwise(name).alias(name))
    text = dice.choice([v for v in TEXTS if v.isprintable()])
    if dice.random() < 0.05:
        text, some = long_name(dice), pl.int_range(pl.len()) < MANY
    return frame.with_columns(
        pl.when(some).then(pl.lit(text)).otherwise(name).cast(kind).alias(name)
    )


# ----------------------------------------------------------------------------------- our own


def profile_of(folder: Path, dice: random.Random) -> None:
    """Damage an opscope profile: its list of files, or a table."""
    if dice.random() < 0.2:
        return json_of(folder / "meta.json", dice)
    return parquet_of(folder, dice)


def recording_of(folder: Path, dice: random.Random) -> None:
    """Damage a recording: values of its JSON, numbers of its records, or bytes of any file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for _ in range(dice.choice((1, 1, 2, 4))):
        file = dice.choice(files)
        if dice.random() < 0.15:
            bytes_of(file, dice)
        elif file.suffix == ".json":
            json_of(file, dice)
        elif file.suffix == ".jsonl":
            lines = file.read_bytes().splitlines()
            with suppress(ValueError, IndexError, RecursionError):
                at = dice.randrange(len(lines))
                whole = [json.loads(lines[at])]
                (long_names if dice.random() < 0.04 else here_and_there)(whole, dice)
                lines[at : at + 1] = [
                    json.dumps(one).encode("utf-8", "surrogatepass") for one in whole
                ]
                file.write_bytes(b"".join(line + b"\n" for line in lines))
        else:
            data = bytearray(file.read_bytes())
            for _ in range(dice.choice((1, 3))):
                if len(data) >= 8:
                    at = dice.randrange(len(data) // 8) * 8
                    number = dice.choice([n for n in NUMBERS if isinstance(n, int)]) & (2**64 - 1)
                    data[at : at + 8] = number.to_bytes(8, "little")
            file.write_bytes(data)
