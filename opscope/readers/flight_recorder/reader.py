"""Make the tables of a flight recorder's dump: a call for each collective that a rank entered, and its state.

The layout is that of PyTorch's ``torch/csrc/distributed/c10d/FlightRecorder.hpp``, versions 2.0 to 2.10. A
dump says when a rank entered a collective, and whether it completed, but not when it ran. PyTorch's watchdog
sees the collective's begin and end only after an unknown delay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core import progress
from opscope.core.code_files import kept_frames
from opscope.core.group_specs import members_of
from opscope.core.rangetext import format_call
from opscope.core.schema import Arg, OpCall, TensorSpec
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.heads import is_json
from opscope.readers.kineto.json_events import read_blocks, whole_file
from opscope.readers.kineto.ops import DTYPES
from opscope.readers.pickled import read_values
from opscope.readers.rows import decode
from opscope.readers.sound import sound_trace

Note = tuple[str, str, int]
#: The most bytes of JSON that are read: 2,000 entries take 1 MB.
_MOST_JSON: Final = 256 << 20
#: The most calls of one dump; the recorder keeps 2,000 by default.
_MOST_ENTRIES: Final = 1 << 21
#: Dimensions and tensors of one call that are kept.
_MOST_SIZES: Final = 64
#: The rank at the end of the file's name, as PyTorch writes it.
_RANK: Final = re.compile(r"([0-9]{1,7})\Z")
_SUFFIX: Final = re.compile(r"(?:\.(?:json|pickle|pkl|gz|zst))+\Z")
#: The name before the collective's: ``nccl:all_reduce``.
_BACKEND: Final = re.compile(r"([a-z]{3,8}):(.+)", re.DOTALL)
_TEXT: Final = 512
_CALL: Final = "record_param_comms"
_COMPLETED: Final = "completed"
#: Length (ns) of a call's range: a call is a moment, but a range without a length is not an op.
_MOMENT: Final = 1


def read(path: Path) -> Trace:
    """Return the trace of one rank's dump. Raises BadInput."""
    dump = _dump(path)
    entries = _entries(dump, path)
    notes: list[Note] = []
    groups = _groups(dump.get("pg_config"))
    rows = [_row(entry, groups) for entry in entries]
    calls = [row for row in rows if row is not None]
    if len(calls) < len(rows):
        notes.append(("warning", "entries that cannot be read, left out", len(rows) - len(calls)))
    rank = _RANK.search(_SUFFIX.sub("", path.name))
    trace = sound_trace(
        _tables(calls, None if rank is None else int(rank[1]), groups), _origin(dump, path)
    )
    message = "a dump knows when a rank entered each collective and whether it completed, not how long it ran"
    trace.note("info", message, len(calls))
    for note in notes:
        trace.note(*note)
    if rank is None:
        trace.note(
            "warning",
            "the rank is not known: the file's name does not end in it, as trace_rank_3 does",
            1,
        )
    _note_lost(trace, entries)
    return trace


def _entries(dump: Any, path: Path) -> Sequence[Any]:
    """The entries of a dump. Raises BadInput if it has none."""
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(dump, dict) or not (
        "pg_config" in dump or isinstance(entries, (list, tuple))
    ):
        raise BadInput(path, "not a dump of PyTorch's flight recorder: it lacks its entries")
    entries = entries if isinstance(entries, (list, tuple)) else []
    if len(entries) > _MOST_ENTRIES:
        raise BadInput(path, f"more than {_MOST_ENTRIES:,} entries")
    if not entries:
        raise BadInput(
            path, "a dump of PyTorch's flight recorder without any entry: nothing was called"
        )
    return entries


def _dump(path: Path) -> Any:
    if not is_json(next(read_blocks(path), b"")):
        return read_values(path)
    data = whole_file(path, _MOST_JSON, f"JSON of more than {_MOST_JSON >> 20} MB")
    try:
        return decode(data, dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(path, f"not a dump of PyTorch's flight recorder: {error}") from error


def _origin(dump: Mapping[str, Any], path: Path) -> dict[str, Any]:
    version = dump.get("version")
    return {
        "format": "flight_recorder",
        "tool": "PyTorch's flight recorder",
        "version": version[:_TEXT] if isinstance(version, str) else None,
        "paths": [str(path)],
    }


def _groups(config: Any) -> dict[str, str]:
    """Return the ranks of each process group (JSON) by its name; lists that a backend left empty are
    unknown."""
    groups = {}
    for name, facts in config.items() if isinstance(config, dict) else ():
        ranks = facts.get("ranks") if isinstance(facts, dict) else None
        if isinstance(ranks, tuple):
            ranks = list(ranks)
        members = (
            members_of(ranks) if isinstance(ranks, (str, list)) and len(ranks) < 1 << 20 else None
        )
        if members is not None and "..." not in members and str(name):
            groups[str(name)] = ranks if isinstance(ranks, str) else json.dumps(ranks)
    return groups


def _row(entry: Any, groups: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the range of one call; None if the entry has no name or no time."""
    if not isinstance(entry, dict):
        return None
    name, time = entry.get("profiling_name"), entry.get("time_created_ns")
    if not isinstance(name, str) or type(time) is not int or not 0 < time < 1 << 61:
        return None
    backend = _BACKEND.match(name)
    thread = entry.get("thread_id")
    thread = int(thread) if isinstance(thread, str) and re.fullmatch(r"[0-9]{1,18}", thread) else 0
    call = OpCall(
        _CALL,
        _tensors(entry, "input"),
        _tensors(entry, "output"),
        frames=kept_frames(_frames(entry.get("frames"))),
    )
    return {
        "thread": thread,
        "thread_name": entry.get("thread_name"),
        "start": time,
        "text": format_call(call),
        "attrs": json.dumps(_facts(entry, (backend[2] if backend else name)[:_TEXT], groups)),
    }


def _facts(entry: Mapping[str, Any], kind: str, groups: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"collective": kind}
    group: Any = entry.get("process_group")
    named = group if isinstance(group, (list, tuple)) else ()
    name, description = (*named, None, None)[:2]
    if isinstance(name, str):
        facts["group"] = name[:_TEXT]
        if isinstance(description, str):
            facts["group_description"] = description[:_TEXT]
        if name in groups:
            facts["group_ranks"] = groups[name]
    number = entry.get("collective_seq_id")
    if entry.get("is_p2p") is True:
        number = entry.get("p2p_seq_id")
    if type(number) is int and 0 <= number < 1 << 59:
        facts["collective_seq"] = number
    for side in ("input", "output"):
        sizes = _sizes(entry.get(f"{side}_sizes"))
        if sizes:
            facts["in_nelems" if side == "input" else "out_nelems"] = sum(map(_product, sizes))
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes")
    if isinstance(dtypes, (list, tuple)) and dtypes and isinstance(dtypes[0], str):
        facts["dtype"] = dtypes[0][:_TEXT]
    state = entry.get("state")
    # gloo's state stays "scheduled"; calls that its thread has finished are marked as retired
    facts[_COMPLETED] = state == _COMPLETED or (
        entry.get("retired") is True and not _timed_out(entry)
    )
    if isinstance(state, str):
        facts["state"] = state[:_TEXT]
    return facts


def _timed_out(entry: Mapping[str, Any]) -> bool:
    """Whether a retired call is known to be incomplete: it was seen to begin, but not to end."""
    begun, ended = (entry.get(f"time_discovered_{edge}_ns") for edge in ("started", "completed"))
    return bool(begun) and not ended


def _product(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count = min(count * size, 1 << 53)
    return count


def _sizes(value: Any) -> list[list[int]]:
    """Return the sizes of one side's tensors; none if they cannot be read."""
    if not isinstance(value, (list, tuple)):
        return []
    tensors = [
        list(sizes)
        for sizes in value[:_MOST_SIZES]
        if isinstance(sizes, (list, tuple))
        and len(sizes) <= _MOST_SIZES
        and all(type(size) is int and 0 <= size < 1 << 53 for size in sizes)
    ]
    return tensors if len(tensors) == len(value) else []


def _tensors(entry: Mapping[str, Any], side: str) -> tuple[Arg, ...]:
    dtypes = entry.get(f"{side}_dtypes")
    names = dtypes if isinstance(dtypes, (list, tuple)) else ()
    return tuple(
        TensorSpec(DTYPES.get(str(names[at]), "?") if at < len(names) else "?", tuple(sizes))
        for at, sizes in enumerate(_sizes(entry.get(f"{side}_sizes")))
    )


def _frames(frames: Any) -> list[tuple[str, int]]:
    listed = frames[:256] if isinstance(frames, (list, tuple)) else ()
    return [
        (frame["filename"][:4096], frame["line"])
        for frame in listed
        if isinstance(frame, dict)
        and isinstance(frame.get("filename"), str)
        and type(frame.get("line")) is int
        and 0 <= frame["line"] < 1 << 31
    ]


def _tables(
    rows: Sequence[Mapping[str, Any]], rank: int | None, groups: Mapping[str, str]
) -> dict[str, pl.DataFrame]:
    names = {row["thread"]: row["thread_name"] for row in rows}
    threads = sorted(names)
    return {
        "processes": pl.DataFrame(
            {
                "process": [0],
                "rank": [rank],
                "world_size": [_world(groups)],
                "framework": ["torch"],
                "clock_domain": [0],
            }
        ),
        "clocks": pl.DataFrame({"clock_domain": [0], "kind": ["unix"], "to_unix_ns": [0]}),
        "threads": pl.DataFrame(
            {
                "process": [0] * len(threads),
                "thread": threads,
                "name": [
                    name if isinstance(name := names[thread], str) else None for thread in threads
                ],
            },
            schema={"process": pl.Int32, "thread": pl.Int64, "name": pl.String},
        ),
        "ranges": _ranges(rows),
    }


def _ranges(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a range of one ns for each call, in the order of their times."""
    process = pl.lit(0, pl.Int32).alias("process")
    texts = pl.DataFrame(
        rows,
        schema={
            "thread": pl.Int64, "thread_name": pl.Object, "start": pl.Int64, "text": pl.String,
            "attrs": pl.String,
        },
    ).drop("thread_name")  # fmt: skip
    return texts.sort("start", maintain_order=True).select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        process,
        "thread",
        "start",
        (pl.col("start") + _MOMENT).alias("end"),
        pl.lit("kineto").alias("domain"),
        pl.lit("communication").alias("category"),
        "text",
        "attrs",
        pl.lit("pushpop").alias("kind"),
    )


def _world(groups: Mapping[str, str]) -> int | None:
    """Return the number of ranks of PyTorch's first group, which has all of them."""
    ranks = groups.get("0")
    return None if ranks is None else ranks.count(",") + 1


def _note_lost(trace: Trace, entries: Sequence[Any]) -> None:
    first = min(
        (
            entry["record_id"]
            for entry in entries
            if isinstance(entry, dict) and type(entry.get("record_id")) is int
        ),
        default=0,
    )
    if first > 0:
        message = (
            "earlier calls were overwritten in the buffer (TORCH_FR_BUFFER_SIZE makes it larger)"
        )
        trace.note("info", message, first)
    progress.read_whole(Path(trace.origin["paths"][0]))
