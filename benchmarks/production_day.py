"""A day in production in minutes: light mode, --last and attach while disks fill, clocks are set and workers die.

    python benchmarks/production_day.py [--hours 24] [--speed 120] [--picture FILE.svg]

Two trainings run side by side under ``opscope run``, one with ``--light --attachable``, one with ``--last``, on a
clock that runs ``--speed`` times as fast (``fast_clock.c``, preloaded; it needs gcc and Linux). Their disk is a
small tmpfs, mounted in a user namespace of its own. Meanwhile a hundred ``opscope attach`` come and go and their
profiles are rotated; the disk is filled and freed; the time of day is set; a worker is killed and started again; two runs
write to one output. Memory, descriptors, threads, mapped files and files on disk are read each 0.1 h. Each program counts
its steps and ranges itself, in a file that outlives it, and what opscope says of them is held against that.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: What a worker exits with.
STATUS = 7
#: A step's ranges, and how long it takes on the fast clock (s).
RANGES, STEP_S = 5, 1.0
#: The size of the disk; the training's own files and the profiles fit in it.
DISK = "48m"
#: The first key of what is drawn, its unit, and how much it may grow after the first hour.
DRAWN = {"rss": ("RSS", "MB", 1), "pss": ("PSS", "MB", 1), "files": ("open files", "", 0),
         "threads": ("threads", "", 0), "maps": ("mapped files", "", 0),
         "disk": ("the recording on disk", "MB", 1)}  # fmt: skip
COLOURS = {"light": "#1f6f8b", "last": "#c2571a"}


# ------------------------------------------------------------------------------------------ the worker


def work(kind: str, counts: str, stop: str) -> None:
    """Train until the file ``stop`` exists, counting in the file ``counts``, which outlives a kill."""
    import opscope

    with open(counts, "r+b") as file:
        counter = mmap.mmap(file.fileno(), 16)
    step = _numpy_step() if kind == "numpy" else _torch_step()
    number = ranges = 0
    due = time.monotonic()
    while not os.path.exists(stop) and os.path.exists(counts):
        if kind == "numpy":
            opscope.step(number)
        for index in range(RANGES):
            with opscope.annotate(f"part {index}"):
                step(index)
            ranges += 1
            struct.pack_into("<q", counter, 8, ranges)
        number += 1
        struct.pack_into("<q", counter, 0, number)
        due = max(due + STEP_S, time.monotonic() - STEP_S)
        time.sleep(max(0.0, due - time.monotonic()))
    sys.exit(STATUS)


def _numpy_step() -> Callable[[int], object]:
    import numpy

    matrix = numpy.ones((32, 32))
    return lambda index: matrix @ matrix


def _torch_step() -> Callable[[int], object]:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, 16)

    def step(index: int) -> None:
        if index == 0:
            optimizer.zero_grad()
        model(data).sum().backward()
        if index == RANGES - 1:
            optimizer.step()

    return step


# ------------------------------------------------------------------------------------------- the clock


class FastClock:
    """The fast clock of all processes that have ``environment``."""

    def __init__(self, folder: Path, speed: float) -> None:
        library = folder / "fast_clock.so"
        source = Path(__file__).with_name("fast_clock.c")
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
        )
        self._control = folder / "set_by"
        self._control.write_bytes(struct.pack("<q", 0))
        self._base, self.speed = time.monotonic_ns(), speed
        self.environment = {
            "LD_PRELOAD": str(library),
            "DAY_SPEED": str(speed),
            "DAY_BASES": f"{self._base} {time.time_ns()}",
            "DAY_CONTROL": str(self._control),
        }

    @property
    def hours(self) -> float:
        """Hours since the day began."""
        return (time.monotonic_ns() - self._base) * self.speed / 3.6e12

    def set(self, hours: float) -> None:
        """Set the time of day so many hours ahead of what it would be."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("<q", int(hours * 3.6e12)))


# ----------------------------------------------------------------------------------- what is measured


@dataclass
class Program:
    """A worker under ``opscope run``, and what was measured of it."""

    name: str
    options: list[str]
    clock: FastClock
    disk: Path
    kept: Path
    kind: str
    number: int = 0
    run: subprocess.Popen[bytes] | None = None
    pid: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    started_at: float = 0.0
    is_attached: bool = False

    @property
    def output(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def said(self) -> Path:
        return self.kept / f"{self.output}.txt"

    @property
    def counts(self) -> Path:
        return self.kept / f"{self.output}.counts"

    def start(self) -> None:
        """Start the run, and wait for its worker."""
        self.number += 1
        self.counts.write_bytes(bytes(16))
        command = [sys.executable, "-m", "opscope", "run", *self.options, "--no-report", "-o", self.output, "--",
                   sys.executable, __file__, "--worker", self.kind, str(self.counts), str(self.kept / "stop")]  # fmt: skip
        with self.said.open("wb") as said:
            self.run = subprocess.Popen(
                command,
                cwd=self.disk,
                stdout=said,
                stderr=said,
                env={**environment(), **self.clock.environment},
            )
        while not self.counted()[0]:
            if self.run.poll() is not None:
                raise SystemExit(f"{self.output} did not start:\n{self.said.read_text()}")
            time.sleep(0.02)
        (self.pid,) = [int(one) for one in _children(self.run.pid) if b"--worker" in _command(one)]
        self.started_at = self.clock.hours

    def counted(self) -> tuple[int, int]:
        """The steps and the ranges that the program counted itself."""
        steps, ranges = struct.unpack("<2q", self.counts.read_bytes())
        return steps, ranges

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        assert self.run is not None
        steps, ranges = self.counted()
        status = self.run.wait(300)
        steps, ranges = self.counted()
        self.ended.append(
            {"output": self.output, "status": status, "steps": steps, "ranges": ranges}
        )
        self.run = None

    def measure(self) -> None:
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError
        ):  # it is being started again
            self._measure()

    def _measure(self) -> None:
        proc = Path(f"/proc/{self.pid}")
        rollup = dict(
            line.split(":", 1) for line in (proc / "smaps_rollup").read_text().splitlines()[1:]
        )
        mapped = {
            line.split(None, 5)[5]
            for line in (proc / "maps").read_text().splitlines()
            if "/" in line
        }
        # os.walk goes on where a folder goes meanwhile
        folders = [
            folder for one in self.disk.glob(f".{self.output}.opscope-*") for folder in os.walk(one)
        ]
        files = [Path(folder, name) for folder, _, names in folders for name in names]
        self.rows.append({
            "hours": self.clock.hours, "number": self.number, "age": self.clock.hours - self.started_at,
            "rss": int(rollup["Rss"].split()[0]) / 1024, "pss": int(rollup["Pss"].split()[0]) / 1024,
            "files": len(list((proc / "fd").iterdir())), "threads": len(list((proc / "task").iterdir())),
            "attached": self.is_attached, "maps": len(mapped), "disk": sum(map(_size, files)) / 1e6, "parts": len(files),
        })  # fmt: skip


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }


# --------------------------------------------------------------------------------------------- the day


class Day:
    """What happens to the two programs, by the hour."""

    def __init__(self, asked: argparse.Namespace, disk: Path, kept: Path) -> None:
        self.asked, self.disk, self.kept = asked, disk, kept
        self.clock = FastClock(kept, asked.speed)
        new = lambda name, *options: Program(name, [*options], self.clock, disk, kept, asked.kind)  # noqa: E731
        self.light = new("light", "--light", "--attachable", "--no-spells")
        self.last = new("last", "--last", "5min")
        self.twins = [new(f"twin{number}", "--backend", "recorder") for number in (1, 2)]
        self.attached: list[tuple[int, str]] = []
        self.marks: list[tuple[float, str]] = []
        self._over = False
        self._restarting: list[threading.Thread] = []

    def live(self) -> None:
        """Let the day pass."""
        self.light.start()
        self.last.start()
        share = self.asked.hours / 24
        events: list[tuple[float, str, Callable[[], object]]] = [
            (3, "disk full", self.fill), (4, "freed", self.free),
            (5, "clock +1 h", lambda: self.clock.set(1)), (6, "clock −2 h", lambda: self.clock.set(-1)),
            (8, "killed", self.again), (11, "disk full", self.fill), (11.5, "freed", self.free),
            (12, "clock +1 d", lambda: self.clock.set(23)), (13, "clock −1 d", lambda: self.clock.set(-1)),
            (16, "killed", self.again), (19, "disk full", self.fill), (19.2, "freed", self.free),
        ]  # fmt: skip
        events = [(hour * share, name, deed) for hour, name, deed in events]
        attaching = threading.Thread(target=self.attach, daemon=True)
        attaching.start()
        measured = rotated = 0.0
        while self.clock.hours < self.asked.hours or attaching.is_alive():
            now = self.clock.hours
            while events and now >= events[0][0]:
                _, name, deed = events.pop(0)
                print(f"{now:6.2f} h  {name}", flush=True)
                self.marks.append((now, name))
                deed()
            if now >= measured:
                measured = now + 0.1 * share
                self.light.measure()
                self.last.measure()
            if now >= rotated:
                rotated = now + share
                self.rotate()
            time.sleep(0.02)
        self._over = True
        for thread in (attaching, *self._restarting):
            thread.join()
        self.rotate()
        (self.kept / "stop").touch()
        self.light.wait()
        self.last.wait()
        (self.kept / "stop").unlink()
        self.together()

    def attach(self) -> None:
        """Attach again and again to the light program, for five steps each."""
        share = self.asked.hours / 24
        for number in range(self.asked.attaches):
            due = (0.1 + 23.5 * number / self.asked.attaches) * share
            while not self._over and self.clock.hours < due:
                time.sleep(0.02)
            command = [sys.executable, "-m", "opscope", "attach", str(self.light.pid), "--steps", "5", "--no-report",
                       "-o", str(self.disk / f"attached-{number}")]  # fmt: skip
            self.light.is_attached = True
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment(), timeout=120, check=False
            )
            self.light.is_attached = False
            self.light.measure()
            self.attached.append((done.returncode, done.stderr.strip()))

    def fill(self) -> None:
        """Leave no byte of the disk."""
        with (self.disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        (self.disk / "filler").unlink()

    def again(self) -> None:
        """Kill the worker with --last, and start it again; its profile is kept."""

        def restart() -> None:
            self.last.kill()
            self.last.start()

        self._restarting.append(threading.Thread(target=restart))
        self._restarting[-1].start()

    def rotate(self) -> None:
        """Take the finished profiles from the disk, as a rotation of logs does."""
        for profile in self.disk.glob("attached-*.opscope"):
            with contextlib.suppress(OSError):
                shutil.move(profile, self.kept / profile.name)

    def together(self) -> None:
        """Let two runs write to one output: the later has a number."""
        outs = []
        for twin in self.twins:
            twin.number = 0
        runs = []
        for number in range(2):
            counts = self.kept / f"twin-{number}.counts"
            counts.write_bytes(bytes(16))
            command = [sys.executable, "-m", "opscope", "run", "--no-report", "-o", "twin", "--", sys.executable,
                       __file__, "--worker", self.asked.kind, str(counts), str(self.kept / "stop")]  # fmt: skip
            runs.append(
                (
                    counts,
                    subprocess.Popen(
                        command, cwd=self.disk, env=environment(), stderr=subprocess.PIPE, text=True
                    ),
                )
            )
        while any(struct.unpack("<2q", counts.read_bytes())[0] < 3 for counts, _ in runs):
            time.sleep(0.1)
        (self.kept / "stop").touch()
        for counts, run in runs:
            _, said = run.communicate(timeout=300)
            outs.append((run.returncode, struct.unpack("<2q", counts.read_bytes()), said))
        self.twin_ends = outs


# ------------------------------------------------------------------------------------------- the table


def growth(program: Program, name: str) -> tuple[float, float]:
    """The value after a twenty-fourth of the day, and how much higher it was later, at most, of each process.

    What is held while somebody is attached is left out: it is the picture's.
    """
    share = max(row["hours"] for row in program.rows) / 24
    first, most = 0.0, 0.0
    for number in {row["number"] for row in program.rows}:
        rows = [row for row in program.rows if row["number"] == number]
        settled = [row[name] for row in rows if row["age"] >= share and not row["attached"]]
        if len(settled) > 1:
            first = settled[0]
            most = max(most, max(settled) - settled[0])
    return first, most


def told(day: Day) -> None:
    """Print what grew, and what is missing."""
    print(f"\n{'':24}" + "".join(f"{program.name:>24}" for program in (day.light, day.last)))
    print(f"{'':24}" + f"{'after 1 h':>14}{'most':>10}" * 2)
    for name, (words, unit, _) in {**DRAWN, "parts": ("files of it", "", 0)}.items():
        cells = [growth(program, name) for program in (day.light, day.last)]
        print(
            f"{words + (f' [{unit}]' if unit else ''):24}"
            + "".join(f"{a:14.1f}{b:+10.1f}" for a, b in cells)
        )


def counted(day: Day) -> None:
    """Hold what the profiles say against what the programs counted."""
    import opscope

    for program in (day.light, day.last):
        for end in program.ended:
            path = day.disk / f"{end['output']}.opscope"
            print(
                f"\n{end['output']}: exit status {end['status']}; the program counted {end['steps']} steps"
            )
            for line in (day.kept / f"{end['output']}.txt").read_text().splitlines():
                print(f"    {line}")
            if not path.exists():
                print("    no profile")
                continue
            trace = opscope.load(path).trace
            if program is day.light:
                summed, full = (int(trace["light"][name].sum()) for name in ("steps", "full_steps"))
                blocks = int(trace["light_blocks"]["steps"].sum())
                print(f"    light mode: {summed} steps summed up ({blocks} in its blocks), {full} recorded in full while"
                      f" somebody was attached; {end['steps'] - summed - full} of the program's are in neither")  # fmt: skip
            else:
                numbers = opscope.load(path).steps()["step"].drop_nulls().to_list() or [-1]
                parts = sum(text.startswith("part ") for text in trace["ranges"]["text"].cast(str))
                print(
                    f"    --last: steps {min(numbers)} to {max(numbers)}, {len(set(numbers))} of them, {parts} ranges"
                )
            for row in trace["notes"].select("severity", "what", "how_many").rows():
                print("    note:", *row)
    good = [said for status, said in day.attached if status == 0]
    print(f"\nattached {len(day.attached)} times, {len(good)} with a profile")
    for status, said in day.attached:
        if status:
            print(f"    {status}: {said[:300]}")
    ranges = []
    for path in sorted(day.kept.glob("attached-*.opscope")):
        texts = opscope.load(path).trace["ranges"]["text"].cast(str)
        ranges.append(sum(text.startswith("part ") for text in texts))
    print(f"    ranges in {len(ranges)} of them: {sorted(set(ranges))} (5 steps of {RANGES})")
    for status, (steps, made), said in day.twin_ends:
        print(
            f"\ntwin: exit status {status}; {steps} steps, {made} ranges counted; {said.strip()!r}"
        )
    for name in ("twin", "twin-2"):
        path = day.disk / f"{name}.opscope"
        if path.exists():
            texts = opscope.load(path).trace["ranges"]["text"].cast(str)
            print(f"    {path.name}: {sum(text.startswith('part ') for text in texts)} ranges")


# ----------------------------------------------------------------------------------------- the picture


def picture(day: Day) -> str:
    """Return the curves as SVG."""
    width, height, left, top, gap = 960, 118, 70, 46, 30
    total = top + len(DRAWN) * (height + gap) + 20
    hours = max(day.asked.hours, *(row["hours"] for row in day.light.rows))
    x = lambda hour: left + hour / hours * (width - left - 20)  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{total}" fill="white"/>',
           f'<text x="{left}" y="20" font-size="15">A day in production: what opscope holds in two trainings</text>']  # fmt: skip
    for number, name in enumerate(COLOURS):
        out.append(f'<rect x="{width - 300 + 150 * number}" y="10" width="12" height="12" fill="{COLOURS[name]}"/>'
                   f'<text x="{width - 283 + 150 * number}" y="20">run --{name}</text>')  # fmt: skip
    for number, (name, (words, unit, _)) in enumerate(DRAWN.items()):
        y0 = top + number * (height + gap)
        values = [row[name] for program in (day.light, day.last) for row in program.rows]
        most = max(values) * 1.15 or 1
        y = lambda value, y0=y0, most=most: y0 + height - value / most * height  # noqa: E731
        out.append(f'<rect x="{left}" y="{y0}" width="{width - left - 20}" height="{height}" fill="#f6f6f4"/>'
                   f'<text x="{left + 6}" y="{y0 + 14}" font-weight="bold">{words}{f" [{unit}]" if unit else ""}</text>'
                   f'<text x="{left - 6}" y="{y0 + 10}" text-anchor="end">{most:.4g}</text>'
                   f'<text x="{left - 6}" y="{y0 + height}" text-anchor="end">0</text>')  # fmt: skip
        for hour, mark in day.marks:
            out.append(
                f'<line x1="{x(hour):.1f}" x2="{x(hour):.1f}" y1="{y0}" y2="{y0 + height}" stroke="#bbb" stroke-dasharray="3 3"/>'
            )
            if number == 0:
                out.append(f'<text x="{x(hour) + 3:.1f}" y="{y0 + height - 4}" font-size="9" fill="#666" '
                           f'transform="rotate(-90 {x(hour) + 9:.1f} {y0 + height - 4})">{mark}</text>')  # fmt: skip
        for program in (day.light, day.last):
            for life in sorted({row["number"] for row in program.rows}):
                points = " ".join(
                    f"{x(row['hours']):.1f},{y(row[name]):.1f}"
                    for row in program.rows
                    if row["number"] == life
                )
                out.append(
                    f'<polyline points="{points}" fill="none" stroke="{COLOURS[program.name]}" stroke-width="1.6"/>'
                )
    y0 = top + len(DRAWN) * (height + gap) - gap
    tick = day.asked.hours / 8
    for number in range(int(hours / tick) + 1):
        out.append(
            f'<text x="{x(number * tick):.1f}" y="{y0 + 16}" text-anchor="middle">{number * tick:g} h</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--hours", type=float, default=24)
    words.add_argument("--speed", type=float, default=120)
    words.add_argument("--attaches", type=int, default=100)
    words.add_argument("--kind", choices=("numpy", "torch"), default="numpy")
    words.add_argument("--picture", type=Path)
    words.add_argument("--worker", nargs=3)
    words.add_argument("--inside", type=Path)
    asked = words.parse_args()
    if asked.worker:
        work(*asked.worker)
    elif asked.inside is None:  # a namespace of its own: it may mount a disk, whoever runs this
        with tempfile.TemporaryDirectory() as folder:
            command = [
                "unshare",
                "--user",
                "--map-root-user",
                "--mount",
                sys.executable,
                *sys.argv,
                "--inside",
                folder,
            ]
            raise SystemExit(subprocess.run(command, check=False).returncode)
    else:
        disk, kept = asked.inside / "disk", asked.inside / "kept"
        disk.mkdir()
        kept.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True)
        day = Day(asked, disk, kept)
        day.live()
        told(day)
        counted(day)
        if asked.picture is not None:
            asked.picture.write_text(picture(day), encoding="utf-8")


if __name__ == "__main__":
    main()
