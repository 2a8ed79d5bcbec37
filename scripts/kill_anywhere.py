"""Ends `opscope run` at random instants and looks at what is left of the recording.

Usage: python scripts/kill_anywhere.py [--times 100] [--seed 0] [--signals KILL,TERM,INT,HUP]
       [--at program,run,both]

A program records ranges for a second and a half and notes each in a file of its own. At an instant
between its first range and some time after its end a signal goes to it, to `opscope run`, or to both, as a
terminal sends it. What it had recorded until half a second before its last range began must then be in
the profile, or in the recording that is left; of a program that has come to its end, all of it. Exit status
1 where something is missing, or cannot be opened.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import opscope
from opscope.core.record import FLUSH_NS
from opscope.readers.errors import BadInput

ROOT = Path(opscope.__file__).resolve().parents[1]
SIGNALS = ("KILL", "TERM", "INT", "HUP")
TARGETS = ("program", "run", "both")
MOST_S = 120
#: Each line of the log: a range's number, and when it was about to begin and had been recorded, ns.
PROGRAM = """
import os, time, opscope
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.perf_counter() + 1.5
number = 0
while time.perf_counter() < end:
    begin = time.perf_counter_ns()
    with opscope.annotate(f"range {number}"):
        time.sleep(0.003)
    line = f"{number} {begin} {time.perf_counter_ns()} {os.getpid()}\\n"
    os.write(log, line.encode())
    number += 1
os.write(log, b"end\\n")
"""


def noted(folder: Path) -> tuple[list[tuple[int, int, int, int]], bool]:
    """The program's log, and whether it came to its end."""
    lines = (folder / "log").read_text().splitlines()
    rows = [tuple(map(int, line.split())) for line in lines if line != "end"]
    return [row for row in rows if len(row) == 4], "end" in lines  # type: ignore[misc]


def recorded(folder: Path) -> set[str]:
    """The texts of all ranges in what is left in ``folder``. Raises BadInput."""
    found: set[str] = set()
    whole = [one for one in folder.glob("*.opscope") if one.is_dir()]
    for place in whole or [one for one in folder.glob(".*.opscope-*") if any(one.iterdir())]:
        found.update(opscope.load(place).trace["ranges"]["text"].cast(str).to_list())
    return found


def once(name: str, target: str, instant: float, folder: Path) -> str | None:
    """One run, ended ``instant`` seconds after its first range; what is wrong with what is left."""
    (folder / "train.py").write_text(PROGRAM)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "opscope", "run", "--no-report", sys.executable, "train.py"]
    with (folder / "stderr").open("w") as told:
        run = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stderr=told,
            start_new_session=True,
        )
    log, limit = folder / "log", time.monotonic() + MOST_S
    while not (log.exists() and b"\n" in log.read_bytes()):
        if run.poll() is not None or time.monotonic() > limit:
            run.kill()
            return "the program did not begin: " + (folder / "stderr").read_text()[-300:]
        time.sleep(0.01)
    time.sleep(instant)
    program = int(log.read_text().split()[3])
    number = getattr(signal, f"SIG{name}")
    with suppress(ProcessLookupError):  # it may have ended
        if target == "both":
            os.killpg(run.pid, number)
        else:
            os.kill(program if target == "program" else run.pid, number)
    try:
        status = run.wait(MOST_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return "it hangs"
    while Path(f"/proc/{program}/stat").exists() and time.monotonic() < limit:
        if Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    allowed = {0, 128 + number, -number}
    if status not in allowed:
        return f"exit status {status}: " + (folder / "stderr").read_text()[-500:]
    rows, ended = noted(folder)
    last = rows[-1][1]
    want = {f"range {n}" for n, _, done, _ in rows if ended or done <= last - FLUSH_NS}
    try:
        found = recorded(folder)
    except BadInput as error:
        return f"cannot be opened: {error}"
    missing = want - found
    if missing:
        return f"{len(missing)} of {len(want)} ranges are missing, {min(missing)} among them"
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=100, help="instants of each signal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--at", default=",".join(TARGETS))
    parser.add_argument("--until", type=float, default=4.0, help="latest instant, s")
    asked = parser.parse_args(arguments)
    dice = random.Random(asked.seed)
    counts: Counter[tuple[str, bool]] = Counter()
    for _ in range(asked.times):
        for name in asked.signals.split(","):
            target, instant = dice.choice(asked.at.split(",")), dice.uniform(0, asked.until)
            folder = Path(tempfile.mkdtemp(prefix="opscope-kill-"))
            wrong = once(name, target, instant, folder)
            counts[name, wrong is None] += 1
            if wrong is not None:
                print(f"SIG{name} to {target} at {instant:.3f} s: {wrong} ({folder})", flush=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)
    for name in asked.signals.split(","):
        print(f"SIG{name}: {counts[name, True]} right, {counts[name, False]} wrong")
    return int(any(not right for _, right in counts))


if __name__ == "__main__":
    sys.exit(main())
