"""Which files are of one job, one process, one session: what contradicts is refused, what is shown is joined."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

import opscope
from opscope.core.analysis.summary.summary_table import summary_facts, summary_table
from opscope.readers import BadInput
from opscope.scale import packed
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests.command import opscope as opscope_command

#: A day of 2026 (ns); times in the files are µs since then.
DAY = 1_780_000_000_000_000_000
HOUR = 3_600_000_000


def rows(
    pid: int, begin: float, calls: int = 4, device: int = 0, name: str = "aten::mm", first: int = 1
):
    """Ops of 60 µs, each with a launch and a kernel of 90 µs, one every 100 µs, in a step of its own."""
    events = []
    for number in range(calls):
        at = begin + 100 * number
        own = {"pid": pid, "tid": pid, "ph": "X"}
        events += [
            {**own, "cat": "user_annotation", "name": f"ProfilerStep#{first + number}", "ts": at, "dur": 95},
            {**own, "cat": "cpu_op", "name": name, "ts": at + 1, "dur": 60, "args": {}},
            {**own, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 5,
             "args": {"correlation": 100 + number}},
            {"ph": "X", "cat": "kernel", "name": f"kernel_of_{name[6:]}", "pid": device, "tid": 7, "ts": at + 8,
             "dur": 90, "args": {"device": device, "stream": 7, "correlation": 100 + number}},
        ]  # fmt: skip
    return events


@pytest.fixture
def trace(tmp_path):
    def write(name, events, base=DAY, **info):
        head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        }
        if base:
            head["baseTimeNanoseconds"] = base
        if info:
            head["distributedInfo"] = {"backend": "nccl", **info}
        path = tmp_path / name
        path.write_text(json.dumps({**head, "traceEvents": events}))
        return str(path)

    return write


def summary(*files, **options):
    return opscope.load(list(files), **options).summary().row(0, named=True)


def refused(*files) -> str:
    with pytest.raises(BadInput) as error:
        opscope.load(list(files))
    return str(error.value)


def warnings(*files) -> list[str]:
    notes = opscope.load(list(files)).notes().to_dicts()
    return [each["what"] for each in notes if each["severity"] == "warning"]


def test_two_cycles_of_one_rank_are_windows_of_one_process(trace):
    first = trace("a.json", rows(42, 0), rank=0, world_size=2)
    second = trace("b.json", rows(42, 500_000, first=9), rank=0, world_size=2)
    row = summary(first, second)
    assert (row["processes"], row["devices"], row["kernels"]) == (1, 1, 8)
    assert row["window_time"] == 2 * 398_000
    assert row["device_busy"] == 8 * 90_000
    assert row["attributed_share"] == 1
    assert opscope.load([second, first]).op_totals()["calls"].sum() == 8


@pytest.mark.parametrize("base", [0, DAY])
def test_two_cycles_without_a_rank_are_windows_too(trace, base):
    files = [
        trace(f"{n}.json", rows(42, n * 500_000 + 1, first=9 * n), base=base) for n in range(3)
    ]
    assert summary(*files)["processes"] == 1


def test_two_cycles_of_two_ranks_far_apart_are_one_job(trace):
    files = [
        trace(f"{cycle}{rank}.json", rows(42 + rank, cycle * 5 * HOUR, first=9 * cycle), rank=rank, world_size=2)
        for cycle in (0, 1) for rank in (0, 1)
    ]  # fmt: skip
    assert summary(*files)["processes"] == 2


def test_one_process_id_at_one_time_is_that_of_two_containers(trace):
    files = [trace(f"{n}.json", rows(1, 30 * n)) for n in range(2)]
    assert summary(*files)["processes"] == 2


def test_the_events_of_a_rank_given_twice_are_refused(trace, tmp_path):
    events = rows(42, 0)
    first = trace("a.json", events, rank=0, world_size=2)
    packed = tmp_path / "copy.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    assert first in refused(first, str(packed))
    random.Random(1).shuffle(events)
    shuffled = trace("b.json", events, rank=0, world_size=2)
    said = refused(first, shuffled)
    assert first in said
    assert "same events" in said
    with pytest.raises(BadInput, match="same events"):
        opscope.load([first, shuffled], unrelated=True)
    assert "same events" in refused(first, trace("c.json", events, rank=1, world_size=2))


def _of(rank: int, world: int) -> dict[str, int]:
    return {"rank": rank, "world_size": world}


CONFLICTS = {
    "world sizes": (_of(0, 128), _of(1, 64), 7, 30, "64 ranks"),
    "two processes of one rank": (_of(0, 2), _of(0, 2), 7, 30, "has rank 0"),
    "a rank of another day": (_of(0, 2), _of(1, 2), 7, 24 * HOUR, "24.0 hours"),
    "the same id another week": (_of(0, 2), _of(0, 2), 42, 233 * HOUR, "9.7 days"),
    "nothing in common": ({}, {}, 7, 30 * HOUR, "30.0 hours"),
    "one rank at one time": (_of(0, 2), _of(0, 2), 42, 30, "at the same time"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_contradiction_is_refused_with_both_files_and_the_way_round(name, trace, tmp_path):
    one, other, pid, begin, said = CONFLICTS[name]
    first, second = trace("a.json", rows(42, 0), **one), trace("b.json", rows(pid, begin), **other)
    what = refused(first, second)
    assert first in what
    assert second in what
    assert said in what
    assert "--unrelated" in what
    assert summary(first, second, unrelated=True)["kernels"] == 8
    parts = [str(tmp_path / write_partial(each, tmp_path)) for each in (first, second)]
    with pytest.raises(BadInput, match="--unrelated"):
        merge(parts)
    assert merge(parts, unrelated=True).summary()["kernels"].item() == 8


def test_commands_end_with_2_and_go_on_with_unrelated(trace, tmp_path):
    first = trace("a.json", rows(42, 0), rank=0, world_size=8)
    second = trace("b.json", rows(43, 9), rank=1, world_size=4)
    both = tmp_path / "both"
    both.mkdir()
    for each in (first, second):
        (both / each.rpartition("/")[2]).write_bytes(Path(each).read_bytes())
    parts = str(tmp_path / "parts")
    for command in (
        ["report", first, second],
        ["advise", first, second],
        ["diff", first, str(both)],
        ["partial", first, second, "-o", parts],
        ["merge", parts, "-o", str(tmp_path / "job.opscope")],
    ):
        done = opscope_command(*command)
        assert done.returncode == 2, command
        assert "world" in done.stderr or "ranks" in done.stderr
        done = opscope_command(*command, "--unrelated")
        assert done.returncode == 0, (command, done.stderr)
    assert opscope_command("diff", first, second).returncode == 0


def test_windows_of_one_process_are_not_merged_as_two(trace, tmp_path):
    files = [
        trace(f"{n}.json", rows(42, n * 500_000, first=9 * n), rank=0, world_size=2)
        for n in range(2)
    ]
    parts = [str(tmp_path / write_partial(each, tmp_path)) for each in files]
    with pytest.raises(BadInput, match="another window of a process"):
        merge(parts)


def test_files_of_which_nothing_shows_the_job_have_one_warning(trace):
    files = [trace(f"{name}.json", rows(42 + n, 9 * n), base=0) for n, name in enumerate("abc")]
    said = [what for what in warnings(*files) if "nothing shows" in what]
    assert len(said) == 1
    assert summary(*files)["kernels"] == 12


@pytest.mark.parametrize("info", [{}, {"rank": True}])
def test_files_of_one_job_have_none(trace, info):
    files = [
        trace(f"{n}.json", rows(42 + n, 9 * n), **({"rank": n, "world_size": 3} if info else {})) for n in range(3)
    ]  # fmt: skip
    assert not [what for what in warnings(*files) if "nothing shows" in what]
    assert summary(*files)["processes"] == 3


def test_a_rank_in_the_text_of_a_dictionary(trace, tmp_path):
    files = []
    for rank, world in ((0, 8), (1, 4)):
        path = trace(f"{rank}.json", rows(42 + rank, 9 * rank))
        head = json.loads(Path(path).read_text())
        head["distributedInfo"] = str(
            {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": []}
        )
        Path(path).write_text(json.dumps(head))
        files.append(path)
    assert "4 ranks" in refused(*files)


class TestRanksMergedInOneFile:
    def events(self, second: float, device: int = 1):
        return rows(42, 0) + rows(43, second, device=device, name="aten::conv2d")

    def test_an_id_that_two_processes_have_is_not_guessed(self, trace):
        profile = opscope.load(trace("a.json", self.events(30)))
        late = [event | ({"ts": event["ts"] + 9000} if event["cat"] == "kernel" else {}) for event in self.events(30)]  # fmt: skip
        profile = opscope.load(trace("b.json", late))
        assert profile.summary()["attributed_time"].item() == 0
        assert ("share a correlation id" in " ".join(profile.notes()["what"])) is True

    def test_ids_of_one_process_alone_show_whose_device_it_is(self, trace):
        late = self.events(30)
        for each in late:
            if each["cat"] == "kernel":
                each["ts"] += 9000
        more = rows(42, 20_000, calls=1) + rows(43, 20_050, calls=1, device=1, name="aten::conv2d")
        for each, number in zip((e for e in more if "correlation" in e.get("args", {})), (7, 7, 8, 8), strict=True):  # fmt: skip
            each["args"]["correlation"] = number
        times = opscope.load(trace("a.json", late + more)).op_totals()
        assert dict(times.select("op", "device_time").rows()) == {
            "aten::mm": 450_000,
            "aten::conv2d": 450_000,
        }

    def test_work_that_began_before_a_launch_is_not_its_own(self, trace):
        times = opscope.load(trace("a.json", self.events(30_000))).op_totals()
        assert dict(times.select("op", "device_time").rows()) == {
            "aten::mm": 360_000,
            "aten::conv2d": 360_000,
        }


def session(tmp_path, name: str, pid: int, begin: int):
    own = {"pid": pid, "tid": pid, "ph": "X"}
    events = [{**own, "cat": "Session", "dur": 200, "ts": begin, "name": "model_run", "args": {}}]
    for number in range(3):
        shape = [{"float": [2, 3]}]
        args = {"op_name": "Relu", "provider": "CPUExecutionProvider", "node_index": str(number),
                "input_type_shape": shape, "output_type_shape": shape}  # fmt: skip
        at = begin + 50 * number
        events.append(
            {
                **own,
                "cat": "Node",
                "dur": 40,
                "ts": at,
                "name": f"n{number}_kernel_time",
                "args": args,
            }
        )
    path = tmp_path / name
    path.write_text(json.dumps(events))
    return str(path)


def test_two_sessions_of_onnx_runtime_are_one_process(tmp_path):
    files = [
        session(tmp_path, "two_2026-11-28_12-57-52_206.json", 29504, 7),
        session(tmp_path, "two_2026-11-28_12-57-52_242.json", 29504, 9),
    ]
    profile = opscope.load(files)
    assert profile.summary()["processes"].item() == 1
    starts = profile.trace["ranges"]["start"]
    assert starts.max() - starts.min() == 36_000_000 + 2_000 + 100_000
    assert profile.op_totals()["calls"].sum() == 6
    assert not [what for what in profile.notes()["what"] if "clock" in what]


def test_sessions_of_two_processes_stay_two(tmp_path):
    files = [session(tmp_path, f"two_2026-11-28_12-57-52_{n}.json", n, n) for n in (206, 242)]
    assert summary(*files)["processes"] == 2


def test_a_partial_of_an_older_version_merges_with_a_warning(trace, tmp_path, monkeypatch):
    files = [trace(f"{n}.json", rows(42 + n, 9 * n), rank=n, world_size=2) for n in range(2)]
    whole = [str(tmp_path / write_partial(each, tmp_path)) for each in files]
    assert not [what for what in merge(whole).notes()["what"] if "older version" in what]
    write = packed.write

    def without(path, about, tables):
        write(path, {name: value for name, value in about.items() if name != "identity"}, tables)

    monkeypatch.setattr(packed, "write", without)
    older = [str(tmp_path / write_partial(each, tmp_path, force=True)) for each in files]
    notes = merge(older).notes()["what"].to_list()
    assert len([what for what in notes if "older version" in what]) == 1


def test_two_runs_on_one_machine_have_the_warning(trace):
    first = trace("node_42.1780000000000.pt.trace.json", rows(42, 0))
    second = trace("node_43.1780000000001.pt.trace.json", rows(43, 500_000))
    assert len([what for what in warnings(first, second) if "nothing shows" in what]) == 1


def gloo(pid: int, late: int) -> list[dict]:
    """Four calls of an all_reduce, each with the range of gloo's thread."""
    own = {"pid": pid, "ph": "X"}
    pairs = [
        (
            {**own, "cat": "cpu_op", "name": "c10d::allreduce_", "tid": pid, "ts": 1000 * number, "dur": 20,
             "args": {}},
            {**own, "cat": "user_annotation", "name": "gloo:all_reduce", "tid": 9, "ts": 1000 * number + 30,
             "dur": 100 + late * number, "args": {"Input Dims": [[32, 64]], "Input type": ["float"]}},
        )
        for number in range(1, 5)
    ]  # fmt: skip
    return [event for pair in pairs for event in pair]


def test_collectives_of_unrelated_files_are_never_one_collective(trace, tmp_path):
    """Their groups may have one name; what a rank of one job waits for is no rank of another."""
    group = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
    files = [
        trace(f"{rank}.json", gloo(70 + rank, 40 * rank), rank=rank, world_size=2, pg_config=group)
        for rank in range(2)
    ]
    assert opscope.load(files).communication()["waiting_time"].sum() > 0
    parts = tmp_path / "parts"
    for file in files:
        write_partial(file, parts)
    for profile in (opscope.load(files, unrelated=True), merge(parts, unrelated=True)):
        assert profile.communication()["waiting_time"].is_null().all()
        assert sorted(profile.collectives()["group"].cast(str)) == ["0 of file 1", "0 of file 2"]
        assert profile.late_causes().is_empty()
        assert profile.slowest_ranks().is_empty()


@pytest.mark.parametrize(
    ("hosts", "uuids", "numbers", "said"),
    [
        ((None, None), (None, None), (0, 0), "device 0 of no known host: counted as several"),
        (("a", "a"), (None, None), (0, 0), "device 0 of a: counted as one"),
        (("a", "b"), (None, None), (0, 0), None),
        ((None, None), ("GPU-1", "GPU-2"), (0, 0), None),
        ((None, None), (None, None), (0, 1), None),
    ],
)
def test_ranks_on_one_device_number_without_a_uuid_have_one_warning(
    tmp_path, hosts, uuids, numbers, said
):
    files = []
    for rank, (host, uuid, number) in enumerate(zip(hosts, uuids, numbers, strict=True)):
        device = {"id": number, "name": "NVIDIA H100 80GB HBM3"}
        head = {
            "schemaVersion": 1,
            "deviceProperties": [device if uuid is None else {**device, "uuid": uuid}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
            "baseTimeNanoseconds": DAY,
            "traceEvents": [
                {"ph": "X", "cat": "kernel", "name": "k", "pid": number, "tid": 7, "ts": 10 + rank + 50 * n,
                 "dur": 20, "args": {"device": number, "stream": 7, "correlation": n + 1}}
                for n in range(12)
            ],
        }  # fmt: skip
        path = tmp_path / f"{rank}.json"
        path.write_text(json.dumps(head | ({"hostname": host} if host else {})))
        files.append(str(path))
    told = [what for what in warnings(*files) if "without a UUID" in what]
    assert [said in what for what in told] == ([True] if said else [])


def test_a_rank_whose_clock_began_again_gives_no_wall_time_of_years(shared, tmp_path):
    """Each rank's own wall time is known; that of both, and how busy devices were in it, is not."""
    paths = []
    for rank in (0, 1):
        with gzip.open(shared / f"kineto/sampled_rank{rank}.json.gz") as file:
            document = json.load(file)
        events = document["traceEvents"]
        first = min(float(one["ts"]) for one in events if one.get("ph") == "X")
        for one in events if rank else ():
            if "ts" in one:
                one["ts"] = float(one["ts"]) - first
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    profile = opscope.load(paths)
    (line,) = (text for text in summary_facts(profile) if "2 processes" in text)
    assert "busy" not in line
    rows = [list(row.values()) for row in summary_table(profile).rows]
    assert [row[1] for row in rows if row[0] == "wall time"] == ["–"]
