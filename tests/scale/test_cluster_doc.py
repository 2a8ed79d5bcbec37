"""What docs/cluster.md shows for Slurm, dask-jobqueue and Kubernetes is run or checked here, with stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from opscope.scale.merge import merge
from tests.made_ranks import rank_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def block(word: str) -> str:
    """The one fenced block that has the word."""
    [found] = [one for one in re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.M | re.S) if word in one]
    return found


@pytest.fixture
def programs(tmp_path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "opscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opscope "$@"\n')
    (folder / "opscope").chmod(0o755)
    return folder


def test_the_job_array_makes_the_partial_of_each_rank_once(tmp_path, programs):
    run = tmp_path / "run"
    run.mkdir()
    rank_files(run, 5)
    script = block("#SBATCH --array").replace("/shared/run", str(run))
    tasks = len(range(8))
    assert "--array=0-7" in script
    for task in range(tasks):
        done = subprocess.run(
            ["bash", "-ec", script],
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "SLURM_ARRAY_TASK_ID": str(task),
                "SLURM_ARRAY_TASK_COUNT": str(tasks),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("opscope: wrote ") == (1 if task < 5 else 0)
    assert merge(run / "parts").manifest["read"] == 5
    [line] = [one for one in PAGE.splitlines() if one.startswith("opscope merge ")]
    command = line.replace("/shared/run", str(run)).split()
    subprocess.run([str(programs / command[0]), *command[1:]], cwd=tmp_path, check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert (tmp_path / "job.opscope").is_dir()


def test_the_program_for_dask_jobqueue_runs_on_a_cluster_that_is_called_so(tmp_path, monkeypatch):
    if os.environ.get("OPSCOPE_CLUSTER") != "1":
        pytest.importorskip("distributed", reason="distributed is not installed: opscope[cluster]")
    from distributed import LocalCluster

    class SLURMCluster(LocalCluster):
        """As dask-jobqueue's, whose workers Slurm would start."""

        def __init__(self, cores: int, processes: int, memory: str, walltime: str) -> None:
            assert cores == processes  # a thread each
            super().__init__(
                n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
            )

        def scale(self, workers: int) -> None:
            assert workers == 64 or not workers  # none at its end
            if not workers:
                super().scale(0)

    run = tmp_path / "run"
    run.mkdir()
    for path in rank_files(run, 3):
        path.rename(f"{path}.gz")  # recognised by content
    monkeypatch.setitem(
        sys.modules, "dask_jobqueue", types.SimpleNamespace(SLURMCluster=SLURMCluster)
    )
    exec(compile(block("dask_jobqueue").replace("/shared/run", str(run)), "cluster.md", "exec"), {})
    assert (run / "job.opscope").is_dir()
    assert merge(run / "parts").manifest["read"] == 3


def test_the_manifest_for_kubernetes_is_whole_and_calls_opscope_as_it_is():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; Dask brings it")
    parts = list(yaml.safe_load_all(block("apiVersion")))
    assert [one["kind"] for one in parts] == ["Service", "Deployment", "Deployment", "Job"]
    assert {one["metadata"]["name"] for one in parts} == {"scheduler", "worker", "report"}
    service, scheduler, worker, job = parts
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    for one in (scheduler, worker):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == labels
    [port] = service["spec"]["ports"]
    address = f"tcp://{service['metadata']['name']}:{port['port']}"
    [container] = worker["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["dask", "worker", address]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["opscope", "report"]
    assert container["command"][container["command"].index("--dask") + 1] == address
    known(container["command"][2:])


def test_every_command_of_the_page_has_the_options_of_the_command():
    lines = [one for one in PAGE.splitlines() if re.match(r"opscope (report|merge|partial) ", one)]
    assert len(lines) > 4
    for line in lines:
        known(line.split()[2:], line.split()[1])


def known(words: list[str], command: str = "report") -> None:
    from typer import Context
    from typer.main import get_command

    from opscope.cli.app import app

    commands = get_command(app)
    with Context(commands) as context:
        options = {
            name for one in commands.get_command(context, command).params for name in one.opts
        }
    assert {one for one in words if one.startswith("-")} <= options
