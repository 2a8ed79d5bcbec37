"""Devices that wait for copies: to, from and between devices, with no kernel beside them."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.communicated import open_until
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.saying import evidence, framework, ms, places, share
from opscope.core.perf.devices.peaks import Device
from opscope.core.question import parameters
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import Ints, intersect, merge, subtract

#: The part of a device's window from which copies that no kernel hides bound the run.
LEAST: Final = 0.1
_WAYS: Final = {"HtoD": "to the device", "DtoH": "from the device", "PtoP": "between devices"}
#: For each direction of copies, the column with the kind of the host's memory.
_HOST_END: Final = {"HtoD": "src_kind", "DtoH": "dst_kind"}
#: PCI Express x16, one direction (GB/s), by compute capability: the most that a board has, from NVIDIA's
#: datasheets of V100, T4 (3.0), A100, A10, L4 (4.0), H100 and RTX 50 (5.0); rates less 128b/130b coding.
_LINKS: Final = {"7": ("3.0", 15.75), "8": ("4.0", 31.5), "9": ("5.0", 63.0), "12": ("5.0", 63.0)}
#: Boards whose host is not behind PCI Express.
_OTHER_LINKS: Final = re.compile(r"(?i)\bG[HB]\d|grace|orin|xavier|jetson|thor")
_FEWER: Final = (
    "send fewer bytes (16 or 8 bits, converted on the device), and keep on the device what is copied again"
    " and again"
)
_GENERAL: Final = {
    "HtoD": "Copy what the next step needs from pinned memory, on a stream of its own, while this one"
    f" computes; {_FEWER}.",
    "DtoH": "Copy into pinned buffers on a stream of its own while the next step computes; read back less:"
    " reduce or convert on the device first; keep on the device what comes back again.",
    "PtoP": "Copy on a stream of its own while both devices compute; put what is exchanged on one device.",
}
_TORCH: Final = {
    "HtoD": "Copy a batch ahead, from pinned memory: with torch.cuda.stream(copying): following ="
    " batch.to(device, non_blocking=True), and torch.cuda.current_stream().wait_stream(copying) before its"
    f" use; {_FEWER}, such as offloaded weights and optimizer states.",
    "DtoH": "Copy on a stream of its own: with torch.cuda.stream(copying): host.copy_(tensor,"
    " non_blocking=True) into host = torch.empty(shape, pin_memory=True), while the next step computes; read"
    " back less: reduce or convert on the device first; keep activations and optimizer states on the device"
    " as far as they fit.",
    "PtoP": _GENERAL["PtoP"],
}


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the device that copies longest beside no kernel, from 10 % of its window on."""
    if answers.cpu_only:
        return CannotTell("nothing in the profile ran on a GPU")
    untimed = answers.overlap()["reason"].drop_nulls()
    if len(untimed):
        return CannotTell(f"{untimed[0]}, so that when copies ran is not known")
    if not answers.trace.has("memops"):
        return CannotTell("copies were not recorded")
    copies = answers.memops(categories=True)
    if answers.trace["kernels"].is_empty():
        return CannotTell("no kernels were recorded, so that what ran beside copies is not known")
    copies = copies.with_columns(
        pl.Series("row", np.arange(len(copies))), pl.col("kind").cast(pl.String)
    )
    took_time = pl.col("end") > pl.col("start")
    if len(copies) and not copies.select(took_time.any()).item():
        return CannotTell("no copy has a time, so that what copies take is not known")
    copies = copies.filter(pl.col("kind").is_in(list(_WAYS)) & took_time)
    steps = marked_steps(answers)
    worst, longest = None, 0
    for (process, device), part in copies.group_by("process", "device", maintain_order=True):
        copying = _Copying(answers, part, steps, process, device)
        if copying.alone > max(longest, least * copying.window):
            worst, longest = copying, copying.alone
    return [] if worst is None else [_finding(answers, worst)]


class _Copying:
    """The time that copies take of a device's window (ns): its steps, else from its first work to its
    last."""

    def __init__(
        self, answers: Answers, copies: pl.DataFrame, steps: pl.DataFrame, process: Any, device: Any
    ) -> None:
        kernels = answers.trace["kernels"].filter(
            pl.col("process").eq_missing(process), pl.col("device").eq_missing(device)
        )
        self.device = device
        mine = steps.filter(pl.col("process").eq_missing(process))
        self.in_steps = len(mine) > 0
        ran, computed = _spans(copies), _spans(kernels)
        work = merge(np.concatenate((ran[0], computed[0])), np.concatenate((ran[1], computed[1])))
        window = _spans(mine) if self.in_steps else (work[0][:1], work[1][-1:])
        inside = intersect(ran, window)
        alone = subtract(inside, computed)
        self.busy = _length(intersect(work, window))
        self.window, self.copied, self.alone = (_length(one) for one in (window, inside, alone))
        begin = copies["start"].to_numpy()
        place = np.searchsorted(window[0], begin, side="right") - 1
        held = (place >= 0) & (begin < at(window[1], place, 0))
        copies = copies.filter(pl.Series(held, dtype=pl.Boolean))
        start, end = (copies[name].to_numpy() for name in ("start", "end"))
        hidden = open_until(computed, end) - open_until(computed, start)
        self.copies = copies.with_columns(
            pl.Series("exposed", end - start - hidden),
            pl.coalesce(
                pl.when(pl.col("kind") == kind).then(pl.col(name).cast(pl.String))
                for kind, name in _HOST_END.items()
            ).alias("memory"),
        )


def _spans(frame: pl.DataFrame) -> tuple[Ints, Ints]:
    start, end = (frame[name].drop_nulls().to_numpy().astype(np.int64) for name in ("start", "end"))
    return merge(start, end)


def _length(spans: tuple[Ints, Ints]) -> int:
    return int((spans[1] - spans[0]).sum())


def _finding(answers: Answers, found: _Copying) -> Finding:
    copies, device = found.copies, answers.device[0]
    groups = (
        copies.group_by("kind", "memory", maintain_order=True)
        .agg(
            pl.len().alias("many"),
            pl.col("bytes").sum().alias("moved"),
            pl.col("bytes").null_count().alias("unsized"),
            pl.col("exposed").sum(),
            pl.struct("start", "end")
            .map_batches(lambda rows: _length(_spans(rows.struct.unnest())), return_dtype=pl.Int64,
                         returns_scalar=True)
            .alias("took"),
        )
        .sort("exposed", "kind", descending=[True, False])
    )  # fmt: skip
    lines = [_line(row, device) for row in groups.to_dicts()]
    first = groups.row(0, named=True)
    whose = "the steps" if found.in_steps else "the time from its first work to its last"
    used = framework(answers)
    pageable = first["memory"] == "pageable"
    change = (_TORCH if used == "torch" else _GENERAL)[first["kind"]]
    exposed = copies.filter((pl.col("exposed") > 0) & (pl.col("end") > pl.col("start")))
    factor = 1 - exposed["exposed"] / (exposed["end"] - exposed["start"])
    return Finding(
        what=f"device {found.device} copies while no kernel runs for {ms(found.alone)} of the"
        f" {ms(found.window)} of {whose} ({share(found.alone, found.window)}): {lines[0]}",
        evidence="; ".join(
            [
                *lines[1:3],
                f"{share(found.alone, found.busy)} of the time in which the device works",
                f"kernels hide {ms(found.copied - found.alone)} of the {ms(found.copied)} of copies",
                f"by place: {places(copies, 'copies')}",
            ]
        ),
        recommendation=("Pin the host's memory first. " if pageable else "") + change,
        time=found.alone,
        saving_least=0,
        saving_most=found.alone,
        reasoning="memops(): the union of the copies to, from and between devices, less the union of"
        " kernels() of the same device, within its window. At least nothing: a kernel may need what the copy"
        " brings. At most all of it, if kernels ran beside every copy; copies as such take as long as they"
        " do. In the estimate of each copy only the part that is hidden now remains.",
        confidence="high" if 2 * found.alone > found.window else "medium",
        rows=evidence(copies),
        edit=Edit(memops=(exposed["row"].to_numpy(), factor.to_numpy())),
    )


def _line(row: dict[str, Any], device: Device | None) -> str:
    """Return the copies of one direction and kind of memory in words, with their rate against the link's."""
    kind, memory = row["kind"], row["memory"]
    of = (
        ""
        if kind == "PtoP"
        else f" {'from' if kind == 'HtoD' else 'to'} {memory or 'unknown'} memory"
    )
    many = f"{row['many']:,} {'copy' if row['many'] == 1 else 'copies'} {_WAYS[kind]}{of}"
    if row["unsized"] or not row["took"]:
        return f"{many} in {ms(row['took'])}, how many bytes not recorded"
    rate = row["moved"] / row["took"]
    moved = f"{row['moved'] / 1e9:,.2f} GB in {ms(row['took'])}"
    return f"{many}, {moved}, {rate:.1f} GB/s{_of_link(kind, rate, device)}"


def _of_link(kind: str, rate: float, device: Device | None) -> str:
    """Return in words the most that a device's link can move."""
    major = "" if device is None or device.cc is None else device.cc.split(".")[0]
    link = _LINKS.get(major)
    if device is None or link is None or kind == "PtoP" or _OTHER_LINKS.search(device.name):
        return "; what the link could is not known"
    generation, most = link
    if rate > most:
        return "; what the link could is not known"
    return f" of the {most:g} GB/s that PCIe {generation} x16, the most of this device, could"


DETECTOR = Detector(
    name="transfer_bound",
    question="Do copies to, from or between devices bound the run, with no kernel beside them?",
    find=find,
    needs_all_kernels=True,
    fires="more than {least} of a device's window in which copies run and no kernel",
    thresholds={"least": parameters.share("the least share of the window that copies take alone")},
    looks_at="memops(): the union of the copies to, from and between devices, by direction and kind of the"
    " host's memory, less the union of the kernels of the same device, within the steps (without steps: from"
    " its first work to its last); bytes over time against PCI Express as the device's compute capability"
    " has it.",
    abstains="Without a GPU's work, where copies were not recorded, and where the source has totals without"
    " times.",
)
