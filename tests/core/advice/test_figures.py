"""Every recommendation's figures, computed again from the tables that the report has, on real traces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import polars as pl
import pytest

from opscope.core.advice.rest import MOST, with_rest
from opscope.core.advice.said import said_by, simulate
from opscope.core.advice.saying import ms
from opscope.profile import Profile
from tests import traces
from tests.viewer.traces import TRACES

MORE = [
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "kineto/sampled_rank0.json.gz",
]
Row = Mapping[str, object]


def most(frame: pl.DataFrame, value: pl.Expr) -> int:
    """Return the largest sum of a process: ranks run at once."""
    return int(frame.group_by("process").agg(value.sum().alias("sum"))["sum"].max())


def exposed(profile: Profile) -> int:
    return most(profile.communication(), pl.col("communication_time") - pl.col("overlap_time"))


def warm(profile: Profile) -> int:
    mine = profile.steps().filter(pl.col("warm_up"))
    usual = (
        profile.steps().filter(~pl.col("warm_up")).group_by("process").agg(pl.col("time").median())
    )
    over = mine.join(usual, "process", suffix="_usual", nulls_equal=True)
    return int((over["time"] - over["time_usual"]).clip(0).sum())


def edited(profile: Profile, detector: str) -> int:
    """Return the time of the kernels that the finding's change touches; of one without, that of its rows.

    What these rows hold, another test compares with the frames.
    """
    (said,) = said_by(profile, [detector])
    if said.finding.edit is None:
        return int(said.finding.rows["time"].sum())
    rows, _ = said.finding.edit.kernels
    return int(profile.kernels()["duration"].gather(rows).sum())


def fusable(profile: Profile) -> int:
    kinds = ("elementwise", "activation", "dropout")
    held = profile.kernels().filter(
        pl.col("op_type").is_in(kinds), pl.col("direction").ne_missing("optimizer")
    )
    return int(held["duration"].sum())


def idle(profile: Profile) -> int:
    use = profile.device_use()
    return int((use["window"] - use["kernel_busy"]).max())


#: A finding's time (ns) from the tables that its reasoning names.
TIMES: dict[str, Callable[[Profile], int]] = {
    "communication_share": lambda p: most(p.communication(), pl.col("communication_time")),
    "data_loader": lambda p: most(p.input_waits(), pl.col("input_wait")),
    "elementwise_chains": lambda p: edited(p, "elementwise_chains"),
    "fp32_under_autocast": lambda p: edited(p, "fp32_under_autocast"),
    "no_fusion": fusable,
    "no_iterations": lambda p: 0,
    "slow_gemms": lambda p: edited(p, "slow_gemms"),
    "underutilized_gpu": idle,
    "unfused_attention": lambda p: edited(p, "unfused_attention"),
    "unfused_optimizer": lambda p: edited(p, "unfused_optimizer"),
    "unoverlapped_communication": exposed,
    "warm_up": warm,
}
#: A table that holds all of a finding's time, and more.
WITHIN: dict[str, Callable[[Profile], int]] = {
    "host_bound": lambda p: int(p.idle_steps()["host_wait"].sum()),
    "iteration_range": lambda p: int(p.iterations()["duration"].sum()),
    "launch_bound": lambda p: int(p.idle_steps()["host_wait"].sum()),
    "mixed_precision": lambda p: int(p.kernels()["duration"].sum()),
    "pageable_copies": lambda p: int(p.memops()["duration"].sum()),
    "tensor_shapes": lambda p: int(p.kernels()["duration"].sum()),
}
PLACE = ("op", "direction", "layer", "source", "inputs", "dtypes")


@pytest.fixture(scope="module", params=[*TRACES, *MORE])
def profile(request, shared) -> Profile:
    path = shared / request.param
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return traces.load(path)


def found(profile: Profile) -> list[Row]:
    """The findings of detectors."""
    rows = profile.advice().filter(pl.col("outcome") == "found").rows(named=True)
    return [row for row in rows if row["detector"] != row["cause"]]


def test_each_time_is_that_of_the_tables_that_its_reasoning_names(profile):
    for row in found(profile):
        name, time = row["detector"], row["time"]
        if name in TIMES:
            assert TIMES[name](profile) == time, name
        else:
            assert 0 < time <= WITHIN[name](profile), name


def test_a_cause_that_no_detector_explains_has_the_figures_of_the_diagnosis(profile):
    rows = {row["finding"]: row for row in profile.diagnosis().rows(named=True)}
    for row in profile.advice().drop_nulls("cause").rows(named=True):
        if row["detector"] == row["cause"]:
            told = rows[row["cause"]]
            assert (row["time"], row["saving_most"]) == (told["lost"], told["lost"])
            assert row["finding"] == told["text"]


def test_the_evidence_adds_up_to_the_time(profile):
    rows = profile.advice_evidence()
    for row in found(profile):
        mine = rows.filter(pl.col("number") == row["number"])
        if row["detector"] == "data_loader":  # each wait twice: by its loader, and by its step
            parts = [
                mine.filter(pl.col("step").is_null()),
                mine.filter(pl.col("step").is_not_null()),
            ]
        elif mine.is_empty():
            assert not row["time"], "a time without evidence"
            continue
        else:
            parts = [mine]
        for part in parts:
            assert part["time"].sum() == row["time"], row["detector"]


def test_a_row_of_evidence_has_no_more_time_than_its_place(profile):
    """The rows of ops, compared with the frames that have their place and their time."""
    rows = profile.advice_evidence().filter(pl.col("op_id").is_not_null())
    ops, work = profile.ops(), profile.kernels()
    frames = [(work, "duration"), (profile.memops(), "duration"), (ops, "cpu_time")]
    for row in rows.rows(named=True):
        assert ops.filter(pl.col("op_id") == row["op_id"])["op"].to_list() == [row["op"]]
        known = []
        for frame, time in frames:
            here = [pl.col(name).eq_missing(row[name]) for name in PLACE if row[name] is not None]
            known.append(int(frame.filter(*here)[time].sum()))
        assert row["time"] <= max(known), row


def test_savings_lie_within_their_bounds_and_their_replays_can_be_made_again(profile):
    wall = profile.summary()["wall_time"][0]
    for row in found(profile):
        least, saving, upper = row["saving_least"], row["saving"], row["saving_most"]
        if saving is not None:
            assert least <= saving, row["detector"]
            assert upper is None or saving <= upper, row["detector"]
            assert row["saving_share"] == pytest.approx(saving / wall)
    for one in said_by(profile, None):
        if one.times is None:
            continue
        again = simulate(profile, [one.finding.edit])["saving"][0]
        bound = one.finding.saving_most
        upper = again if bound is None else min(again, bound)
        assert one.finding.saving == max(upper, one.finding.saving_least), one.detector
    whole = profile.advice_combined().row(0, named=True)
    if whole["saving"] is not None:
        assert whole["wall_time"] - whole["new_wall_time"] == whole["saving"]
        assert whole["saving_share"] == pytest.approx(whole["saving"] / whole["wall_time"])


def test_the_text_says_the_figure_of_the_column(profile):
    for row in found(profile):
        said = f"{row['finding']} {row['evidence']} {row['reasoning']}"
        assert not row["time"] or re.search(re.escape(ms(row["time"])), said), row["detector"]


def test_the_rest_of_the_rows_is_one_row():
    rows = pl.DataFrame({"op": ["a"] * 30, "time": list(range(30)), "count": [1] * 30})
    kept = with_rest(rows.sort("time", descending=True))
    assert len(kept) == MOST + 1
    assert kept["time"].sum() == sum(range(30))
    assert kept["count"].sum() == 30
    assert kept.row(-1, named=True)["detail"] == "10 more rows"
    assert kept.row(-1, named=True)["op"] is None
    assert with_rest(rows.head(MOST)).equals(rows.head(MOST).select("op", "count", "time"))


def test_a_sum_of_no_known_time_is_unknown():
    rows = pl.DataFrame(
        {"time": [None] * 30, "count": [1] * 30}, {"time": pl.Int64, "count": pl.Int64}
    )
    assert with_rest(rows).row(-1, named=True)["time"] is None
