"""The process groups of a job, and its meshes."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables import ranks


def answer_groups(profile: Answers) -> pl.DataFrame:
    """The process groups that each process is a member of, and their ranks."""
    return ranks.groups(profile.trace)


def answer_meshes(profile: Answers) -> pl.DataFrame:
    """The dimensions of each DeviceMesh, and the coordinate of each process along them.

    If a process is not in the mesh, its ``coordinate`` and ``group`` are null.
    """
    return ranks.meshes(profile.trace)


QUESTION = (
    Question(
        answer=answer_groups,
        frames=(
            Frame(
                "groups()",
                "one row per process and process group of which it is a member",
                columns(
                    "process group rank size ranks global_rank world_size backend description",
                    """
                    rank: number: the process's rank within the group
                    ranks: text: ranks of the group, in the notation of members
                    global_rank: number: the process's rank in the job
                    world_size: count: ranks of the job
                    backend: text: library that carries the group's messages: nccl, gloo …
                    description: text: PyTorch's description of the group's purpose
                    """,
                ),
            ),
        ),
        as_text=False,
        reports=(
            Report(
                name="groups",
                title="Process groups",
                empty="no process groups were recorded",
                sums="",
            ),
        ),
    ),
    Question(
        answer=answer_meshes,
        frames=(
            Frame(
                "meshes()",
                "one row per process and dimension of a DeviceMesh",
                columns(
                    "process mesh index dimension size coordinate group device",
                    """
                    mesh: number: the mesh's number in its process
                    index: number: number of the mesh dimension
                    dimension: text: name of the mesh dimension: dp, tp …
                    coordinate: number: the process's coordinate along the dimension
                    device: text: kind of device: cuda, cpu
                    """,
                ),
            ),
        ),
        as_text=False,
        reports=(
            Report(
                name="meshes",
                title="Device meshes",
                empty="no DeviceMesh was recorded",
                sums="",
            ),
        ),
    ),
)
