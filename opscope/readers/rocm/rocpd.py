"""Read rocpd databases: rocprofv3's default output since ROCm 7.0, and rocprof-sys' where it is asked for.

Schema: ``source/share/rocprofiler-sdk-rocpd/*.sql`` of ROCm/rocprofiler-sdk, and its versions 3.0.0 to
3.0.5 and 4.1.0 in ROCm/rocm-systems, ``projects/rocprofiler-sdk/...``; what is written where:
``source/lib/output/generateRocpd.cpp``.

* Every table's name ends in the database's id, and a merged database has several of each. The views without
  an id are not used: a view in a stranger's file may compute for ever.
* In version 3 a dispatch, copy or region has its process, thread, agent, queue, stream and times. Version 4
  moves the first five to ``rocpd_track``; one draft of it moves the times to ``rocpd_timestamp`` too.
* An event's ``stack_id`` is the correlation id of rocprofiler (its ``correlation_id`` is the user's
  external one), the same for a call and for what it launched.
* A region is a call, or a roctx range whose text is in the event's ``extdata``; one without length is a
  sample.
* The environment of the process is in the file; it is not read.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.redaction import redact
from opscope.core.tables.columns import LookUp
from opscope.readers.nsys.strings import named
from opscope.readers.sqlite import Column, Database, Kind, filled

from . import agents
from .csv_runs import allocations_of, copies_of
from .marks import ROCTX
from .parts import Parts
from .tool_json import kind_of_marker

_NO_RANGE: Final = r"^roctx(?:RangePop|RangeStop|Profiler\w+|Name\w+|GetThreadId)$"
_PACKED: Final = "roctx ranges whose texts are packed (lz4), shown by the name of their call"


def read(database: Database, parts: Parts) -> None:
    """Add the data of a database to ``parts``. Raises BadInput."""
    parts.tool = "rocprofv3"
    ids = sorted(
        {
            name[len(base) :]
            for name in database.tables
            for base in ("rocpd_event", "rocpd_info_process", "rocpd_kernel_dispatch")
            if name.startswith(base)
        }
    )
    for id_ in ids:
        _Session(database, id_, parts).read()


class _Session:
    """The tables with one id: those of one process."""

    def __init__(self, database: Database, identity: str, parts: Parts) -> None:
        self.database = database
        self.identity = identity
        self.parts = parts
        self.strings = _Texts(
            self._small("rocpd_string", {"id": "int", "string": "text"}), "string"
        )
        self.categories = self.strings
        if self._has("rocpd_info_category", "id", "name"):
            self.categories = _Texts(
                self._small("rocpd_info_category", {"id": "int", "name": "text"}), "name"
            )
        self.pids = self._pids()
        self.tids = self._ids("rocpd_info_thread", "tid")
        self.tracks = self._small(
            "rocpd_track",
            dict.fromkeys(
                ("id", "pid", "tid", "agent_id", "queue_id", "stream_id", "name_id"), "int"
            ),
        )
        self.events = _Events(self)
        self.times = self._timestamps()

    def read(self) -> None:
        """Read every table."""
        self._agents()
        self._threads()
        self._kernels()
        self._copies()
        self._regions()
        self._samples()
        self._allocations()

    def _name(self, table: str) -> str:
        return table + self.identity

    def _has(self, table: str, *columns: str) -> bool:
        return self.database.has(self._name(table), *columns)

    def _small(
        self, table: str, columns: Mapping[str, Kind], where: str | None = None
    ) -> pl.DataFrame:
        if where is not None and not self._has(table, *columns):
            return filled(pl.DataFrame(), columns)
        return filled(self.database.rows(self._name(table), columns, where), columns)

    def _large(self, table: str, columns: Mapping[str, Column]) -> pl.DataFrame:
        """Return all rows of a table with all columns; columns that this version lacks are null."""
        pieces = self.database.scan(
            self._name(table), columns, lambda frame, _: filled(frame, columns)
        )
        return (
            pl.concat(pieces, how="vertical_relaxed") if pieces else filled(pl.DataFrame(), columns)
        )

    # -------------------------------------------------------------------------- who and where

    def _pids(self) -> dict[int, int]:
        pid_of_id: dict[int, int] = {}
        wanted: dict[str, Kind] = {
            "id": "int", "nid": "int", "ppid": "int", "pid": "int", "name": "text", "command": "text",
        }  # fmt: skip
        hosts = {
            row["id"]: row["hostname"]
            for row in self._small("rocpd_info_node", {"id": "int", "hostname": "text"}).to_dicts()
        }
        for row in self._small("rocpd_info_process", wanted).to_dicts():
            if row["pid"] is None:
                continue
            if row["id"] is not None:
                pid_of_id[row["id"]] = row["pid"]
            command = _command(row["command"])
            if command:
                self.parts.origin.setdefault("command", command)
            self.parts.processes[row["pid"], self.identity] = {
                "host": hosts.get(row["nid"]),
                "name": row["name"] or (command[0].rpartition("/")[2] if command else None),
            }
        return pid_of_id

    def _ids(self, table: str, column: str) -> dict[int, int]:
        frame = self._small(table, {"id": "int", column: "int"})
        return dict(frame.drop_nulls().iter_rows())

    def _threads(self) -> None:
        wanted: dict[str, Kind] = {"pid": "int", "tid": "int", "name": "text"}
        for row in self._small("rocpd_info_thread", wanted).to_dicts():
            if row["tid"] is not None and row["name"]:
                pid = self.pids.get(row["pid"], row["pid"])
                self.parts.thread_names[pid, row["tid"]] = row["name"]

    def _agents(self) -> None:
        wanted: dict[str, Kind] = {
            "id": "int", "type": "text", "name": "text", "product_name": "text", "extdata": "text",
        }  # fmt: skip
        for row in self._small("rocpd_info_agent", wanted).to_dicts():
            if row["type"] != "GPU" or row["id"] is None:
                continue
            agent = _json(row["extdata"])
            for name in ("name", "product_name"):
                agent[name] = row[name] or agent.get(name)
            self.parts.devices[row["id"]] = agents.facts(agent)

    def _timestamps(self) -> LookUp | None:
        if not self._has("rocpd_timestamp", "id", "value"):
            return None
        frame = self._large("rocpd_timestamp", {"id": "int", "value": "int"}).drop_nulls()
        self._stamps = frame["value"]
        return LookUp(frame["id"].to_numpy(), np.arange(len(frame))) if len(frame) else None

    def _placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add pid, tid, agent, queue, stream and times from the tables in which this version has them."""
        if frame["track_id"].null_count() < len(frame):
            tracks = (
                self.tracks.rename({"id": "track_id"})
                .drop("name_id")
                .unique("track_id", keep="first")
            )
            frame = frame.join(
                tracks, on="track_id", how="left", maintain_order="left", suffix="_of_track"
            )
            for name in ("pid", "tid", "agent_id", "queue_id", "stream_id"):
                other = f"{name}_of_track"
                if other in frame.columns:
                    frame = frame.with_columns(pl.coalesce(name, other).alias(name))
        for name in ("start", "end"):
            by = f"{name}_id"
            if self.times is not None and by in frame.columns and frame[name].null_count():
                rows = pl.Series(self.times(frame[by].fill_null(-1).to_numpy()), dtype=pl.Int64)
                stamps = self._stamps.gather(rows.set(rows < 0, None))
                frame = frame.with_columns(pl.coalesce(name, stamps.alias(name)).alias(name))
        pid, tid = frame["pid"], frame["tid"]
        return frame.with_columns(
            _map(pid, self.pids).alias("pid"),
            _map(tid, self.tids).alias("tid"),
            pl.lit(self.identity).alias("guid"),
        )

    # -------------------------------------------------------------------------- what ran

    def _kernels(self) -> None:
        if not self._has("rocpd_kernel_dispatch"):
            return
        wanted: dict[str, Column] = dict.fromkeys(
            ("track_id", "pid", "tid", "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id",
             "start", "end", "start_id", "end_id", "private_segment_size", "group_segment_size",
             "workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x",
             "grid_size_y", "grid_size_z", "graph_exec_id", "graph_node_id", "event_id"),
            "int",
        )  # fmt: skip
        frame = self._placed(self._large("rocpd_kernel_dispatch", wanted))
        symbol = self._symbols(frame["kernel_id"])
        frame = frame.with_columns(
            *symbol.get_columns(),
            self.events.stack(frame["event_id"]).alias("correlation"),
        )
        dynamic = pl.col("group_segment_size") - pl.col("static_lds")
        rows = frame.select(
            "pid", "guid", "tid", "start", "end", "correlation", "name", "arch_vgpr", "accum_vgpr", "sgpr",
            pl.col("agent_id").alias("device"),
            pl.col("queue_id").alias("queue"),
            pl.col("stream_id").alias("stream"),
            pl.col("dispatch_id").alias("dispatch"),
            pl.coalesce("static_lds", "group_segment_size").alias("lds"),
            pl.when(dynamic >= 0).then(dynamic).alias("lds_dynamic"),
            pl.col("private_segment_size").alias("scratch"),
            *(pl.col(f"grid_size_{axis}").alias(f"g{axis}") for axis in "xyz"),
            *(pl.col(f"workgroup_size_{axis}").alias(f"w{axis}") for axis in "xyz"),
            *(pl.when(pl.col(f"graph_{of}_id") > 0).then(f"graph_{of}_id").alias(name)
              for of, name in (("exec", "graph"), ("node", "graph_node"))),
        )  # fmt: skip
        self.parts.add("dispatches", rows)
        self._counters(frame.select("event_id", "pid", "guid", "tid", "agent_id", "correlation"))

    def _symbols(self, ids: pl.Series) -> pl.DataFrame:
        wanted: dict[str, Kind] = {
            "id": "int", "kernel_name": "text", "display_name": "text", "group_segment_size": "int",
            "sgpr_count": "int", "arch_vgpr_count": "int", "accum_vgpr_count": "int",
        }  # fmt: skip
        table = self._small("rocpd_info_kernel_symbol", wanted).drop_nulls("id")
        index = _place(table["id"], ids)
        names = [
            display or mangled
            for display, mangled in table.select("display_name", "kernel_name").iter_rows()
        ]
        columns = {
            "static_lds": "group_segment_size", "arch_vgpr": "arch_vgpr_count",
            "accum_vgpr": "accum_vgpr_count", "sgpr": "sgpr_count",
        }  # fmt: skip
        return pl.DataFrame(
            [
                named(index.cast(pl.UInt32), names).alias("name"),
                *(table[column].gather(index).alias(name) for name, column in columns.items()),
            ]
        )

    def _counters(self, dispatches: pl.DataFrame) -> None:
        """Counters of dispatches; a counter's instances are rows of one event, and are added up."""
        wanted: dict[str, Column] = {
            "event_id": "int", "pmc_id": "int", "value": "real", "sample_id": "int",
        }  # fmt: skip
        counters = self._large("rocpd_pmc_event", wanted)
        streamed = int(counters["sample_id"].is_not_null().sum())
        if streamed:
            self.parts.note(
                "info", "counters sampled while kernels ran, which are not of one kernel", streamed
            )
        counters = counters.filter(pl.col("sample_id").is_null() & pl.col("value").is_finite())
        if not len(counters):
            return
        listed = self._small("rocpd_info_pmc", {"id": "int", "name": "text", "symbol": "text"})
        names = listed.select("id", pl.coalesce("symbol", "name").alias("name")).drop_nulls("id")
        named = counters.join(
            names.unique("id", keep="first"), left_on="pmc_id", right_on="id", maintain_order="left"
        )
        total = self.parts.summed(named.select("event_id", "name", "value"), "event_id", "name")
        of_event = dispatches.unique("event_id", keep="first")
        joined = total.join(of_event, on="event_id", how="left", maintain_order="left")
        ours = joined.filter(pl.col("guid").is_not_null())
        self.parts.add(
            "counters",
            ours.select(
                "pid",
                "guid",
                "tid",
                pl.col("agent_id").alias("device"),
                "correlation",
                "name",
                "value",
            ),
        )
        self._sampled_values(
            joined.filter(pl.col("guid").is_null()).select("event_id", "name", "value")
        )

    def _sampled_values(self, values: pl.DataFrame) -> None:
        """Return rocprof-sys' values over time: events of samples."""
        if not len(values) or not self._has("rocpd_sample", "event_id", "timestamp", "track_id"):
            return
        samples = self._placed_samples().select(
            "event_id", "pid", "guid", "tid", "agent_id", "start"
        )
        rows = values.join(samples, on="event_id", how="inner", maintain_order="left")
        if len(rows):
            self.parts.add(
                "samples",
                rows.select(
                    "pid", "guid", "tid", pl.col("agent_id").alias("device"),
                    pl.col("start").alias("time"), "name", "value",
                ),
            )  # fmt: skip

    def _copies(self) -> None:
        if not self._has("rocpd_memory_copy"):
            return
        wanted: dict[str, Column] = dict.fromkeys(
            ("track_id", "pid", "tid", "agent_id", "start", "end", "start_id", "end_id", "name_id",
             "dst_agent_id", "src_agent_id", "size", "queue_id", "stream_id", "graph_node_id", "event_id"),
            "int",
        )  # fmt: skip
        frame = self._placed(self._large("rocpd_memory_copy", wanted))
        rows = frame.select(
            "pid", "guid", "tid", "start", "end",
            self.events.stack(frame["event_id"]).alias("correlation"),
            self.strings.of(frame["name_id"]).alias("direction"),
            pl.col("src_agent_id").alias("source"),
            pl.col("dst_agent_id").alias("target"),
            pl.coalesce("stream_id", "queue_id").alias("stream"),
            pl.col("size").alias("bytes"),
            pl.when(pl.col("graph_node_id") > 0).then("graph_node_id").alias("graph_node"),
        )  # fmt: skip
        self.parts.add("copies", copies_of(rows))

    # -------------------------------------------------------------------------- calls and ranges

    def _regions(self) -> None:
        wanted: dict[str, Column] = dict.fromkeys(
            ("track_id", "pid", "tid", "agent_id", "queue_id", "stream_id", "start", "end", "start_id",
             "end_id", "name_id", "event_id"), "int",
        )  # fmt: skip
        if not self._has("rocpd_region"):
            return
        frame = self._placed(self._large("rocpd_region", wanted))
        frame = frame.select(
            "pid", "guid", "tid", "start", "end", "event_id",
            self.strings.of(frame["name_id"]).alias("name"),
            self.events.stack(frame["event_id"]).alias("correlation"),
            self.events.category(frame["event_id"]).alias("category"),
        )  # fmt: skip
        category = pl.col("category").cast(pl.String).fill_null("")
        marker = category.str.contains("(?i)marker|roctx")
        collective = category.str.contains("(?i)rccl|nccl")
        # rocprof-sys' own categories: what a program or the tool marked
        call = category.str.contains("(?i)^(?:hip|hsa|rocdecode|rocjpeg|ompt|kfd)|^$")
        calls = frame.filter(call & ~marker)
        if len(calls) or not len(frame):
            self.parts.add(
                "calls", calls.select("pid", "guid", "tid", "start", "end", "name", "correlation")
            )
        self._add_marks(frame.filter(marker))
        for rows, domain in (
            (frame.filter(collective & ~marker), "NCCL"),
            (frame.filter(~(call | marker | collective)), "rocprof-sys"),
        ):
            if len(rows):
                self.parts.add(
                    "ranges",
                    rows.select(
                        "pid", "guid", "tid", "start", "end",
                        pl.col("name").cast(pl.String).alias("text"),
                        pl.lit(domain).alias("domain"),
                    ),
                )  # fmt: skip

    def _add_marks(self, frame: pl.DataFrame) -> None:
        name = pl.col("name").cast(pl.String)
        frame = frame.filter(~name.str.contains(_NO_RANGE).fill_null(False))
        if not len(frame):
            return
        message = self.events.messages(frame["event_id"])
        unread = int(message.is_null().sum())
        if unread and self.events.packed:
            self.parts.note("warning", _PACKED, unread)
        names = frame["name"].cast(pl.String)
        kinds = {marker: kind_of_marker(marker) for marker in names.unique().drop_nulls().to_list()}
        self.parts.add(
            "ranges",
            frame.select(
                "pid", "guid", "tid", "start", "end",
                pl.coalesce(message.alias("text"), name).alias("text"),
                names.replace_strict(kinds, default=None, return_dtype=pl.String).alias("kind"),
                pl.lit(ROCTX).alias("domain"),
            ),
        )  # fmt: skip

    def _placed_samples(self) -> pl.DataFrame:
        wanted: dict[str, Column] = dict.fromkeys(
            ("track_id", "pid", "tid", "agent_id", "queue_id", "stream_id", "timestamp", "timestamp_id",
             "event_id", "name_id"),
            "int",
        )  # fmt: skip
        frame = self._large("rocpd_sample", wanted).rename(
            {"timestamp": "start", "timestamp_id": "start_id"}
        )
        return self._placed(frame.with_columns(pl.lit(None, pl.Int64).alias("end")))

    def _samples(self) -> None:
        """Regions without length: a roctx mark, or a call that took no time."""
        if not self._has("rocpd_sample", "event_id"):
            return
        frame = self._placed_samples()
        frame = frame.with_columns(
            self.events.category(frame["event_id"]).cast(pl.String).alias("category"),
            pl.col("start").alias("end"),
        )
        marks = frame.filter(pl.col("category").str.contains("(?i)marker|roctx"))
        if len(marks):
            message = self.events.messages(marks["event_id"])
            self.parts.add(
                "ranges",
                marks.select(
                    "pid", "guid", "tid", "start", "end",
                    pl.coalesce(message.alias("text"), "category").alias("text"),
                    pl.lit("mark").alias("kind"),
                    pl.lit(ROCTX).alias("domain"),
                ),
            )  # fmt: skip

    def _allocations(self) -> None:
        wanted: dict[str, Column] = {
            **dict.fromkeys(("track_id", "pid", "tid", "agent_id", "queue_id", "stream_id", "start", "end",
                             "start_id", "end_id", "address", "size"), "int"),
            "type": "text",
            "level": "text",
        }  # fmt: skip
        if not self._has("rocpd_memory_allocate"):
            return
        frame = self._placed(self._large("rocpd_memory_allocate", wanted))
        frame = frame.filter(pl.col("level").is_null() | (pl.col("level") != "SCRATCH"))
        if len(frame):
            self.parts.add(
                "allocations",
                allocations_of(
                    frame.select(
                        "pid", "guid", "tid", "address",
                        pl.col("start").alias("time"),
                        pl.col("type").alias("operation"),
                        pl.col("agent_id").alias("device"),
                        pl.col("size").alias("bytes"),
                    )
                ),
            )  # fmt: skip


class _Texts:
    """Texts by id, as Categorical."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        self._frame = frame.drop_nulls("id")
        self._texts = self._frame[column].to_list()

    def of(self, ids: pl.Series) -> pl.Series:
        """Return the text of each id; null if it has no text."""
        return named(_place(self._frame["id"], ids).cast(pl.UInt32), self._texts)


class _Events:
    """``rocpd_event``: correlation and category by id; texts of markers if they are requested."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        frame = session._large(
            "rocpd_event", {"id": "int", "category_id": "int", "stack_id": "int"}
        ).drop_nulls("id")
        self._frame = frame
        self._look = LookUp(frame["id"].to_numpy(), np.arange(len(frame))) if len(frame) else None
        #: Whether some text was not JSON.
        self.packed = False

    def _rows(self, ids: pl.Series) -> pl.Series:
        if self._look is None:
            return _nothing(len(ids))
        rows = pl.Series(self._look(ids.fill_null(-1).to_numpy()), dtype=pl.Int64)
        return _known(rows)

    def stack(self, ids: pl.Series) -> pl.Series:
        """Return the correlation id of each event; null in place of 0, which means none."""
        stacks: pl.Series = self._frame["stack_id"].gather(self._rows(ids))
        none = (stacks == 0).fill_null(False)
        return stacks.set(none, None) if none.any() else stacks

    def category(self, ids: pl.Series) -> pl.Series:
        """Return the name of each event's category."""
        return self._session.categories.of(self._frame["category_id"].gather(self._rows(ids)))

    def messages(self, ids: pl.Series) -> pl.Series:
        """Return the texts of markers: ``message`` in the event's JSON."""
        frame = self._session._small("rocpd_event", {"id": "int", "extdata": "text"}, _text_of(ids))
        texts = [_json(text).get("message") for text in frame["extdata"]]
        self.packed |= any(
            text is not None and not text.startswith("{") for text in frame["extdata"]
        )
        texts_known = [text if isinstance(text, str) else None for text in texts]
        return pl.Series(texts_known, dtype=pl.String).gather(_place(frame["id"], ids))


def _text_of(ids: pl.Series) -> str:
    """An SQL condition for the events from the first to the last of ``ids`` that have a text."""
    low: Any = ids.min()
    high: Any = ids.max()
    return f"id BETWEEN {int(low or 0)} AND {int(high or 0)} AND length(extdata) > 2"


def _place(ids: pl.Series, wanted: pl.Series) -> pl.Series:
    """Return for each wanted id its row among ``ids``; null if there is none."""
    is_stated = ids.is_not_null()
    if not is_stated.any():
        return _nothing(len(wanted))
    rows = is_stated.arg_true().to_numpy().astype(np.int64)
    look = LookUp(ids.drop_nulls().to_numpy(), rows)
    return _known(pl.Series(look(wanted.fill_null(-1).to_numpy()), dtype=pl.Int64))


def _nothing(count: int) -> pl.Series:
    unknown: pl.Series = pl.Series([None], dtype=pl.Int64).new_from_index(0, count)
    return unknown


def _known(rows: pl.Series) -> pl.Series:
    """The rows; null for -1."""
    unknown = rows < 0
    rows_known: pl.Series = rows.set(unknown, None) if unknown.any() else rows
    return rows_known


def _map(ids: pl.Series, row_of_id: Mapping[int, int]) -> pl.Series:
    """Return the text of each id; for an id that is in no table, the id itself."""
    moved = {key: value for key, value in row_of_id.items() if key != value}
    return ids.replace(moved) if moved else ids


def _json(text: str | None) -> dict[str, Any]:
    if not text or len(text) > 1 << 20:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


#: In longer commands, quotes are ignored: Linux accepts no longer word.
_LONGEST_COMMAND: Final = 1 << 17


def _command(text: str | None) -> list[str]:
    if not text:
        return []
    try:
        # shlex copies a word for each of its letters
        return list(redact(shlex.split(text) if len(text) <= _LONGEST_COMMAND else text.split()))
    except ValueError:
        return list(redact(text.split()))
