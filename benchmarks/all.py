"""Measure what people wait for, each command beside its limit or peer, and say where a missed row's time goes.

Usage: python benchmarks/all.py [--runs 5] [--only TEXT ...] [--kernels 1000000] [--folder DIR]
       [--torch PYTHON] [--tensorflow PYTHON] [--jax PYTHON] [--record VERSION]

Every row is a command that people type, in a process of its own; commands and their peers run by turns. A figure
is the median of the runs (three where one takes over a minute), with the least and the most. "CPU" is user and
system time, which other programs on the machine change less than wall time. The columns are today's figure, the
last release's (``figures.json``, which ``--record`` writes) and the goal. For a row that misses its goal the lines
below the table say what the rest of its time is, by a profile of one more run.

The traces of Kineto are made of real ones in OPSCOPE_SHARED (by default ../shared); without them their rows say so.
The adapters' benchmarks need the framework, so they run with the Pythons that are named, and print their own tables.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import children

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared"))
FIGURES = Path(__file__).with_name("figures.json")
OPSCOPE = (sys.executable, "-m", "opscope")
#: Seconds of a run from which three runs are enough.
LONG = 60.0
#: Copies of ``ddp_memory_v100`` that take 10 GB.
TEN_GB = 205
#: Adapters' benchmarks, by the option that names their Python.
ADAPTERS = {
    "torch": "torch_overhead.py",
    "tensorflow": "tensorflow_adapter.py",
    "jax": "jax_adapter.py",
}

Measured = Mapping[str, float]


@dataclass(frozen=True)
class Group:
    """Rows that one set of commands gives: ``measure`` returns a figure of each; ``goals``: the most allowed.

    ``command``: what is profiled if a goal is missed.
    """

    goals: Mapping[str, float]
    measure: Callable[[], Measured]
    command: Callable[[], list[str | Path]]


@dataclass
class Row:
    """A row's figures of all runs."""

    name: str
    goal: float
    figures: list[float] = field(default_factory=list)

    @property
    def today(self) -> float:
        """The median."""
        return statistics.median(self.figures)

    def line(self, last: float | None) -> str:
        """The row of the table."""
        spread = f"{min(self.figures):.3g}–{max(self.figures):.3g}"
        before = "–" if last is None else f"{last:.3g}"
        verdict = "" if self.today <= self.goal else "missed"
        return (
            f"{self.name:58}{self.today:>8.3g}{spread:>14}{before:>9}{self.goal:>8.3g}  {verdict}"
        )


# Files that are measured.


def shared(name: str) -> Path:
    """Return a real trace. Raises FileNotFoundError, which the table shows."""
    path = SHARED / "data" / "kineto" / name
    if not path.exists():
        raise FileNotFoundError(f"{name} is not in {SHARED}")
    return path


class Files:
    """The traces that are made, once."""

    def __init__(self, folder: Path, kernels: int) -> None:
        self.folder, self.kernels = folder, kernels

    def tiny(self) -> Path:
        """A trace of Kineto of 2 kB: one step with one op and one kernel."""
        path = self.folder / "tiny.json"
        launch = {"correlation": 7, "External id": 3}
        rows = [
            ("user_annotation", "ProfilerStep#1", 0, 100, {"External id": 1}),
            ("cpu_op", "aten::mm", 10, 30, {"External id": 3, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}),
            ("cuda_runtime", "cudaLaunchKernel", 20, 5, launch),
            ("kernel", "ampere_sgemm_64x64_tn", 40, 20, {**launch, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1]}),
        ]  # fmt: skip
        events = [
            {"ph": "X", "cat": kind, "name": name, "pid": 0 if kind == "kernel" else 9, "tid": 7, "ts": ts,
             "dur": dur, "args": args}
            for kind, name, ts, dur, args in rows
        ]  # fmt: skip
        device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
        path.write_text(
            json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events})
        )
        return path

    def long_kineto(self, times: int) -> Path:
        """``ddp_memory_v100`` so many times."""
        path = self.folder / f"kineto-{times}.json"
        if not path.exists():
            from scale_kineto import scale

            scale(shared("ddp_memory_v100.json.gz"), path, times, stretch=True)
        return path

    def nsys(self, texts: str) -> Path:
        """A made trace of Nsight Systems."""
        path = self.folder / f"{texts}-{self.kernels}.sqlite"
        if not path.exists():
            from make_nsys import make

            make(path, self.kernels, style=texts)
        return path

    def onnxruntime(self) -> Path:
        """A made profile of ONNX Runtime, of as many events as there are kernels."""
        path = self.folder / f"onnxruntime-{self.kernels}.json"
        if not path.exists():
            from onnxruntime_read import made

            made(path, self.kernels)
        return path

    def saved(self, texts: str) -> Path:
        """A saved profile without results, made anew."""
        path = self.folder / f"{texts}-{self.kernels}.opscope"
        code = "import opscope, sys; opscope.load(sys.argv[1]).save(sys.argv[2], force=True)"
        children.run([sys.executable, "-c", code, self.nsys(texts), path])
        return path


# Rows.


def start(
    name: str, peer: str, goal: float, words: Callable[[], list[str | Path]], status: int = 0
) -> Group:
    """A command whose start is most of its time, beside an import."""

    def measure() -> Measured:
        took = children.run([sys.executable, "-c", _WITH_STATUS, str(status), *map(str, words())])
        bare = children.run([sys.executable, "-c", f"import {peer}"])
        return {name: took.cpu / bare.cpu}

    return Group({name: goal}, measure, words)


#: A child that runs the command in its own process, and ends well if the command ends as it should.
_WITH_STATUS = """
import os, sys
status, *words = sys.argv[1:]
if status != "0":
    sys.stderr = open(os.devnull, "w")  # its complaint is known
sys.argv = ["opscope", *words]
from opscope.cli import main
try:
    main()
except SystemExit as end:
    sys.exit(int((end.code or 0) != int(status)))
"""


def real(command: str, goal: float) -> Group:
    """A command over ``resnet50_nw0``."""
    name = f"{command} of resnet50_nw0, CPU s"

    def words() -> list[str | Path]:
        return [command, shared("resnet50_nw0_step_span1.pt.trace.json.gz")]

    return Group({name: goal}, lambda: {name: children.run([*OPSCOPE, *words()]).cpu}, words)


def nsys(files: Files, texts: str, label: str, goals: tuple[float, float, float]) -> Group:
    """The report of a trace of Nsight Systems beside SQLite's plain read of the same columns."""
    names = [
        f"report of nsys, {label}, {what}"
        for what in ("wall × the plain read", "CPU × the plain read", "GiB")
    ]

    def measure() -> Measured:
        path = files.nsys(texts)
        took, plain = children.run(children.report(path)), plain_read(path)
        return dict(
            zip(names, (took.wall / plain.wall, took.cpu / plain.cpu, took.peak), strict=True)
        )

    return Group(
        dict(zip(names, goals, strict=True)), measure, lambda: ["report", files.nsys(texts)]
    )


def plain_read(path: Path) -> children.Took:
    """SQLite's own read of the columns that a report needs."""
    return children.run(
        [sys.executable, Path(__file__).with_name("end_to_end.py"), "--one", "floor", path]
    )


def decoded(
    label: str, file: Callable[[], Path], floor: tuple[str, str, str], goals: tuple[float, float]
) -> Group:
    """The report of a JSON trace beside decoding each of its events and forgetting it."""
    import kineto_read

    names = f"report of {label}, CPU × decoding", f"report of {label}, MiB"

    def measure() -> Measured:
        took = children.run(children.report(file()))
        decoding = kineto_read.measure(file(), "decoding", floor, sys.executable)
        if decoding is None:
            raise RuntimeError("decoding failed")
        return {names[0]: took.cpu / decoding[1], names[1]: took.peak * 1024}

    return Group(dict(zip(names, goals, strict=True)), measure, lambda: ["report", file()])


def first_answer(files: Files) -> Group:
    """How long the report of 10 GB of Kineto takes until it says what a part of the file shows."""
    name = "first answer on 10 GB of Kineto, wall s"

    def measure() -> Measured:
        begun = time.perf_counter()
        with subprocess.Popen(
            [*map(str, children.report(files.long_kineto(TEN_GB)))],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            line = next((line for line in child.stderr or () if "provisional" in line), None)
            took = time.perf_counter() - begun
            child.kill()
        if line is None:
            raise RuntimeError("there was no first answer")
        return {name: took}

    return Group({name: 10.0}, measure, lambda: ["report", files.long_kineto(TEN_GB)])


def saved(files: Files, texts: str, label: str) -> Group:
    """A saved profile: its size, and its report without and with kept results."""
    size = f"a saved profile, {label}, MB"
    first, again = (
        f"{which} report of a saved profile, wall × the plain read" for which in ("first", "second")
    )
    both = texts == "registered"  # the reports are measured once

    def measure() -> Measured:
        profile = files.saved(texts)
        figures = {size: sum(file.stat().st_size for file in profile.rglob("*.*")) / 1e6}
        if both:
            plain = plain_read(files.nsys(texts)).wall
            figures[first] = children.run(children.report(profile)).wall / plain
            figures[again] = children.run(children.report(profile)).wall / plain
        return figures

    goals = {size: 12.0, **({first: 0.3, again: 0.05} if both else {})}
    return Group(goals, measure, lambda: ["report", files.saved(texts)])


def difference(files: Files) -> Group:
    """The difference of two saved profiles."""
    seconds, gigabytes = "diff of two profiles, wall s", "diff of two profiles, GB"
    profiles: list[Path] = []

    def words() -> list[str | Path]:
        if not profiles:
            profiles.extend(files.saved(texts) for texts in ("registered", "torch"))
        return ["diff", *profiles]

    def measure() -> Measured:
        took = children.run([*OPSCOPE, *words()])
        return {seconds: took.wall, gigabytes: took.peak * 1.073741824}

    return Group({seconds: 4.0, gigabytes: 1.0}, measure, words)


def groups(files: Files) -> Iterator[Group]:
    """Yield the rows in the order of the table."""
    import kineto_read
    import onnxruntime_read

    yield start(
        "report of 2 kB of Kineto, × import polars", "polars", 2.0, lambda: ["report", files.tiny()]
    )
    yield start("opscope --help, × import typer", "typer", 1.5, lambda: ["--help"])
    yield start("opscope --version, × import typer", "typer", 1.5, lambda: ["--version"])
    yield start(
        "a wrong option, × import typer", "typer", 1.5, lambda: ["report", "--wrong", "x"], status=2
    )
    yield real("report", 0.9)
    yield real("advise", 1.2)
    yield nsys(files, "registered", "registered texts", (0.5, 0.6, 0.5))
    yield nsys(files, "torch", "PyTorch's texts", (0.5, 0.6, 0.4))
    floor = kineto_read.RUNS["floor: decode and forget"]
    for times, events, mebibytes in (
        (10, "2.16 M", 300),
        (50, "10.8 M", 614),
        (TEN_GB, "44 M", 1024),
    ):
        label = f"Kineto, {events} events"
        yield decoded(label, lambda times=times: files.long_kineto(times), floor, (1.2, mebibytes))
    yield first_answer(files)
    floor = onnxruntime_read.RUNS["floor: decode and forget"]
    yield decoded("ONNX Runtime", files.onnxruntime, floor, (1.5, 400))
    yield saved(files, "registered", "registered texts")
    yield saved(files, "torch", "PyTorch's texts")
    yield difference(files)


# Measuring and printing.


def measured(group: Group, runs: int) -> list[Row]:
    """Return the rows of a group after all its runs."""
    rows = {name: Row(name, goal) for name, goal in group.goals.items()}
    begun = os.times().elapsed
    for run in range(runs):
        for name, figure in group.measure().items():
            rows[name].figures.append(figure)
        lasted = os.times().elapsed - begun
        if run == 2 and lasted / 3 > LONG:
            break
    return list(rows.values())


#: A child that profiles a command and prints the seconds of each room, as JSON on stderr's last line.
_PROFILE = """
import cProfile, collections, json, os, pstats, sys
import opscope
base = os.path.dirname(opscope.__file__) + "/"
sys.argv = ["opscope", *sys.argv[1:]]
profile = cProfile.Profile()
def run():
    from opscope.cli import main
    main()
try:
    profile.runcall(run)
except SystemExit:
    pass
rooms = collections.Counter()
for (file, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():
    parts = file.replace("\\\\", "/").split("/")
    if "importlib" in file or name in ("<built-in method marshal.loads>", "<built-in method builtins.exec>", "<module>"):
        room = "imports"
    elif "/re/" in file:
        room = "compiling regular expressions"
    elif file.startswith(base):
        inner = file[len(base):].split("/")
        room = "opscope." + ".".join(inner[:2] if inner[0] in ("core", "readers") else inner[:1]).removesuffix(".py")
    elif "PyLazyFrame" in name or "polars" in parts:
        room = "polars"
    elif "numpy" in file or "numpy" in name:
        room = "numpy"
    elif "msgspec" in name or "zlib" in name or "gzip" in file:
        room = "decompressing and decoding"
    elif "acquire" in name:
        room = "waiting for threads"
    else:
        room = parts[-1] if parts[-1] in ("dataclasses.py", "inspect.py", "enum.py", "typing.py") else "other Python"
    rooms[room] += own
print(json.dumps(rooms), file=sys.stderr)
"""


def rest(command: list[str | Path]) -> str:
    """Say what the time of a command is, by a profile of its main thread, the largest parts first."""
    done = subprocess.run(
        [sys.executable, "-c", _PROFILE, *map(str, command)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    lines = done.stderr.strip().splitlines()
    if done.returncode or not lines:
        return f"the profile failed: {lines[-1] if lines else done.returncode}"
    rooms = Counter(json.loads(lines[-1]))
    total = sum(rooms.values())
    return ", ".join(f"{room} {100 * own / total:.0f} %" for room, own in rooms.most_common(7))


def adapters(given: argparse.Namespace) -> None:
    """Run the adapters' benchmarks with the Pythons that were named, and name those that were not."""
    for name, script in ADAPTERS.items():
        python = getattr(given, name)
        print(
            f"\n{script}" + ("" if python else f": not run, as --{name} PYTHON is not given"),
            flush=True,
        )
        if python:
            subprocess.run([python, Path(__file__).with_name(script)], check=False)


def record(version: str, rows: list[Row]) -> None:
    """Keep today's figures as those of a release; rows that were not measured keep theirs."""
    figures = {
        **json.loads(FIGURES.read_text())["figures"],
        **{row.name: float(f"{row.today:.3g}") for row in rows},
    }
    FIGURES.write_text(
        json.dumps({"release": version, "figures": figures}, indent=2, ensure_ascii=False) + "\n"
    )


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="only rows whose names contain one of these"
    )
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keep the files here, and reuse existing ones")
    parser.add_argument("--record", metavar="VERSION", help="write the figures as this release's")
    for name in ADAPTERS:
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"a Python that has {name}")
    return parser.parse_args()


def main() -> None:
    """Print the table, then what the time of missed rows is."""
    given = arguments()
    last = json.loads(FIGURES.read_text())
    rows: list[Row] = []
    missed: list[tuple[str, str]] = []
    print(f"{'':58}{'today':>8}{'spread':>14}{last['release']:>9}{'goal':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for group in groups(Files(folder, given.kernels)):
            names = list(group.goals)
            if given.only and not any(text in name for text in given.only for name in names):
                continue
            try:
                done = measured(group, given.runs)
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                print(*(f"{name:58}not measured: {error}" for name in names), sep="\n", flush=True)
                continue
            rows += done
            print(*(row.line(last["figures"].get(row.name)) for row in done), sep="\n", flush=True)
            if any(row.today > row.goal for row in done):
                missed.append((names[0], rest(group.command())))
    for name, parts in missed:
        print(f"\n{name}: of the main thread's time {parts}")
    if not given.only or any(name in given.only for name in ADAPTERS):
        adapters(given)
    if given.record:
        record(given.record, rows)


if __name__ == "__main__":
    main()
