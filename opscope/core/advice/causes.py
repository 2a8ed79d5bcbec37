"""The facts that the diagnosis examines (of a profile with events, in light mode, or merged), and their
causes."""

from __future__ import annotations

from functools import cache

import polars as pl

from opscope.core.advice import diagnosis_time
from opscope.core.advice.changes import run_of
from opscope.core.advice.diagnosis import Causes, diagnosis
from opscope.core.advice.diagnosis_rows import NEEDED, Facts, sums
from opscope.core.advice.saying import framework
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import linked_work
from opscope.core.analysis.host import light_diagnosis
from opscope.core.analysis.host.host_lines import lines_of_steps
from opscope.core.analysis.host.input_waits import loader_waits
from opscope.core.analysis.host.light import is_light
from opscope.core.analysis.host.wall_time import compilations, longest_life
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.lost_kernels import captured, losses, ops_unknown
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.ranks.stragglers import step_stragglers
from opscope.core.analysis.steps.step_times import step_bounds


def causes(profile: Answers) -> Causes:
    """Return what bounds the steps; in light mode, what their phases show."""
    if is_light(profile.trace):
        return light_causes(profile)
    return diagnosis(facts(profile))


def light_causes(profile: Answers) -> Causes:
    """What the phases of light mode show."""
    rows, otherwise, not_told = light_diagnosis.diagnosis(profile.trace)
    blocks = (
        profile.trace["light_blocks"].group_by("process").agg(pl.col("duration", "steps").sum())
    )
    steps, time = (int(blocks[name].max() or 0) for name in ("steps", "duration"))  # type: ignore[arg-type]
    return Causes(rows, otherwise, not_told, None, time // steps if steps else 0, steps, time)


def facts(profile: Answers) -> Facts:
    """Return the facts that the diagnosis examines."""
    trace = profile.attribution.trace
    work = None if profile.cpu_only else profile.of(linked_work)
    waits = profile.of(loader_waits)
    host = diagnosis_time.host_of(
        profile.of(op_index), waits, profile.of(compilations), profile.cpu_only
    )
    steps = diagnosis_time.steps_to_judge(
        profile.of(step_bounds), profile.input_waits(), work, host
    )

    def divide(stretches: dict[int, diagnosis_time.Stretch]) -> list[diagnosis_time.Divided]:
        if work is None:
            return diagnosis_time.on_cpu(host, profile.of(exchanges), stretches)
        timed = work.timed and len(work.start) > 0
        return diagnosis_time.on_gpu(work, trace, host, stretches) if timed else []

    def without_op() -> int:
        if work is None:
            return 0
        return int(profile.ask("unattributed", categories=True)["time"].sum() or 0)

    divided = divide(steps.of)
    window = int(profile.summary()["wall_time"][0] or 0)
    return Facts(
        trace,
        divided,
        divided if steps.usual is steps.of else divide(steps.usual) or divided,
        max(window, longest_life(profile)),
        window,
        steps,
        host,
        work,
        # three findings use them
        cache(
            lambda: sums(summed_columns(profile, NEEDED), profile.device[0], not profile.cpu_only)
        ),
        without_op,
        waits,
        step_stragglers(profile) if len(trace["processes"]) > 1 else pl.DataFrame(),
        profile.memory(),
        profile.device,
        framework(profile),
        lambda: profile.of(lines_of_steps),
        profile.of(run_of),
        profile.of(losses),
        profile.of(ops_unknown),
        profile.of(captured),
    )
