"""What a merged job says of its ranks (who was late and why, what is missing) is what load of the files says."""

from __future__ import annotations

import json

import pytest

import opscope
from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests.made_job import job_files
from tests.merged_same import assert_same

STEPS, RANKS = 6, 4


@pytest.fixture(autouse=True, params=["whole", "pieces", "pieces of a saved job"])
def how_it_is_read(request):
    """Collectives are in one table, or in a piece a rank, as those of very many ranks are."""
    if request.param != "whole":
        request.getfixturevalue("small_pieces")
    return request.param


@pytest.fixture
def merged_of(how_it_is_read, tmp_path):
    def made(files, folder):
        for one in files:
            write_partial(one, folder)
        merged = merge(folder)
        if how_it_is_read.endswith("saved job"):
            merged.save(tmp_path / "job.opscope")
            merged = opscope.load(tmp_path / "job.opscope")
        if how_it_is_read != "whole":
            assert len([*merged.of(exchange_pieces)()]) == len(files)
        return merged

    return made


def late(how):
    """Rank 2 takes 200 µs longer for ``how`` in each step."""

    def program(rank):
        for step in range(STEPS):
            yield ("step", step)
            yield ("input", 20 + 200 * (rank == 2 and how == "input"))
            yield ("launch", 10 + 200 * (rank == 2 and how == "launch"))
            yield ("compute", 100 + 200 * (rank == 2 and how == "compute"))
            yield ("all_reduce", "0", 64)

    return program


@pytest.mark.parametrize("how", ["compute", "input", "launch"])
@pytest.mark.parametrize("hosts", [0, 2], ids=["one clock", "clocks 50 ms apart"])
def test_a_late_rank_and_why(tmp_path, how, hosts, merged_of):
    apart = {rank: 50_000.0 * (rank // 2) for rank in range(RANKS)} if hosts else None
    files = job_files(tmp_path, RANKS, late(how), offset_us=apart, hosts=hosts)
    merged = merged_of(files, tmp_path / "parts")
    assert_same(merged, files)
    known = merged.late_causes().drop_nulls("cause")
    cause = {"compute": "local compute", "input": "input", "launch": "outside any op"}[how]
    assert known.select("rank", "cause", "last").rows() == [(2, cause, STEPS - 1)]
    if how != "launch":  # a late launch is no work of the rank
        assert merged.slowest_ranks()["rank"].to_list() == [2] * STEPS


def hung(rank):
    for step in range(4):
        yield from (("step", step), ("compute", 100), ("all_reduce", "0", 64))
    if rank != 2:
        yield from (("compute", 50), ("all_reduce", "0", 64))


def test_a_hang_s_last_state(tmp_path, merged_of):
    files = job_files(tmp_path, RANKS, hung)
    merged = merged_of(files, tmp_path / "parts")
    assert_same(merged, files)
    (row,) = merged.collective_faults().rows(named=True)
    assert row["missing_ranks"] == "2"
    assert merged.last_collectives()["waits_for"].to_list() == [None, "2", "2", "2"]


def experts(rank):
    """Each rank sends half of its rows to rank 1; ranks pass messages on, and rank 3's kernels are slow."""
    for step in range(4):
        split = [8 if other == 1 else 4 if other == rank else 2 for other in range(RANKS)]
        yield from (("step", step), ("compute", 300 if rank == 3 else 100))
        yield (
            "all_to_all",
            "0",
            16 * 8,
            {"In split size": json.dumps(split), "Out split size": "[]"},
        )
        yield ("send", 1, 64) if rank == 0 else ("recv", 0, 64) if rank == 1 else ("compute", 5)


def unlike(rank):
    """Rank 1 enters the second collective with another dtype, and rank 3 the third with another size."""
    for step in range(4):
        yield from (("step", step), ("compute", 100))
        if (rank, step) == (1, 1):
            yield ("all_reduce", "0", 128, {"dtype": "Half"})
        else:
            yield ("all_reduce", "0", 128 if (rank, step) == (3, 2) else 64)
        if rank < 2:
            yield ("all_reduce", "pair", 16)


def test_ranks_that_enter_a_collective_unlike(tmp_path, merged_of):
    files = job_files(tmp_path, RANKS, unlike, {"pair": [0, 1]})
    merged = merged_of(files, tmp_path / "parts")
    assert_same(merged, files)
    found = merged.collective_faults().select("fault", "who").rows()
    assert found == [
        ("dtypes differ", "f16: 1; f32: 0, 2, 3"),
        ("sizes differ", "256 bytes: 0, 1, 2; 512 bytes: 3"),
    ]


def test_what_ranks_sent_each_other_and_which_are_unlike(tmp_path, merged_of):
    files = job_files(tmp_path, RANKS, experts)
    merged = merged_of(files, tmp_path / "parts")
    loaded = assert_same(merged, files)
    assert len(merged.rank_pairs()) > RANKS * RANKS
    assert merged.rank_outliers()["rank"].n_unique() == RANKS
    assert not merged.collective_bandwidth().is_empty()
    assert not merged.collective_ends().is_empty()
    assert merged.rank_loads().sort("received_bytes", descending=True)["rank"][0] == 1
    assert loaded.rank_pairs()["bytes"].sum() == merged.rank_pairs()["bytes"].sum() > 0
