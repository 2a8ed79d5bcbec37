"""Jobs with a planted fault: the rank and its cause are found, and none where none was planted."""

from __future__ import annotations

import json

import pytest

from opscope.core.analysis.ranks.collective_faults import ALONE, NO_CALLS, NO_GROUP
from opscope.core.analysis.ranks.late_causes import FIRST
from opscope.profile import Profile, load
from tests.made_job import TRANSFER, job_files

US = 1_000
STEPS = 6
GROUPS = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}


def training(slow: int | None = None, how: str | None = None, more: int = 200, ranks_of: str = "0"):
    """Steps of input, launch, compute and an all-reduce; rank ``slow`` does ``how`` for longer."""

    def program(rank):
        for step in range(STEPS):
            yield ("step", step)
            for kind, usual in (("input", 40), ("launch", 20), ("compute", 300)):
                yield (kind, usual + (more if (rank, kind) == (slow, how) else 0))
            yield ("all_reduce", ranks_of, 1024)

    return program


#: A host that does nothing before it launches is outside any op.
CAUSES = {"compute": "local compute", "input": "input", "launch": "outside any op"}


@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize("how", CAUSES)
def test_a_planted_straggler_is_found_and_why(tmp_path, how, hosts):
    """On one host, and on two whose clocks are 50 ms apart."""
    apart = {rank: 50_000.0 * (rank // 2) for rank in range(4)} if hosts else None
    profile = load(job_files(tmp_path, 4, training(2, how), offset_us=apart, hosts=hosts))
    first, *others = profile.stragglers().rows(named=True)
    assert (first["rank"], first["last"]) == (2, STEPS)
    assert [one["last"] for one in others] == [0, 0, 0]
    known = profile.late_causes().rows(named=True)
    assert [(one["rank"], one["cause"], one["last"]) for one in known] == [
        (2, CAUSES[how], STEPS - 1), (2, None, 1)
    ]  # fmt: skip
    assert known[0]["more"] == known[0]["lateness"] == 200 * US * (STEPS - 1)
    assert known[0]["caused_waiting"] == 3 * 200 * US * (STEPS - 1)
    assert known[1]["reason"] == FIRST
    slowest = profile.slowest_ranks()
    assert slowest["rank"].to_list() == [2] * STEPS
    assert slowest["spread"].to_list() == [200 * US] * STEPS


def test_none_is_found_where_none_was_planted(tmp_path):
    profile = load(job_files(tmp_path, 4, training()))
    assert profile.stragglers()["last"].to_list() == [0] * 4
    assert profile.late_causes().is_empty()
    assert profile.slowest_ranks()["rank"].to_list() == [None] * STEPS
    assert profile.slowest_ranks()["spread"].to_list() == [0] * STEPS
    assert profile.collective_faults().is_empty()
    assert not profile.rank_outliers()["outlier"].any()
    assert set(profile.collective_ends()["differing"]) == {0}


def of_two_groups(rank):
    """Rank 1 computes longer, so rank 0 waits for it and is late to its own group with rank 2."""
    for step in range(STEPS):
        yield ("step", step)
        yield ("compute", 300 + (200 if rank == 1 else 0))
        yield ("all_reduce", "tp0" if rank < 2 else "tp1", 512)
        if rank % 2 == 0:
            yield ("all_reduce", "dp0", 512)


def test_a_rank_that_waited_for_another_is_late_for_that(tmp_path):
    profile = load(job_files(tmp_path, 4, of_two_groups, GROUPS))
    found = profile.late_causes().drop_nulls("cause").select("rank", "cause", "last").rows()
    # rank 2 waits for rank 0, and is late to rank 3 for that: the first cause is rank 1's alone
    assert sorted(found) == [
        (0, "an earlier wait", STEPS - 1),
        (1, "local compute", STEPS - 1),
        (2, "an earlier wait", STEPS - 1),
    ]


def hung(rank):
    for step in range(4):
        yield from (("step", step), ("compute", 100), ("all_reduce", "0", 64))
    if rank == 2:
        yield ("compute", 100)
        return
    yield from (("compute", 50), ("all_reduce", "0", 64))


def test_the_rank_that_never_came_is_named(tmp_path):
    profile = load(job_files(tmp_path, 4, hung))
    (row,) = profile.collective_faults().rows(named=True)
    assert (row["fault"], row["missing_ranks"]) == ("not entered by all", "2")
    assert (row["entered"], row["completed"]) == (3, 0)
    assert row["waited"] == 50 * US + 6 * US
    last = profile.last_collectives()
    assert last["rank"].to_list() == [2, 0, 1, 3], "the one behind comes first"
    assert last["behind"].to_list() == [1, 0, 0, 0]
    assert last["waits_for"].to_list() == [None, "2", "2", "2"]
    assert last["ended"].is_null().to_list() == [False, True, True, True]
    assert last["calls"].to_list() == [4, 5, 5, 5]


def test_what_cannot_be_judged_is_not_called_sound(tmp_path):
    """One rank alone, collectives of no group, and kernels without calls: each says why it cannot be told."""
    files = job_files(tmp_path, 2, training())
    (alone,) = load(files[:1]).collective_faults().rows(named=True)
    assert (alone["fault"], alone["group"], alone["size"]) == (None, "0", 2)
    assert alone["reason"] == f"cannot tell of {STEPS} calls: {ALONE}"
    assert load(files).collective_faults().is_empty()
    for path in files:
        told = json.loads(path.read_text())
        for one in told["traceEvents"]:
            one["args"].pop("Process Group Name", None)
        path.write_text(json.dumps(told))
    (nameless,) = load(files).collective_faults().rows(named=True)
    assert nameless["reason"] == f"cannot tell of {2 * STEPS} calls: {NO_GROUP}"
    for path in files:
        told = json.loads(path.read_text())
        told["traceEvents"] = [one for one in told["traceEvents"] if one["cat"] == "kernel"]
        path.write_text(json.dumps(told))
    (kernels,) = load(files).collective_faults().rows(named=True)
    assert kernels["reason"] == f"cannot tell of {2 * STEPS} collectives: {NO_CALLS}"


def test_a_recording_that_ends_earlier_lacks_nothing(tmp_path):
    """Rank 1's recording has two collectives fewer; the others completed them, so that it took part."""
    files = job_files(tmp_path, 3, training())
    told = json.loads(files[1].read_text())
    until = sorted(one["ts"] for one in told["traceEvents"] if one["cat"] == "kernel")[-4]
    told["traceEvents"] = [one for one in told["traceEvents"] if one["ts"] < until - 10]
    files[1].write_text(json.dumps(told))
    profile = load(files)
    assert profile.collective_faults().is_empty()
    assert profile.last_collectives()["behind"].to_list()[0] == 2


@pytest.mark.parametrize(
    ("change", "fault", "who"),
    [
        ({"elements": 32}, "sizes differ", "128 bytes: 1; 256 bytes: 0, 2"),
        ({"dtype": "Int"}, "dtypes differ", "f32: 0, 2; i32: 1"),
    ],
)
def test_collectives_that_ranks_enter_unlike_are_found(tmp_path, change, fault, who):
    def program(rank):
        for step in range(3):
            yield from (("step", step), ("compute", 100))
            odd = change if (rank, step) == (1, 1) else {}
            options = {"dtype": odd["dtype"]} if "dtype" in odd else {}
            yield ("all_reduce", "0", odd.get("elements", 64), options)

    (row,) = load(job_files(tmp_path, 3, program)).collective_faults().rows(named=True)
    assert (row["fault"], row["who"], row["collective"]) == (fault, who, 1)
    assert row["missing_ranks"] is None


def test_sibling_groups_of_one_name_are_apart(tmp_path):
    """Two groups are both called 7; only ranks 2 and 3 are uneven."""

    def program(rank):
        for step in range(STEPS):
            yield from (("step", step), ("compute", 100 + (150 if rank == 3 else 0)))
            yield ("all_reduce", "tp0" if rank < 2 else "tp1", 64)

    files = job_files(tmp_path, 4, program, GROUPS)
    for path in files:
        path.write_text(path.read_text().replace('"tp0"', '"7"').replace('"tp1"', '"7"'))
    profile = load(files)
    assert dict(profile.stragglers().select("rank", "last").rows()) == {3: STEPS, 0: 0, 1: 0, 2: 0}
    assert set(profile.late_causes()["rank"]) == {3}
    assert profile.collective_faults().is_empty()
    assert profile.collective_bandwidth()["members"].to_list() == ["0-1", "2-3"]


def test_bandwidth_is_that_of_the_transfer_and_knows_where_the_group_is(tmp_path):
    def program(rank):
        for step in range(3):
            yield from (("step", step), ("compute", 100 + 100 * rank))
            yield ("all_reduce", "tp0" if rank < 2 else "tp1", 1 << 20)
            yield ("all_reduce", "dp0" if rank % 2 == 0 else "dp1", 1 << 18)

    profile = load(job_files(tmp_path, 4, program, GROUPS, hosts=2))
    rows = {one["group"]: one for one in profile.collective_bandwidth().rows(named=True)}
    for name in ("tp0", "tp1"):
        row = rows[name]
        assert (row["place"], row["machines"], row["compared"]) == ("within a machine", 1, 3)
        assert row["bus_bandwidth"] == pytest.approx((4 << 20) / (TRANSFER * 1e-6))
        assert row["skewed_bandwidth"] < row["bus_bandwidth"] / 2
    assert {rows[name]["place"] for name in ("dp0", "dp1")} == {"between machines"}
    assert rows["dp0"]["bus_bandwidth"] == pytest.approx((4 << 18) / (TRANSFER * 1e-6))
    alone = load([tmp_path / "rank0.json"]).collective_bandwidth()
    assert alone["bus_bandwidth"].to_list() == [None, None]
    assert alone["place"].to_list() == [None, None], "where the other rank is is not known"
    assert alone["reason"].null_count() == 0


def test_a_rank_whose_kernels_are_slow_is_an_outlier(tmp_path):
    profile = load(job_files(tmp_path, 8, training(5, "compute", 60)))
    first, *others = profile.rank_outliers().rows(named=True)
    assert (first["rank"], first["measure"], first["outlier"]) == (5, "kernel time", True)
    assert first["value"] == pytest.approx(1.2)
    assert [one["outlier"] for one in others] == [False] * 7
    few = load(job_files(tmp_path, 3, training(1, "compute"))).rank_outliers()
    assert few["outlier"].to_list() == [None] * 3
    assert few["reason"].null_count() == 0


def test_a_sampled_clock_that_is_low_is_an_outlier(trace_of):
    samples = [
        {"process": rank, "device": 0, "time": at, "name": name, "value": value - (400 * (rank == 3) if low else 0)}
        for rank in range(6)
        for at in range(3)
        for name, value, low in (("SM clock [MHz]", 1700.0 + rank % 2, True), ("other", 1.0, False))
    ]  # fmt: skip
    processes = [{"process": rank, "rank": rank} for rank in range(6)]
    found = Profile(trace_of(samples=samples, processes=processes)).rank_outliers()
    assert found["measure"].unique().to_list() == ["SM clock [MHz]"]
    assert found.filter("outlier")["rank"].to_list() == [3]


def experts(rank):
    """Each rank sends half of its rows to rank 1, an eighth to itself …"""
    split = [2, 8, 4, 2]
    for step in range(2):
        yield from (("step", step), ("compute", 50))
        yield (
            "all_to_all",
            "0",
            16 * 8,
            {"In split size": json.dumps(split), "Out split size": "[]"},
        )


def test_what_each_rank_sent_to_each_is_a_matrix(tmp_path):
    profile = load(job_files(tmp_path, 4, experts))
    pairs = {
        (a, b): size
        for a, b, size in profile.rank_pairs().select("source_rank", "target_rank", "bytes").rows()
    }
    assert pairs == {
        (a, b): 2 * 512 * share // 16 for a in range(4) for b, share in enumerate((2, 8, 4, 2))
    }
    loads = profile.rank_loads()
    assert loads["rank"].to_list() == [1, 2, 0, 3]
    assert loads["received_over_mean"].to_list() == [2.0, 1.0, 0.5, 0.5]
    assert loads["sent_over_mean"].to_list() == [1.0] * 4


def test_what_its_sender_did_not_record_is_its_receiver_s(tmp_path):
    """Without rank 3's file its part is what the others say that they received: an even share."""
    files = job_files(tmp_path, 4, experts)
    pairs = load(files[:3]).rank_pairs()
    by = {row["source_rank"]: row["recorded_by"] for row in pairs.rows(named=True)}
    assert by == {0: "its sender", 1: "its sender", 2: "its sender", 3: "its receiver"}
    assert len(pairs) == 12 + 3


def test_messages_are_pairs_too(tmp_path):
    def program(rank):
        for step in range(3):
            yield from (("step", step), ("compute", 60))
            yield ("send", 1, 256) if rank == 0 else ("recv", 0, 256)

    pairs = load(job_files(tmp_path, 2, program)).rank_pairs()
    assert pairs.select("kind", "source_rank", "target_rank", "calls", "bytes").rows() == [
        ("send", 0, 1, 3, 3 * 1024)
    ]


def test_a_rank_that_leaves_late_is_named(tmp_path):
    files = job_files(tmp_path, 3, training())
    told = json.loads(files[1].read_text())
    for one in told["traceEvents"]:
        if one["cat"] == "kernel" and "AllReduce" in one["name"]:
            one["dur"] += 9
    files[1].write_text(json.dumps(told))
    (row,) = load(files).collective_ends().rows(named=True)
    assert (row["rank"], row["left_last"], row["differing"]) == (1, STEPS, STEPS)
    assert (row["median_apart"], row["max_apart"], row["clock_error"]) == (9 * US, 9 * US, 0)


def test_the_rows_of_ranks_may_come_in_any_order(tmp_path):
    files = job_files(tmp_path, 4, training(2, "input"))
    one, other = load(files), load(files[::-1])
    for name in ("late_causes", "stragglers", "slowest_ranks", "rank_outliers", "last_collectives"):
        frames = [getattr(each, name)() for each in (one, other)]
        rows = [sorted(map(str, frame.drop("process").rows())) for frame in frames]
        assert rows[0] == rows[1], name


def test_ranks_that_did_not_leave_together_have_no_cause(tmp_path):
    """Rank 1 leaves each collective 150 µs later than the others, and is late to the next for that alone."""

    def program(rank):
        for step in range(STEPS):
            yield from (("step", step), ("compute", 300), ("all_reduce", "0", 64))

    files = job_files(tmp_path, 3, program)
    told = json.loads(files[1].read_text())
    for one in told["traceEvents"]:
        if one["cat"] == "kernel" and "AllReduce" in one["name"]:
            one["ts"] += 150
    files[1].write_text(json.dumps(told))
    profile = load(files)
    assert profile.collective_ends()["rank"].to_list() == [1]
    assert profile.late_causes()["cause"].drop_nulls().is_empty()


def test_what_ranks_need_not_wait_for_has_no_rate(tmp_path):
    def program(rank):
        yield from (("step", 0), ("compute", 100 + 10 * rank), ("broadcast", "0", 1 << 20))

    (row,) = load(job_files(tmp_path, 2, program)).collective_bandwidth().rows(named=True)
    assert (row["kind"], row["compared"], row["bus_bandwidth"]) == ("broadcast", 0, None)
    assert row["reason"].startswith("its ranks need not wait")
