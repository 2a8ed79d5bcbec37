"""Baselines: what is kept of a run, its size, damage to it, and the change that a trend names."""

from __future__ import annotations

import lzma
from dataclasses import replace
from zlib import crc32

import msgspec
import numpy as np
import polars as pl
import pytest

import opscope
from opscope.baselines.folder import Baseline, reducing
from opscope.baselines.page import page
from opscope.baselines.stored import LARGEST, MAGIC, Stored, pack, unpack
from opscope.baselines.trend import LEVEL, _kept, _splits, trend
from opscope.core.analysis.diff.keys import COLUMNS, COSTS
from opscope.core.analysis.diff.rankwise import PARTS, RANKED, REST
from opscope.core.analysis.diff.rankwise import in_stretches as rankwise_stretches
from opscope.core.analysis.diff.reduced import SPENT, STEP, STEPS, WHOLE, WORK
from opscope.core.analysis.diff.stretches import in_stretches, joined
from opscope.core.analysis.diff.tables import Difference
from opscope.profile.difference import difference_of
from opscope.readers.errors import BadInput
from tests.core.analysis.test_faster import MS, run_of, steady
from tests.made_ranks import rank_files

HEAD = {"saved": "2026-01-02T03:04:05+00:00", "commit": "abc", "source": "a.opscope"}


def stored(steps=None):
    return Stored(HEAD, in_stretches(run_of(steady(10 * MS) if steps is None else steps)))


def changed(change):
    """A file whose content was changed."""
    document = msgspec.json.decode(lzma.decompress(pack(stored())[len(MAGIC) :]))
    change(document)
    return MAGIC + lzma.compress(msgspec.json.encode(document))


def test_a_stored_run_is_what_was_stored():
    before = stored()
    after = unpack(pack(before), "a.run")
    assert after.head == HEAD
    for table in ("units", "spent", "work", "about", "waiting"):
        assert getattr(after.reduced, table).equals(getattr(before.reduced, table)), table
    assert after.reduced.keys.cast(pl.String).equals(before.reduced.keys.cast(pl.String))
    assert Difference(after.reduced, before.reduced).step["change"][0] == 0


def test_a_million_kernels_of_a_thousand_ops_take_less_than_200_kb():
    steps, ops = 1000, 1000
    random = np.random.default_rng(0)
    usual = random.lognormal(10, 1.2, ops)
    times = (usual * random.normal(1, 0.03, (steps, ops))).astype(np.int64) + 1
    base = run_of(times.sum(1) * 2)
    unit, key = np.repeat(np.arange(steps), ops), np.tile(np.arange(ops), steps)
    one = np.ones(steps * ops, np.int64)
    work = pl.DataFrame(
        {"unit": unit, "key": key, "time": times.ravel(), "calls": one}, schema=WORK
    )
    spent = pl.DataFrame(
        {"unit": unit, "part": one, "key": key, "time": times.ravel()}, schema=SPENT
    )
    rest = base.spent.filter(pl.col("key") == -1)
    keys = pl.DataFrame(
        {
            "key": np.arange(ops),
            "op": [f"aten::op_{number % 80}" for number in range(ops)],
            "op_type": ["gemm"] * ops,
            "direction": ["forward", "backward"] * (ops // 2),
            "layer": [f"Model.layers.{number // 20}.mlp.fc{number % 20}" for number in range(ops)],
            "inputs": [
                f"f16[{number % 7 * 16 + 8},{number * 8}], f16[4096]" for number in range(ops)
            ],
            "dtypes": ["f16"] * ops,
            "named": [False] * ops,
            "flops": random.integers(1, 1 << 40, ops),
            "bytes": random.integers(1, 1 << 30, ops),
        }
    ).with_columns(pl.col(name).cast(pl.Categorical) for name in COLUMNS if name != "named")
    whole = replace(
        base, keys=keys.select("key", *COLUMNS, *COSTS), work=work, spent=pl.concat([spent, rest])
    )
    ranks = pl.DataFrame(
        {
            **{name: random.integers(1, 1 << 27, 8 * steps) for name in RANKED},
            "process": np.repeat(np.arange(8), steps),
            "rank": np.repeat(np.arange(8), steps),
            "step": np.tile(np.arange(steps), 8),
        },
        schema=RANKED,
    ).with_columns(pl.sum_horizontal(PARTS).alias("time"))
    whole = replace(whole, ranked=ranks)
    data = pack(Stored(HEAD, in_stretches(whole)))
    assert len(data) < 200_000, len(data)
    assert unpack(data, "a.run").reduced.work["time"].sum() == times.sum()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda document: document["tables"]["work"]["key"].__setitem__(0, 7),
            "work has a wrong key",
        ),
        (
            lambda document: document["tables"]["spent"]["unit"].__setitem__(0, -1),
            "spent has a wrong unit",
        ),
        (lambda document: document["tables"]["spent"]["part"].__setitem__(0, 99), "wrong part"),
        (lambda document: document["tables"]["work"]["time"].__setitem__(0, 1 << 60), "wrong time"),
        (lambda document: document["tables"]["work"]["time"].__setitem__(0, None), "wrong time"),
        (lambda document: document["tables"]["work"]["time"].__setitem__(0, "x"), "damaged"),
        (lambda document: document["tables"]["units"]["end"].__setitem__(0, -5), "ends before"),
        (lambda document: document["tables"]["units"]["steps"].__setitem__(0, 0), "wrong steps"),
        (lambda document: document["tables"]["work"]["key"].append(0), "damaged"),
        (lambda document: document["tables"].pop("keys"), "damaged"),
        (lambda document: document["plain"].__setitem__("unit", "x"), "not as opscope writes them"),
        (lambda document: document["plain"].__setitem__("more", 1), "damaged"),
        (lambda document: document["plain"].pop("known"), "damaged"),
        (
            lambda document: [
                values.append(-1) for values in document["tables"]["ranked"].values()
            ],
            "a step of a rank has a wrong time",
        ),
    ],
)
def test_a_wrong_file_is_one_error_that_names_it(change, said):
    with pytest.raises(BadInput, match=r"a\.run") as raised:
        unpack(changed(change), "a.run")
    assert said in str(raised.value)


def test_damaged_bytes_are_one_error():
    data = pack(stored())
    for cut in (len(MAGIC), len(MAGIC) + 5, len(data) // 2):
        with pytest.raises(BadInput, match=r"a\.run"):
            unpack(data[:cut], "a.run")
    with pytest.raises(BadInput, match="not a run of a baseline"):
        unpack(b"PK\x03\x04", "a.run")


def test_a_small_file_that_grows_without_end_is_refused():
    bomb = MAGIC + lzma.compress(b" " * (LARGEST[1] + 100), preset=0)
    assert len(bomb) < 1 << 20
    with pytest.raises(BadInput, match="more than"):
        unpack(bomb, "a.run")


def baseline(name, *means, spread=0.002):
    runs = [
        Stored(
            HEAD, in_stretches(run_of(steady(mean, 20, spread, crc32(f"{name} {seed}".encode()))))
        )
        for seed, mean in enumerate(means)
    ]
    return Baseline(name, tuple(runs), joined([run.reduced for run in runs]))


def series_of(noise, runs, shift=None, count=16, seed=0):
    """Baselines of some runs each, which differ by the noise; from ``shift`` on they take 15 % more."""
    means = 10 * MS * noise(np.random.default_rng(seed), (count, runs))
    if shift is not None:
        means[shift:] *= 1.15
    return [baseline(f"c{number}", *each) for number, each in enumerate(means)]


def bell(random, shape):
    return 1 + 0.02 * random.standard_normal(shape)


def two_speeds(random, shape):
    return (1 + 0.01 * random.standard_normal(shape)) * np.where(random.random(shape) < 0.5, 1.2, 1)


@pytest.mark.parametrize("shift", [1, 2, 8, 14, 15])
def test_a_shift_at_either_end_or_in_the_middle_is_named(shift):
    rows, changes = trend(series_of(bell, 3, shift))
    assert [change.first for change in changes] == [shift]
    assert changes[0].chance < LEVEL
    assert rows["change"].is_not_null().to_list() == [number == shift for number in range(16)]
    said = page(rows, changes, STEP)
    assert f"<li><strong>c{shift}</strong>: a step took " in said
    assert "which runs without a change show in " in said


@pytest.mark.parametrize("noise", [bell, two_speeds])
def test_without_a_shift_none_is_named_more_often_than_the_level(noise):
    random = np.random.default_rng(2)
    named = 0
    for _ in range(200):
        values = [list(each) for each in noise(random, (16, 3))]
        named += bool(_kept(values, _splits(values, 0, 16)))
    assert named <= 200 * LEVEL
    rows, changes = trend(series_of(noise, 3))
    assert changes == []
    assert "No change beyond the noise of the runs." in page(rows, changes, STEP)


def test_one_slow_run_is_no_change():
    series = series_of(bell, 1)
    series[-1] = baseline("last", 20 * MS)
    assert trend(series)[1] == []


def job(folder, slow=None):
    """What a baseline keeps of four ranks, of which one may compute longer."""
    folder.mkdir()
    profile = opscope.load(rank_files(folder, 4, slow=slow))
    return profile, unpack(pack(Stored(HEAD, in_stretches(profile._reducing(STEPS)()))), "a.run")


def test_ranks_are_kept_and_compared_as_those_of_files(tmp_path):
    (before, kept), (after, slow) = job(tmp_path / "a"), job(tmp_path / "b", 2)
    of_files, of_baselines = difference_of(before, after), Difference(kept.reduced, slow.reduced)
    dropped = "process_a", "process_b"
    assert of_baselines.ranks.drop(dropped).equals(of_files.ranks.drop(dropped))
    assert of_baselines.rank_steps.drop(dropped).equals(of_files.rank_steps.drop(dropped))
    work = dict(of_baselines.ranks.select("rank", "work_change").iter_rows())
    assert work[2] - max(work[rank] for rank in (0, 1, 3)) > 200_000
    rows, _ = trend([Baseline("a", (kept,), kept.reduced), Baseline("b", (slow,), slow.reduced)])
    assert rows["ranks"].to_list() == [4, 4]
    assert rows["late"].to_list() == [None, 2]
    assert rows["spread"][0] < 20_000 < 230_000 < rows["spread"][1]


def test_several_runs_of_a_job_share_its_ranks(tmp_path):
    _, first = job(tmp_path / "a", 2)
    _, second = job(tmp_path / "b", 2)
    both = joined([first.reduced, second.reduced])
    assert both.ranked.group_by("rank").len().sort("rank").rows() == [
        (rank, 8) for rank in range(4)
    ]
    assert both.waiting["waiting"][0] == 2 * first.reduced.waiting["waiting"][0]
    assert set(Difference(both, first.reduced).ranks["work_change"]) == {0}


def test_many_steps_of_ranks_become_stretches_with_their_means():
    random = np.random.default_rng(0)
    rows = [
        (process, process ^ 1, step, *sorted(random.integers(1, MS, 2).tolist(), reverse=True))
        for process in range(2)
        for step in range(3000)
    ]
    steps = pl.DataFrame(rows, ["process", "rank", "step", "time", "work"], orient="row")
    steps = steps.with_columns(
        *(pl.lit(None, pl.Int64).alias(name) for name in PARTS if name != REST),
        pl.col("time").alias(REST),
    ).select(pl.col(name).cast(kind) for name, kind in RANKED.items())
    small = rankwise_stretches(steps, 100)
    assert len(small) == 100
    assert small["step"].null_count() == 100
    assert (small["time"] == small[REST]).all()
    assert small.select("process", "rank").unique(maintain_order=True).rows() == [(1, 1), (0, 0)]
    whole, means = (
        table.group_by("rank").agg(pl.col("time", "work").mean()).sort("rank")
        for table in (steps, small)
    )
    for name in ("time", "work"):
        assert means[name].to_list() == pytest.approx(whole[name].to_list(), abs=1)
    assert rankwise_stretches(steps, 10_000).height == 6000


def test_a_trend_names_the_baseline_since_which_the_step_is_slower():
    series = [baseline(f"c{number}", 10 * MS * (1 + number % 3 / 100)) for number in range(7)]
    series += [baseline(f"c{number}", 13 * MS * (1 + number % 3 / 100)) for number in range(7, 12)]
    rows, changes = trend(series)
    assert [change.first for change in changes] == [7]
    assert changes[0].after / changes[0].before == pytest.approx(1.3, rel=0.02)
    assert rows["change"].drop_nulls().to_list() == ["+30.0% from here"] or rows["change"][7]
    assert rows["ops"].to_list() == [3.0] * 12
    assert rows["flops"].to_list() == [24.0] * 12
    assert "A step took" in changes[0].why


def test_a_trend_within_the_noise_names_none():
    series = [baseline(f"c{number}", 10 * MS * (1 + number * 7 % 5 / 50)) for number in range(12)]
    assert trend(series)[1] == []


def test_of_two_baselines_their_steps_tell():
    series = [baseline("before", 10 * MS), baseline("after", 13 * MS)]
    assert [change.first for change in trend(series)[1]] == [1]


def test_the_page_loads_nothing_and_escapes_names():
    rows, changes = trend([baseline("<b>", 10 * MS), baseline("after", 13 * MS)])
    text = page(rows, changes, STEP)
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert "http" not in text
    assert "<script" not in text


def test_a_baseline_of_steps_is_not_compared_with_a_run_without():
    with pytest.raises(BadInput, match="the other run has none"):
        reducing(baseline("main", 10 * MS), WHOLE)
