"""The difference of two runs: it adds up exactly, names what changed, and leaves noise alone."""

from __future__ import annotations

import math
import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.analysis.diff.exclusive import Events, split
from opscope.core.analysis.diff.gate import BadLimit, held, parse
from opscope.core.analysis.diff.matching import match
from opscope.core.analysis.diff.noise import TRIMMED, noise, quantile, typical
from opscope.core.analysis.diff.question import QUESTION
from opscope.core.analysis.diff.reasons import reason
from opscope.core.analysis.diff.reduced import NO_TIMES, PART_NAMES
from opscope.core.analysis.diff.tables import means
from opscope.core.analysis.steps.step_times import OTHER, PARTS
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.profile.difference import BY, difference_of
from opscope.reports.difference import headline, notes
from tests import traces
from tests.planted_truths.made import Training
from tests.planted_truths.scene import Scene, write_kineto, write_nsys
from tests.slowed import slowed

FORWARD_MM = (pl.col("op") == "aten::mm") & (pl.col("direction") == "forward")
BAD, GOOD = (f"kineto/resnet50_nw{n}_step_span1.pt.trace.json.gz" for n in (0, 4))


def adds_up(difference) -> None:
    """Hold that parts and causes add up to the step on both sides and in the change, to the ns."""
    step = difference.step.row(0, named=True)
    for frame in (difference.parts, difference.causes):
        for name in ("a", "b", "change"):
            assert frame[name].sum() == step[name], name
    assert step["change"] == step["b"] - step["a"]


# ---------------------------------------------------------------------------- the exact split

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=7)


@given(
    st.lists(st.none() | st.tuples(spans, st.booleans()), max_size=4),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=4),
)
def test_the_pieces_of_a_step_are_each_moment_s_first_class_and_add_up(given_classes, steps):
    start = np.array([a for a, _ in steps], np.int64)
    end = start + np.array([n for _, n in steps], np.int64)
    classes = [
        None
        if one is None
        else Events(
            np.array([a for a, _ in one[0]], np.int64),
            np.array([a + n for a, n in one[0]], np.int64),
            lambda places: places * 10,
            one[1],
        )
        for one in given_classes
    ]
    pieces, rest = split(classes, start, end)
    whole = rest.copy()
    np.add.at(whole, pieces.unit, pieces.time)
    assert (whole == end - start).all()
    found = {
        (u, p, label): time
        for u, p, label, time in zip(
            *(x.tolist() for x in (pieces.unit, pieces.part, pieces.label, pieces.time)),
            strict=True,
        )
    }
    expected: dict[tuple[int, int, int], int] = {}
    for unit, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for now in range(low, high):
            for place, one in enumerate(given_classes):
                there = [n for n, (a, m) in enumerate(one[0] if one else []) if a <= now < a + m]
                if there:  # the innermost: the latest to begin, of these the shortest
                    events = one[0]
                    owner = max(there, key=lambda n: (events[n][0], -events[n][1], n))
                    key = unit, place, owner * 10
                    expected[key] = expected.get(key, 0) + 1
                    break
    if all(one is None or one[1] for one in given_classes):
        assert found == expected
    assert _by_class(found) == _by_class(expected)


def _by_class(found):
    sums: dict[tuple[int, int], int] = {}
    for (unit, place, _), time in found.items():
        sums[unit, place] = sums.get((unit, place), 0) + time
    return sums


def test_work_side_by_side_belongs_to_what_began_first():
    events = Events(np.array([0, 5, 8]), np.array([10, 20, 12]), lambda places: places)
    pieces, rest = split([events], np.array([0]), np.array([30]))
    assert dict(zip(pieces.label.tolist(), pieces.time.tolist(), strict=True)) == {0: 10, 1: 10}
    assert rest.tolist() == [10]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=30), st.integers(1, 1000))
def test_means_add_up_to_the_mean_of_all_and_none_is_a_nanosecond_off(total, many):
    found = means(np.array(total, np.int64), many)
    assert int(found.sum()) == sum(total) // many
    for one, mean in zip(total, found.tolist(), strict=True):
        assert one // many <= mean <= -(-one // many)


#: Steps of random work on the host and on the device: (start of op, its length, kernel's delay, its length).
works = st.lists(
    st.tuples(*(st.integers(0, 30) for _ in range(4)), st.sampled_from(("mm", "add", "cat"))),
    min_size=1,
    max_size=6,
)


@given(st.lists(works, min_size=1, max_size=3), st.lists(works, min_size=1, max_size=3))
def test_the_tables_add_up_for_any_two_runs(one, other):
    a, b = (run(steps) for steps in (one, other))
    there = difference_of(a, b)
    adds_up(there)
    back = difference_of(b, a)
    adds_up(back)
    assert there.step["change"][0] == -back.step["change"][0]
    for profile, side in ((a, there.a), (b, there.b)):
        table = profile.steps()
        for place, name in enumerate((*PARTS, OTHER)):
            spent = side.spent.filter(pl.col("part") == place)["time"].sum()
            assert spent == table[name].fill_null(0).sum(), name


def run(steps, slower=1.0) -> Profile:
    """A profile of steps of 100 ns; each piece of work is an op that launches one kernel."""
    from opscope.core.tables.trace import Trace, table_schema

    ranges, calls, kernels, number = [], [], [], 0
    where = {
        "process": 0,
        "thread": 1,
        "end_thread": 1,
        "kind": "pushpop",
        "domain": "opscope.torch",
    }
    for place, works in enumerate(steps):
        base = place * 100
        ranges.append({**where, "start": base, "end": base + 100, "text": f"step {place}",
                       "category": "step", "domain": "opscope.step"})  # fmt: skip
        for at, length, delay, lasts, name in works:
            number += 1
            begin = base + at
            ranges.append({**where, "start": begin, "end": begin + length + 2, "category": "forward",
                           "text": f"aten::{name}(f32[8,8]) -> f32[8,8] on cuda:0"})  # fmt: skip
            calls.append({"process": 0, "thread": 1, "start": begin + 1, "end": begin + 2,
                          "name": "cudaLaunchKernel", "correlation": number})  # fmt: skip
            kernels.append({"process": 0, "device": 0, "stream": 7, "name": f"k_{name}",
                            "correlation": number, "start": begin + 2 + delay,
                            "end": begin + 2 + delay + round(lasts * slower)})  # fmt: skip
    ranges.sort(key=lambda row: row["start"])
    tables = {"ranges": ranges, "calls": calls, "kernels": kernels}
    return Profile(
        Trace.of(
            {
                name: pl.DataFrame(
                    rows, schema={key: table_schema(name)[key] for key in (rows[0] if rows else ())}
                )
                if rows
                else pl.DataFrame(schema=table_schema(name))
                for name, rows in tables.items()
            }
        )
    )


# -------------------------------------------------------------------------------------- noise


def test_student_s_quantiles_are_those_of_the_density():
    # integrate the density numerically: independent of the table
    for degrees in (1, 2, 3, 5, 10, 30):
        top = float(quantile(np.array([float(degrees)]))[0])
        scale = math.gamma((degrees + 1) / 2) / (
            math.sqrt(degrees * math.pi) * math.gamma(degrees / 2)
        )
        x = np.linspace(0, top, 200_001)
        density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
        inside = float(np.sum((density[1:] + density[:-1]) / 2) * (x[1] - x[0]))
        assert inside == pytest.approx(0.4995, abs=2e-6), degrees
    assert quantile(np.array([35.7]))[0] == quantile(np.array([30.0]))[0], "the next lower one"


steps_of_an_op = st.lists(st.integers(0, 10**6), min_size=1, max_size=12)


@given(st.lists(steps_of_an_op, min_size=1, max_size=3), st.data())
def test_the_typical_step_and_its_variance_are_yuen_s(ops, data):
    units = max(len(one) for one in ops)
    full = [one + [0] * (units - len(one)) for one in ops]
    rows = [
        {"group": group, "unit": unit, "time": time}
        for group, one in enumerate(full)
        for unit, time in enumerate(one)
        if time or data.draw(st.booleans())  # a step without the op has no row
    ]
    schema = {"group": pl.Int64, "unit": pl.Int64, "time": pl.Int64}
    found = typical(pl.DataFrame(rows, schema=schema), len(ops), units)
    cut = int(TRIMMED * units)
    for group, one in enumerate(full):
        ordered = sorted(one)
        kept = ordered[cut : units - cut]
        assert found.middle[group] == pytest.approx(statistics.fmean(kept))
        if units < 2:
            assert found.variance is None
            continue
        clipped = [kept[0]] * cut + kept + [kept[-1]] * cut
        spread = (units - 1) * statistics.variance(clipped)
        assert found.variance[group] == pytest.approx(
            spread / (len(kept) * (len(kept) - 1)), rel=1e-6, abs=1e-6
        )


def test_the_noise_of_a_single_step_is_not_known():
    one = typical(pl.DataFrame({"group": [0], "unit": [0], "time": [5]}), 1, 1)
    two = typical(pl.DataFrame({"group": [0, 0], "unit": [0, 1], "time": [5, 7]}), 1, 2)
    assert noise(one, two) is None
    assert noise(two, two) is not None


def test_runs_that_do_not_differ_are_rarely_called():
    random = np.random.default_rng(3)
    groups, units = 2_000, 8
    times = np.abs(random.normal(10_000, 500, (2, groups, units))).astype(np.int64)
    sides = [
        typical(
            pl.DataFrame(
                {"group": np.repeat(np.arange(groups), units),
                 "unit": np.tile(np.arange(units), groups), "time": side.reshape(-1)}
            ),
            groups,
            units,
        )
        for side in times
    ]  # fmt: skip
    moved = np.abs(sides[0].middle - sides[1].middle)
    assert (moved > noise(*sides)).mean() < 0.003


# ----------------------------------------------------------------------------------- matching

KEYS = {**dict.fromkeys(("op", "op_type", "direction", "layer", "inputs", "dtypes"), pl.String),
        "named": pl.Boolean}  # fmt: skip


def keys(*rows):
    names = list(KEYS)
    full = [dict(zip(names, (*row, *[None] * (6 - len(row)), False), strict=True)) for row in rows]
    return pl.DataFrame(full, schema=KEYS)


def groups(a, b, other=False):
    found = match(a, b, other)
    return found.a.tolist(), found.b.tolist(), found.rule.tolist()


def test_equal_ops_match_and_what_is_left_matches_in_the_order_of_its_first_call():
    a = keys(("mm", "gemm", None, "fc", "f32[8,4]"), ("mm", "gemm", None, "fc", "f32[8,2]"),
             ("cat", "copy", None, "fc", "f32[1]"))  # fmt: skip
    b = keys(("mm", "gemm", None, "fc", "f32[16,4]"), ("mm", "gemm", None, "fc", "f32[16,2]"),
             ("add", "elementwise", None, "fc", "f32[1]"))  # fmt: skip
    one, other, rule = groups(a, b)
    assert one[:2] == other[:2], "a batch of 16 for one of 8: the k-th shape is the k-th shape"
    assert one[2] != other[2]
    assert [rule[one[0]], rule[one[2]], rule[other[2]]] == [1, -1, -1]


def test_across_frameworks_the_kind_of_op_and_the_layer_match():
    a = keys(("aten::addmm", "gemm", "forward", "model.fc1", "f32[8,4]"),
             ("aten::convolution", "conv", "forward", "conv", "f32[8,3,9,9]"))  # fmt: skip
    b = keys(("MatMul", "gemm", "forward", "sequential/fc1", "f32[8,4]"),
             ("Conv2D", "conv", "forward", "conv", "f32[8,9,9,3]"))  # fmt: skip
    one, other, _ = groups(a, b, True)
    assert one == other
    one, other, _ = groups(a, b, False)
    assert one[1] == other[1], "the same layer and kind: another op took its place"
    assert one[0] != other[0]


# ------------------------------------------------------------------------------------- limits


def test_limits_are_read_and_what_is_none_is_refused():
    assert parse("step>3%").percent == 3
    assert parse(" step > 2.5 ms").time == 2_500_000
    assert (parse("op:aten::mm>5%").op, parse("part:data loader>1us").part) == (
        "aten::mm", "data loader",
    )  # fmt: skip
    for bad in (
        "step",
        "step>3",
        "step<3%",
        "op:>1%",
        "stepp>3%",
        ">3%",
        "",
        "step>nan%",
        "step>-1%",
    ):
        with pytest.raises(BadLimit):
            parse(bad)


#: Fewer equal steps show no spread, so that no noise is known of them.
LONG = [[(2, 10, 3, 20, "mm"), (50, 5, 3, 10, "add")]] * 15


def test_a_limit_is_exceeded_by_more_than_it_and_more_than_the_noise():
    same, slower = run(LONG), run(LONG, 1.5)
    found = difference_of(same, slower)
    assert held(parse("op:aten::mm>40%"), found).failed
    assert not held(parse("op:aten::mm>60%"), found).failed
    assert held(parse("op:*m*>40%"), found).failed
    assert held(parse("op:aten::*>10ns"), found).failed
    assert not held(parse("op:aten::mm>0%"), difference_of(slower, same)).failed, "it is faster"
    assert held(parse("part:kernels>10%"), found).failed
    assert not held(parse("step>0%"), found).failed, "steps of 100 ns in both"
    for text, said in (("op:no_such>1%", "no op"), ("part:soup>1%", "parts of a step are")):
        with pytest.raises(BadLimit, match=said):
            held(parse(text), found)


def test_of_one_step_a_limit_is_neither_kept_nor_exceeded_and_that_is_said():
    found = difference_of(run(LONG[:1]), run(LONG[:1], 1.5))
    assert found.step["noise"][0] is None
    assert found.step["reason"][0] == "of a single step the noise is not known"
    assert found.ops["verdict"].to_list() == [None, None]
    result = held(parse("op:aten::mm>40%"), found)
    assert not result.failed
    assert not result.judged
    assert "noise is not known" in result.said
    result = held(parse("op:aten::mm>60%"), found)
    assert (result.failed, result.judged, result.noisy) == (False, True, True)
    result = held(parse("step>0%"), difference_of(run(LONG[:1]), run(LONG[:1])))
    assert (result.judged, result.noisy) == (True, False), "no change is no chance"


# -------------------------------------------------------------------------------- made traces


def test_new_and_gone_ops_other_shapes_and_other_kernels_are_told(trace_of):
    def made(name, shape, kernel):
        whole = run([[(2, 10, 3, 20, "mm"), (50, 5, 3, 10, name)]] * 3)
        tables = dict(whole.trace.tables)
        text = pl.col("text").cast(pl.String).str.replace_all("8,8", shape, literal=True)
        tables["ranges"] = tables["ranges"].with_columns(text.cast(pl.Categorical))
        named = pl.col("name").cast(pl.String).str.replace("k_mm", kernel)
        tables["kernels"] = tables["kernels"].with_columns(named.cast(pl.Categorical))
        return Profile(type(whole.trace).of(tables))

    ops = difference_of(made("add", "8,8", "k_mm"), made("cat", "8,8", "k_mm")).ops
    assert dict(ops.select("op", "verdict").iter_rows()) == {
        "aten::add": "gone", "aten::cat": "new", "aten::mm": "same",
    }  # fmt: skip
    ops = difference_of(made("add", "8,8", "k_mm"), made("add", "16,8", "k_mm")).ops
    assert set(ops["work"]) == {"other shapes"}
    assert set(ops["matched"]) == {"op and layer"}
    assert set(ops["inputs_b"]) == {"f32[16,8]"}
    other = difference_of(made("add", "8,8", "k_mm"), made("add", "8,8", "k_tc")).kernels
    assert other.select("op", "kernels_a", "kernels_b").rows() == [("aten::mm", "k_mm", "k_tc")]


# ------------------------------------------------------- few calls, and kernels without a launch record


def without_launches(profile: Profile, numbers: set[int]) -> Profile:
    """Return the profile of which the calls with these correlation ids were not recorded."""
    tables = dict(profile.trace.tables)
    tables["calls"] = tables["calls"].filter(~pl.col("correlation").is_in(sorted(numbers)))
    return Profile(type(profile.trace).of(tables))


def by_op(frame: pl.DataFrame) -> dict[str, dict]:
    return {row["op"]: row for row in frame.to_dicts()}


MM = (2, 10, 3, 20, "mm")
TWO = [[MM, (50, 5, 3, 10, "add")]]


def test_kernels_that_were_launched_before_the_window_count_in_the_op_of_their_name():
    whole = run(TWO * 6)
    cut = without_launches(whole, {1, 2})  # those of the first step
    for found in (difference_of(whole, cut), difference_of(cut, whole)):
        adds_up(found)
        assert set(found.ops["op"]) == {"aten::mm", "aten::add"}
        assert set(found.ops["verdict"]) == {"same"}
        assert found.ops["calls_a"].to_list() == found.ops["calls_b"].to_list() == [1, 1]
        assert set(found.op_sums["op"]) == {"aten::mm", "aten::add"}
        assert set(found.op_sums["verdict"]) == {"same"}
    said = by_op(difference_of(whole, cut).ops)["aten::mm"]["reason"]
    assert "0 in A and 1 in B have no launch record" in said
    assert "0 in A and 1 in B are of the window's edge" in said


def test_kernels_of_several_ops_without_a_launch_are_not_said_to_be_gone():
    both = run([[(2, 10, 3, 20, "mm"), (40, 5, 3, 10, "add")]] * 6)
    tables = dict(both.trace.tables)
    tables["kernels"] = tables["kernels"].with_columns(
        pl.lit("shared_kernel", pl.Categorical).alias("name")
    )
    whole = Profile(type(both.trace).of(tables))
    found = by_op(difference_of(without_launches(whole, {1, 2, 3}), whole).ops)
    row = found["shared_kernel"]
    assert (row["calls_a"], row["calls_b"], row["verdict"]) == (0.5, 0, None)
    assert "12 of this name ran in A and 12 in B" in row["reason"]
    sums = by_op(difference_of(without_launches(whole, {1, 2, 3}), whole).op_sums)
    assert sums["shared_kernel"]["verdict"] is None
    assert "12 of this name ran in A and 12 in B" in sums["shared_kernel"]["reason"]


def test_a_kernel_that_one_run_alone_has_is_still_gone():
    one = run([[MM, (50, 5, 3, 10, "add")]] * 6)
    tables = dict(run([[MM]] * 6).trace.tables)
    lost = without_launches(one, {2, 4, 6, 8, 10, 12})
    found = by_op(difference_of(lost, Profile(type(one.trace).of(tables))).ops)
    assert found["k_add"]["verdict"] == "gone"
    assert found["aten::mm"]["verdict"] == "same"


def test_what_a_run_without_some_launches_lacks_is_not_gone():
    tables = dict(run([[MM, (50, 5, 3, 10, "add")]] * 6).trace.tables)
    tables["kernels"] = tables["kernels"].with_columns(
        pl.lit("shared_kernel", pl.Categorical).alias("name")
    )
    one = Profile(Trace.of(tables))
    fewer = without_launches(one, {2, 4, 6, 8, 10, 12})
    for difference in (difference_of(one, fewer), difference_of(fewer, one)):
        for table in (difference.ops, difference.op_sums):
            assert by_op(table)["aten::mm"]["verdict"] == "same"
            assert not {"gone", "new"} & set(table["verdict"])


def test_an_op_in_a_few_steps_is_not_gone_and_its_noise_is_not_zero():
    # in one of twenty steps of A: the trimmed mean leaves it out, and twenty others may lack it by chance
    a = run([[MM, (50, 5, 3, 10, "add")]] + [[MM]] * 19)
    row = by_op(difference_of(a, run([[MM]] * 20)).ops)["aten::add"]
    assert (row["noise"], row["verdict"]) == (None, None)
    assert "in 1 of 20 steps of A and 0 of 20 of B" in row["reason"]
    # in all of them: gone, and twenty equal times have no spread
    a = run([[MM, (50, 5, 3, 10, "add")]] * 20)
    row = by_op(difference_of(a, run([[MM]] * 20)).ops)["aten::add"]
    assert (row["noise"], row["verdict"], row["reason"]) == (0, "gone", None)


def test_of_a_few_equal_steps_the_noise_is_not_known():
    row = by_op(difference_of(run(TWO * 3), run(TWO * 3, 1.5)).ops)["aten::mm"]
    assert (row["change"], row["noise"], row["verdict"]) == (10, None, None)
    row = by_op(difference_of(run(TWO * 20), run(TWO * 20, 1.5)).ops)["aten::mm"]
    assert (row["change"], row["noise"], row["verdict"]) == (10, 0, "slower")


# ------------------------------------------------------------------- what one run does not know


def test_a_part_that_one_run_does_not_know_is_null_and_the_rest_adds_up(trace_of):
    there = run(LONG)
    tables = dict(there.trace.tables)
    without = Profile(type(there.trace).of({n: t for n, t in tables.items() if n == "ranges"}))
    found = difference_of(there, without)
    adds_up(found)
    kernels = found.parts.filter(pl.col("part") == "kernels").row(0, named=True)
    assert kernels["b"] is None
    assert kernels["verdict"] is None
    assert "not known in B" in kernels["reason"]


# --------------------------------------------------------------------------------- real traces


@pytest.fixture(scope="module")
def loaders(shared):
    return traces.load(shared / BAD), traces.load(shared / GOOD)


def test_the_data_loader_explains_what_four_workers_save(loaders):
    found = difference_of(*loaders)
    adds_up(found)
    step = found.step.row(0, named=True)
    # 6 steps of 174.8 ms; 5 of 131.3 ms, as the first of the other run is warm-up
    assert (step["a"], step["b"], step["verdict"]) == (174_829_333, 131_317_400, "faster")
    first = found.parts.row(0, named=True)
    assert (first["part"], first["verdict"]) == ("data loader", "faster")
    assert first["change"] == -58_704_633
    assert "_SingleProcessDataLoaderIter" in found.causes["op"][0]
    # by hand from steps(): the means of loader_part
    parts = [one.steps().filter(~pl.col("warm_up").fill_null(False)) for one in loaders]
    a, b = (one["loader_part"].sum() / len(one) for one in parts)
    assert first["change"] == pytest.approx(b - a, abs=1)
    # in the loader's other step cuDNN chose other kernels for the same convolutions
    assert {"aten::cudnn_convolution"} < set(found.kernels["op"])


def test_a_run_and_itself_do_not_differ(loaders):
    found = difference_of(loaders[0], loaders[0])
    adds_up(found)
    for frame in (found.parts, found.causes, found.ops):
        assert (frame["change"].fill_null(0) == 0).all()
        assert set(frame["verdict"].drop_nulls()) == {"same"}
    assert found.kernels.is_empty()
    assert loaders[0].diff(loaders[0], "run")["same"].all()


def rows_of(profile: Profile, op: str) -> np.ndarray:
    return profile.kernels().with_row_index("row").filter(pl.col("op") == op)["row"].to_numpy()


@pytest.mark.parametrize("op", ["aten::mm", "aten::addmm", "nccl:all_reduce"])
def test_a_planted_slowdown_is_found_first_and_one_within_the_noise_is_not_called(shared, op):
    before = traces.load(shared / "kineto/ddp_memory_v100.json.gz")
    rows = rows_of(before, op)
    assert len(rows) > 5
    for factor, called in ((1.05, True), (1.005, False)):
        found = difference_of(before, slowed(before, rows, factor))
        adds_up(found)
        first = found.ops.row(0, named=True)
        assert first["op"] == op
        assert first["change"] == pytest.approx((factor - 1) * first["a"], rel=0.02)
        assert first["verdict"] == ("slower" if called else "within noise")
        assert (found.ops["verdict"] == "slower").sum() == called, "and no other"
        assert found.causes["op"][0] == op


def test_the_same_on_a_trace_of_sixty_two_iterations(shared):
    before = traces.load(shared / "rocm/rocprofv1_gfx1201_llamacpp")
    kernels = before.kernels().with_row_index("row")
    name = kernels["name"].value_counts(sort=True)["name"][0]
    rows = kernels.filter(pl.col("name") == name)["row"].to_numpy()
    found = difference_of(before, slowed(before, rows, 1.05))
    adds_up(found)
    assert (found.a.unit, len(found.a.units)) == ("iteration", 62)
    assert (found.ops["op"][0], found.ops["verdict"][0]) == (name, "slower")
    assert (found.ops["verdict"] == "slower").sum() == 1


FORMATS = (
    "kineto/ddp_rank3of8_a100_stacks.json.gz", "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite", "xplane/jax_conv_mi300.xplane.pb", "rocm/rocprofv1_mi300_gunrock",
    "onnxruntime/resnet_inference_gemmini.json", "mindspore/mindinsight_run2_ascend910",
    "tensorrt/trex", "dlprof/nsys_profile.sqlite",
)  # fmt: skip


def test_every_format_compares_with_every_other(shared):
    profiles = {name: traces.load(shared / name) for name in FORMATS}
    for one, a in profiles.items():
        for other, b in profiles.items():
            found = difference_of(a, b)
            step = found.step.row(0, named=True)
            if "tensorrt/trex" in (one, other):  # a table of totals
                assert step["change"] is None
                assert step["reason"] == NO_TIMES
                assert not len(found.parts)
            else:
                adds_up(found)
            units = {one._reducing()().unit for one in (a, b)}
            assert (found.told is not None) == ("run" in units and len(units) > 1)


# ---------------------------------------------------------------------------------- the frames


def test_the_frames_have_the_documented_columns(loaders, shared):
    documented = {frame.call: frame for frame in QUESTION.frames}
    for by in BY:
        call = "diff(other)" if by == "part" else f'diff(other, "{by}")'
        made = loaders[0].diff(loaders[1], by)
        assert made.columns == [one.name for one in documented[call].columns], by
        assert {str(kind) for kind in made.dtypes} <= {
            "String",
            "Int32",
            "Int64",
            "Float64",
            "Boolean",
        }
    with pytest.raises(ValueError, match="by must be"):
        loaders[0].diff(loaders[1], "soup")


def test_several_files_a_side_are_the_ranks_of_one_job(shared):
    ranks = [shared / f"kineto/sampled_rank{n}.json.gz" for n in (0, 1)]
    both = opscope.diff(ranks, ranks, "step").row(0, named=True)
    one = opscope.diff(ranks[0], ranks[0], "step").row(0, named=True)
    assert (both["steps_a"], both["steps_b"]) == (2 * one["steps_a"],) * 2
    assert both["change"] == 0


def test_the_function_takes_paths_profiles_and_selections(loaders, shared):
    of_paths = opscope.diff(str(shared / BAD), shared / GOOD)
    assert of_paths.equals(loaders[0].diff(loaders[1]))
    some = opscope.diff(*loaders, "step", steps=(6, 8)).row(0, named=True)
    times = [one.steps().filter(pl.col("step").is_between(6, 8))["time"] for one in loaders]
    assert [some["a"], some["b"]] == [int(one.sum()) // 3 for one in times]
    assert set(PART_NAMES) == set(of_paths["part"])


# -------------------------------------------------------------------------------- why


@pytest.fixture(scope="module")
def attentions(tmp_path_factory):
    """The same training with its attention as four ops and as one."""
    folder = tmp_path_factory.mktemp("attention")
    for fused in (False, True):
        write_nsys(Training(6, 2, fused_attention=fused).run(Scene()), folder / f"{fused}.sqlite")
    return [opscope.load(folder / f"{fused}.sqlite") for fused in (False, True)]


def test_one_sentence_says_that_many_ops_became_one(attentions):
    many, one = attentions
    found = difference_of(many, one)
    said = headline(found)
    explained = reason(found)
    assert explained.change < 0
    assert 0.9 < explained.share < 1.1, "nothing else differs"
    assert "Why: the attention became one op (aten::_scaled_dot_product_flash_attention and" in said
    assert "in place of aten::bmm, " in said
    assert "the attention became many ops" in headline(difference_of(one, many))
    assert any(note.startswith("unchanged, within the noise: aten::mm") for note in notes(found))


def looped(trace_of, *ops: tuple[str, list[int]]) -> Profile:
    """Six steps, each with these ops; the ns of each op by step."""
    rows, time = [], 0
    for step in range(6):
        begin = time
        for name, lengths in ops:
            rows.append({"start": time, "end": time + lengths[step % len(lengths)], "category": "forward",
                         "domain": "opscope.torch", "text": f"aten::{name}(f32[8,8,8])"})  # fmt: skip
            time = rows[-1]["end"]
        rows.append({"start": begin, "end": time, "domain": "opscope.step", "category": "step",
                     "text": f"step {step}"})  # fmt: skip
    each = {"process": 0, "thread": 1, "kind": "pushpop"}
    return Profile(trace_of(ranges=[each | row for row in rows]))


def test_an_op_that_went_into_another_is_no_reason_of_its_own(trace_of):
    """Of 150 µs 90 remain: the product alone would explain more than all."""
    before = looped(trace_of, ("mm", [50]), ("bmm", [100_000]), ("_softmax", [50_000]))
    after = looped(trace_of, ("mm", [50]), ("scaled_dot_product_attention", [90_000]))
    found = reason(difference_of(before, after))
    assert found.words.startswith("the attention became one op")
    assert (found.change, found.share) == (-60_000, 1.0)


def test_a_large_change_within_the_noise_is_not_called_unchanged(trace_of):
    before = looped(trace_of, ("mm", [1_000, 9_000]), ("relu", [5_000]))
    after = looped(trace_of, ("mm", [2_000, 12_000]), ("relu", [5_000]))
    (line,) = [note for note in notes(difference_of(before, after)) if "unchanged" in note]
    assert line.startswith("unchanged, within the noise: aten::relu: 5.00 µs and 5.00 µs")


def test_work_without_a_name_is_no_reason(attentions):
    before = attentions[0]
    tables = dict(before.trace.tables)
    tables["kernels"] = tables["kernels"].with_columns(name=pl.lit(None, pl.Categorical))
    tables["calls"] = tables["calls"].clear()
    unnamed = Profile(Trace.of(tables, origin=dict(before.trace.origin)))
    after = slowed(unnamed, np.arange(5, 20), 3.0)
    found = difference_of(unnamed, after)
    assert found.op_sums["op"].null_count(), "the time of no op"
    assert found.step["change"][0] > 0
    assert reason(found) is None
    assert not [note for note in notes(found) if "None" in note]


def test_sums_by_op_compare_changing_shapes_at_the_cost_of_each_flop(tmp_path):
    profiles = []
    for name, tokens, faster in (("a", 2048, 1.0), ("b", 4096, 1.0), ("c", 4096, 0.5)):
        scene = Training(18, 1, tokens=tokens).run(Scene())
        for work in scene.works:
            lasts = work.end - work.start
            work.end = work.start + round(lasts * faster)
        write_kineto(scene, tmp_path / f"{name}.json")
        profiles.append(opscope.load(tmp_path / f"{name}.json"))
    a, b, c = profiles
    more = difference_of(a, b).op_sums.row(by_predicate=FORWARD_MM, named=True)
    assert more["shapes_a"] == more["shapes_b"] == 3
    assert more["ratio"] == pytest.approx(1, abs=0.01), "twice the work"
    assert more["flop_rate_b"] == pytest.approx(more["flop_rate_a"], rel=0.01), "at the same cost"
    faster = difference_of(b, c).op_sums.row(by_predicate=FORWARD_MM, named=True)
    assert faster["flop_rate_b"] == pytest.approx(2 * faster["flop_rate_a"], rel=0.01)
    assert faster["verdict"] == "faster"
    mm = difference_of(a, b).ops.filter(
        pl.col("op") == "aten::mm", pl.col("direction") == "forward"
    )
    assert mm["b"].sum() - mm["a"].sum() == pytest.approx(more["change"], rel=0.01)


def test_other_devices_are_said_before_any_figure(trace_of):
    def on(device):
        return Profile(
            trace_of(
                kernels=[
                    {"process": 0, "device": 0, "stream": 7, "name": "k", "start": 0, "end": 9}
                ],
                devices=[{"process": 0, "device": 0, "name": device}],
            )
        )

    same, other = on("NVIDIA A100-SXM4-40GB"), on("NVIDIA H100 80GB HBM3")
    assert headline(difference_of(same, other)).startswith(
        "A ran on 1 × NVIDIA A100-SXM4-40GB, B on 1 × NVIDIA H100 80GB HBM3. "
    )
    assert "ran on" not in headline(difference_of(same, on("NVIDIA A100-SXM4-40GB")))
    assert "B on an unknown device. " in headline(difference_of(same, on(None)))


@pytest.mark.parametrize(("lasts", "said"), [(40, True), (60, False)])
def test_steps_of_one_length_are_not_said_to_be_unchanged_where_the_noise_is_not_known(
    trace_of, lasts, said
):
    def of(duration):
        kernel = {"process": 0, "device": 0, "stream": 7, "name": "k", "start": 10}
        step = {"process": 0, "thread": 1, "start": 0, "end": 100, "kind": "pushpop", "text": "step 1",
                "category": "step", "domain": "user"}  # fmt: skip
        return Profile(trace_of(kernels=[{**kernel, "end": 10 + duration}], ranges=[step]))

    assert headline(difference_of(of(40), of(lasts))).endswith("nothing changed") is said


def test_what_of_the_recording_is_not_compared_is_said(attentions):
    assert any(
        note.startswith("A: steps 0 to 5") and "are not compared" in note
        for note in notes(difference_of(*attentions))
    )


def test_loader_workers_make_no_table_of_ranks(trace_of):
    def run(workers, ranks=1):
        processes = pl.DataFrame({"process": range(workers + 1)}, schema={"process": pl.Int32})
        rows = []
        for process in range(workers + 1):
            place = {"process": process, "thread": 1, "domain": "opscope.torch"}
            for n in range(6):
                at = {"start": n * 1000, "end": n * 1000 + 900 - 100 * workers}
                if process < ranks:
                    rows.append({**place, "category": "step", "text": f"step {n}", **at})
                rows.append({**place, "category": "forward", "text": "aten::add(f32[4], f32[4])", **at})  # fmt: skip
        return Profile(
            Trace.of({"ranges": trace_of(ranges=rows)["ranges"], "processes": processes})
        )

    difference = difference_of(run(0), run(2))
    assert difference.step["change"].item() == -200
    assert len(difference.ranks) == len(difference.rank_steps) == 0
    assert len(difference_of(run(1, 2), run(2, 2)).ranks) == 2
