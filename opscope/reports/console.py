"""What a person sees first: the summary, the ops and the kernels that took the most time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from opscope.core.analysis.windows import OUTSIDE_WINDOW

from . import compilation, content, grouped, memory, roofs, units
from .grouped import short_source
from .layout import Column, Table
from .names import kernel, layer_patterns

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

_flex = partial(Column, flexible=True)


def short_region(name: object) -> str:
    """``0/1`` of ``Torch-Compiled Region: 0/1``."""
    return units.text(name).removeprefix("Torch-Compiled Region: ")


def device_name(number: object) -> str:
    """``cpu`` or the device's number."""
    return "cpu" if number == -1 else str(number)


def _short_number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else units.UNKNOWN


#: How each column of a frame is shown; the frames' own units are ns, bytes and FLOP.
KNOWN: Final[Mapping[str, Column]] = {
    column.key: column
    for column in (
        Column("share", "share", units.share),
        Column("running", "so far", units.share),
        Column("device_time", "time", units.time),
        Column("ideal_time", "at the roof", units.time),
        Column("efficiency", "efficiency", units.share),
        Column("attained_flops", "FLOP/s", units.flop_rate),
        Column("attained_bandwidth", "bytes/s", units.bandwidth),
        Column("intensity", "FLOP/B", units.ratio),
        Column("rated", "rated", units.share),
        Column("over", "above", units.share),
        Column("over_reason", "mostly"),
        Column("bound", "bound"),
        Column("peak", "peak", units.flop_rate),
        Column("known", "known", units.share),
        Column("mfu", "MFU", units.share),
        Column("hfu", "HFU", units.share),
        Column("done_flops", "done", units.flop),
        Column("model_flops", "model", units.flop),
        Column("time", "time", units.time),
        Column("how_many", "how many", units.count),
        Column("self_time", "self", units.time),
        Column("span", "recorded", units.time),
        Column("steps_span", "in steps", units.time),
        Column("steps_time", "own in steps", units.time),
        Column("cpu_time", "CPU time", units.time),
        Column("total", "total", units.time),
        Column("mean", "mean", units.time),
        Column("min", "min", units.time),
        Column("max", "max", units.time),
        Column("duration", "time", units.time),
        Column("start", "start ns", units.count),
        Column("end", "end ns", units.count),
        Column("calls", "calls", units.count),
        Column("kernels", "kernels", units.count),
        Column("flops", "FLOPs", units.flop),
        Column("matrix_flops", "matrix", units.flop),
        Column("vector_flops", "vector", units.flop),
        Column("bytes", "bytes", units.size),
        Column("region", "region", short_region),
        _flex("fused", "fused"),
        Column("shared_memory", "shared", units.size),
        Column("device", "device", device_name),
        Column("at_peak", "at the peak", units.size),
        Column("peak_memory", "peak", units.size),
        Column("reserved", "reserved", units.size),
        Column("in_use", "at the end", units.size),
        Column("allocated", "allocated", units.size),
        Column("released", "released", units.size),
        Column("allocations", "allocations", units.count),
        Column("window", "window", units.time),
        Column("communication_time", "communication", units.time),
        Column("communication_share", "of window", units.share),
        Column("computation_time", "computation", units.time),
        Column("overlap_time", "both", units.time),
        Column("overlap", "hidden", units.share),
        Column("message_bytes", "messages", units.size),
        Column("waiting_time", "waiting", units.time),
        Column("bus_bandwidth", "bus bandwidth", units.bandwidth),
        Column("offset_ns", "offset", units.time),
        Column("error_ns", "error", units.time),
        Column("spread_ns", "spread", units.time),
        Column("drift_ppm", "drift ppm", _short_number),
        _flex("op", "op", least=30, parts="words"),
        _flex("name", "name", kernel, least=40, parts="words"),
        _flex("op_type", "type"),
        Column("direction", "direction"),
        _flex("inputs", "inputs", least=20, parts="arguments"),
        _flex("outputs", "outputs", parts="arguments"),
        _flex("params", "parameters"),
        Column("kind", "kind"),
        _flex("layer", "layer", cut="start", least=20, parts="words"),
        _flex("source", "source", short_source, least=24, parts="frames"),
        _flex("reason", "reason"),
        Column("tensor_core", "TC"),
    )
}


#: Reports of many ranks: title, and what is said where there is nothing.
_RANKS: Final[Mapping[str, tuple[str, str]]] = {
    "communication": ("Communication", "neither collectives nor kernels in this profile"),
    "collectives": ("Collectives", "none"),
    "groups": ("Process groups", "none: no rank told of one while it was recorded"),
    "meshes": ("Device meshes", "none"),
    "clocks": ("Clocks", "this format does not tell"),
}


def columns(keys: Sequence[str]) -> list[Column]:
    """The columns named, as people read them; a key without a form of its own is shown as text."""
    return [KNOWN.get(key) or _flex(key, key.replace("_", " ")) for key in keys]


def summary(profile: Profile) -> Table:
    """The figures that every report begins with, attributed and unattributed time among them."""
    row = _first(profile.summary())
    on_cpu = profile.cpu_only
    lines: list[tuple[str, str, str]] = []

    def line(what: str, value: str, remark: str = "") -> None:
        lines.append((what, value, remark))

    counts = [
        _plural(row.get("steps"), "step"),
        _plural(row.get("processes"), "process", "processes"),
        "" if on_cpu else _plural(row.get("devices"), "device"),
    ]
    line("wall time", units.time(row.get("wall_time")), ", ".join(filter(None, counts)))
    if (on_cpu or row.get("kernel_time") is not None) and row.get("window_time") is not None:
        line("  captured", units.time(row["window_time"]), _window(profile, row))
    if on_cpu:
        told = row.get("kernel_time") is not None
        what = "ops, and steps outside any op" if told else "neither ops nor steps"
        line("CPU time", units.time(row.get("kernel_time")), f"no GPU was recorded: {what}")
    else:
        line("device busy", units.time(row.get("device_busy")), _of_wall(row))
        for what, value, remark in _ran(row):
            line(what, value, remark)
    whole = row.get("device_time")
    for what in ("attributed", "unattributed"):
        part = row.get(f"device_{what}_time")
        line(f"  {what}", units.time(part), _of(part, whole))
    for gap in profile.unattributed().to_dicts():
        line(f"    {units.text(gap.get('reason'))}", units.time(gap.get("time")), _gap(gap, on_cpu))
        for what, part in _parts_of(profile.gaps(), gap):
            line(f"      {what}", units.time(part.get("time")), _gap(part, on_cpu))
    if not on_cpu:
        line(
            "launched", units.share(row.get("launched_share")), "of device time has a launch record"
        )
    for one in profile.trace.origin.get("captures", ()):
        line("shapes from", "", _capture(one))
    known = "of op time" if on_cpu else "of launched device time"
    line("FLOPs known", units.share(row.get("flops_share")), known + _among_kernels(row))
    line("bytes known", units.share(row.get("bytes_share")), known)
    if not on_cpu:
        line("Tensor Cores", _tensor_share(row), _tensor_remark(row))
    if row.get("own_time") is not None:
        line("opscope itself", units.time(row["own_time"]), _own(row))
    for peak in memory.lines(profile):
        line(*peak)
    files, read = row.get("files"), row.get("files_read")
    return Table(
        "Summary" if read == files else f"Summary of {read} of {files} files",
        [
            _flex("what", "", str, least=44, rank=-1),
            Column("value", "", str),
            _flex("remark", "", _blank, least=24),
        ],
        [{"what": what, "value": value, "remark": remark} for what, value, remark in lines],
        [*_told(profile), *_stepless(profile, row), *_left_out(row)],
        headings=False,
    )


def _stepless(profile: Profile, row: Mapping[str, Any]) -> list[str]:
    """What to do where a training was recorded whose steps nothing tells."""
    if row.get("steps"):
        return []
    ours = any(
        str(one).startswith("opscope.") for one in profile.trace["ranges"]["domain"].unique()
    )
    if not ours or {"backward", "optimizer"}.isdisjoint(profile.distinct("direction")):
        return []
    return ["no steps were told: opscope.step() at the beginning of each iteration tells them"]


def _left_out(row: Mapping[str, Any]) -> list[str]:
    """What no clock of ours sees; benchmarks/torch_overhead.py measures the whole."""
    if row.get("own_time") is None:
        return []
    return ["opscope itself leaves out what the framework takes to call it"]


def _own(row: Mapping[str, Any]) -> str:
    if row.get("own_steps_share") is not None:
        return f"in all, by its own clock; {units.share(row['own_steps_share'])} of the steps' time"
    return f"{units.share(row.get('own_share'))} of the time recorded, by its own clock"


def top_ops(profile: Profile, top: int | None = 20) -> Table:
    """The ops by device time, most first (self time where the device is the CPU).

    Layers that differ in a number alone, such as the blocks of a transformer, are one row.
    """
    frame, outside = profile.op_totals(), 0
    if len(profile.trace["windows"]):
        frame, outside = _captured(frame)
    frame = _over_layers(frame)
    keys = ["share", "running", "device_time", "calls", "op", "direction", "inputs", "outputs"]
    table = totals(
        "Top ops, each shape apart",
        _running(frame.sort("device_time", descending=True, nulls_last=True)),
        [*keys, "layer", "flops", "source"],
        top,
        grouped.EMPTY,
    )
    notes = list(table.footnotes)
    without = _first(profile.summary()).get("device_unattributed_time")
    if without and len(frame) and not profile.cpu_only:
        notes.append(f"shares are of the ops' time; {units.time(without)} have no op (--by op)")
    if outside:
        notes.append(f"{outside:,} recorded calls are not in this table: {OUTSIDE_WINDOW}")
    return replace(table, footnotes=notes)


def _running(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the shares so far of its rows."""
    share = frame["share"].fill_null(0).cum_sum().clip(upper_bound=1.0)
    return frame.with_columns(share.set(frame["share"].is_null(), None).alias("running"))


def _captured(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The totals of ops in the window, and how many calls are outside."""
    outside = (frame["reason"].cast(str) == OUTSIDE_WINDOW).fill_null(False)
    return frame.filter(~outside), int(frame["calls"].filter(outside).sum())


def _window(profile: Profile, row: Mapping[str, Any]) -> str:
    """Of which steps there are kernels (operations), and why of no others."""
    windows = profile.trace["windows"].filter(profile.trace["windows"]["source"].is_not_null())
    gives = "ops" if profile.cpu_only else "kernels"
    told = windows.select("first_step", "last_step", "ended").drop_nulls().unique().rows()
    if len(told) == 1 and row.get("steps"):
        first, last, ended = told[0]
        return f"{gives} of steps {first} to {last} only, {ended}"
    steps = f"{row.get('window_steps') or 0:,} of {_plural(row.get('steps'), 'step')}"
    whys = sorted(set(windows["ended"].drop_nulls().to_list()))
    return f"{gives} of {steps if row.get('steps') else 'this time'} only: {'; '.join(whys)}"


def _over_layers(frame: pl.DataFrame) -> pl.DataFrame:
    """Equal calls of layers that differ only in a number, added up; ``h.*.mlp (24)`` is 24 of them."""
    import polars as pl

    from opscope.core.tables.columns import known_sum

    keys = ["op", "op_type", "direction", "inputs", "outputs", "dtypes", "params"]
    sums = ["share", "device_time", "self_time", "cpu_time", "calls", "kernels", "flops", "bytes"]
    many = pl.col("layer").n_unique()
    patterns = layer_patterns(frame["layer"].drop_nulls().unique().cast(pl.String).to_list())
    starred = pl.col("layer").replace_strict(patterns, default=None, return_dtype=pl.String)
    return (
        frame.lazy()
        .with_columns(pl.col("layer", "source").cast(pl.String))
        .with_columns((starred if patterns else pl.col("layer")).alias("pattern"))
        .group_by(*keys, "pattern", maintain_order=True)
        .agg(
            *map(known_sum, sums),
            pl.when(many > 1)
            .then(pl.format("{} ({})", pl.col("pattern").first(), many))
            .otherwise(pl.col("layer").first())
            .alias("layer"),
            pl.col("source").first(),
        )
        .collect()
    )


def top_kernels(profile: Profile, top: int | None = 20) -> Table:
    """The kernels by total time, most first."""
    frame = profile.kernel_totals()
    keys = [
        "share",
        "running",
        "total",
        "calls",
        "mean",
        "name",
        "op",
        "tensor_core",
        "flops",
        "bytes",
    ]
    return totals(
        "Top kernels",
        _running(frame.sort("total", descending=True, nulls_last=True)),
        keys,
        top,
        "no kernels in this profile: it was taken without a GPU, or kernels were not captured",
    )


def totals(
    title: str, frame: pl.DataFrame, keys: Sequence[str], top: int | None, empty: str
) -> Table:
    """The first ``top`` rows of a frame (None: all) with the columns named, in that order."""
    if frame.is_empty():
        return Table(title, columns(keys), (), (empty,))
    shown = frame if top is None else frame.head(top)
    notes = []
    if len(shown) < len(frame):
        notes.append(f"{len(shown)} of {len(frame):,} rows; --top 0 shows all")
    rows = shown.select([key for key in keys if key in frame.columns]).to_dicts()
    if any(row.get("flops", 0) is None for row in rows):
        notes.append(f"{units.UNKNOWN} is not known: opscope doctor FILE says why")
    ranks = {"outputs": 9, "bytes": 8, "tensor_core": 7, "source": 6, "direction": 4}
    ranks |= {"rated": 9, "intensity": 8, "attained_bandwidth": 7, "over_reason": 6}
    if keys[0] != "layer":
        ranks["layer"] = 5
    ranks |= {next((key for key in ("name", "op") if key in keys), ""): -1}  # what a row is about
    shown_columns = [
        replace(column, rank=ranks.get(column.key, 0))
        for column in columns(keys)
        if column.key in frame.columns
    ]
    return Table(title, shown_columns, rows, notes)


def frame_table(title: str, frame: pl.DataFrame, empty: str, top: int | None = None) -> Table:
    """Any frame with all its columns, the first ``top`` rows of it (None: all)."""
    return totals(title, frame, frame.columns, top, empty)


def tables(profile: Profile, names: Sequence[str], top: int | None = 20) -> list[Table]:
    """The named reports (``content.REPORTS``) as tables; the summary holds the unattributed."""
    made: list[Table] = []
    for name in names:
        if name == "summary":
            made.append(summary(profile))
        elif name == "by_kind":
            made.append(grouped.by_kind(profile, top))
        elif name in grouped.GROUPS:
            made.append(grouped.grouped(profile, name, top))
        elif name == "detail":
            made.append(top_ops(profile, top))
        elif name == "kernel":
            made.append(top_kernels(profile, top))
        elif name == "unattributed":
            empty = "nothing: all has its op"
            made.append(frame_table("Unattributed", profile.unattributed(), empty, top))
        elif name == "gaps":
            made.append(
                frame_table("Outside any op", profile.gaps(), "nothing: all has its op", top)
            )
        elif name == "range":
            frame = profile.range_totals()
            keys = [key for key in frame.columns if key not in ("matrix_flops", "vector_flops")]
            made.append(totals("User ranges", frame, keys, top, "nothing ran"))
        elif name in roofs.GROUPS:
            made.append(roofs.roofline(profile, name, top))
        elif name == "utilization":
            made.append(roofs.utilization(profile, top))
        elif name == "compiled":
            made.append(compilation.regions(profile, top))
        elif name == "memory":
            made.append(memory.peaks(profile, top))
        elif name == "memory_by_op":
            made.append(memory.by_op(profile, top))
        elif name in _RANKS:
            title, empty = _RANKS[name]
            made.append(frame_table(title, content.REPORTS[name](profile), empty, top))
        elif name == "missing":
            missing = profile.missing_costs()
            title, empty = "Without known cost", "nothing: all is known"
            made.append(totals(title, missing, missing.columns, top, empty))
        elif name == "own_costs":
            made.append(frame_table("opscope itself", profile.own_costs(), "not timed", top))
        elif name == "notes":
            made.append(frame_table("Notes", profile.notes(), "none", top))
    return made


#: What a first look shows.
FIRST: Final = ("summary", "by_kind", "by_op")


def first_screen(profile: Profile, top: int | None = 20, enough: bool = True) -> list[Table]:
    """The tables of a first look: ``FIRST``, of the ops what makes up nearly all of the time (``enough``),
    and what to ask next."""
    profile.kinds()  # the ops' sums before the kernels are there: at their sides they take more memory
    steps = grouped.next_steps(profile)
    return [
        summary(profile),
        grouped.by_kind(profile),
        grouped.grouped(profile, "by_op", top, enough=enough),
        *([Table("Next", [Column("what", "")], (), steps)] if steps else []),
    ]


def _first(frame: pl.DataFrame) -> dict[str, Any]:
    rows = frame.head(1).to_dicts()
    return rows[0] if rows else {}


def _blank(value: object) -> str:
    return str(value or "")


def _plural(number: object, one: str, many: str | None = None) -> str:
    if not isinstance(number, int):
        return ""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _of_wall(row: Mapping[str, Any]) -> str:
    window, devices = row.get("window_time"), row.get("devices")
    busy, wall = row.get("device_busy"), row.get("wall_time") if window is None else window
    if busy is None or not wall or not devices:
        return ""
    what = "wall time" if window is None else "time captured"
    return f"{units.share(busy / (wall * devices))} of the {what}" + (
        " of each device, on average" if devices > 1 else ""
    )


def _file(path: object) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2] if path else "another file"


def _capture(one: Mapping[str, Any]) -> str:
    """Which file was loaded for its shapes, and which one replays the CUDA graphs that it captures."""
    own = [_plural(one["kernels"], "kernel")]
    if one["copies"]:
        own.append(_plural(one["copies"], "copy or set", "copies and sets"))
    counted = f"its own {' and '.join(own)} are not counted"
    return f"{_file(one['path'])}, whose graphs {_file(one['of'])} replays; {counted}"


def _of(part: int | None, whole: int | None) -> str:
    """A share, from the times: one minus another share would round."""
    return units.share(part / whole) if part is not None and whole else ""


def _ran(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The lines that say what the device's time is made of: kernels, and copies and sets."""
    whole, kernels = row.get("device_time"), row.get("kernel_time")
    if kernels is None or whole is None:
        return [("kernel time", units.UNKNOWN, "kernels were not captured")]
    lines = [("device time", units.time(whole), "kernels, copies and sets")]
    named = {"kernel": "  kernel time", "copy or set": "  copy time"}
    of_kernels, of_all = row.get("attributed_time"), row.get("device_attributed_time")
    # null in what a stranger's profile stored
    others = None if of_kernels is None or of_all is None else of_all - of_kernels
    attributed = (of_kernels, others)
    counts = (row.get("kernels"), row.get("copies"))
    for (one, what), time, known, count in zip(
        named.items(), (kernels, whole - kernels), attributed, counts, strict=True
    ):
        remark = [_plural(count, one, "copies and sets" if one != "kernel" else None)]
        if time and known is not None:
            remark.append(f"{units.share(known / time)} attributed")
        if count or one == "kernel":
            lines.append((what, units.time(time), ", ".join(remark)))
    return lines


def _among_kernels(row: Mapping[str, Any]) -> str:
    """The share among kernels, where copies, whose FLOPs are known to be none, make it another."""
    share = row.get("kernel_flops_share")
    if share is None or not row.get("copies"):
        return ""
    return f"; {units.share(share)} of launched kernel time"


def _gap(gap: Mapping[str, Any], on_cpu: bool) -> str:
    share = "" if gap.get("share") is None else units.share(gap["share"])
    if on_cpu:
        return share
    kernels = _plural(gap.get("kernels") or None, "kernel")
    copies = _plural(gap.get("copies") or None, "copy or set", "copies and sets")
    return ", ".join(filter(None, (share, kernels, copies)))


#: Parts of a gap that the summary names.
_PARTS: Final = 3


def _parts_of(gaps: pl.DataFrame, gap: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The largest parts of what has one reason and the rest in one, where something tells them apart."""
    parts = [row for row in gaps.to_dicts() if row["reason"] == gap["reason"]]
    named = [(_part(row), row) for row in parts]
    if not any(name for name, _ in named):
        return []
    most = (
        len(named) if len(named) <= _PARTS + 1 else _PARTS
    )  # a line for one more names it as well
    shown: list[tuple[str, Mapping[str, Any]]] = [
        (name or "no phase, no range", row) for name, row in named[:most]
    ]
    rest = parts[most:]
    if rest:
        sums = {
            key: sum(row[key] for row in rest)
            if all(row[key] is not None for row in rest)
            else None
            for key in ("kernels", "copies", "time", "share")
        }
        shown.append((f"{len(rest)} more (--reports gaps)", sums))
    return shown


def _part(row: Mapping[str, Any]) -> str:
    """``in 'evaluate', backward, off the CPU: futex``; nothing where nothing is told."""
    inside = [f"in {units.text(row['range'])!r}" if row["range"] else ""]
    told = (units.text(row[key]) if row[key] else "" for key in ("phase", "state"))
    return ", ".join(filter(None, (*inside, *told)))


def _tensor_share(row: Mapping[str, Any]) -> str:
    used, whole = row.get("tensor_core_time"), row.get("kernel_time")
    return units.share(used / whole if used is not None and whole else None)


def _tensor_remark(row: Mapping[str, Any]) -> str:
    """What the share is of, and how much more it may be."""
    said = "of kernel time is in kernels that use them"
    rest, whole = row.get("tensor_core_undetermined_time"), row.get("kernel_time")
    if not rest or not whole:
        return said
    return f"{said}; of {units.share(rest / whole)} ({units.time(rest)}) nothing tells"


def _told(profile: Profile) -> list[str]:
    """The warnings of whoever read the trace, equal ones once; ``opscope doctor FILE`` has them all."""
    counts: dict[tuple[str, str], int] = {}
    for row in profile.notes().to_dicts():
        if row["severity"] != "info":
            key = (row["severity"], row["what"])
            counts[key] = counts.get(key, 0) + (row["how_many"] or 1)
    return [
        f"{severity}: {units.text(what)}" + (f" ({units.count(times)})" if times > 1 else "")
        for (severity, what), times in sorted(counts.items())
    ]
