"""GPUs that run kernels for less than half of the time."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import EVIDENCE, Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.pace import NO_GPU, NO_KERNELS, NO_STEPS, Pace, pace
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.device.device_work import NOT_TIMED, linked_work
from opscope.core.analysis.device.idle import KINDS
from opscope.core.question import parameters

#: A GPU is underutilised if kernels run for less than this part of the time.
LEAST: Final = 0.5
_WAITS: Final = {
    "input": "input (see data_loader)",
    "sync": "the host after synchronising calls (see sync_calls)",
    "launching": "launches (see launch_bound)",
    "host": "other work of the host (see host_bound)",
    "edges": "the host before the first and after the last work, or in steps of warm-up",
    "kernel_wait": "queued work to start",
    "other_wait": "queued work that waits for other streams, events or collectives",
    "unknown_wait": "work whose launch was not recorded",
}
_FIRST: Final = {
    "input": "Let the data loader work ahead: more workers and prefetching (see data_loader).",
    "sync": "Keep results on the GPU and read them back every 100 steps (see sync_calls).",
    "launching": "Launch less: larger kernels, compiled or replayed from a CUDA graph (see launch_bound).",
    "host": "Take work of the host out of the step (see host_bound).",
    "other_wait": "Look at what its queued work waits for: `opscope report FILE --reports"
    " idle,queue,overlap`. Wait for an event in place of a whole stream; of a job, ask the files of all"
    " ranks which comes late.",
    "edges": "Look at what the host does before the first and after the last work of a step:"
    " `opscope report FILE --reports idle,idle_ops`.",
    "unknown_wait": "Record the launches too, which tell what it waited for: opscope run, or nsys profile -t"
    " cuda,nvtx.",
}
_GENERAL: Final = (
    "Give the GPU more work at a time: a larger batch; several jobs on one GPU (MIG, MPS) where one cannot"
    " fill it."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return a finding for each GPU that runs kernels for less than half of the steps' time."""
    if answers.cpu_only:
        return CannotTell(NO_GPU)
    use = answers.device_use()
    if use.is_empty():
        return CannotTell(NO_KERNELS)
    shifted = answers.of(linked_work).unlinked if answers.trace["calls"].height else None
    if shifted is not None:
        return CannotTell(f"{shifted}; in which step a kernel ran is not known either")
    measured = use.filter(pl.col("gpu_utilization").is_not_null())
    if measured.is_empty():
        return CannotTell(use["utilization_reason"].drop_nulls().head(1).to_list()[0] or NOT_TIMED)
    low = measured.filter(pl.col("gpu_utilization") < least)
    if low.is_empty():
        return []
    stepping = set(marked_steps(answers)["process"])
    proved = low.filter(pl.col("process").is_in(list(stepping), nulls_equal=True))
    if proved.is_empty():
        used = float(low["gpu_utilization"].min())  # type: ignore[arg-type]
        return CannotTell(
            f"a GPU ran kernels for {100 * used:.1f} % of the whole profile, but {NO_STEPS}"
        )
    return [_finding(answers, row) for row in proved.sort("process", "device").to_dicts()]


#: The idle time that the rows of the evidence leave unexplained.
_LEFT: Final = "idle outside of steps, or without a cause that is known"


def _finding(answers: Answers, row: dict[str, object]) -> Finding:
    process, device = row["process"], row["device"]
    window, busy = int(row["window"]), int(row["kernel_busy"])  # type: ignore[call-overload]
    idle = window - busy
    waits = _causes(answers, process, device)
    causes = [f"{_WAITS[cause]}: {ms(time)}" for cause, time in waits if time]
    # the causes that explain a quarter of the idle time, at most two of them
    main = [cause for cause, time in waits[:2] if 4 * time > idle and cause in _FIRST]
    name = f" ({row['device_name']})" if row["device_name"] else ""
    parts = [(time, f"idle for {_WAITS[cause]}") for cause, time in waits if time]
    left = idle - sum(time for time, _ in parts)
    if left > 0:
        parts.append((left, _LEFT))
    rows = pl.DataFrame(
        [
            {"process": process, "device": device, "time": time, "detail": detail}
            for time, detail in parts
        ],
        schema={name: EVIDENCE[name] for name in ("process", "device", "time", "detail")},
    )
    return Finding(
        what=f"device {device}{name} of process {process} runs kernels for {ms(busy)} of {ms(window)}:"
        f" {share(busy, window)} utilisation",
        evidence="it waits for " + "; ".join(causes[:4])
        if causes
        else "what it waits for is not known",
        recommendation=" ".join(_FIRST[cause] for cause in main) or _GENERAL,
        time=idle,
        saving_least=0,
        saving_most=idle,
        reasoning="Counted is window less kernel_busy of device_use(). At least nothing: this names a"
        " state and"
        f" not its cause. At most {ms(idle)}, if the GPU never idled. The findings on the causes have"
        " estimates.",
        confidence="medium",
        rows=rows,
    )


def _causes(answers: Answers, process: object, device: object) -> list[tuple[str, int]]:
    """Return the causes for which a device waited in the steps, the longest first, with the times (ns)."""
    here = pl.col("process").eq_missing(pl.lit(process, pl.Int32)) & pl.col("device").eq_missing(
        pl.lit(device, pl.Int32)
    )
    kinds = answers.idle_steps().filter(here).select(pl.col(KINDS).sum()).row(0, named=True)
    pace_of_steps = pace(answers)
    by_cause = {}
    if isinstance(pace_of_steps, Pace):
        length = (pl.col("end") - pl.col("start")).sum().alias("time")
        by_cause = dict(pace_of_steps.pieces.filter(here).group_by("cause").agg(length).rows())
    rest = int(kinds.pop("host_wait") or 0) - sum(by_cause.values())
    times = {**by_cause, "edges": max(rest, 0), **{name: time or 0 for name, time in kinds.items()}}
    return sorted(((name, int(time)) for name, time in times.items()), key=lambda cause: -cause[1])


DETECTOR = Detector(
    name="underutilized_gpu",
    question="Does a GPU run kernels for less than half of the time?",
    find=find,
    fires="less than {least} of a device's window with a kernel",
    thresholds={
        "least": parameters.share("a GPU that is busy for a smaller share is underutilized")
    },
    looks_at="The part of the steps in which a kernel ran, of each device of each process"
    " (gpu_utilization of device_use()), and what"
    " the device waited for in the rest (idle_steps()). It fires below 50 %.",
    abstains="Without a GPU's kernels or the times at which they ran; where kernels begin before their"
    " launches, so that it is not known which ran in a step; and where utilisation is below 50 %"
    " of a"
    " profile without steps, as that may be start-up.",
    known_as=("DLProf: Underutilized GPU", "PyTorch profiler plug-in: GPU utilization below 50 %"),
)
