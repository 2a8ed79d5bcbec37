"""Databases of torch_npu's profiler and of msprof: made in the layout that torch_npu 2.14 writes.

``TableColumnsManager`` of torch_npu gives columns and types; times of ``PYTORCH_API`` are texts there. What a step
computed and communicated is counted as torch_npu's ``TraceStepTimeDbParser`` does, apart from opscope.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of

FORMAT = "Ascend's databases"
T = 1_764_450_000_000_000_000
PID, MAIN, QUEUE = 4000, 4000, 4077
OP, TASK_QUEUE, PYTHON, MSTX = 50001, 50002, 50003, 50004
LAUNCH = 10000
TABLES = {
    "STRING_IDS": "id INTEGER, value TEXT",
    "PYTORCH_API": "startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,"
    " sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,"
    " type INTEGER",
    "CONNECTION_IDS": "id INTEGER, connectionId INTEGER",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,"
    " globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER, blockDim INTEGER, mixBlockDim INTEGER, taskType INTEGER,"
    " opType INTEGER, inputShapes INTEGER",
    "COMMUNICATION_OP": "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER,"
    " opId INTEGER, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC, opType INTEGER",
    "MEMCPY_INFO": "globalTaskId INTEGER, size NUMERIC, memcpyOperation INTEGER",
    "ENUM_MEMCPY_OPERATION": "id INTEGER, name TEXT",
    "OP_MEMORY": "name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, activeReleaseTime INTEGER,"
    " duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER,"
    " allocationTotalActive INTEGER, releaseTotalAllocated INTEGER, releaseTotalReserved INTEGER,"
    " releaseTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER",
    "RANK_DEVICE_MAP": "rankId INTEGER, deviceId INTEGER",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "NPU_INFO": "id INTEGER, name TEXT",
}


class Made:
    """A database as it is being written."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
        self._numbers: dict[str, int] = {}

    def text(self, value: str) -> int:
        number = self._numbers.setdefault(value, 1 << 28 | len(self._numbers))
        if (
            number == (1 << 28 | (len(self._numbers) - 1))
            and (number, value) not in self.rows["STRING_IDS"]
        ):
            self.rows["STRING_IDS"].append((number, value))
        return number

    def api(
        self, kind: int, name: str, start: int, end: int, thread: int = MAIN, connection: int | None = None,
        seq: int = -1, shapes: str = "", dtypes: str = "",
    ) -> None:  # fmt: skip
        times = (
            str(T + start),
            str(T + end),
            PID << 32 | thread,
            connection,
            self.text(name),
            seq,
            0,
        )
        texts = (self.text(dtypes) if dtypes else None, self.text(shapes) if shapes else None)
        self.rows["PYTORCH_API"].append((*times, *texts, None, kind))

    def launch(self, start: int, end: int, connection: int, thread: int = QUEUE) -> None:
        row = (T + start, T + end, LAUNCH, PID << 32 | thread, connection, self.text("launch"))
        self.rows["CANN_API"].append(row)

    def task(self, kind: str, start: int, end: int, connection: int, stream: int = 2) -> int:
        number = len(self.rows["TASK"])
        row = (
            T + start,
            T + end,
            0,
            connection,
            number,
            PID,
            self.text(kind),
            0,
            stream,
            number,
            -1,
        )
        self.rows["TASK"].append(row)
        return number

    def kernel(self, name: str, start: int, end: int, connection: int) -> None:
        number = self.task("KERNEL_AICORE", start, end, connection)
        row = (self.text(name), number, 24, 0, self.text("AI_CORE"), self.text("MatMulV2"), None)
        self.rows["COMPUTE_TASK_INFO"].append(row)

    def write(self, path: Path, without: Iterable[str] = ()) -> Path:
        with closing(sqlite3.connect(path)) as database:
            for table, columns in TABLES.items():
                if table in without:
                    continue
                database.execute(f"CREATE TABLE {table} ({columns})")
                for row in self.rows[table]:
                    database.execute(
                        f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row
                    )
            database.commit()
        return path


def made() -> Made:
    """Two steps of 100 us: a product that the task queue launches on another thread, a collective, a wait, a copy."""
    all_of = Made()
    all_of.rows["RANK_DEVICE_MAP"].append((3, 0))
    all_of.rows["HOST_INFO"].append(("77", "node-1"))
    all_of.rows["NPU_INFO"].append((0, "Ascend910B3"))
    all_of.rows["ENUM_MEMCPY_OPERATION"].append((1, "host to device"))
    for step in range(2):
        t = 100_000 * step
        own, queue = 10 * step, 500 + step
        all_of.api(OP, f"ProfilerStep#{step}", t, t + 90_000)
        all_of.api(OP, "aten::mm", t + 1_000, t + 9_000, connection=step, seq=step, shapes="32,64;64,128",
                   dtypes="float;float")  # fmt: skip
        all_of.api(TASK_QUEUE, "Enqueue@aclnnMm", t + 2_000, t + 3_000, connection=queue)
        all_of.api(
            TASK_QUEUE, "Dequeue@aclnnMm", t + 11_000, t + 19_000, QUEUE, connection=queue + 50
        )
        all_of.rows["CONNECTION_IDS"] += [
            (step, own + 1),
            (queue, 7 + step),
            (queue + 50, 7 + step),
        ]
        all_of.launch(t + 12_000, t + 13_000, own + 1)
        all_of.launch(t + 20_000, t + 21_000, own + 2, MAIN)
        all_of.kernel("aclnnMm_MatMulV2", t + 30_000, t + 50_000, own + 1)
        all_of.task("EVENT_WAIT_SQE", t + 51_000, t + 55_000, own + 3)
        all_of.task("SDMA", t + 41_000, t + 59_000, own + 2, stream=9)
        name = all_of.text(f"hcom_allReduce__586_{step}_1")
        all_of.rows["COMMUNICATION_OP"].append(
            (name, T + t + 40_000, T + t + 60_000, own + 2, None, step, 0, 0, 4, None, 1024, None)
        )
        copied = all_of.task("MEMCPY_ASYNC", t + 61_000, t + 62_000, own + 4)
        all_of.rows["MEMCPY_INFO"].append((copied, 4096, 1))
    all_of.rows["OP_MEMORY"].append(
        (all_of.text("aten::mm"), 16_384, T + 1_500, T + 99_000, None, 97_500, None, 16_384, 2 << 20, 0, 0, 2 << 20, 0, 1, 0)
    )  # fmt: skip
    all_of.api(PYTHON, "train.py(12): step", 500, 195_000)
    all_of.api(MSTX, "my part", 700, 90_500)
    return all_of


def seeds(folder: Path) -> list[Path]:
    """Write a database of torch_npu, and one of msprof, which has no ops of PyTorch."""
    return [
        made().write(folder / "ascend_pytorch_profiler_3.db"),
        made().write(folder / "msprof_20261130000000.db", ("PYTORCH_API", "CONNECTION_IDS")),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return seeds(tmp_path)[0]


def test_a_kernel_belongs_to_the_op_that_put_it_into_the_task_queue(path):
    assert format_of(path) == "ascend_db"
    profile = opscope.load(path)
    ops = profile.op_totals().select("op", "kernels", "device_time").rows()
    assert ("aten::mm", 2, 40_000) in ops
    kernels = profile.kernels()
    products = kernels.filter(kernels["name"].cast(str) == "aclnnMm_MatMulV2")
    assert products["step"].to_list() == [0, 1]
    flops = profile.op_totals().filter(profile.op_totals()["op"].cast(str) == "aten::mm")["flops"]
    assert flops.to_list() == [2 * 2 * 32 * 64 * 128]


def test_computing_and_communication_are_those_of_ascends_own_step_trace(path):
    with closing(sqlite3.connect(path)) as database:
        computed = database.execute(
            "SELECT sum(endNs - startNs) FROM TASK JOIN COMPUTE_TASK_INFO USING (globalTaskId)"
        ).fetchone()[0]  # the tasks of this file do not overlap
        talked = database.execute("SELECT sum(endNs - startNs) FROM COMMUNICATION_OP").fetchone()[0]
    (row,) = opscope.load(path).communication().rows(named=True)
    assert (
        (row["computation_time"], row["communication_time"])
        == (computed, talked)
        == (40_000, 40_000)
    )
    assert row["overlap_time"] == 2 * 10_000


def length(spans: list[tuple[int, int]]) -> int:
    """The time in which at least one of the spans is open."""
    total, last = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, last))
        last = max(last, end)
    return total


def steps_of_ascend(path: Path) -> list[tuple[str, int, int]]:
    """(step, computing, communication) in ns, by the rules of ``StepInfoDbParser`` and ``TraceStepTimeDbParser``.

    A step's tasks are those that CANN launched within it, whenever they ran; its collectives are those that began
    between the first and the last of these tasks, or before the step ended on the host.
    """
    rows = []
    with closing(sqlite3.connect(path)) as database:
        ask = database.execute
        steps = ask(
            "SELECT value, CAST(startNs AS INTEGER), CAST(endNs AS INTEGER) FROM PYTORCH_API"
            " JOIN STRING_IDS ON id = name WHERE value LIKE 'ProfilerStep#%' ORDER BY 2"
        )
        for name, begin, end in steps.fetchall():
            tasks = ask(
                "SELECT t.startNs, t.endNs, globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO) FROM TASK t"
                " JOIN CANN_API a USING (connectionId) WHERE a.startNs >= ? AND a.endNs <= ? AND a.type = 10000",
                (begin, end),
            ).fetchall()
            since, until = min(t[0] for t in tasks), max(end, *(t[1] for t in tasks))
            talked = ask(
                "SELECT startNs, endNs FROM COMMUNICATION_OP WHERE startNs >= ? AND startNs < ?",
                (since, until),
            ).fetchall()
            computed = [(t[0], t[1]) for t in tasks if t[2]]
            rows.append((name.partition("#")[2], length(computed), length(talked)))
    return rows


@pytest.mark.parametrize("late", [0, 70_000])
def test_each_step_s_computing_and_communication_are_ascend_s(tmp_path, late):
    """Also where the device runs behind, and a step's tasks run within the next step of the host."""
    all_of = made()
    for table, first in (("TASK", 0), ("COMMUNICATION_OP", 1)):
        all_of.rows[table] = [
            (*row[:first], row[first] + late, row[first + 1] + late, *row[first + 2 :])
            for row in all_of.rows[table]
        ]
    all_of.kernel("aclnnAdd", late + 135_000, late + 155_000, 11)  # beside the product of step 1
    path = all_of.write(tmp_path / "ascend_pytorch_profiler_3.db")
    kernels = opscope.load(path).kernels().with_columns(end=pl.col("start") + pl.col("duration"))
    ours = []
    for step in (0, 1):
        mine = kernels.filter(pl.col("step") == step)
        collective = mine["name"].cast(str).str.starts_with("hcom_")
        spans = [
            mine.filter(is_one).select("start", "end").rows()
            for is_one in (~collective, collective)
        ]
        ours.append((str(step), *map(length, spans)))
    assert ours == steps_of_ascend(path) == [("0", 20_000, 20_000), ("1", 25_000, 20_000)]


def test_waits_copies_memory_and_who_ran_are_read(path):
    trace = opscope.load(path).trace
    assert trace["syncs"].select("start", "end", "kind").rows() == [
        (T + 51_000, T + 55_000, "event_wait_sqe"),
        (T + 151_000, T + 155_000, "event_wait_sqe"),
    ]
    assert trace["memops"].select("kind", "bytes").rows() == [("HtoD", 4096), ("HtoD", 4096)]
    assert trace["processes"].select("pid", "host", "rank", "framework").rows() == [
        (PID, "node-1", 3, "torch")
    ]
    assert trace["devices"]["name"].to_list() == ["Ascend910B3"]
    changes = trace["allocations"].select("time", "bytes", "total", "reserved").rows()
    assert changes == [(T + 1_500, 16_384, 16_384, 2 << 20), (T + 99_000, -16_384, 0, 2 << 20)]
    texts = set(trace["ranges"]["text"].cast(str))
    assert {"step 0", "step 1", "my part", "train.py(12): step"} <= texts


def test_times_that_are_integers_are_read_as_those_that_are_texts(path, tmp_path, monkeypatch):
    monkeypatch.setitem(TABLES, "PYTORCH_API", TABLES["PYTORCH_API"].replace("TEXT", "INTEGER"))
    other = made().write(tmp_path / "other.db")
    one, two = (opscope.load(file).trace["ranges"] for file in (path, other))
    assert len(one) == 6
    assert one.equals(two)


def test_a_database_of_msprof_has_the_device_and_no_framework(tmp_path):
    profile = opscope.load(seeds(tmp_path)[1])
    assert profile.summary()["kernels"].to_list() == [4]
    assert profile.trace["processes"]["framework"].to_list() == [None]


def test_a_database_of_level_0_says_that_it_has_no_tasks(tmp_path):
    lacking = ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "MEMCPY_INFO", "CANN_API")
    profile = opscope.load(made().write(tmp_path / "a.db", lacking))
    assert any("no tasks of a device" in what for what in profile.trace["notes"]["what"])
    assert "aten::mm" in str(profile.op_totals()["op"].to_list())


def test_a_database_without_strings_is_none(tmp_path):
    with pytest.raises(BadInput, match="its tables"):
        opscope.load(made().write(tmp_path / "a.db", ("STRING_IDS",)))


def test_a_folder_of_torch_npu_is_its_database_and_several_are_the_ranks_of_a_job(tmp_path):
    for rank in range(2):
        inside = (
            tmp_path / f"node-1_{PID + rank}_20261130000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        )
        inside.mkdir(parents=True)
        of_rank = made()
        of_rank.rows["RANK_DEVICE_MAP"] = [(rank, 0)]
        of_rank.write(inside / f"ascend_pytorch_profiler_{rank}.db")
        (inside / "trace_view.json").write_text("[]")
        (inside / "step_trace_time.csv").write_text("Step,Computing\n0,20\n")
    for folder in (tmp_path / f"node-1_{PID}_20261130000000000_ascend_pt", inside):
        assert ("aten::mm", 2) in opscope.load(folder).op_totals().select("op", "kernels").rows()
    assert opscope.load(tmp_path).trace["processes"]["rank"].to_list() == [0, 1]


def test_rows_that_stand_twice_count_once(tmp_path):
    def counts(copies: int) -> list[int]:
        all_of = made()
        all_of.rows = {name: rows * copies for name, rows in all_of.rows.items()}
        trace = opscope.load(all_of.write(tmp_path / f"{copies}.db")).trace
        tables = ("kernels", "memops", "syncs", "calls", "ranges")
        return [len(trace[name]) for name in tables]

    assert counts(1) == counts(2)
