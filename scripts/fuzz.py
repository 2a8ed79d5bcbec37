"""Damages traces in every way that it knows and opens them: each is read or refused, never more.

Usage: python scripts/fuzz.py TRACE... [--seconds 600] [--seed 0] [--keep FOLDER]

Each damaged file is opened and asked for every frame in a process whose memory and time are bounded.
What ends in anything but an answer, or one ``BadInput`` that names the file, is kept in FOLDER with its
traceback beside it, and told. Exit status 1 where there was any.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

#: A file of a few megabytes may take this much; more is a bomb that went off.
MOST_BYTES = 6 << 30
MOST_GROWTH = 1 << 30
MOST_SECONDS = 120
FRAMES = (
    "summary", "kernels", "memops", "ops", "op_totals", "kernel_totals", "unattributed", "gaps",
    "range_totals",
    "missing_costs", "communication", "collectives", "memory", "memory_by_op", "compiled",
    "groups", "meshes", "clocks", "efficiency", "utilization", "notes",
)  # fmt: skip
#: Values that stand where numbers, texts and objects belong.
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**64,
    10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "-1", "nan", "9" * 40, "x" * 5000,
    "\x00", "\ud800", "é\u202e", [], [[]], [1, "a", None], {}, {"a": {"b": []}},
    "aten::mm(f32[3,4], f32[4,5]) -> f32[3,5]", "aten::mm(f32[99999999999999999999,4], f32[4,5])",
    "aten::conv2d(f32[1,1,0,0], f32[0,0,0,0])",
)  # fmt: skip


# ------------------------------------------------------------------------------- damage


def bytes_of(file: Path, dice: random.Random) -> None:
    """Bits turned over, stretches emptied, doubled, moved, or cut off."""
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


def json_of(file: Path, dice: random.Random) -> None:
    """Values of a JSON file exchanged for odd ones, events doubled, texts put into each other."""
    packed = file.read_bytes()[:2] == b"\x1f\x8b"
    text = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
    whole = json.loads(text)
    for _ in range(dice.choice((1, 3, 30, 300))):
        node: Any = whole
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
    data = json.dumps(whole).encode("utf-8", "surrogatepass")
    if dice.random() < 0.2:
        data = data.replace(
            b"null", dice.choice((b"[" * 10**5, b"9" * 5000, b"-", b"1e999", b'"\\u'))
        )
    file.write_bytes(gzip.compress(data, 1) if packed else data)


def sqlite_of(file: Path, dice: random.Random) -> None:
    """Values of a database exchanged for odd ones, rows doubled, tables and columns gone or renamed."""
    with sqlite3.connect(file) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice((1, 2, 5, 20))):
            table = dice.choice(tables)
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            if not columns:
                continue
            column, other, value = dice.choice(columns), dice.choice(columns), dice.choice(ODD)
            if isinstance(value, (list, dict)):
                value = json.dumps(value).encode()
            elif isinstance(value, int) and abs(value) >= 2**63:
                value = float(value)
            elif isinstance(value, str):
                value = value.encode("utf-8", "replace").decode()
            where = dice.choice(
                ("1", "rowid % 7 = 1", "rowid = 1", "rowid % 2", "random() % 50 = 0")
            )
            sql, given = dice.choice(
                (
                    (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {where}', (value,)),
                    (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {where}', (value,)),
                    (f'UPDATE OR IGNORE "{table}" SET "{column}" = "{other}" WHERE {where}', ()),
                    (f'UPDATE OR IGNORE "{table}" SET "{column}" = -"{column}" WHERE {where}', ()),
                    (f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE {where}', ()),
                    (f'DELETE FROM "{table}" WHERE {where}', ()),
                    (f'DROP TABLE "{table}"', ()),
                    (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ()),
                )
            )
            with suppress(sqlite3.Error):
                db.execute(sql, given)
            if sql.startswith("DROP") and len(tables) > 1:
                tables.remove(table)
    db.close()


def profile_of(folder: Path, dice: random.Random) -> None:
    """A profile of our own: its list of files, or the columns of a table, or the bytes of one."""
    import polars as pl

    files = sorted(folder.rglob("*.parquet"))
    if dice.random() < 0.25:
        return json_of(folder / "meta.json", dice)
    file = dice.choice(files)
    if dice.random() < 0.3:
        return bytes_of(file, dice)
    frame = pl.read_parquet(file)
    name = dice.choice(frame.columns)
    deed = dice.randrange(6)
    if deed == 0:
        frame = frame.drop(name)
    elif deed == 1:
        frame = frame.head(dice.choice((0, 1, len(frame) // 2)))
    elif deed == 2:
        frame = pl.concat([frame, frame.head(dice.choice((1, 5)))])
    elif deed == 3:
        with suppress(pl.exceptions.PolarsError):
            frame = frame.with_columns(
                pl.col(name).cast(dice.choice((pl.String, pl.Float64, pl.UInt8)))
            )
    elif deed == 4:
        frame = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name))
    elif frame.schema[name].is_integer():
        odd = dice.choice([v for v in ODD if type(v) is int and abs(v) < 2**63])
        size = frame.schema[name]
        some = pl.int_range(pl.len()) % dice.choice((1, 2, 5)) == 0
        value = pl.lit(odd, pl.Int64).cast(size, strict=False)
        frame = frame.with_columns(pl.when(some).then(value).otherwise(name).alias(name))
    else:
        text = dice.choice([v for v in ODD if isinstance(v, str) and v.isprintable()])
        with suppress(pl.exceptions.PolarsError):
            frame = frame.with_columns(pl.lit(text).cast(frame.schema[name]).alias(name))
    frame.write_parquet(file)
    return None


def damaged(source: Path, target: Path, dice: random.Random) -> None:
    """A damaged copy of ``source``."""
    if source.is_dir():
        shutil.copytree(source, target)
        return profile_of(target, dice)
    shutil.copy(source, target)
    head = target.read_bytes()[:16]
    fitting: Callable[[Path, random.Random], None] = bytes_of
    if head.startswith(b"SQLite"):
        fitting = sqlite_of
    elif head[:1] in (b"{", b"[") or re.search(r"\.json(\.gz)?\Z", source.name):
        fitting = json_of
    return (fitting if dice.random() < 0.75 else bytes_of)(target, dice)


# ------------------------------------------------------------------------------- asking


def asked(file: Path) -> str | None:
    """What went wrong when the file was opened and asked for everything; None where nothing did."""
    import opscope
    from opscope.readers import BadInput

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        profile = opscope.load(file)
        for name in FRAMES:
            getattr(profile, name)()
    except BadInput as error:
        if str(file) not in str(error):
            return f"the complaint does not name the file: {error}"
    except BaseException:  # noqa: BLE001 - panics of Rust among them; this is what we look for
        return traceback.format_exc()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"took {grown >> 10} MiB" if grown << 10 > MOST_GROWTH else None


def work(tasks: Any, answers: Any) -> None:
    """Asks files that come in until none does."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    warnings.simplefilter("ignore")
    sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - panics tell themselves there
    while (file := tasks.get()) is not None:
        answers.put(asked(Path(file)))


class Asker:
    """A process that asks, exchanged for a new one where it dies or takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._tasks, self._answers = context.Queue(), context.Queue()
        self._process = context.Process(target=work, args=(self._tasks, self._answers), daemon=True)
        self._process.start()

    def __call__(self, file: Path) -> str | None:
        self._tasks.put(str(file))
        begun = time.monotonic()
        while True:
            try:
                answer: str | None = self._answers.get(timeout=1)
                return answer
            except Exception:  # noqa: BLE001 - queue.Empty, of whichever context
                if not self._process.is_alive():
                    answer = f"the process ended with {self._process.exitcode}"
                elif time.monotonic() - begun > MOST_SECONDS:
                    self._process.kill()
                    answer = f"no answer in {MOST_SECONDS} s"
                else:
                    continue
                self._start()
                return answer

    def close(self) -> None:
        """End the process."""
        self._tasks.put(None)
        self._process.join(10)


def main() -> int:
    """Damage and ask until the time is over; tell what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    given = parser.parse_args()
    asker, end, seen, asked_for = Asker(), time.monotonic() + given.seconds, set(), 0
    seed = given.seed
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            source = given.traces[seed % len(given.traces)]
            target = Path(folder) / f"{seed}-{source.name}"
            damaged(source, target, random.Random(seed))
            wrong = asker(target)
            asked_for += 1
            if wrong is not None:
                lines = wrong.strip().splitlines()
                places = [line.strip() for line in lines if "/opscope/" in line]
                key = (lines[-1][:60], places[-1] if places else "")
                if key not in seen:
                    seen.add(key)
                    given.keep.mkdir(exist_ok=True)
                    kept = given.keep / target.name
                    (shutil.copytree if target.is_dir() else shutil.copy)(target, kept)
                    (given.keep / f"{target.name}.txt").write_text(wrong)
                    print(f"{kept}: {key[0]} {key[1]}", flush=True)
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            seed += 1
    asker.close()
    print(f"{asked_for} damaged files, {len(seen)} kinds of failure")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
