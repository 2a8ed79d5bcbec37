"""The last lines of the first screen: the device's idle time, and what it waits for."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.reports import console
from opscope.reports.next_steps import next_steps
from tests import traces
from tests.core.advice.test_memory_growth import leaking


def profile(*, launches: bool, late: bool, steps: bool = True, set_up: int = 0) -> Profile:
    """Ten kernels of 100 ns, 100 ns apart, each launched just before it starts or all at the beginning."""
    starts = [set_up + 200 * number for number in range(10)]
    tables = {
        "processes": pl.DataFrame({"process": [0]}),
        "kernels": pl.DataFrame(
            {
                "process": 0,
                "device": 0,
                "stream": 7,
                "start": starts,
                "end": [start + 100 for start in starts],
                "name": "k",
                "correlation": list(range(10)) if launches else None,
            }
        ).cast({"process": pl.Int32, "device": pl.Int32}),
    }
    if launches:
        at = [start - 20 if late else set_up - 100 + number for number, start in enumerate(starts)]
        tables["calls"] = pl.DataFrame(
            {
                "process": 0,
                "thread": 1,
                "start": at,
                "end": [one + 1 for one in at],
                "name": "cudaLaunchKernel",
                "correlation": list(range(10)),
            }
        ).cast({"process": pl.Int32})
    if steps:
        tables["ranges"] = pl.DataFrame(
            {
                "process": [0],
                "thread": [1],
                "start": [set_up - 100],
                "end": [set_up + 1_900],
                "domain": ["opscope.step"],
                "category": ["step"],
                "text": ["step 0"],
                "kind": ["pushpop"],
            }
        ).cast({"process": pl.Int32})
    return Profile(Trace.of(tables, {"format": "made"}))


def idle(made: Profile) -> list[str]:
    return [line for line in next_steps(made) if "idle" in line]


def test_a_late_program_is_told_so() -> None:
    (line,) = idle(profile(launches=True, late=True))
    assert "50.0 % of the steps' time" in line
    assert "launches its work too late" in line


def test_a_device_that_waits_for_something_else_is_not_blamed_on_the_program() -> None:
    (line,) = idle(profile(launches=True, late=False))
    assert "too late" not in line
    assert "what it waits for" in line


def test_without_launches_nobody_knows_what_the_device_waits_for() -> None:
    (line,) = idle(profile(launches=False, late=False))
    assert line.endswith("the trace does not say what it waits for")


def test_without_steps_the_share_is_of_all_the_time() -> None:
    (line,) = idle(profile(launches=True, late=True, steps=False))
    assert " of the time," in line


def test_what_lies_before_the_steps_is_not_the_steps_idle_time() -> None:
    made = profile(launches=True, late=True, set_up=1_000_000)
    early = (
        made.trace["kernels"]
        .head(1)
        .with_columns(start=pl.lit(0, pl.Int64), end=pl.lit(10, pl.Int64))
    )
    with_setup = Profile(made.trace.replace(kernels=pl.concat([early, made.trace["kernels"]])))
    (line,) = idle(with_setup)
    assert "50.0 % of the steps' time" in line


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "44.0 % of the steps' time, 97.9 %"),
        ("mindspore/mindinsight_run2_ascend910", None),  # busy inside its step; idle before it
    ],
)
def test_real_traces(shared, file, said) -> None:
    lines = idle(traces.load(shared / file))
    assert (said in lines[0]) if said else not lines


def on_cpu(*, compiling: int, other: int, in_ops: int) -> Profile:
    """A step of a program without a GPU: so long it compiles, so long it is outside ops, so long in an op."""
    whole = compiling + other + in_ops
    rows = [
        (0, whole, "opscope.step", "step", "step 0"),
        (0, compiling, "opscope.jax", "phase", "compile"),
        (whole - in_ops, whole, "opscope.torch", "forward", "aten::relu(f32[4]) -> f32[4]"),
    ]
    columns = ("start", "end", "domain", "category", "text")
    ranges = pl.DataFrame([row for row in rows if row[1] > row[0]], schema=columns, orient="row")
    ranges = ranges.with_columns(
        process=pl.lit(0, pl.Int32), thread=pl.lit(1), kind=pl.lit("pushpop")
    )
    processes = pl.DataFrame({"process": [0]}).cast({"process": pl.Int32})
    return Profile(Trace.of({"processes": processes, "ranges": ranges}, {"format": "made"}))


def without_op(made: Profile) -> list[str]:
    return [
        line.split(":")[0] for line in next_steps(made) if "has no op" in line or "compiles" in line
    ]


@pytest.mark.parametrize(
    ("compiling", "other", "in_ops", "said"),
    [
        (
            900,
            60,
            40,
            [
                "90.0 % of the time compiles programs, once for each and again for new shapes",
                "6.0 % of the time has no op for another reason",
            ],
        ),
        (900, 0, 100, ["90.0 % of the time compiles programs, once for each and again for new shapes"]),
        (0, 300, 700, ["30.0 % of the time has no op"]),
        (5, 300, 695, ["30.0 % of the time has no op"]),
        (0, 0, 1_000, []),
    ],
)  # fmt: skip
def test_time_that_compiles_programs_is_not_told_as_a_gap_of_the_recording(
    compiling: int, other: int, in_ops: int, said: list[str]
) -> None:
    assert without_op(on_cpu(compiling=compiling, other=other, in_ops=in_ops)) == said


def test_the_summary_does_not_say_twice_that_a_program_compiles() -> None:
    table = console.tables(on_cpu(compiling=900, other=60, in_ops=40), ["summary"], None)[0]
    assert [row["what"].strip() for row in table.rows if "compil" in row["what"]] == [
        "inside steps, compiling a program"
    ]


def test_what_holds_most_of_the_memory_is_a_line_with_its_place():
    (line,) = [text for text in next_steps(leaking()) if text.startswith("memory at")]
    assert line == (
        "memory at its peak: most in aten::relu at train.py:11, 33.0 MB (100.0 %): --reports memory_by_op"
    )
