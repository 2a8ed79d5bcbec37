"""Dumps of PyTorch's flight recorder: who entered which collective, who is missing, and where a job hangs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of

FORMAT = "PyTorch's flight recorder"
FIRST = 1_795_939_031_000_000_000
FRAMES = [
    {"filename": "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "line": 3245,
     "name": "all_reduce"},
    {"filename": "/home/me/train.py", "line": 21, "name": "step"},
]  # fmt: skip


def entry(
    number: int, *, group: str = "0", size: int = 64, done: bool = True, **more: Any
) -> dict[str, Any]:
    """An entry as PyTorch 2.13 writes it for NCCL."""
    return {
        "frames": FRAMES, "record_id": number - 1, "pg_id": int(group), "process_group": (group, "default_pg"),
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce",
        "time_created_ns": FIRST + 1_000_000 * number, "input_sizes": [[size]], "input_dtypes": ["Float"],
        "output_sizes": [[size]], "output_dtypes": ["Float"], "state": "completed" if done else "started",
        "time_discovered_started_ns": FIRST + 1_000_000 * number + 500,
        "time_discovered_completed_ns": FIRST + 1_000_000 * number + 900 if done else None,
        "retired": done, "timeout_ms": 600000, "is_p2p": False, "thread_id": "140", "thread_name": "python", **more,
    }  # fmt: skip


def dump(*entries: dict[str, Any], ranks: int = 3) -> dict[str, Any]:
    config = {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}
    status = {
        "last_enqueued_collective": "3",
        "last_started_collective": "3",
        "last_completed_collective": "2",
    }
    return {
        "version": "2.10", "pg_config": {"0": config}, "comm_lib_version": "2.27.3", "pg_status": {"0": status},
        "entries": list(entries),
    }  # fmt: skip


def of_job() -> list[dict[str, Any]]:
    """Three ranks: all complete two collectives; rank 2 does not come to the third."""
    full = dump(entry(1), entry(2), entry(3, size=1024, done=False))
    return [full, full, dump(entry(1), entry(2))]


def written(folder: Path, dumps: list[dict[str, Any]], as_json: bool = False) -> list[Path]:
    paths = []
    for rank, value in enumerate(dumps):
        # no two ranks call at the same time
        later = [
            {**one, "time_created_ns": one["time_created_ns"] + rank}
            if isinstance(one, dict) and isinstance(one["time_created_ns"], int)
            else one
            for one in value["entries"]
        ]
        value = {**value, "entries": later}
        path = folder / (f"trace_{rank}.json" if as_json else f"nccl_trace_rank_{rank}")
        # with JSON, 0 stands for a time that is not known
        data = (
            json.dumps(value).replace("null", "0").encode() if as_json else pickle.dumps(value, 2)
        )
        path.write_bytes(data)
        paths.append(path)
    return paths


def seeds(folder: Path) -> list[Path]:
    """Write a rank's dump as a pickle and as JSON."""
    return [written(folder, of_job())[0], written(folder, of_job(), as_json=True)[0]]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_did_not_come_is_named(as_json, tmp_path):
    paths = written(tmp_path, of_job(), as_json)
    assert {format_of(path) for path in paths} == {"flight_recorder"}
    profile = opscope.load(paths)
    (fault,) = profile.collective_faults().rows(named=True)
    assert fault["fault"] == "not entered by all"
    assert (fault["group"], fault["members"], fault["collective"], fault["kind"]) == (
        "0",
        "0-2",
        3,
        "all_reduce",
    )
    assert (fault["entered"], fault["completed"], fault["missing_ranks"]) == (2, 0, "2")
    assert fault["waited"] is None  # when the dump was written is not in it
    last = {row["rank"]: row for row in profile.last_collectives().rows(named=True)}
    assert [last[rank]["collective"] for rank in range(3)] == [3, 3, 2]
    assert [last[rank]["waits_for"] for rank in range(3)] == ["2", "2", None]
    assert [last[rank]["behind"] for rank in range(3)] == [0, 0, 1]
    assert last[2]["ended"] is None
    assert last[2]["reason"] == "it completed; when is not recorded"
    assert last[0]["source"] == "/home/me/train.py:21"


def test_sizes_that_differ_are_told_by_rank(tmp_path):
    dumps = [dump(entry(1, size=64 if rank else 32, done=False), ranks=2) for rank in range(2)]
    (fault,) = opscope.load(written(tmp_path, dumps)).collective_faults().rows(named=True)
    assert fault["fault"] == "sizes differ"
    assert fault["who"] == "128 bytes: 0; 256 bytes: 1"


def test_a_job_that_does_not_hang_has_no_fault(tmp_path):
    profile = opscope.load(written(tmp_path, [dump(entry(1), entry(2)) for _ in range(3)]))
    assert profile.collective_faults().is_empty()


def test_numbers_match_collectives_where_a_buffer_was_overwritten(tmp_path):
    dumps = [dump(entry(2), entry(3)), dump(entry(1), entry(2), entry(3)), dump(entry(3))]
    profile = opscope.load(written(tmp_path, dumps))
    assert profile.collective_faults().is_empty()
    assert profile.last_collectives()["collective"].to_list() == [3, 3, 3]
    assert "overwritten" in " ".join(profile.trace["notes"]["what"].to_list())


def test_gloo_says_what_is_done_by_what_it_retired(tmp_path):
    gloo = {"profiling_name": "gloo:all_reduce", "state": "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None}  # fmt: skip
    dumps = [
        dump(entry(1, **gloo), *([entry(2, done=False, **gloo)] if rank < 2 else []))
        for rank in range(3)
    ]
    for value in dumps:  # gloo's groups have no ranks
        value["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    (fault,) = opscope.load(written(tmp_path, dumps)).collective_faults().rows(named=True)
    assert (fault["collective"], fault["entered"], fault["missing_ranks"]) == (2, 2, "2")


def test_what_timed_out_is_retired_and_not_complete(tmp_path):
    dumps = [dump(entry(1, done=False, retired=True), ranks=1)]
    profile = opscope.load(written(tmp_path, dumps)[0])
    assert '"completed": false' in profile.trace["ranges"]["attrs"][0]


def test_messages_between_two_ranks_are_no_collectives(tmp_path):
    send = entry(1, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=1, done=False)
    faults = opscope.load(written(tmp_path, [dump(send), dump(entry(1))])).collective_faults()
    assert faults["fault"].drop_nulls().is_empty()


def test_a_file_that_does_not_end_in_its_rank_says_so(tmp_path):
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps(dump(entry(1)), 2))
    trace = opscope.load(path).trace
    assert trace["processes"]["rank"].to_list() == [None]
    assert any("the rank is not known" in what for what in trace["notes"]["what"])


def test_entries_that_cannot_be_read_are_counted(tmp_path):
    odd = [entry(1, profiling_name=5), entry(2, time_created_ns="x"), 7]
    (path,) = written(
        tmp_path, [dump(entry(3, input_sizes=[["a"]], frames=[{"line": 1}], thread_id=None), *odd)]
    )  # type: ignore[arg-type]
    trace = opscope.load(path).trace
    assert len(trace["ranges"]) == 1
    assert (
        dict(trace["notes"].select("what", "how_many").rows())[
            "entries that cannot be read, left out"
        ]
        == 3
    )


@pytest.mark.parametrize(
    "value", [{"pg_config": {}, "entries": []}, {"pg_config": {}, "entries": [5]}, {"pg_status": 1}]
)
def test_a_dump_in_which_nothing_can_be_read_is_refused(value, tmp_path):
    path = tmp_path / "trace_0"
    path.write_bytes(pickle.dumps(value, 2))
    with pytest.raises(BadInput, match=r"trace_0: "):
        opscope.load(path)


def test_a_dump_that_names_code_is_refused(tmp_path):
    path = tmp_path / "trace_0"
    path.write_bytes(pickle.dumps({"pg_config": {}, "entries": [print]}, 2))
    with pytest.raises(BadInput, match="names code to run"):
        opscope.load(path)
