"""Turn a recording's records into ranges: match pushes with pops, in columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from opscope.core import recording_format
from opscope.core.payload import SEQ_BITS
from opscope.core.schema import UNCLOSED
from opscope.core.tables.intervals import Ints

from .ring import times


@dataclass(slots=True)
class Texts:
    """Sorted text ids, the meaning of each (``table``), and its domain number in pops (``domains``)."""

    ids: Ints
    domains: Ints
    table: pl.DataFrame

    def places(self, ids: Ints) -> Ints:
        """Return the row of each id in the table; -1 if it has no row."""
        if not len(self.ids):
            return np.full(len(ids), -1, dtype=np.int64)
        index = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        matched: Ints = np.where(self.ids[index] == ids, index, -1)
        return matched


#: Ranges cut by the recording's edges, and whether that matters.
BEGUN_BEFORE: Final = (
    "ends of ranges that began before the recording, left out (harmless: the next range is "
    "recorded)"
)
BEGUN_LAST: Final = "ranges opened as the recording ended, left out (harmless: nothing ran in them)"
#: The list of texts is incomplete: the meaning of these ranges is not known.
TEXT_LOST: Final = "records whose text was lost"
STILL_OPEN: Final = (
    "ranges still open at the end of the recording, closed there (harmless: all work in them counts; a step"
    " among them counts if its ops show where it ended)"
)


def ranges(
    logs: Mapping[int, Ints],
    texts: Texts,
    os_tids: Mapping[int, int],
    stop: int,
    notes: list[tuple[str, str, int]],
) -> pl.DataFrame:
    """Return the ``ranges`` table of one process, by start; appends to ``notes`` what was left out.

    ``logs`` has the records of each thread index, arrays of (code, value). ``stop`` is the end of the
    recording, ns.
    """
    counts: Counter[str] = Counter()
    frames = [_thread_ranges(np.empty((0, 2), np.int64), 0, stop, texts, counts)]
    logs_of: dict[int, list[Ints]] = {}
    for index, log in logs.items():
        if index not in os_tids:
            counts["threads whose description was lost: they are numbered -1, -2 and so on"] += 1
        logs_of.setdefault(os_tids.get(index, -1 - index), []).append(log)
    for thread, parts in logs_of.items():
        log = np.concatenate(parts)
        if len(parts) > 1:  # native code may take over between a push and its pop
            log = log[np.argsort(times(log), kind="stable")]
        frames.append(_thread_ranges(log, thread, stop, texts, counts))
    rows_of_ranges = pl.concat(frames).sort(
        "start", "end", descending=[False, True], maintain_order=True
    )
    notes += [
        ("warning" if message == TEXT_LOST else "info", message, how_many)
        for message, how_many in counts.items()
        if how_many
    ]
    described = (
        texts.table[rows_of_ranges["place"]] if rows_of_ranges.height else texts.table.clear()
    )
    return pl.concat([rows_of_ranges.drop("place"), described], how="horizontal").select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
        "thread",
        pl.col("thread").alias("end_thread"),
        "start",
        "end",
        "domain",
        "category",
        "text",
        (pl.col("payload") & ((1 << SEQ_BITS) - 1)).alias("seq"),
        (pl.col("payload") // (1 << SEQ_BITS)).alias("fwd_thread"),
        "payload",
        pl.when("unclosed").then(pl.lit(UNCLOSED)).alias("attrs"),
        "kind",
    )


def _thread_ranges(
    log: Ints, thread: int, stop: int, texts: Texts, counts: Counter[str]
) -> pl.DataFrame:
    """Match pushes with their pops, domain by domain: one sort by depth, no loop over records.

    At one depth of one domain, pushes and pops alternate, so after a stable sort a push is followed by its
    pop. A pop with nothing open belongs to a range that was pushed before the recording. A range that is
    open at the end is closed at ``stop``.
    """
    code, value = log[:, 0], log[:, 1]
    carried = np.full(len(code), -1, dtype=np.int64)
    carried[1:] = np.where(code[:-1] == recording_format.PAYLOAD, value[:-1], -1)
    timed = code != recording_format.PAYLOAD
    code, value, carried = code[timed], value[timed], carried[timed]

    is_mark = code >= recording_format.MARK_BASE
    is_plain_pop = (code < 0) & (code > recording_format.COMPLETE_BASE)
    number = np.where(is_mark, code - recording_format.MARK_BASE, code)
    number = np.where(
        code <= recording_format.COMPLETE_BASE, recording_format.COMPLETE_BASE - code, number
    )
    index = np.where(is_plain_pop, -1, texts.places(number))
    domain = np.where(index >= 0, texts.domains[index] if len(texts.ids) else -1, -1)
    domain = np.where(is_plain_pop, recording_format.POP_BASE - code, domain)
    lost = ~is_plain_pop & (index < 0)
    counts[TEXT_LOST] += int(lost.sum())

    is_push = (code >= 0) & ~is_mark & ~lost
    is_pop = (code < 0) & ~lost
    order: list[Ints] = []
    levels: list[Ints] = []
    for domain_number in np.unique(domain[is_push]):
        at = np.flatnonzero((domain == domain_number) & (is_push | is_pop))
        balance = np.cumsum(np.where(is_push[at], 1, -1))
        lowest = np.minimum(np.minimum.accumulate(balance), 0)
        orphan = is_pop[at] & (np.diff(lowest, prepend=0) < 0)
        counts[BEGUN_BEFORE] += int(orphan.sum())
        depth = (balance - lowest + is_pop[at])[~orphan]  # depth after a push, and before a pop
        by_depth = np.argsort(depth, kind="stable")
        order.append(at[~orphan][by_depth])
        levels.append(depth[by_depth] * 65_536 + domain_number)
    at = np.concatenate([np.empty(0, np.int64), *order])
    level = np.concatenate([np.empty(0, np.int64), *levels])
    push = is_push[at]
    closed = np.zeros(len(at), dtype=bool)
    closed[:-1] = push[:-1] & ~push[1:] & (level[:-1] == level[1:])
    pushes, pops, closed = at[push], np.append(at[1:], 0)[push], closed[push]

    start = value[pushes]
    end = np.maximum(np.where(closed, value[pops], stop), start)
    complete = closed & (index[pops] >= 0)
    row = np.where(complete, index[pops], index[pushes])
    keep = closed | (start < stop)  # otherwise it was pushed while the recording was closing
    counts[BEGUN_LAST] += int((~keep).sum())
    counts[STILL_OPEN] += int((keep & ~closed).sum())
    marks = np.flatnonzero(is_mark & ~lost)
    no_payload = np.full(len(marks), -1, dtype=np.int64)
    payload = pl.Series(np.concatenate([carried[pushes][keep], no_payload]))
    return pl.DataFrame(
        {
            "thread": np.full(len(payload), thread, dtype=np.int64),
            "start": np.concatenate([start[keep], value[marks]]),
            "end": np.concatenate([end[keep], value[marks]]),
            "place": np.concatenate([row[keep], index[marks]]),
            "payload": payload.set(payload < 0, None),
            "unclosed": np.concatenate([~closed[keep], np.zeros(len(marks), dtype=bool)]),
        }
    ).with_columns(
        pl.when(pl.int_range(pl.len()) < int(keep.sum()))
        .then(pl.lit("pushpop"))
        .otherwise(pl.lit("mark"))
        .alias("kind")
    )
