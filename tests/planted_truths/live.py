"""Programs with planted causes, in two sizes each, and how they are recorded.

The times of phases are those of sleeps that the program does there, or of all that it does in the phase. They
are measured by the program's own clock, as a busy machine sleeps longer; so is how late a rank is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import opscope
from opscope.agents.answering import reply
from opscope.agents.runs import Runs
from tests.planted_truths.driver import drive, score
from tests.planted_truths.truth import HEALTHY, STARVED, Truth, judge, said_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
MS = 1_000_000
#: Steps of the two sizes.
STEPS = (8, 20)
#: Program, what it is told, framework, cause; a step's phases (ms) where sleeps make them.
_PROGRAMS: Sequence[tuple[str, str, str, str, dict[str, int] | None]] = (
    ("torch_host", "sleep", "torch", "slow loader", {"input": 60}),
    ("torch_host", "cpu", "torch", "slow loader", None),
    ("torch_host", "reads", "torch", "synchronising reads", None),
    ("torch_host", "tiny", "torch", "tiny ops", None),
    ("torch_host", "sleeping", "torch", "sleeping between ops",
     {"forward": 30, "backward": 50, "optimizer": 20, "outside": 100}),
    ("torch_host", "healthy", "torch", HEALTHY, None),
    ("torch_model", "attention", "torch", "unfused attention", None),
    ("torch_model", "casts", "torch", "casts", None),
    ("torch_model", "memory", "torch", "memory growth", None),
    ("torch_model", "evaluation", "torch", "evaluation dominates", None),
    ("torch_compiled", "", "torch", "recompiling shapes", None),
    ("torch_ranks", "", "torch", "late rank", None),
    ("lightning_fit", "", "lightning", "sleeping between ops", {"forward": 150}),
    ("jax_training", "recompiling", "jax", "recompiling shapes", None),
    ("jax_training", "sleeping", "jax", "sleeping between ops", None),
    ("jax_training", "compiling", "jax", "compile time dominates", None),
    # Keras asks for a batch ahead: what sleeps while a step is traced is no wait, and nobody clocks that
    ("keras_fit", "sleep", "tensorflow", "slow loader", None),
    ("mindspore_training", "", "mindspore", "slow loader", None),
    ("onnxruntime_runs", "sleeping", "onnxruntime", "sleeping between ops", None),
    ("onnxruntime_runs", "healthy", "onnxruntime", HEALTHY, None),
)  # fmt: skip
#: How long the second rank sleeps before each step.
LATE = 150 * MS
#: A run is starved of processors where some process waited for one for more of the time.
STARVING = 0.1


def truths() -> list[Truth]:
    """Return what is true of each program in each size."""
    return [
        _truth(program, told, framework, cause, phases, size, steps)
        for program, told, framework, cause, phases in _PROGRAMS
        for size, steps in enumerate(STEPS)
    ]


def _truth(
    program: str,
    told: str,
    framework: str,
    cause: str,
    phases: dict[str, int] | None,
    size: int,
    steps: int,
) -> Truth:
    late = cause == "late rank"
    return Truth(
        "-".join(filter(None, ("live", program, told, str(steps)))), cause, "program", framework, size,
        [f"{program}.py", *filter(None, [told]), str(steps)],
        steps,
        None if phases is None else {name: steps * time * MS for name, time in phases.items()},
        (1, LATE * steps) if late else None,
        also=("compile time dominates",) if _short(framework, cause, size) else (),
        ranks=2 if late else 1,
        # by the process's own memory alone, what an allocator reuses hides growth now and then
        options=["--memory"] if cause == "memory growth" else [],
    )  # fmt: skip


def _short(framework: str, cause: str, size: int) -> bool:
    """Return whether compiling may take longer than all steps of the program."""
    return (
        cause == "recompiling shapes" or framework == "jax" or (framework != "torch" and size == 0)
    )


def python_of(framework: str, tox: Path) -> Path:
    """Return the interpreter of a framework's environment."""
    return tox / framework / "bin" / "python"


def check(name: str, folder: Path) -> None:
    """Record the program ``name`` with this interpreter; hold that the cause is said first, and its steps, and
    that who follows the hints for agents reaches it."""
    (truth,) = (truth for truth in truths() if truth.name == name)
    began, pressed = time.monotonic_ns(), pressure()
    truth, profile = record(truth, folder, None)
    starved = _is_starved(began, pressed)
    said = said_of(opscope.load(profile))
    judged = judge(truth, said)
    assert judged.steps, said.steps
    if starved and judged.cause == "later":  # the program did wait longer for processors
        return
    assert judged.cause == "right", said.findings
    runs = Runs((folder,))
    claim = drive(lambda call, given: reply(runs, call, given).text, profile.name)
    assert score(truth, claim).reached, (score(truth, claim), claim)


def _is_starved(began: int, pressed: int) -> bool:
    return pressure() - pressed > STARVING * (time.monotonic_ns() - began)


def record(truth: Truth, folder: Path, tox: Path | None) -> tuple[Truth, Path]:
    """Record the program of a truth, by this interpreter without ``tox``; return the profile, and the truth with
    the times of the program's clock, and what the machine's pressure says of a healthy program."""
    python = sys.executable if tox is None else str(python_of(truth.framework, tox))
    program = [str(PROGRAMS / truth.what[0]), *truth.what[1:]]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if truth.ranks > 1 else []
    out, clock = folder / truth.name, folder / f"{truth.name}.clock.json"
    for left in folder.glob(f"{clock.name}*"):
        left.unlink()
    began, pressed = time.monotonic_ns(), pressure()
    done = subprocess.run(
        [python, "-m", "opscope", "run", "-f", "--no-report", *truth.options, "-o", str(out), "--", python, *launcher, *program],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_v": "3",
                          "PLANTED_CLOCK": str(clock)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{truth.name} ended with {done.returncode}: {done.stderr[-800:]}")
    if truth.phases is not None:
        truth = replace(truth, phases=json.loads(clock.read_text()))
    if truth.late is not None:
        truth = replace(truth, late=(truth.late[0], lateness(clock, *truth.late[:1])))
    if truth.cause == HEALTHY and _is_starved(began, pressed):
        truth = replace(truth, also=(*truth.also, STARVED))
    return truth, out.with_name(f"{out.name}.opscope")


def lateness(clock: Path, rank: int) -> int:
    """Return how much later than the other a rank of two entered the collectives to which it came last (ns)."""
    mine, other = (json.loads(Path(f"{clock}.{number}").read_text()) for number in (rank, 1 - rank))
    return sum(max(0, late - first) for late, first in zip(mine, other, strict=True))


def pressure() -> int:
    """Return how long some process of this machine has waited for a processor so far (ns); 0 where the system
    does not tell."""
    path = Path("/proc/pressure/cpu")
    if not path.is_file():
        return 0
    return 1_000 * int(path.read_text().split("total=")[1].split()[0])
