"""End `opscope run` at random instants and check what is left of the recording.

Usage: python scripts/kill_anywhere.py [--times 100] [--seed 0] [--signals KILL,TERM,INT,HUP]
       [--at program,run,both] [--frameworks user,torch,dispatch,tensorflow,jax] [--jobs 1]

A program records for some tenths of a second at a time, with idle times in between and at its end. It logs
in its own file when each range and each op of the framework ended. At an instant between its first range
and some time after its end, a signal goes to the program, to `opscope run`, or to both, as from a terminal.
Everything that ended half a second before that instant must be in the profile or in the recording that is
left; if the program reached its end, everything must be. The exit status is 1 if something is missing or
cannot be opened.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import opscope
from opscope.readers.errors import BadInput

ROOT = Path(opscope.__file__).resolve().parents[1]
SIGNALS = ("KILL", "TERM", "INT", "HUP")
TARGETS = ("program", "run", "both")
#: The last ranges before the signal may be lost, this many ns.
LOST_NS = 500_000_000
MOST_S = 300
#: Each line of the log: a range's number, the time at which it and its op ended (ns), and the process.
PROGRAM = """
import os, time, opscope
{setup}
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
for idle in (0.9, 1.4, 0.7):
    end = time.perf_counter() + 0.4
    while time.perf_counter() < end:
        with opscope.annotate(f"range {{number}}"):
            {op}
            time.sleep(0.003)
        os.write(log, f"{{number}} {{time.perf_counter_ns()}} {{os.getpid()}}\\n".encode())
        number += 1
    time.sleep(idle)
os.write(log, b"end\\n")
"""
JAX = "import jax, jax.numpy as jnp\nx = jnp.ones(3)\nf = jax.jit(lambda x: x * 2)\nf(x)"
TENSORFLOW = "import tensorflow as tf\nx = tf.ones(3)\nf = tf.function(lambda x: x + 2.0)\nf(x)"
TORCH = "import torch\ntorch.set_num_threads(1)\nx = torch.ones(3)"


@dataclass(frozen=True, slots=True)
class Kind:
    """A framework: its module, its set-up, the op of an iteration, the beginnings of its ranges' texts."""

    module: str
    setup: str
    op: str
    texts: tuple[str, ...]
    environment: dict[str, str]


KINDS = {
    "user": Kind("os", "", "pass", (), {}),
    "torch": Kind("torch", TORCH, "x * 2", ("aten::mul",), {"OPSCOPE_TORCH_OPS": "native"}),
    "dispatch": Kind("torch", TORCH, "x * 2", ("aten::mul",), {"OPSCOPE_TORCH_OPS": "dispatch"}),
    # one eager op, one op of a graph
    "tensorflow": Kind("tensorflow", TENSORFLOW, "f(x * 2.0)", ("Mul(", "add:AddV2"), {}),
    "jax": Kind("jax", JAX, "f(x)", ("jit__lambda",), {}),
}


def noted(folder: Path) -> tuple[list[tuple[int, int, int]], bool]:
    """The program's log, and whether the program reached its end."""
    lines = (folder / "log").read_text().splitlines()
    rows = [tuple(map(int, line.split())) for line in lines if line != "end"]
    return [row for row in rows if len(row) == 3], "end" in lines  # type: ignore[misc]


def recorded(folder: Path) -> list[str]:
    """The texts of all ranges in the profiles or recordings left in ``folder``. Raises BadInput."""
    found: list[str] = []
    whole = [one for one in folder.glob("*.opscope") if one.is_dir()]
    for place in whole or [one for one in folder.glob(".*.opscope-*") if any(one.iterdir())]:
        found += opscope.load(place).trace["ranges"]["text"].cast(str).to_list()
    return found


def missing(kind: Kind, want: set[str], found: list[str]) -> str | None:
    """Return which of the wanted ranges, or of their ops, are missing, or None."""
    lacking = want.difference(found)
    if lacking:
        return f"{len(lacking)} of {len(want)} ranges are missing, among them {min(lacking)}"
    for text in kind.texts:
        count = sum(text in one for one in found)
        if count < len(want):
            return f"only {count} of {len(want)} ops {text!r} are there"
    return None


def once(name: str, target: str, instant: float, kind: Kind, folder: Path) -> str | None:
    """Run once, send the signal ``instant`` seconds after the first range; return what is wrong, or None."""
    (folder / "train.py").write_text(PROGRAM.format(setup=kind.setup, op=kind.op))
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "opscope", "run", "--no-report", sys.executable, "train.py"]
    with (folder / "stderr").open("w") as told:
        run = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, **kind.environment},
            stderr=told,
            start_new_session=True,
            # an ignored signal (nohup) would be inherited
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
    log, limit = folder / "log", time.monotonic() + MOST_S
    while not (log.exists() and b"\n" in log.read_bytes()):
        if run.poll() is not None or time.monotonic() > limit:
            run.kill()
            return "the program did not start: " + (folder / "stderr").read_text()[-300:]
        time.sleep(0.01)
    program = int(log.read_text().split()[2])
    time.sleep(instant)
    number = getattr(signal, f"SIG{name}")
    sent = time.perf_counter_ns()
    with suppress(ProcessLookupError):  # the process may have ended
        if target == "both":
            os.killpg(run.pid, number)
        else:
            os.kill(program if target == "program" else run.pid, number)
    try:
        status = run.wait(MOST_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return "opscope run hangs"
    while Path(f"/proc/{program}/stat").exists() and time.monotonic() < limit:
        if Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    allowed = {0, 128 + number, -number}
    if status not in allowed:
        return f"exit status {status}: " + (folder / "stderr").read_text()[-500:]
    rows, ended = noted(folder)
    whole = ended and (status == 0 or (target, name) == ("run", "KILL"))
    want = {f"range {n}" for n, done, _ in rows if whole or done <= sent - LOST_NS}
    try:
        return missing(kind, want, recorded(folder)) if want else None
    except BadInput as error:
        return f"cannot be opened: {error}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=100, help="runs per signal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--at", default=",".join(TARGETS))
    parser.add_argument("--frameworks", default="user", help=f"of {','.join(KINDS)}")
    parser.add_argument("--until", type=float, default=6.0, help="latest instant of the signal, s")
    parser.add_argument("--jobs", type=int, default=1, help="runs in parallel")
    asked = parser.parse_args(arguments)
    kinds = [
        one for one in asked.frameworks.split(",") if importlib.util.find_spec(KINDS[one].module)
    ]
    dice = random.Random(asked.seed)
    tasks = [
        (kind, name, dice.choice(asked.at.split(",")), dice.uniform(0, asked.until))
        for kind in kinds
        for _ in range(asked.times)
        for name in asked.signals.split(",")
    ]
    counts: Counter[tuple[str, str, bool]] = Counter()

    def one(task: tuple[str, str, str, float]) -> None:
        kind, name, target, instant = task
        folder = Path(tempfile.mkdtemp(prefix="opscope-kill-"))
        wrong = once(name, target, instant, KINDS[kind], folder)
        counts[kind, name, wrong is None] += 1
        if wrong is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            what = f"{kind}: SIG{name} to {target} at {instant:.3f} s"
            print(f"{what}: {wrong} ({folder})", flush=True)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(one, tasks))
    for kind in kinds:
        for name in asked.signals.split(","):
            right, wrong = counts[kind, name, True], counts[kind, name, False]
            print(f"{kind}: SIG{name}: {right} runs passed, {wrong} failed")
    return int(any(not right for _, _, right in counts))


if __name__ == "__main__":
    sys.exit(main())
