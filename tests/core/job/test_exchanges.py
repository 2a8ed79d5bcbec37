"""Collectives of several ranks: which are one, what each took, who waited for whom."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.group_specs import format_ranks, members_of
from opscope.core.job.clocks import messages
from opscope.core.job.exchanges import exchanges
from opscope.core.job.numbering import matched
from opscope.core.tables.ranks import groups, meshes, with_ranks
from opscope.profile import Profile, load
from tests.made_job import job_files


def op(process, start, end, text, thread=1, category="communication"):
    return {
        "process": process, "thread": thread, "start": start, "end": end, "text": text,
        "domain": "opscope.torch", "category": category,
        "kind": "mark" if category == "spec" else "pushpop",
    }  # fmt: skip


def group(process, name, rank, size, **more):
    params = {"rank": rank, "size": size, **more}
    told = ", ".join(f"{key}={value!r}".replace("'", '"') for key, value in params.items())
    return op(
        process, 0, 0, f"process_group/{name} = group() -> () {{{told}}}", category="spec"
    )  # fmt: skip


def all_reduce(process, called, start, end, name="0", size=8):
    return [
        op(process, called, called + 2,
           f'c10d::allreduce_([f32[{size}]], _) -> ([=0], _) {{process_group="{name}"}}'),
        op(process, start, end, f"gloo:all_reduce(f32[{size}])", thread=2),
    ]  # fmt: skip


def of(trace_of, *rows, **tables):
    flat = sorted((one for row in rows for one in (row if isinstance(row, list) else [row])),
                  key=lambda one: one["start"])  # fmt: skip
    return Profile(trace_of(ranges=flat, **tables))


def members(text: str) -> list[int]:
    found: list[int] = []
    for piece in text.split(","):
        span, _, step = piece.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20, unique=True))
def test_members_of_a_group_read_back(ranks):
    assert members(format_ranks(ranks)) == ranks


def test_members_are_a_stranger_s_and_make_no_more_than_they_are():
    """Ranks far apart are no range to be written out, and what is no list of ranks is none."""
    assert members_of("[0, 1, 1000000000000]") == "0,1,1000000000000"
    assert members_of([0, 2, 4]) == members_of("[0, 2, 4]") == "0-4:2"
    assert members_of("[0, 1, ..., 7]") == "0,1,...,7"
    for nothing in ("", "[]", [], "x", ["0"], {"a": 1}, "9" * 5000):
        assert members_of(nothing) is None


@given(st.integers(0, 5), st.integers(1, 4), st.integers(2, 1000))
def test_regular_members_are_short(first, step, many):
    ranks = list(range(first, first + step * many, step))
    text = format_ranks(ranks)
    assert len(text) < 20
    assert members(text) == ranks


def test_a_call_and_its_backend_s_run_are_one_row(trace_of):
    profile = of(
        trace_of,
        group(0, "0", 0, 4, ranks="0-3"),
        all_reduce(0, 100, 110, 200),
        all_reduce(0, 150, 205, 260, size=16),
    )
    found = exchanges(profile.attribution)
    columns = ["group", "members", "size", "kind", "bytes", "dtype", "called", "start", "end"]
    assert found.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(columns).rows() == [
        ("0", "0-3", 4, "all_reduce", 32, "f32", 100, 110, 200),
        ("0", "0-3", 4, "all_reduce", 64, "f32", 150, 205, 260),
    ]


def test_runs_of_calls_before_the_recording_are_no_call_s(trace_of):
    """Two were asked for before it began: their runs come first."""
    before = [
        op(0, 5, 20, "gloo:all_reduce(f32[8])", 2),
        op(0, 30, 40, "gloo:broadcast(f32[8])", 3),
    ]
    profile = of(trace_of, before, all_reduce(0, 100, 110, 200), all_reduce(0, 300, 310, 350))
    assert exchanges(profile.attribution)["start"].to_list() == [110, 310]


def test_a_run_says_the_type_and_the_bytes_that_a_list_lacks(trace_of):
    """A profiler writes the sizes of a list's tensors alone. Runs of other kinds, on other threads, end
    before; a message's run is its own call's."""
    calls = (
        ("allreduce_", "[?[8]]", "all_reduce", "f64[8]", (30, 60)),
        ("send", "[?[5]]", "send", "f16[5]", (11, 12)),
        ("broadcast_", "[?[4]]", "broadcast", "i64[4]", (13, 25)),
        ("_reduce_scatter_base_", "f32[2], f32[6]", "all_reduce", "f32[6]", (70, 80)),
        ("allgather_", "[?[3]]", "all_gather", "f32[3]", (15, 20)),
        ("barrier", "", "barrier", "", (90, 95)),
    )
    rows = []
    for number, (name, lists, run, tensor, (start, end)) in enumerate(calls):
        rows.append(op(0, number, number + 1, f"c10d::{name}({lists})"))
        rows.append(op(0, start, end, f"gloo:{run}({tensor})", thread=2 + number))
    found = exchanges(of(trace_of, *rows).attribution)
    columns = ["kind", "dtype", "bytes", "start", "end"]
    assert found.with_columns(pl.col("kind", "dtype").cast(pl.String)).select(columns).rows() == [
        ("all_reduce", "f64", 64, 30, 60),
        ("send", "f16", 10, None, None),
        ("broadcast", "i64", 32, 13, 25),
        ("reduce_scatter", "f32", 24, 70, 80),
        ("all_gather", "f32", None, 15, 20),  # a rank's share alone is known
        ("barrier", None, None, 90, 95),
    ]


def test_a_call_whose_run_was_not_seen_has_no_times(trace_of):
    profile = of(trace_of, all_reduce(0, 100, 110, 200), all_reduce(0, 300, 310, 350)[:1])
    assert exchanges(profile.attribution)["end"].to_list() == [200, None]
    alone = of(trace_of, all_reduce(0, 100, 110, 200)[:1], all_reduce(1, 100, 110, 200)[:1])
    row = alone.communication().row(0, named=True)
    assert row["collectives"] == 1
    assert row["communication_time"] is None, "a call that returns at once tells nothing of it"
    assert row["waiting_time"] is None


def test_runs_of_a_process_that_recorded_no_call_are_rows(trace_of):
    """gloo's threads were recorded and the program's own was not; process 1 has calls, and one run before."""
    profile = of(
        trace_of,
        op(0, 10, 40, "gloo:all_reduce(f32[8])", thread=2),
        op(0, 20, 50, "gloo:all_reduce(f32[8])", thread=3),
        op(1, 5, 20, "gloo:broadcast(f32[8])", thread=2),
        all_reduce(1, 100, 110, 200),
    )
    found = exchanges(profile.attribution).with_columns(pl.col("kind").cast(pl.String))
    assert found.select("process", "kind", "bytes", "start", "end").rows() == [
        (0, "all_reduce", 32, 10, 40),
        (0, "all_reduce", 32, 20, 50),
        (1, "all_reduce", 32, 110, 200),
    ]
    assert profile.communication()["communication_time"].to_list() == [40, 90]


def test_an_inner_call_is_not_counted_again(trace_of):
    outer = op(0, 100, 120, '_c10d_functional::all_reduce(f32[8]) -> f32[8] {group_name="0"}')
    inner = op(0, 105, 110, 'c10d::allreduce_([f32[8]]) -> () {process_group="0"}')
    assert len(exchanges(of(trace_of, outer, inner).attribution)) == 1


def test_waiting_is_what_is_beyond_the_shortest(trace_of):
    """Rank 0 enters first and waits 60 for rank 1; then rank 1 waits 25."""
    told = [
        group(rank, "0", rank, 2, ranks="0-1", global_rank=rank, world_size=2) for rank in (0, 1)
    ]
    profile = of(
        trace_of,
        *told,
        all_reduce(0, 100, 110, 200),
        all_reduce(1, 165, 170, 200),
        all_reduce(0, 300, 330, 345),
        all_reduce(1, 300, 305, 345),
        op(1, 310, 320, "aten::add(f32[8], f32[8]) -> f32[8]", category="forward"),
        processes=[{"process": 0, "clock_domain": 0}, {"process": 1, "clock_domain": 0}],
        clocks=[{"clock_domain": 0, "machine": "one"}],
    )  # fmt: skip
    first, second = profile.communication().rows(named=True)
    assert (first["communication_time"], second["communication_time"]) == (105, 70)
    assert (first["waiting_time"], second["waiting_time"]) == (60, 25)
    assert (second["computation_time"], second["overlap_time"]) == (10, 10)
    assert first["message_bytes"] == 64
    (row,) = profile.collectives().rows(named=True)
    assert (row["kind"], row["calls"], row["time"], row["waiting_time"]) == (
        "all_reduce",
        4,
        175,
        85,
    )
    # of each 32 bytes 2 · (2 − 1)/2 cross, in 30 ns and in 15
    assert row["bus_bandwidth"] == pytest.approx(64 / 45 * 1e9)
    ops = profile.ops().filter(pl.col("op").cast(pl.String) == "c10d::allreduce_")
    assert set(ops["bytes"]) == {64}, "32 out and 32 in, as the group has two ranks"


def test_collectives_that_lack_members_are_partial(trace_of):
    """Of two collectives of two ranks the second lacks one; in a group of an unknown size nothing is known."""
    profile = of(
        trace_of,
        group(0, "0", 0, 2),
        group(1, "0", 1, 2),
        all_reduce(0, 100, 110, 200),
        all_reduce(1, 165, 170, 200),
        all_reduce(0, 300, 330, 345),
        op(0, 400, 410, 'c10d::allreduce_(f32[8]) -> () {group="other"}', category="communication"),
        processes=[{"process": 0}, {"process": 1}],
    )
    rows = {row["group"]: row for row in profile.collectives().rows(named=True)}
    known, other = rows.pop("0"), rows.pop("other")
    assert (known["size"], known["present"], known["calls"], known["partial"]) == (2, 2, 3, 1)
    assert (other["size"], other["present"], other["calls"], other["partial"]) == (None, 1, 1, None)
    assert not rows


@pytest.mark.filterwarnings("error")
def test_kernels_whose_process_is_not_recorded_have_a_row_of_their_own(trace_of):
    """Collectives and other kernels that no process is known of are put beside each other, not beside others."""
    rows = [(None, "gemm", 0, 100), (None, "ncclDevKernel_AllReduce", 50, 150), (0, "gemm", 0, 10)]
    names = ("process", "name", "start", "end")
    kernels = [dict(zip(names, row, strict=True), device=0) for row in rows]
    found = Profile(trace_of(kernels=kernels)).communication()
    by = {row["process"]: row for row in found.rows(named=True)}
    nobody = by[None]
    assert (nobody["communication_time"], nobody["overlap_time"], nobody["collectives"]) == (
        100,
        50,
        1,
    )
    assert (by[0]["communication_time"], by[0]["collectives"]) == (0, 0)


def test_what_is_done_with_the_values_is_told_and_kept_apart(trace_of):
    """PyTorch's word, functional collectives', NCCL's; an object that tells nothing is none."""
    told = {
        'c10d::allreduce_([f32[8]], _) -> () {reduce_op="max"}': "max",
        'c10d::reduce_([f32[8]]) -> () {reduce_op="object"}': None,
        '_c10d_functional::all_reduce(f32[8]) -> f32[8] {reduce_op="sum", group_name="0"}': "sum",
        'ncclAllReduce() -> () {reduction="Avg"}': "avg",
        "c10d::broadcast_([f32[8]]) -> ()": None,
    }
    rows = [op(0, 100 * n, 100 * n + 9, text) for n, text in enumerate(told, start=1)]
    profile = of(trace_of, *rows)
    assert exchanges(profile.attribution)["reduction"].to_list() == list(told.values())
    of_kind = profile.collectives().filter(pl.col("kind").cast(pl.String) == "all_reduce")
    assert set(of_kind["reduction"]) == {"max", "sum", "avg"}


def test_groups_of_one_name_and_other_members_are_apart(trace_of):
    profile = of(
        trace_of,
        group(0, "7", 0, 2, ranks="0-1"),
        group(1, "7", 0, 2, ranks="2-3"),
        all_reduce(0, 100, 110, 200, "7"),
        all_reduce(1, 100, 150, 200, "7"),
    )
    assert profile.communication()["waiting_time"].to_list() == [None, None]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(12, 30), st.booleans())
def test_recordings_that_begin_apart_are_matched(first, second, many, same_clock):
    """All alike, so that only the ends tell which is which; rank 1's clock may be another."""
    ahead = 0 if same_clock else 10**12
    gaps = [1000 + 37 * (number % 5) ** 3 + number**2 for number in range(many)]
    rows = []
    for process, skipped, moved in ((0, first, 0), (1, second, ahead)):
        time = 0
        for number, gap in enumerate(gaps):
            time += gap
            if number >= skipped:
                start, end = time + moved, time + moved + 20 + 3 * ((number + process) % 4)
                rows.append({"process": process, "called": start, "start": start, "end": end,
                             "true": number})  # fmt: skip
    frame = pl.DataFrame(rows).with_columns(
        pl.lit("0").cast(pl.Categorical).alias("group"),
        pl.lit("0-1").cast(pl.Categorical).alias("members"),
        pl.lit("all_reduce").cast(pl.Categorical).alias("kind"),
        pl.lit(32).alias("bytes"),
        pl.lit(2).alias("size"),
        pl.lit(None, pl.Int64).alias("seq"),
        pl.lit(None, pl.String).alias("comms"),
    )
    made = matched(frame, same_clock)
    offsets = (made["number"] - made["true"]).unique()
    assert len(offsets) == 1, "the same number on both is the same collective"


def test_point_to_point_and_unknown_groups_are_not_matched(trace_of):
    rows = [op(p, 100, 110, 'c10d::send([f32[3]]) -> _ {process_group="0"}') for p in (0, 1)]
    rows += [op(p, 200, 210, "c10d::allreduce_([f32[3]]) -> ()") for p in (0, 1)]
    found = matched(exchanges(of(trace_of, *rows).attribution), True)
    assert found["number"].to_list() == [None] * 4


def test_groups_and_meshes_are_read_from_their_specs(trace_of):
    dimension = 'dimension() -> () {index=0, size=2, coordinate=1, group="3", device="cpu"}'
    bad = [
        "process_group/1 = group(",
        "process_group/2 = other() -> ()",
        '"mesh x"/dp = dimension()',
    ]
    profile = of(
        trace_of,
        group(0, "0", 1, 4, ranks="0-3", global_rank=1, world_size=4, backend="gloo"),
        group(0, "3", "one", 2),
        op(0, 1, 1, f'"mesh 2"/dp = {dimension}', category="spec"),
        *(op(0, 2, 2, text, category="spec") for text in bad),
        processes=[{"process": 0}],
    )  # fmt: skip
    row = groups(profile.trace).row(0, named=True)
    assert (row["group"], row["rank"], row["ranks"], row["backend"]) == ("0", 1, "0-3", "gloo")
    assert groups(profile.trace)["rank"].to_list() == [1, None]
    assert meshes(profile.trace).rows() == [(0, 2, 0, "dp", 2, 1, "3", "cpu")]
    filled = with_ranks(profile.trace)["processes"].row(0, named=True)
    assert (filled["rank"], filled["world_size"]) == (1, 4)


def test_the_time_of_communication_and_its_share_are_of_the_same_window(trace_of):
    """One collective before the first step, one across its end: 30 of the 100 in the step."""
    profile = of(
        trace_of,
        op(0, 300, 400, "step 1", category="step"),
        all_reduce(0, 100, 110, 200),
        all_reduce(0, 360, 370, 450),
    )
    row = profile.communication().row(0, named=True)
    assert (row["window"], row["communication_time"]) == (100, 30)
    assert row["communication_share"] == row["communication_time"] / row["window"]


@pytest.mark.parametrize("size", [2**45, 2**62, 2**63 - 1])
def test_more_bytes_than_a_buffer_has_are_not_known(trace_of, size):
    profile = of(trace_of, all_reduce(0, 0, 5, 50, size=size), all_reduce(0, 60, 65, 70, size=4))
    found = profile.collectives()
    assert found["calls"].to_list() == [2]
    assert profile.communication()["message_bytes"].to_list() == [None]


@pytest.mark.parametrize("ranks", [-1, 2**25, 2**70])
def test_more_ranks_than_a_job_has_are_not_known(trace_of, ranks):
    text = f'c10d::allreduce_([f32[4]], _) -> ([=0], _) {{process_group="0", ranks={ranks}}}'
    found = exchanges(of(trace_of, op(0, 0, 2, text)).attribution)
    assert found["size"].to_list() == [None]


def test_the_other_end_of_a_message_is_read(trace_of):
    """PyTorch's call gives its place in the group; a receive of any rank has none."""
    rows = [
        group(0, "7", 0, 2, ranks="3,8"),
        op(0, 50, 60, 'c10d::send([f32[3]]) -> _ {process_group="7", dst=1}'),
        op(0, 70, 80, 'c10d::recv_([f32[3]]) -> _ {process_group="7", src=0}'),
        op(0, 90, 99, 'c10d::recv_any_source_([f32[3]]) -> _ {process_group="7"}'),
    ]
    found = exchanges(of(trace_of, *rows).attribution)
    assert found["peer"].to_list() == [8, 3, None]


def pipeline(rank, last=2, rounds=12):
    """What comes from the rank before goes on to the next, and back; never the same time twice."""
    for number in range(rounds):
        yield from (("step", number), ("compute", 100 + 17 * (number % 5) + 7 * rank))
        if rank:
            yield ("recv", rank - 1, 64)
        if rank < last:
            yield from (("compute", 40), ("send", rank + 1, 64), ("recv", rank + 1, 32))
        if rank:
            yield from (("compute", 30), ("send", rank - 1, 32))


def test_messages_of_a_pipeline_are_matched_each_way(tmp_path):
    profile = load(job_files(tmp_path, 3, pipeline))
    found = exchanges(profile.attribution)
    sent = messages(found, profile.trace["processes"], same_clock=True)
    assert len(sent) == 12 * 4
    assert (sent["sent_end"] == sent["received_end"]).all()
    assert (found["peer"].drop_nulls().len(), found["peer"].null_count()) == (96, 0)


def test_the_clocks_of_a_pipeline_are_aligned_by_its_messages(tmp_path):
    """Each rank is a host; there is no collective; their clocks are 50 ms apart."""
    moved = {1: 50_000.0, 2: -50_000.0}
    profile = load(job_files(tmp_path, 3, pipeline, offset_us=moved, hosts=1))
    told = profile.clocks()
    assert told["method"].to_list() == ["reference", "sends and receives", "sends and receives"]
    for row, by in zip(told.rows(named=True)[1:], (50_000_000, -50_000_000), strict=True):
        assert row["error_ns"] < 1_000_000
        assert abs(row["offset_ns"] + by) <= row["error_ns"]
