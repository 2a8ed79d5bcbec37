"""Ranks read by executors: what is there is not made again, and a file that ends its workers is given up."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from multiprocessing import get_context
from pathlib import Path

import pytest

import opscope
from opscope.errors import BadInput, EngineError, UnknownDevice
from opscope.scale import worker
from opscope.scale.engines import opened, read_ranks
from opscope.scale.one_call import of_ranks
from opscope.scale.pool import ProcessPool
from tests.made_ranks import rank_files
from tests.scale import jobs, writers
from tests.scale.writers import reads


@pytest.fixture(scope="module")
def pool():
    with ProcessPool(2) as two:
        yield two


def test_processes_threads_and_none_give_the_same_tables(job, serial, pool, tmp_path):
    assert serial.summary()["files_read"].item() == len(job)
    wanted = jobs.digest(serial)
    assert (
        jobs.digest(opscope.load(job, executor=pool, parts=tmp_path / "pool", unrelated=True))
        == wanted
    )
    with ThreadPoolExecutor(3) as threads:
        assert jobs.digest(opscope.load(job, executor=threads, unrelated=True)) == wanted


def test_a_job_s_tables_are_those_of_one_load(tmp_path, pool):
    files = rank_files(tmp_path, 8, slow=3)
    one, many = opscope.load(files), opscope.load(files, executor=pool)
    for name in ("summary", "op_totals", "kernel_totals", "communication", "collectives"):
        assert getattr(one, name)().equals(getattr(many, name)()), name


def test_any_executor_works(job, serial, tmp_path):
    with ProcessPoolExecutor(1, get_context("spawn")) as one:
        assert jobs.digest(opscope.load(job, executor=one, unrelated=True)) == jobs.digest(serial)


def test_a_rerun_reads_only_what_is_missing(tmp_path, pool):
    files = rank_files(tmp_path, 6)
    parts = tmp_path / "parts"
    first = read_ranks(files[:4], parts, pool, write=writers.counted)
    assert (first.read, first.kept) == (4, 0)
    (parts / first.names[str(files[1])]).unlink()
    files[0].write_text(files[0].read_text() + "\n")  # another version of the file
    again = read_ranks(files, parts, pool, write=writers.counted)
    assert (again.read, again.kept) == (4, 2)
    assert reads(parts) == sorted(
        [
            "rank0.json",
            "rank1.json",
            "rank2.json",
            "rank3.json",
            "rank0.json",
            "rank1.json",
            "rank4.json",
            "rank5.json",
        ]
    )
    assert list(again.names) == [str(one) for one in files]


def test_a_worker_that_dies_once_costs_nothing_but_its_task(tmp_path, job, serial):
    files = rank_files(tmp_path, 6)
    for number in (1, 4):
        Path(f"{files[number]}.deaths").write_text("1")
    parts = tmp_path / "parts"
    with ProcessPool(2) as pool:
        killed = of_ranks(files, pool, parts, workers=2, write=writers.dying)
    assert reads(parts) == [one.name for one in files]
    assert jobs.digest(killed) == jobs.digest(opscope.load(files, parts=tmp_path / "whole"))


def test_a_file_that_ends_its_worker_twice_is_given_up_and_named(tmp_path):
    files = rank_files(tmp_path, 8)
    Path(f"{files[3]}.deaths").write_text("2")
    parts = tmp_path / "parts"
    with ProcessPool(2) as pool:
        profile = of_ranks(files, pool, parts, workers=2, write=writers.dying)
    assert reads(parts) == [one.name for one in files if one != files[3]]
    assert Path(f"{files[3]}.deaths").read_text() == "0"  # it had its two tries, and no third one
    which = profile.manifest
    assert (which["expected"], which["read"], which["missing"]) == (8, 7, [3])
    [failed] = which["failed"]
    assert failed == {"path": str(files[3]), "what": "its worker died each time that it was read"}
    # the note in the folder tells opscope merge the same, and a later reading removes it
    assert [one["path"] for one in opscope_merge(parts).manifest["failed"]] == [str(files[3])]
    assert read_ranks(files, parts).read == 1
    assert opscope_merge(parts).manifest["failed"] == []


def opscope_merge(parts):
    from opscope.scale.merge import merge

    return merge(parts)


def test_a_truncated_file_is_named_and_the_others_are_read(tmp_path, pool):
    files = rank_files(tmp_path, 4)
    packed = gzip.compress(files[2].read_bytes())
    files[2] = files[2].with_suffix(".json.gz")
    files[2].write_bytes(packed[: len(packed) // 2])
    profile = opscope.load(files, executor=pool, parts=tmp_path / "parts")
    [failed] = profile.manifest["failed"]
    assert failed["path"] == str(files[2])
    assert profile.summary()["files_read"].item() == 3
    with pytest.raises(BadInput, match=r"rank2\.json\.gz"):
        opscope.load(files, executor=pool, strict=True)
    with pytest.raises(BadInput, match=r"rank2\.json\.gz"):
        opscope.load(files[2:3], executor=pool)


def test_a_file_that_is_not_there_and_one_given_twice_are_told(tmp_path, pool):
    files = rank_files(tmp_path, 2)
    profile = opscope.load([*files, tmp_path / "gone.json"], executor=pool)
    assert [one["path"] for one in profile.manifest["failed"]] == [str(tmp_path / "gone.json")]
    with pytest.raises(BadInput, match="is given twice"):
        opscope.load([*files, files[0]], executor=pool)


def test_an_error_that_no_reader_knows_is_of_its_file(tmp_path, pool):
    files = rank_files(tmp_path, 2)
    mapped = read_ranks(files, tmp_path / "parts", pool, write=writers.raising)
    assert mapped.failed == {str(one): "ZeroDivisionError: planted" for one in files}


def test_what_cannot_be_written_ends_the_job_and_blames_no_file(tmp_path, pool):
    files = rank_files(tmp_path, 2)
    with pytest.raises(EngineError, match="No space left on device"):
        read_ranks(files, tmp_path, pool, write=writers.refused_by_the_disk)
    assert not list(tmp_path.glob("*.failed.json"))


@pytest.mark.parametrize("other", [(0, "0.0.1"), (1, -1), (2, -1)])
def test_a_worker_with_another_version_is_refused(tmp_path, monkeypatch, pool, other):
    here = worker.version()
    begun = tuple(other[1] if place == other[0] else one for place, one in enumerate(here))
    monkeypatch.setattr("opscope.scale.engines.version", lambda: begun)
    files = rank_files(tmp_path, 2)
    with pytest.raises(
        EngineError,
        match=f"has opscope {here[0]} .analysis {here[1]}, layout {here[2]}.*begun with",
    ) as told:
        read_ranks(files, tmp_path / "parts", pool)
    assert "install one version on all machines" in str(told.value)
    assert not list(tmp_path.glob("parts/*"))


def test_a_job_that_an_earlier_version_began_is_refused(tmp_path):
    """It said nothing of the layout of partials."""
    refused = worker.read_batch(["rank0.json"], str(tmp_path), {}, ("0.0.1", 1))  # type: ignore[arg-type]
    assert isinstance(refused, worker.Refused)
    assert "begun with 0.0.1 (analysis 1): install one version" in refused.what


def test_an_unknown_gpu_is_refused_as_load_refuses_it(tmp_path, pool):
    with pytest.raises(UnknownDevice):
        opscope.load(rank_files(tmp_path, 2), executor=pool, gpu="Abacus 3000")


def test_the_threads_of_a_worker_are_bounded(tmp_path, monkeypatch):
    for name in worker.THREADS:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with ProcessPool(1, threads=3) as pool:
        read_ranks(rank_files(tmp_path, 1), tmp_path / "parts", pool, write=writers.threads)
    assert (tmp_path / "threads").read_text() == "3 3"
    assert dict(os.environ) == before


class _Lost(Executor):
    """Takes tasks, and loses all of them, as a scheduler does that is gone."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_an_executor_that_is_lost_says_what_was_in_work_and_what_is_there(tmp_path, pool):
    files = rank_files(tmp_path, 3)
    parts = tmp_path / "parts"
    read_ranks(files[:1], parts, pool)
    with pytest.raises(EngineError, match=r"rank1\.json.*in work; 1 of 3 partials") as told:
        read_ranks(files, parts, _Lost(), workers=1)
    assert isinstance(told.value.__cause__, CancelledError)
    assert read_ranks(files, parts, pool, write=writers.counted).read == 2


def test_a_broken_pool_of_somebody_else_says_so(tmp_path):
    files = rank_files(tmp_path, 2)
    Path(f"{files[0]}.deaths").write_text("1")
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as one,
        pytest.raises(EngineError, match=r"executor was lost .BrokenProcessPool"),
    ):
        read_ranks(files, tmp_path / "parts", one, write=writers.dying)


def test_workers_that_write_where_this_machine_does_not_look_are_told(tmp_path, monkeypatch):
    files = rank_files(tmp_path, 2)

    class Elsewhere(Executor):
        def submit(self, fn, task, parts, *rest):
            future = Future()
            future.set_result(fn(task, str(tmp_path / "elsewhere"), *rest))
            return future

    with pytest.raises(EngineError, match="does not see them: give a folder or URL"):
        opscope.load(files, executor=Elsewhere(), parts=tmp_path / "parts")


def test_counters_and_an_executor_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match="counters"):
        opscope.load(rank_files(tmp_path), executor=2, counters="counters.csv")


def test_a_worker_ends_with_the_process_that_began_the_job(tmp_path):
    """A killed parent closes no queue; without a look at it the workers stayed for ever."""
    code = (
        "import os, signal, time\n"
        "from opscope.scale.pool import ProcessPool\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPool(1)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    program = tmp_path / "job.py"
    program.write_text(code)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    for _ in range(600):
        if not os.path.exists(f"/proc/{child}"):
            return
        with open(f"/proc/{child}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":  # ended, and nobody has asked
                return
        time.sleep(0.1)
    pytest.fail("the worker is still there")


def test_a_pool_may_be_shut_down_twice_and_while_it_works():
    pool = ProcessPool(2)
    working = pool.submit(time.sleep, 0.5)
    pool.shutdown(wait=False)
    pool.shutdown()
    assert working.result() is None
    with pytest.raises(RuntimeError):
        pool.submit(time.sleep, 0)


def test_no_engine_and_one_job_read_in_this_process():
    with opened() as (executor, workers):
        assert (executor, workers) == (None, 1)
    with opened(jobs=1) as (executor, _):
        assert executor is None
