"""The process's description: ranks, start time, and no secret in the command."""

from __future__ import annotations

import os
import time

import pytest

from opscope.core.capture import process
from opscope.core.capture.process import ranks
from opscope.core.process_specs import PRIVATE


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4, None)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2, None)),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}, (1, 2, None)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, (1, 2, 0)),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (None, None, None)),
        # a batch script of a job of eight tasks: one process, and no rank
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}, (None, None, None)),
        # srun --preserve-env: the step has fewer tasks than the job
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2, None)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_ranks(environ: dict[str, str], expected: tuple[int | None, ...]) -> None:
    assert ranks(environ) == expected


def test_this_process() -> None:
    one, two = process.current(), process.current()
    assert one == two
    assert one.pid == os.getpid()
    assert 0 < time.time_ns() - one.start_time < 86_400 * 10**9
    assert one.folder.startswith("part-")
    assert "/" not in one.folder


def test_a_private_recording_has_neither_arguments_nor_the_hosts_name(monkeypatch):
    monkeypatch.setenv(PRIVATE, "1")
    monkeypatch.setattr("sys.orig_argv", ["/usr/bin/python", "train.py", "--name", "me"])
    one = process.current()
    assert one.command == ("python", "<arguments left out>")
    assert one.host.startswith("host-")
    assert one.host == process.current().host
    monkeypatch.delenv(PRIVATE)
    assert process.current().host != one.host
