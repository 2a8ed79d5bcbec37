"""Make small traces of device work: kernels and copies on streams, each with its launch."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from hypothesis import strategies as st

from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile

KERNEL = {"process": 0, "device": 0, "stream": 7}
OP = {
    "process": 0,
    "thread": 1,
    "domain": "opscope.torch",
    "category": "forward",
    "kind": "pushpop",
}


@dataclass(frozen=True)
class Ran:
    """A kernel (or, with ``kind``, a copy or set): its times, and those of its launch call, None: no record."""

    start: int
    end: int
    called: int | None = None
    returned: int | None = None
    name: str = "k"
    stream: int = 7
    device: int = 0
    thread: int = 1
    kind: str | None = None
    bytes: int | None = None
    correlation: int | None = None


def table(name: str, rows: list[dict]) -> pl.DataFrame:
    schema = table_schema(name)
    columns = {key: schema[key] for row in rows for key in row}
    return pl.DataFrame(
        [{key: row.get(key) for key in columns} for row in rows], schema=columns or schema
    )


def traced(
    work: list[Ran], *, calls: list[dict] | None = None, origin: dict | None = None, **more
) -> Trace:
    """Return a trace of ``work``; equal correlations share the launch of the first that has one."""
    kernels, memops, launches = [], [], list(calls or ())
    launched = set()
    for number, one in enumerate(work, start=1):
        correlation = one.correlation or number
        row = {"process": 0, "device": one.device, "stream": one.stream, "start": one.start, "end": one.end,
               "correlation": correlation}  # fmt: skip
        if one.kind is None:
            kernels.append({**row, "name": one.name})
        else:
            memops.append({**row, "kind": one.kind, "bytes": one.bytes})
        if one.called is not None and correlation not in launched:
            launched.add(correlation)
            returned = one.called + 1 if one.returned is None else one.returned
            launches.append({"process": 0, "thread": one.thread, "start": one.called, "end": returned,
                             "name": "cudaLaunchKernel", "correlation": correlation})  # fmt: skip
    frames = {"kernels": kernels, "memops": memops, "calls": launches, **more}
    made = {name: table(name, rows) for name, rows in frames.items() if rows}
    if "ranges" in made and "id" not in made["ranges"].columns:
        made["ranges"] = (
            made["ranges"].with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
        )
    return Trace.of(made, origin)


def profiled(work: list[Ran], **more) -> Profile:
    return Profile(traced(work, **more))


@st.composite
def works(draw, *, most: int = 12, until: int = 60, kinds: bool = False) -> list[Ran]:
    """Some work on two devices and three streams, with and without launches, overlapping and of length 0."""
    made = []
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, until))
        called = draw(st.none() | st.integers(-10, start + 3))
        device = draw(st.integers(0, 1))
        kind = draw(st.sampled_from([None, None, "HtoD", "memset"])) if kinds else None
        made.append(
            Ran(
                start,
                start + draw(st.integers(0, 12)),
                called,
                None if called is None else called + draw(st.integers(0, 6)),
                name=draw(st.sampled_from(["a", "b", "ncclDevKernel_AllReduce"])),
                stream=draw(st.sampled_from([7, 9])) + 10 * device,
                device=device,
                thread=draw(st.integers(1, 2)),
                kind=kind,
                bytes=None if kind is None else draw(st.none() | st.integers(0, 1_000)),
            )
        )
    return made
