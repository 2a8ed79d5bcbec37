"""Whether a run is faster by a factor, what was decided by turns, and runs made small, on made steps."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from opscope.core.analysis.diff.calls import Called, called, changed, words_of_calls
from opscope.core.analysis.diff.faster import faster
from opscope.core.analysis.diff.keys import COLUMNS, COSTS
from opscope.core.analysis.diff.order import chance, chances
from opscope.core.analysis.diff.reduced import (
    KERNELS,
    PART_NAMES,
    RUN,
    SPENT,
    STEP,
    WORK,
    Reduced,
)
from opscope.core.analysis.diff.samples import sampled
from opscope.core.analysis.diff.stretches import RUNS, STRETCHES, in_stretches, joined
from opscope.core.analysis.diff.tables import Difference
from opscope.core.analysis.diff.turns import (
    FEWEST,
    LEVEL,
    MOST,
    decide,
    spending,
    typical_step,
)

MS = 1_000_000


def run_of(steps, unit=STEP, op="aten::mm"):
    """A run on one op: ``steps`` are the lengths (ns), of which half is the op's."""
    steps = np.asarray(steps, np.int64)
    start = np.cumsum(steps) - steps
    number = np.arange(len(steps))
    units = pl.DataFrame(
        {
            "process": np.zeros(len(steps), np.int32),
            "step": number,
            "start": start,
            "end": start + steps,
        }
    )
    keys = pl.DataFrame(
        {
            "key": [7],  # as if others had no time in the steps
            **{name: ["x"] for name in COLUMNS},
            "op": [op],
            "named": [False],
            "flops": [8],
            "bytes": [4],
        }
    ).with_columns(pl.col(name).cast(pl.Categorical) for name in COLUMNS if name != "named")
    rest = len(PART_NAMES) - 1
    half = steps // 2
    spent = pl.DataFrame(
        {
            "unit": np.tile(number, 2),
            "part": np.repeat([1, rest], len(steps)),
            "key": np.repeat([7, -1], len(steps)),
            "time": np.concatenate([half, steps - half]),
        },
        schema=SPENT,
    )
    work = pl.DataFrame(
        {"unit": number, "key": number * 0 + 7, "time": half, "calls": number * 0 + 3}, schema=WORK
    )
    return Reduced(
        unit, sampled(units), 0, None, keys.select("key", *COLUMNS, *COSTS), spent, work,
        pl.DataFrame(schema=KERNELS), (True,) * len(PART_NAMES),
        pl.DataFrame({"property": ["framework"], "value": ["torch"]}), ("torch",),
    )  # fmt: skip


def steady(mean, count=30, spread=0.01, seed=0):
    return (mean * np.random.default_rng(seed).normal(1, spread, count)).astype(np.int64)


def test_a_run_is_faster_only_by_less_than_what_it_is():
    slow, fast = run_of(steady(10 * MS)), run_of(steady(5 * MS, seed=1))
    assert faster(slow, fast, 1.5).proven is True
    assert faster(slow, fast, 1.9).proven is True
    assert faster(slow, fast, 2.1).proven is False
    assert faster(fast, slow, 1).proven is False
    verdict = faster(slow, fast, 1.5)
    assert verdict.ratio == pytest.approx(2, rel=0.02)
    assert "beyond 1.5 times by more than the noise of" in verdict.said


def test_a_factor_within_the_noise_is_not_proven():
    slow, fast = run_of(steady(10 * MS, 10, 0.2)), run_of(steady(8 * MS, 10, 0.2, 1))
    assert faster(slow, fast, 1.2).proven is False


@pytest.mark.parametrize("lone", [run_of([10 * MS]), run_of([10 * MS], RUN)])
def test_without_steps_nothing_is_known(lone):
    verdict = faster(run_of(steady(10 * MS)), lone, 1.1)
    assert verdict.proven is None
    assert "the noise is not known" in verdict.said


def test_turns_are_decided_by_runs_and_not_by_three_of_each():
    slow, fast = [10.0, 10.1, 10.05, 10.02, 10.07], [5.0, 5.1, 5.05, 5.02, 5.07]
    three = decide(slow[:3], fast[:3], 20)
    assert (three.verdict, three.beyond, three.chance) == (None, True, pytest.approx(1 / 10))
    five = decide(slow, fast, 20)
    assert (five.verdict, five.chance) == ("faster", pytest.approx(2 / 252))
    assert decide(fast, slow, 20).verdict == "slower"
    undecided = decide([10.0, 14.0, 9.0, 9.1], [9.0, 13.0, 9.5, 9.2], 20, last=True)
    assert (undecided.verdict, undecided.beyond) == (None, False)
    assert undecided.noise > abs(undecided.after - undecided.before)


def test_the_last_look_may_spend_what_is_left():
    slow, fast = [10.0, 10.1, 10.05, 10.02], [5.0, 5.1, 5.05, 5.02]
    assert decide(slow, fast, 20).verdict is None
    assert decide(slow, fast, 20, last=True).verdict == "faster"
    assert decide(slow, fast, 4).verdict == "faster"  # no more than four were to be run


@pytest.mark.parametrize(("count", "other"), [(1, 1), (3, 3), (4, 4), (2, 5), (5, 1)])
def test_chances_of_orders_are_those_of_all_orders(count, other):
    """Against every way in which the runs of two equal programs can lie."""
    seen = []
    for places in combinations(range(count + other), count):
        others = sorted({*range(count + other)} - {*places})
        seen.append(chance(places, others))
    for often in sorted(set(seen)):
        assert sum(each <= often + 1e-12 for each in seen) / len(seen) == pytest.approx(often)


def test_of_many_values_the_chance_is_nearly_that_of_all_orders():
    a, b = [*range(0, 100, 2)], [*range(21, 123, 2)]  # 50 and 51: more pairs than are counted
    inversions = sum(left > right for left in a for right in b)
    counted = float(chances(50, 51)[inversions])
    assert counted < chance(a, b) < 1.25 * counted


@pytest.mark.parametrize("most", [4, 5, 20, MOST])
def test_all_looks_together_spend_no_more_than_the_level(most):
    spent = [spent for _, spent in spending(most)]
    assert 0 < sum(spent) <= LEVEL
    assert all(spends <= share for (share, _), spends in zip(spending(most), spent, strict=True))


NOISES = {
    "normal": lambda random, shape: 1 + 0.05 * random.standard_normal(shape),
    "skewed": lambda random, shape: np.exp(0.3 * random.standard_normal(shape)),
    "outliers": lambda random, shape: (
        (1 + 0.01 * random.standard_normal(shape)) * np.where(random.random(shape) < 0.1, 1.5, 1)
    ),
    "two speeds": lambda random, shape: (
        (1 + 0.01 * random.standard_normal(shape)) * np.where(random.random(shape) < 0.5, 1.2, 1)
    ),
    "drifting": lambda random, shape: (
        1 + np.cumsum(0.02 * random.standard_normal(shape), 1) + 0.01 * random.standard_normal(shape)
    ),
}  # fmt: skip
#: Runs of each of which the sides of turns are made: A B B A …
TURNS = np.tile([0, 1, 1, 0], 10)


def called_by_turns(noise, change, trials, most=20, budget=None):
    """Return of how many trials by turns a verdict was given, of how many it was the wrong one, and the mean
    runs of each; ``budget``: how long all runs may take, in runs."""
    random = np.random.default_rng(1)
    times = 1e8 * NOISES[noise](random, (trials, 2 * most)) * np.where(TURNS, 1 + change, 1)
    called = wrong = runs = 0
    for trial in times:
        before, after = trial[TURNS == 0], trial[TURNS == 1]
        for count in range(1, most + 1):
            last = budget is not None and trial[: 2 * count].sum() > budget * 1e8
            if count < FEWEST and not last:
                continue
            verdict = decide(before[:count], after[:count], most, last).verdict
            if verdict is not None or last:
                break
        called += verdict is not None
        wrong += verdict == ("slower" if change < 0 else "faster")
        runs += count
    return called / trials, wrong / trials, runs / trials


@pytest.mark.parametrize("noise", NOISES)
def test_a_change_that_does_nothing_is_called_less_often_than_the_level_however_often_it_is_looked_at(
    noise,
):
    called, _, _ = called_by_turns(noise, 0.0, 120)
    assert called <= LEVEL


def test_a_budget_that_ends_the_looks_keeps_the_level():
    assert called_by_turns("two speeds", 0.0, 400, budget=12)[0] <= LEVEL


def test_changes_of_a_tenth_are_called_nearly_always_and_of_a_half_within_seven_runs():
    called, wrong, _ = called_by_turns("normal", -0.1, 60)
    assert (called > 0.85, wrong) == (True, 0)
    called, wrong, runs = called_by_turns("normal", -0.5, 60)
    assert (called, wrong) == (1, 0)
    assert runs < 7


def test_one_slow_step_is_not_typical():
    steps = [10 * MS] * 9 + [500 * MS]
    assert typical_step(run_of(steps)) == 10 * MS


def test_stretches_have_the_sums_of_their_steps():
    whole = run_of(steady(10 * MS, 1000))
    small = in_stretches(whole, rows=0)
    assert len(small.units) == STRETCHES[0]
    assert small.many == whole.many == 1000
    assert small.mean == whole.mean
    assert small.spent["time"].sum() == whole.spent["time"].sum()
    assert small.work["calls"].sum() == 3000
    step = Difference(small, whole).step.row(0, named=True)
    assert (step["change"], step["steps_a"], step["steps_b"]) == (0, 1000, 1000)
    assert (Difference(small, whole).causes["change"] == 0).all()


def test_few_steps_stay_as_they_are():
    whole = run_of(steady(10 * MS, 7))
    small = in_stretches(whole)
    assert len(small.units) == 7
    assert Difference(small, run_of(steady(20 * MS, 7))).step["verdict"][0] == "slower"


def test_the_noise_of_several_runs_is_how_runs_differ():
    # within a run steps are equal to 0.1 %, and from run to run they differ by 10 %
    means = [10 * MS, 11 * MS, 9 * MS, 10.5 * MS, 9.5 * MS, 10.8 * MS]
    runs = [in_stretches(run_of(steady(mean, 30, 0.001, seed))) for seed, mean in enumerate(means)]
    new = run_of(steady(11.5 * MS, 30, 0.001, 99))
    assert Difference(runs[0], new).step["verdict"][0] == "slower"
    several = joined(runs)
    assert several.runs == len(means) >= RUNS
    step = Difference(several, new).step.row(0, named=True)
    assert step["verdict"] == "within noise"
    assert step["noise"] > 2 * MS
    far = run_of(steady(30 * MS, 30, 0.001, 99))
    assert Difference(several, far).step["verdict"][0] == "slower"


def test_joined_runs_share_their_ops():
    runs = [in_stretches(run_of(steady(10 * MS, seed=seed))) for seed in range(2)]
    other = in_stretches(run_of(steady(10 * MS, seed=3), op="aten::relu"))
    both = joined([*runs, other])
    assert both.keys["op"].cast(pl.String).to_list() == ["aten::mm", "aten::relu"]
    assert both.work["calls"].sum() == 3 * 90
    assert both.many == 90


def test_runs_of_other_kinds_do_not_go_together():
    with pytest.raises(ValueError, match="of different kinds"):
        joined([in_stretches(run_of(steady(MS))), in_stretches(run_of([MS], RUN))])


def test_ops_are_new_gone_or_called_more_often():
    totals = pl.DataFrame(
        [
            ("aten::mm", "forward", "net.layers.0.fc", "net.py:3 < train.py:9", 2),
            ("aten::mm", "forward", "net.layers.11.fc", "net.py:3 < train.py:9", 2),
            ("aten::item", None, None, "train.py:12", 1),
        ],
        schema=["op", "direction", "layer", "source", "calls"],
        orient="row",
    )
    now = called(totals)
    assert now["aten::mm forward net.layers.*.fc"] == Called(
        4, ("net.layers.0.fc", "net.layers.11.fc"), ("net.py:3",)
    )
    assert [*changed({"aten::mm forward net.layers.*.fc": 3, "aten::add": 1}, now)] == [
        "aten::add is gone",
        "aten::item is new: 1 call (train.py:12)",
        "aten::mm forward net.layers.*.fc is called 4 times, before 3 (net.layers.0.fc, net.py:3)",
    ]
    assert words_of_calls("x", 100, 101, other=0.02) is None
    assert words_of_calls("x", 0, 0) is None
