"""The table of the summary: the numbers that every report begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.lost_kernels import idle_unknown, losses, totals_only
from opscope.core.analysis.ops.ops import served_words
from opscope.core.analysis.ops.totals import distinct_texts
from opscope.core.attribution.early_kernels import LATE_SAID
from opscope.core.job.clocks import one_clock
from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.core.question.step_notes import source_of_steps
from opscope.core.schema import COMPILE
from opscope.core.tables.trace import recorded_by

_DAY: Final = 24 * 3600 * 10**9


def summary_facts(profile: Answers) -> list[str]:
    """Return the first screen's lines about a profile besides its totals: a line of shares, then problems.

    The line describes the times below it: how busy the device was, how much of its time has an op, how much
    of the work has known FLOPs, and what recording cost.
    """
    row, on_cpu = _on_one_clock(profile), profile.cpu_only
    facts = [_steps_in_words(profile, row)]
    if row.get("files_read") != row.get("files"):
        facts.insert(0, f"{row['files_read']} of {row['files']} files")
    if (row.get("processes") or 0) > 1:
        facts.append(_plural(row["processes"], "process", "processes"))
    if (row.get("devices") or 0) > 1 and not on_cpu:
        facts.append(_plural(row["devices"], "device"))
    if not on_cpu and row.get("kernel_time") is None:
        facts.append("kernels were not captured")
    if not on_cpu and _busy_known(profile) and _of_wall(row):
        facts.append(f"device busy {_of_wall(row)}")
    attributed = _of(row.get("device_attributed_time"), row.get("device_time"))
    if attributed:
        facts.append(f"{attributed} of this time has an op")
    if row.get("flops_share"):
        # on a CPU, the share refers to the ops, because time outside ops cannot have FLOPs
        of_ops = " of the ops' time" if on_cpu else ""
        facts.append(f"FLOPs known for {units.share(row['flops_share'])}{of_ops}")
    if row.get("own_steps_share") is not None:
        facts.append(f"recording took {units.share(row['own_steps_share'])} of the steps")
    return ["; ".join(facts), *_amiss(profile, row)]


def _on_one_clock(profile: Answers) -> dict[str, Any]:
    """Return the summary's row, without a wall time over a day long between clocks that nothing aligns."""
    row = _first(profile.summary())
    if (row.get("wall_time") or 0) > _DAY and not one_clock(profile.trace):
        row |= {"wall_time": None, "window_time": None}
    return row


def _steps_in_words(profile: Answers, row: Mapping[str, Any]) -> str:
    """Return the number of steps in words. It is not "0 steps", because the program may have made steps
    without marking them."""
    if row.get("steps"):
        return _plural(row["steps"], "step")
    return served_words(profile) or "no steps marked"


def _amiss(profile: Answers, row: Mapping[str, Any]) -> list[str]:
    """Return lines on missing data, the selection and capture, the source of times, and warnings."""
    amiss = [f"missing: {lacks}" for lacks in profile.of(losses)]
    if profile.selected is not None:
        amiss.append(f"selected: {profile.selected}")
    if row.get("window_time") is not None:
        amiss.append(f"captured: {units.time(row['window_time'])}, {_window(profile, row)}")
    amiss += [f"{label}: {remark}" for label, _, remark in _sources(profile.trace.origin)]
    told = [units.text(line) for line in amiss]
    return [*told, *_few(_warnings(profile)), *_stepless(profile, row)]


#: Lines of the first screen for warnings, and the characters of a line. The first warning may take two lines.
_WARNINGS: Final = 2
_LONG: Final = 95


def _few(warnings: list[str]) -> list[str]:
    """Return as many of the first warnings as there are lines for, and the number of the others."""
    shown: list[str] = []
    lines = _WARNINGS
    for text in warnings:
        takes_two = _LONG < len(text) <= 2 * _LONG - 10 and lines == _WARNINGS
        if not lines:
            break
        lines -= 2 if takes_two else 1
        shown.append(text if takes_two or len(text) <= _LONG else f"{text[:_LONG]}…")
    more = len(warnings) - len(shown)
    return [*shown, f"{_plural(more, 'more warning')}: --reports notes"] if more else shown


def summary_table(profile: Answers, first: bool = False) -> Table:
    """Return the summary of a profile as a table.

    ``first``: the table is below the wall time, whose facts it does not repeat.
    """
    row = _on_one_clock(profile)
    on_cpu = profile.cpu_only
    lines: list[tuple[str, str, str]] = []
    lost = profile.of(losses)
    of = " of what the file has" if lost else ""

    def line(label: str, value: str, remark: str = "") -> None:
        lines.append((label, value, remark))

    for lacks in lost:
        line("missing", "", lacks)
    if profile.selected is not None:
        line("selected", "", profile.selected)
    counts = [
        _steps(profile, row["steps"]) if row.get("steps") else _steps_in_words(profile, row),
        _plural(row.get("processes"), "process", "processes"),
        "" if on_cpu else _plural(row.get("devices"), "device"),
    ]
    within = first and profile.merged_of is None and len(profile.trace["process_times"]) > 0
    label = "first to last event" if within else "wall time"
    line(label, units.time(row.get("wall_time")), ", ".join(filter(None, counts)))
    if (on_cpu or row.get("kernel_time") is not None) and row.get("window_time") is not None:
        line("  captured", units.time(row["window_time"]), _window(profile, row))
    if on_cpu:
        has_time = row.get("kernel_time") is not None
        what = "of ops, and of steps outside any op" if has_time else "no ops and no steps"
        line("elapsed time", units.time(row.get("kernel_time")), f"{what}; no GPU was recorded")
    else:
        unknown = profile.of(idle_unknown)
        lacks_kernels = unknown is not None and LATE_SAID not in unknown
        lacking = "without the missing kernels" if lacks_kernels else ""
        busy = _of_wall(row) if _busy_known(profile) else lacking
        line("device busy", units.time(row.get("device_busy")), busy)
        for what, value, remark in _ran(row):
            line(what, value, remark + of if "attributed" in remark else remark)
    device_time = row.get("device_time")
    for what in ("attributed", "unattributed"):
        part = row.get(f"device_{what}_time")
        line(
            f"  {what}",
            units.time(part),
            _shares(
                part, row, on_cpu, of, "from first to last event" if within else "of the wall time"
            ),
        )
    for gap in () if first and on_cpu else profile.unattributed().to_dicts():
        line(f"    {units.text(gap.get('reason'))}", units.time(gap.get("time")), _gap(gap, on_cpu))
        for what, part in _parts_of(profile.gaps(), gap):
            line(f"      {what}", units.time(part.get("time")), _gap(part, on_cpu))
    if row.get("processor_time") is not None:
        each = "the process" if row["processes"] == 1 else "the processes"
        line(
            "processor time",
            units.time(row["processor_time"]),
            f"of all threads of {each}, while recorded",
        )
    if row.get("waits"):
        line("waits", units.time(row.get("queues_waited")), _waits(row))
    launches = profile.trace.has("calls")
    if not on_cpu and launches:
        line(
            "launched", units.share(row.get("launched_share")), "of device time has a launch record"
        )
    elif not on_cpu and device_time:
        line("launched", units.UNKNOWN, "the source records no launches")
    lines += _sources(profile.trace.origin)
    subject = "of op time" if on_cpu else f"of {'launched ' if launches else ''}device time"
    line(
        "FLOPs known", units.share(row.get("flops_share")), subject + _among_kernels(row, launches)
    )
    line("bytes known", units.share(row.get("bytes_share")), subject)
    if not on_cpu:
        line("Tensor Cores", _tensor_share(row), _tensor_remark(row))
    recorded = recorded_by(profile.trace.origin)
    if recorded is not None:
        line("backend", *recorded)
    if row.get("own_time") is not None:
        line("cost of recording", units.time(row["own_time"]), _own(row))
    for peak in _peaks(profile):
        line(*peak)
    files, read = row.get("files"), row.get("files_read")
    title = "Summary" if read == files else f"Summary of {read} of {files} files"
    return Table(
        title if profile.merged_of is None else f"Summary of {profile.merged_of}",
        [
            Column("what", "", str, flexible=True, least=44, rank=-1),
            Column("value", "", str),
            Column("remark", "", _blank, flexible=True, least=24),
        ],
        [{"what": label, "value": value, "remark": remark} for label, value, remark in lines],
        [*_warnings(profile), *_stepless(profile, row)],
        headings=False,
    )


def _sources(origin: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the sources of times and shapes that do not come from the events themselves."""
    parts = (origin, *origin.get("parts", ()))
    for times in dict.fromkeys(part.get("times") for part in parts):
        if times is not None:
            yield "times", "", times
    for capture in origin.get("captures", ()):
        yield "shapes from", "", _capture(capture)


def _steps(profile: Answers, number: object) -> str:
    """Return the number of steps and, if the program does not mark them, their source."""
    source = source_of_steps(profile)
    return _plural(number, "step") + (f" ({source})" if source else "")


def _stepless(profile: Answers, row: Mapping[str, Any]) -> list[str]:
    """Return advice if a training was recorded without steps."""
    if row.get("steps"):
        return []
    ours = any(domain.startswith("opscope.") for domain in profile.domains)
    if not ours or {"backward", "optimizer"}.isdisjoint(distinct_texts(profile, "direction")):
        return []
    return [
        "no steps were recorded: call opscope.step() at the beginning of each iteration; opscope iterations"
        " lists what repeats"
    ]


def _own(row: Mapping[str, Any]) -> str:
    """Return a share of the cost; ``benchmarks/torch_overhead.py`` measures what opscope's clock cannot."""
    share, of = row.get("own_steps_share"), "the steps' time"
    if share is None:
        share, of = row.get("own_share"), "the time recorded"
    return f"{units.share(share)} of {of}; the framework's cost of calling opscope is not in it"


def _peaks(profile: Answers) -> list[tuple[str, str, str]]:
    """Return a summary line for each device: the highest peak of any process."""
    frame = profile.memory().sort("device", "peak_memory", descending=[False, True])
    lines_of_peaks = []
    for rows in frame.partition_by("device", maintain_order=True):
        row = rows.row(0, named=True)
        number = row["device"]
        label = "CPU" if number == -1 else "GPU" if number is None else f"GPU {number}"
        # memory from before the recording is not included
        remark = "of tensors made while it was recorded" if row["device"] == -1 else ""
        if row["reserved"]:
            remark = f"{units.size(row['reserved'])} reserved"
        if len(rows) > 1:
            remark = ", ".join(filter(None, (remark, f"the highest of {len(rows)} processes")))
        lines_of_peaks.append((f"peak memory, {label}", units.size(row["peak_memory"]), remark))
    return lines_of_peaks


def _window(profile: Answers, row: Mapping[str, Any]) -> str:
    """Return which steps have kernels (without a GPU: ops), and why the other steps have none."""
    windows = profile.trace["windows"].filter(profile.trace["windows"]["source"].is_not_null())
    gives = "ops" if profile.cpu_only else "kernels"
    bounds = windows.select("first_step", "last_step", "ended").drop_nulls().unique().rows()
    if len(bounds) == 1 and row.get("steps"):
        first, last, ended = bounds[0]
        return f"{gives} of steps {first} to {last} only, {ended}"
    steps = f"{row.get('window_steps') or 0:,} of {_plural(row.get('steps'), 'step')}"
    whys = sorted(set(windows["ended"].drop_nulls().to_list()))
    return f"{gives} of {steps if row.get('steps') else 'this time'} only: {'; '.join(whys)}"


def _first(frame: pl.DataFrame) -> dict[str, Any]:
    rows = frame.head(1).to_dicts()
    return rows[0] if rows else {}


def _blank(value: object) -> str:
    return str(value or "")


def _plural(number: object, noun: str, plural: str | None = None) -> str:
    if not isinstance(number, int):
        return ""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _busy_known(profile: Answers) -> bool:
    """Whether it is known when devices worked: all kernels are there, with the times at which they ran."""
    return profile.of(idle_unknown) is None and not totals_only(profile.trace)


def _of_wall(row: Mapping[str, Any]) -> str:
    window, devices = row.get("window_time"), row.get("devices")
    busy, wall = row.get("device_busy"), row.get("wall_time") if window is None else window
    if busy is None or not wall or not devices:
        return ""
    subject = "wall time" if window is None else "time captured"
    return f"{units.share(busy / (wall * devices))} of the {subject}" + (
        " of each device, on average" if devices > 1 else ""
    )


def _file(path: object) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2] if path else "another file"


def _capture(capture: Mapping[str, Any]) -> str:
    """Return which file was loaded only for the shapes of its captured CUDA graphs, and which file replays
    these graphs."""
    own = [_plural(capture["kernels"], "kernel")]
    if capture["copies"]:
        own.append(_plural(capture["copies"], "copy or set", "copies and sets"))
    counted = f"its own {' and '.join(own)} are not counted"
    return f"{_file(capture['path'])}, whose CUDA graphs {_file(capture['of'])} replays; {counted}"


def _shares(part: int | None, row: Mapping[str, Any], on_cpu: bool, of: str, extent: str) -> str:
    """Return the shares of the busy and attributed time. Several processes have no share of the wall time."""
    wall, share = row.get("wall_time"), _of(part, row.get("device_time"))
    if not share or of or not on_cpu:
        return share and share + (of or " of device time")
    alone = row.get("processes") == 1 and wall and part is not None and part <= wall
    return f"{share} of it" + (f", {_of(part, wall)} {extent}" if alone else "")


def _of(part: int | None, total: int | None) -> str:
    """Return a share, computed from the times: 1 minus the other share would add a rounding error."""
    return units.share(part / total) if part is not None and total else ""


def _ran(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the lines of device time, kernel time, and time of copies and sets."""
    device_time, kernels = row.get("device_time"), row.get("kernel_time")
    if kernels is None or device_time is None:
        return [("kernel time", units.UNKNOWN, "kernels were not captured")]
    lines = [("device time", units.time(device_time), "kernels, copies and sets")]
    named = {"kernel": "  kernel time", "copy or set": "  copy time"}
    of_kernels, of_all = row.get("attributed_time"), row.get("device_attributed_time")
    # null in a profile stored by another version or tool
    others = None if of_kernels is None or of_all is None else of_all - of_kernels
    attributed = (of_kernels, others)
    counts = (row.get("kernels"), row.get("copies"))
    for (noun, label), time, known, count in zip(
        named.items(), (kernels, device_time - kernels), attributed, counts, strict=True
    ):
        remark = [_plural(count, noun, "copies and sets" if noun != "kernel" else None)]
        if time and known is not None:
            remark.append(f"{units.share(known / time)} attributed")
        if count or noun == "kernel":
            lines.append((label, units.time(time), ", ".join(remark)))
    return lines


def _waits(row: Mapping[str, Any]) -> str:
    return f"{_plural(row['waits'], 'wait')} of the device's queues: no work, in no time above"


def _among_kernels(row: Mapping[str, Any], launches: bool) -> str:
    """Return the share among kernels alone if there are copies, whose FLOPs are known to be 0."""
    share = row.get("kernel_flops_share")
    if share is None or not row.get("copies"):
        return ""
    return f"; {units.share(share)} of {'launched ' if launches else ''}kernel time"


def _gap(gap: Mapping[str, Any], on_cpu: bool) -> str:
    share = "" if gap.get("share") is None else units.share(gap["share"])
    if on_cpu:
        return share
    kernels = _plural(gap.get("kernels") or None, "kernel")
    copies = _plural(gap.get("copies") or None, "copy or set", "copies and sets")
    return ", ".join(filter(None, (share, kernels, copies)))


#: The reason for time inside steps, outside any op, in which a range shows that a program was compiled.
COMPILING: Final = "inside steps, compiling a program"
#: The number of parts of a gap that the summary names.
_PARTS: Final = 3


def _parts_of(gaps: pl.DataFrame, gap: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the largest parts of the time with one reason, and the others as one; [] if no part has a
    name."""
    parts = [row for row in gaps.to_dicts() if row["reason"] == gap["reason"]]
    named = [(_part(row), row) for row in parts]
    if not any(name for name, _ in named):
        return []
    if gap["reason"] == COMPILING and [name for name, _ in named] == [COMPILE]:
        return []  # the name of the phase would repeat the reason
    # a fourth part takes the line that "1 more" would take
    most = len(named) if len(named) <= _PARTS + 1 else _PARTS
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
    """Return the name of a part of the time, such as ``in 'evaluate', backward, off the CPU: futex``; ""
    if it has none."""
    inside = [f"in {units.text(row['range'])!r}" if row["range"] else ""]
    labels = (units.text(row[key]) if row[key] else "" for key in ("phase", "state"))
    return ", ".join(filter(None, (*inside, *labels)))


def _tensor_share(row: Mapping[str, Any]) -> str:
    used, kernel_time = row.get("tensor_core_time"), row.get("kernel_time")
    return units.share(used / kernel_time if used is not None and kernel_time else None)


def _tensor_remark(row: Mapping[str, Any]) -> str:
    """Return what the share refers to, and the time for which the use of Tensor Cores is unknown."""
    used = row.get("tensor_core_time")
    remark = "of kernel time is in kernels that use them"
    if used:
        remark = f"of kernel time, {units.time(used)}, is in kernels that use them"
    rest, kernel_time = row.get("tensor_core_undetermined_time"), row.get("kernel_time")
    if not rest or not kernel_time:
        return remark
    return f"{remark}; for {units.share(rest / kernel_time)} ({units.time(rest)}) it is not known"


def _warnings(profile: Answers) -> list[str]:
    """Return the distinct warnings about the trace; ``opscope doctor FILE`` shows all notes."""
    counts: dict[tuple[str, str], int] = {}
    said = {text.partition(" (")[0] for text in profile.of(losses)}
    for row in profile._all_notes().to_dicts():
        if row["severity"] != "info" and row["what"] not in said:
            key = (row["severity"], row["what"])
            counts[key] = counts.get(key, 0) + (row["how_many"] or 1)
    return [
        f"{severity}: {units.text(note_text)}" + (f" ({units.count(times)})" if times > 1 else "")
        for (severity, note_text), times in sorted(counts.items())
    ]
