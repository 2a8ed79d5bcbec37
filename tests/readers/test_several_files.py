"""Several files of one job: whose devices, which group, which host; what is broken among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opscope
from opscope.readers import BadInput, NoneReadable

US = 1000


def event(cat, name, ts, dur, pid, tid, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


@pytest.fixture
def rank(tmp_path):
    """``rank(0, (start, duration, {fields}) …)``: a file with an all-reduce for each, in µs."""

    def write(number: int, *collectives, pid: int = 1000, name: str | None = None, **head) -> Path:
        events = [event("cpu_op", "aten::add", 1, 2, pid + number, 1)]
        for place, (start, duration, fields) in enumerate(collectives):
            told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8,
                    "Out msg nelems": 8, **fields}  # fmt: skip
            events += [
                event("cpu_op", "record_param_comms", start - 5, 4, pid + number, 1, **told),
                event("cuda_runtime", "cudaLaunchKernel", start - 4, 2, pid + number, 1,
                      correlation=place + 1),
                event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
                      start, duration, 0, 7, device=0, stream=7, correlation=place + 1, **told),
            ]  # fmt: skip
        path = tmp_path / (name or f"rank{number}.json")
        info = {"rank": number, "world_size": 4, **head.pop("distributedInfo", {})}
        path.write_text(
            json.dumps({"schemaVersion": 1, "distributedInfo": info, **head, "traceEvents": events})
        )
        return path

    return write


def waiting(files) -> dict[int, int]:
    frame = opscope.load(files).communication()
    return dict(frame.select("rank", "waiting_time").rows())


GROUP = {"Process Group Name": "1", "Group size": 2}
#: What newer traces identify a collective by; a cut list of ranks still tells groups apart.
TELLING = {
    "ranks": [{"Process Group Ranks": f"[{2 * pair}, {2 * pair + 1}]"} for pair in (0, 1)],
    "cut ranks": [{"Process Group Ranks": f"[{pair}, ..., {pair + 7}]"} for pair in (0, 8)],
    "Comms Id": [{"Comms Id": str(18446744073709551000 + pair)} for pair in (0, 1)],
    "Comms Id, a number": [{"Comms Id": 77 + pair} for pair in (0, 1)],
}


@pytest.mark.parametrize("how", TELLING)
def test_sibling_groups_of_one_name_do_not_wait_for_each_other(rank, how):
    """Ranks 0 and 1 take 11 and 10 µs, their siblings 52 and 50: a wait of 1 and of 2, not of 42."""
    files = [
        rank(number, (100, took, {**GROUP, **TELLING[how][number // 2]}))
        for number, took in enumerate((11, 10, 52, 50))
    ]
    assert waiting(files) == {0: 1 * US, 1: 0, 2: 2 * US, 3: 0}


def test_members_are_taken_from_the_head_where_the_records_do_not_tell(rank):
    def head(pair):
        return {"pg_config": [{"pg_name": "1", "ranks": [2 * pair, 2 * pair + 1]}]}

    files = [
        rank(number, (100, took, GROUP), distributedInfo=head(number // 2))
        for number, took in enumerate((11, 10, 52, 50))
    ]
    assert waiting(files) == {0: 1 * US, 1: 0, 2: 2 * US, 3: 0}
    assert set(opscope.load(files).collectives()["members"]) == {"0-1", "2-3"}


def test_a_group_that_more_processes_are_in_than_it_has_ranks_is_several(rank):
    """Nothing tells which: what a rank waited is not known, and no definite number is made up."""
    files = [rank(number, (100, 10 * number + 10, GROUP)) for number in range(4)]
    assert waiting(files) == dict.fromkeys(range(4))
    assert waiting(files[:2]) == {0: 0, 1: 10 * US}


def test_the_sequence_number_tells_which_collective_it_is(rank):
    """Rank 1's recording begins with the third; by count its first would be rank 0's first."""
    ours = [(100 * n, 10 + n, {**GROUP, "Seq": n}) for n in (1, 2, 3)]
    theirs = [(300, 20, {**GROUP, "Seq": 3})]
    assert waiting([rank(0, *ours), rank(1, *theirs)]) == {0: 0, 1: 7 * US}


def test_ops_of_collectives_are_one_in_the_totals_whatever_their_numbers(rank):
    found = [(100 * n, 10, {**GROUP, "Seq": n, "Comms Id": n}) for n in range(1, 9)]
    totals = opscope.load(rank(0, *found)).op_totals()
    assert [row["calls"] for row in totals.to_dicts() if row["op"] == "record_param_comms"] == [8]


# ------------------------------------------------------------------------------ devices and hosts


def test_every_machine_has_a_device_0_of_its_own(rank):
    """Four ranks of 10 µs at once are 40 µs of busy devices."""
    files = [rank(number, (100, 10, GROUP)) for number in range(4)]
    row = opscope.load(files).summary().row(0, named=True)
    assert (row["devices"], row["device_busy"]) == (4, 40 * US)


@pytest.mark.parametrize("where", ["file", "traceName", "head"])
def test_a_host_is_taken_from_the_trace_or_the_name_of_its_file(rank, where):
    """Two processes on one host use the same device 0; a third is on another."""
    files = []
    for number, host in enumerate(("node-a_1", "node-a_1", "node-b")):
        made = f"{host}_{1000 + number}.1716412345678901234.pt.trace.json"
        told = {"name": made} if where == "file" else {}
        if where == "traceName":
            told = {"traceName": f"/tmp/x/{made}"}
        if where == "head":
            told = {"host_name": host}
        files.append(rank(number, (100, 10, GROUP), **told))
    profile = opscope.load(files)
    assert profile.trace["processes"]["host"].to_list() == ["node-a_1", "node-a_1", "node-b"]
    row = profile.summary().row(0, named=True)
    assert (row["devices"], row["device_busy"]) == (2, 20 * US)
    assert profile.clocks()["host"].to_list() == ["node-a_1", "node-b"]


def test_a_name_that_does_not_fit_the_processes_tells_no_host(rank):
    name = "a_9.1716412345678901234.pt.trace.json"
    trace = opscope.load(rank(0, (100, 10, GROUP), name=name)).trace
    assert trace["processes"]["host"].to_list() == [None]


def test_a_device_that_two_processes_share_is_one_by_its_uuid(trace_of):
    from opscope.profile import Profile

    ran = {"start": 0, "end": 10, "stream": 7, "device": 0}
    uuids = ["GPU-1", "GPU-1", "GPU-2"]
    profile = Profile(
        trace_of(
            processes=[{"process": n, "host": "h", "clock_domain": 0} for n in range(3)],
            devices=[{"process": n, "device": 0, "uuid": uuids[n]} for n in range(3)],
            kernels=[{**ran, "process": n, "name": "k"} for n in range(3)],
        )
    )
    row = profile.summary().row(0, named=True)
    assert (row["devices"], row["device_busy"]) == (2, 20)


# ------------------------------------------------------------------------------------- files


@pytest.fixture
def job(rank, tmp_path):
    """Three files, the second of them cut."""
    files = [rank(number, (100, 10, GROUP)) for number in range(3)]
    files[1].write_bytes(files[1].read_bytes()[:-50])
    return [str(one) for one in files]


def test_one_broken_file_is_named_and_the_others_go_on(job, capsys, monkeypatch):
    from opscope.cli import start as application

    def run(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *args])
        return application.run(), *capsys.readouterr()

    status, out, err = run("report", *job)
    assert status == 0
    assert "\n2 of 3 files; " in out
    assert f"left out: {job[1]}: truncated" in err
    assert "2 of 3 files were read" in err
    status, out, _ = run("report", *job, "--json", "--full")
    report = json.loads(out)
    assert (status, report["summary"]["files"], report["summary"]["files_read"]) == (0, 3, 2)
    assert any(job[1] in row["what"] for row in report["notes"])
    for command in ("report", "kernels", "ops", "doctor"):
        status, out, err = run(command, *job, "--strict")
        assert (status, out) == (2, "")
        assert job[1] in err
    assert run("report", job[0] + "no", job[1] + "no")[0] == 2  # none is readable
    # where no other file is there to compare it with, what is in the file is read, and what lacks is said
    status, out, _ = run("report", job[1], job[1] + "no")
    assert status == 0
    assert (
        "warning: rank1.json is cut off (the JSON ends inside an event): what follows is missing"
        in out
    )


def test_how_many_files_were_read_is_kept_with_the_profile(job, tmp_path):
    opscope.load(job).save(tmp_path / "job.opscope")
    row = opscope.load(tmp_path / "job.opscope").summary().row(0, named=True)
    assert (row["files"], row["files_read"]) == (3, 2)


def test_a_list_of_which_none_can_be_read_is_an_error(job, tmp_path):
    (tmp_path / "no").write_text("no trace")
    (tmp_path / "nothing").write_text("")
    with pytest.raises(NoneReadable, match="none of 2 files") as raised:
        opscope.load([tmp_path / "nothing", tmp_path / "no"])
    assert len(raised.value.failed) == 2
    with pytest.raises(BadInput, match="truncated"):
        opscope.load(job, strict=True)


def test_a_folder_with_a_broken_file_goes_on_too(job, tmp_path):
    row = opscope.load(tmp_path).summary().row(0, named=True)
    assert (row["files"], row["files_read"]) == (3, 2)


def test_the_same_file_twice_is_refused(rank, tmp_path):
    file = rank(0, (100, 10, GROUP))
    (tmp_path / "link.json").symlink_to(file)
    (tmp_path / "copy.json").write_bytes(file.read_bytes())
    for other in (file, tmp_path / "." / file.name, tmp_path / "link.json"):
        with pytest.raises(BadInput, match="given twice"):
            opscope.load([file, other])
    with pytest.raises(BadInput, match="has the same content as"):
        opscope.load([file, tmp_path / "copy.json"])
    opscope.load([file, rank(1, (100, 10, GROUP))])
