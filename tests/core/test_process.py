"""The process's description: ranks, start time, and no secret in the command."""

from __future__ import annotations

import os
import time

import pytest

from opscope.core import process
from opscope.core.process import HIDDEN, ranks, redact


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        (["--api-key", "abc123", "--lr", "0.1"], "abc123"),
        (["--password=hunter2"], "hunter2"),
        (["HF_TOKEN=hf_xyz", "train.py"], "hf_xyz"),
        (["--hf-token", "plain"], "plain"),
        (["-c", "wandb login sk-abcdefgh12345678"], "sk-abcdefgh12345678"),
        (["s3://user:pw@host/bucket"], "user:pw"),
        (["--url=https://me:secretpw@host/x"], "secretpw"),
        (["--aws-secret-access-key", "-dash-first"], "-dash-first"),
    ],
)
def test_secrets_are_hidden(command: list[str], hidden: str) -> None:
    shown = redact(command)
    assert hidden not in " ".join(shown)
    assert HIDDEN in " ".join(shown)
    assert len(shown) == len(command)


def test_what_is_no_secret_stays() -> None:
    command = [
        "python",
        "train.py",
        "--lr=0.1",
        "--data",
        "s3://bucket/x",
        "--steps",
        "3:6",
        "monkey",
    ]
    assert list(redact(command)) == command


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
