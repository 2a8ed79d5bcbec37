"""Ranks read by Dask and Ray, on clusters of this machine: the same tables as without them, whatever dies."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import opscope
from opscope.errors import EngineError
from opscope.scale import clusters
from opscope.scale.engines import read_ranks
from opscope.scale.one_call import of_ranks
from tests.made_ranks import rank_files
from tests.scale import jobs, writers
from tests.scale.writers import reads

ROOT = Path(__file__).resolve().parents[2]
#: Deaths of workers after which the schedulers here give a task up.
ALLOWED = 2


def package(name: str, extra: str):
    """Import a library of an extra; skip without it, or fail where all must be there (``tox -e cluster``)."""
    try:
        return importlib.import_module(name)
    except ImportError:
        told = f"{name} is not installed: pip install 'opscope[{extra}]'"
        (pytest.fail if os.environ.get("OPSCOPE_CLUSTER") == "1" else pytest.skip)(told)


@contextmanager
def _dask():
    package("distributed", "cluster")
    import dask
    from distributed import LocalCluster

    settings = {"distributed.scheduler.allowed-failures": ALLOWED}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            host="127.0.0.1",
            silence_logs="CRITICAL",
        ) as cluster,
        clusters.dask(cluster.scheduler_address) as opened,
    ):
        yield opened


@contextmanager
def _ray():
    package("ray", "ray")
    with clusters.ray("local") as opened:
        yield opened


@pytest.fixture(scope="module", params=["dask", "ray"])
def engine(request):
    """The engine's name, its executor, and how many tasks it runs at once."""
    with {"dask": _dask, "ray": _ray}[request.param]() as (executor, workers):
        assert workers
        yield request.param, executor, workers


def test_the_tables_are_those_of_no_engine(engine, job, serial, tmp_path):
    _, executor, workers = engine
    parts = tmp_path / "parts"
    profile = of_ranks(job, executor, parts, workers=workers, unrelated=True, write=writers.counted)
    assert jobs.digest(profile) == jobs.digest(serial)
    assert reads(parts) == sorted(one.name for one in job)
    of_ranks(job, executor, parts, workers=workers, unrelated=True, write=writers.counted)
    assert reads(parts) == sorted(one.name for one in job)  # none of them a second time


@pytest.mark.parametrize("deaths", [1, 2, 99])
def test_a_worker_that_is_killed_costs_its_file_at_most(engine, deaths, tmp_path):
    name, executor, workers = engine
    files = rank_files(tmp_path, 5)
    Path(f"{files[2]}.deaths").write_text(str(deaths))
    parts = tmp_path / "parts"
    profile = of_ranks(files, executor, parts, workers=workers, write=writers.dying)
    # Dask gives the task to another worker by itself, as often as its scheduler allows; here that is twice
    given_up = deaths == 99 or (name == "ray" and deaths == 2)
    left = [one for one in files if not (given_up and one == files[2])]
    assert sorted(set(reads(parts))) == [one.name for one in left]
    assert profile.manifest["read"] == len(left)
    if given_up:
        [failed] = profile.manifest["failed"]
        assert failed["path"] == str(files[2])
        assert failed["what"] == "its worker died each time that it was read"
    else:
        whole = opscope.load(files, parts=tmp_path / "whole")
        assert jobs.digest(profile) == jobs.digest(whole)


def test_a_scheduler_that_lost_its_workers_is_told_of(monkeypatch, caplog):
    package("distributed", "cluster")
    from distributed import LocalCluster

    def messages() -> list[str]:
        return [one.getMessage() for one in caplog.records if "has no workers" in one.getMessage()]

    monkeypatch.setattr(clusters, "_LOOK", 0.05)
    with LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        dashboard_address=":0",
        host="127.0.0.1",
        silence_logs="CRITICAL",
    ) as cluster:
        with clusters.dask(cluster.scheduler_address) as (executor, workers):
            assert workers == 0
            waiting = executor.submit(abs, -3)
            until(lambda: messages())
            assert not waiting.done()
            cluster.scale(1)
            assert waiting.result(timeout=60) == 3
        assert len(messages()) == 1
        assert cluster.scheduler_address in messages()[0]


def until(met, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_a_truncated_file_is_named_and_the_others_are_read(engine, tmp_path):
    _, executor, workers = engine
    files = rank_files(tmp_path, 4)
    packed = gzip.compress(files[2].read_bytes())
    files[2] = files[2].with_suffix(".json.gz")
    files[2].write_bytes(packed[: len(packed) // 2])
    profile = of_ranks(files, executor, tmp_path / "parts", workers=workers)
    assert [one["path"] for one in profile.manifest["failed"]] == [str(files[2])]
    assert profile.manifest["read"] == 3


def test_a_worker_with_another_version_is_refused(engine, tmp_path, monkeypatch):
    _, executor, workers = engine
    monkeypatch.setattr("opscope.scale.engines.version", lambda: ("0.0.1", 1))
    with pytest.raises(EngineError, match=r"has opscope .*begun with 0\.0\.1"):
        read_ranks(rank_files(tmp_path, 2), tmp_path / "parts", executor, workers=workers)
    assert not list(tmp_path.glob("parts/*"))


# ------------------------------------------------------------------------------- Dask alone


@contextmanager
def _scheduler(folder: Path, *options: str, worker: tuple[str, ...] = ()):
    """A Dask scheduler and one worker, each a process of its own; yield the scheduler and its address."""
    package("distributed", "cluster")
    told = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(module: str, *more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *more],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    started = []
    try:
        started.append(
            start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                  "--no-show", "--scheduler-file", str(told), *options)
        )  # fmt: skip
        for _ in range(1200):
            if told.exists() and told.read_text().endswith("}"):
                break
            assert started[0].poll() is None
            time.sleep(0.1)
        address = json.loads(told.read_text())["address"]
        started.append(
            start(
                "dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny", *worker
            )
        )
        yield started[0], address
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_a_scheduler_that_is_killed_is_told_and_the_next_run_reads_what_is_missing(tmp_path):
    files = rank_files(tmp_path, 8)
    parts = tmp_path / "parts"
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with _scheduler(first) as (scheduler, address):
        Path(f"{files[3]}.kill").write_text(str(scheduler.pid))
        with (
            clusters.dask(address) as (executor, _),
            pytest.raises(EngineError, match=r"executor was lost .* in work; .* of 8 partials"),
        ):
            read_ranks(files, parts, executor, workers=2, write=writers.killing)
    there = {one.name for one in parts.glob("*.parquet")}
    assert 0 < len(there) < 8
    before = reads(parts)
    with _scheduler(second) as (_, address), clusters.dask(address) as (executor, workers):
        mapped = read_ranks(files, parts, executor, workers=workers, write=writers.counted)
    assert (mapped.kept, mapped.read) == (len(there), 8 - len(there))
    missing = [one.name for one in files if mapped.names[str(one)] not in there]
    again = reads(parts)
    for name in before:
        again.remove(name)
    assert again == missing
    from opscope.scale.merge import merge

    whole = opscope.load(files, parts=tmp_path / "whole")
    assert merge(parts).op_totals().equals(whole.op_totals())


def test_a_scheduler_that_asks_for_certificates_gets_them_from_dask_s_settings(tmp_path):
    package("cryptography", "cluster-test")
    package("distributed", "cluster")
    from distributed.security import Security

    made = Security.temporary()
    places = {}
    for name in ("ca_file", "client_cert", "client_key"):
        place = tmp_path / f"{name}.pem"
        place.write_text(getattr(made, f"tls_{name}"))
        places[name] = str(place)
    tls = ("--tls-ca-file", places["ca_file"], "--tls-cert", places["client_cert"],
           "--tls-key", places["client_key"])  # fmt: skip
    files = rank_files(tmp_path, 3)
    command = [sys.executable, "-m", "opscope", "report", *map(str, files), "--reports", "summary",
               "--json", "--parts", str(tmp_path / "parts"), "--dask"]  # fmt: skip
    base = {**os.environ, "PYTHONPATH": str(ROOT)}
    with _scheduler(tmp_path, "--protocol", "tls", *tls, worker=tls) as (_, address):
        assert address.startswith("tls://")
        without = subprocess.run(
            [*command, address], env=base, capture_output=True, text=True, check=False
        )
        assert without.returncode == 2
        assert without.stderr.startswith(f"opscope: {address}: certificates are needed")
        assert len(without.stderr.splitlines()) == 1
        keys = {"CA_FILE": "ca_file", "CLIENT__CERT": "client_cert", "CLIENT__KEY": "client_key"}
        settings = {
            f"DASK_DISTRIBUTED__COMM__TLS__{key}": places[name] for key, name in keys.items()
        }
        done = subprocess.run(
            [*command, address],
            env={**base, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["kernels"] == 24
