"""Run programs under an installed Nsight Systems and the recorder at once, and compare both op by op."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.profile import Profile

ROOT = Path(__file__).resolve().parents[1]
#: Executables of Nsight Systems, separated by ``os.pathsep``; by default the ``nsys`` on PATH.
VARIABLE = "OPSCOPE_NSYS"
#: No CPU sampling, which containers may forbid.
QUIET = ("--cpuctxsw=none", "-s", "none")
TRIES = 3
FORKS = "--trace-fork-before-exec=true"
#: Columns of an op that must be equal in both. ``forward`` is the place of the op that a backward op
#: differentiates.
TOLD = (
    *("op", "depth", "direction", "seq", "layer", "step", "source", "inputs", "outputs"),
    *("dtypes", "params", "device", "matrix_flops", "vector_flops", "bytes", "forward"),
)


def installed() -> list[str]:
    """Return the executables to try, in order; empty if there is none."""
    named = os.environ.get(VARIABLE, "")
    found = [shutil.which(one) for one in named.split(os.pathsep) if one]
    return [one for one in found if one] or [one for one in [shutil.which("nsys")] if one]


def skip_without() -> list[object]:
    """Return the values for ``pytest.mark.parametrize("nsys", …)``: the installed ones, else a skip."""
    why = f"no nsys on PATH or in ${VARIABLE}"
    return list(installed()) or [pytest.param("", marks=pytest.mark.skip(reason=why))]


def version(nsys: str) -> str:
    """Return the version, as in ``2023.4``."""
    said = subprocess.run([nsys, "--version"], capture_output=True, text=True, check=True).stdout
    return ".".join(said.split()[-1].split(".")[:2])


@dataclass
class Ran:
    """A run of a program under Nsight Systems: its status, its output, its report, also as SQLite."""

    status: int
    stdout: str
    stderr: str
    report: Path
    sqlite: Path


def profile(
    nsys: str,
    command: list[str],
    folder: Path,
    *options: str,
    traces: str = "nvtx",
    **environ: str,
) -> Ran:
    """Run ``command`` under ``nsys`` in ``folder``, and export its report.

    On a busy machine (load 15 on 2 cores) Nsight's report sometimes had no NVTX event at all, not even a
    range from plain Python. The program is then run again.
    """
    for _ in range(TRIES):
        ran = _profile(nsys, command, folder, options, traces, environ)
        if "nvtx" not in traces or not ran.sqlite.exists() or _hears(ran.sqlite):
            break
    return ran


def _hears(sqlite: Path) -> bool:
    with sqlite3.connect(sqlite) as database:
        found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
        return found.fetchone() is not None


def _profile(
    nsys: str,
    command: list[str],
    folder: Path,
    options: tuple[str, ...],
    traces: str,
    environ: dict[str, str],
) -> Ran:
    report = folder / "report.nsys-rep"
    report.unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NVTX_", "QUADD_", "NSYS_"))}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environ}
    line = [nsys, "profile", "-t", traces, *QUIET, *options, "-f", "true", "-o", str(report)]
    done = subprocess.run(
        [*line, *command], env=env, cwd=folder, capture_output=True, text=True, timeout=570
    )
    sqlite = report.with_suffix(".sqlite")
    if report.exists():
        export(nsys, report, sqlite)
    elif done.returncode == 0 and report.with_suffix(".qdstrm").exists():
        # Debian's 2024.2 without the libarrow that it was built with, for example
        pytest.skip("this nsys has no importer that runs: it kept the raw events")
    return Ran(done.returncode, done.stdout, done.stderr, report, sqlite)


def export(nsys: str, report: Path, sqlite: Path) -> None:
    """Export with ``nsys`` of the same version, as other versions cannot read its reports."""
    line = [nsys, "export", "--type", "sqlite", "-f", "true", "-o", str(sqlite), str(report)]
    subprocess.run(line, check=True, capture_output=True, timeout=300)


def run(nsys: str, program: str, folder: Path, *, ranks: bool = False) -> tuple[Ran, Path]:
    """Run Python code under ``nsys`` and ``opscope run`` at once, so that both record the same run.

    ``ranks``: run it by torchrun with two ranks.
    """
    script = folder / "program.py"
    script.write_text(program)
    command = [sys.executable, str(script)]
    if ranks:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [sys.executable, *torchrun, str(script)]
    return record(nsys, command, folder, FORKS)


def record(
    nsys: str, command: list[str], folder: Path, *options: str, **environ: str
) -> tuple[Ran, Path]:
    """Run any command under ``nsys`` and ``opscope run`` at once."""
    recorded = folder / "recorded.opscope"
    run = [sys.executable, "-m", "opscope", "run", "--backend", "recorder", "--no-report", "-f"]
    ran = profile(nsys, [*run, "-o", str(recorded), "--", *command], folder, *options, **environ)
    assert ran.status == 0, ran.stderr
    return ran, recorded


# ------------------------------------------------------------------------------- op by op


@dataclass
class Compared:
    """A comparison of two profiles of one run. ``differences`` counts (column, Nsight's, the recorder's)."""

    columns: tuple[str, ...] = TOLD
    ops: tuple[int, int] = (0, 0)
    links: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (0, 0)
    processes: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)
    differences: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: The number of last ops of forked processes that Nsight lacks, by process: Nsight does not write its
    #: buffers if a process ends by ``os._exit``, like multiprocessing's workers.
    lost: Counter[int] = field(default_factory=Counter)
    #: Nsight's duration minus the recorder's for the same op, ns.
    longer: list[int] = field(default_factory=list)

    def table(self) -> str:
        """Return a line for each compared count and each difference."""
        names = ("processes", "threads", "steps", "ops", "links")
        lines = [
            f"{name:10} nsight {getattr(self, name)[0]:>7,}   recorder {getattr(self, name)[1]:>7,}"
            for name in names
        ]
        late = sorted(self.longer)
        if late:
            middle, most = late[len(late) // 2], late[-1]
            lines.append(
                f"{'durations':10} nsight longer by {middle:,} ns in the median, {most:,} at most"
            )
        if self.lost:
            lines.append(
                f"{'lost':10} {sum(self.lost.values())} last ops of {len(self.lost)} forked processes"
            )
        lines.append(f"differences {sum(self.differences.values())}")
        for (column, ours, theirs), count in self.differences.most_common(20):
            lines.append(f"  {count:5} x {column}: nsight {ours[:160]} | recorder {theirs[:160]}")
        return "\n".join(lines)


def compare(sqlite: Path, recorded: Path, without: tuple[str, ...] = ()) -> Compared:
    """Compare Nsight's file with the recorder's profile of one run, op by op, except for some columns.

    Ops are paired in order on each thread of each process; an op that only one of them has is a difference.
    """
    left, right = opscope.load(sqlite), opscope.load(recorded)
    found = Compared(
        columns=tuple(column for column in TOLD if column not in without),
        links=(_links(left), _links(right)),
        steps=(_steps(left), _steps(right)),
    )
    ours, theirs = _by_thread(left), _by_thread(right)
    found.ops = (sum(map(len, ours.values())), sum(map(len, theirs.values())))
    found.processes = tuple(len({pid for pid, _ in one}) for one in (ours, theirs))  # type: ignore[assignment]
    found.threads = (len(ours), len(theirs))
    forked = _forked(right)
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key, []), theirs.get(key, [])
        if key[0] in forked and mine and mine[-1]["end"] - mine[-1]["start"] == 1:
            mine = mine[:-1]  # the end of its last op was lost
        if key[0] in forked and _names(mine) == _names(other)[: len(mine)]:
            found.lost[key[0]] += len(other) - len(mine)
            other = other[: len(mine)]
        _pair(found, mine, other)
    found.lost = +found.lost
    for name, mine, other in _processes(left, right):
        found.differences[name, mine, other] += 1
    return found


def _names(ops: list[dict]) -> list[str]:
    return [f"{op['op']}/{op['depth']}" for op in ops]


def _forked(profile: Profile) -> set[int]:
    """Return the pids of processes with a recorded parent."""
    processes = profile.trace["processes"].drop_nulls("parent")
    return set(processes["pid"].to_list())


def _pair(found: Compared, ours: list[dict], theirs: list[dict]) -> None:
    names = [_names(ours), _names(theirs)]
    if names[0] == names[1]:
        blocks = [("equal", 0, len(ours), 0, len(theirs))]
    else:
        blocks = SequenceMatcher(None, *names, autojunk=False).get_opcodes()
    for kind, a, b, c, d in blocks:
        if kind != "equal":
            for op in ours[a:b]:
                found.differences["op", op["op"], "-"] += 1
            for op in theirs[c:d]:
                found.differences["op", "-", op["op"]] += 1
            continue
        for mine, other in zip(ours[a:b], theirs[c:d], strict=True):
            found.longer.append((mine["end"] - mine["start"]) - (other["end"] - other["start"]))
            for column in found.columns:
                if mine[column] != other[column]:
                    what = (column, f"{mine['op']} {mine[column]}", f"{other[column]}")
                    found.differences[what] += 1


def _by_thread(profile: Profile) -> dict[tuple[int, int], list[dict]]:
    """Return the ops of each (pid, system's thread id), in order."""
    trace = profile.trace
    pids = dict(trace["processes"].select("process", "pid").iter_rows())
    system = {
        (process, thread): tid
        for process, thread, tid in trace["threads"]
        .select("process", "thread", "os_tid")
        .iter_rows()
    }
    ops = profile.ops().sort("process", "thread", "start", "depth", "op_id")
    place = ops.select("op_id", pl.int_range(pl.len()).over("process", "thread").alias("place"))
    ops = ops.join(
        place.rename({"op_id": "forward_op_id", "place": "forward"}),
        on="forward_op_id",
        how="left",
        maintain_order="left",
    )
    found: dict[tuple[int, int], list[dict]] = {}
    for row in ops.iter_rows(named=True):
        thread = system.get((row["process"], row["thread"]), row["thread"])
        found.setdefault((pids[row["process"]], thread), []).append(row)
    return found


def _links(profile: Profile) -> int:
    return profile.ops()["forward_op_id"].drop_nulls().len()


def _steps(profile: Profile) -> int:
    return profile.ops().select("process", "step").drop_nulls().unique().height


def _processes(left: Profile, right: Profile) -> list[tuple[str, str, str]]:
    """Return the differences in rank and world size of the processes."""
    told = []
    wanted = ("rank", "world_size")
    rows = [
        {row["pid"]: row for row in one.trace["processes"].iter_rows(named=True)}
        for one in (left, right)
    ]
    for pid in rows[0].keys() & rows[1].keys():
        for name in wanted:
            mine, other = rows[0][pid][name], rows[1][pid][name]
            if mine != other:
                told.append((f"process {name}", str(mine), str(other)))
    return told
