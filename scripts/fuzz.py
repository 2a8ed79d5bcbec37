"""Damage traces in many ways and open them: each must be read or refused, without any other failure.

Usage: python scripts/fuzz.py [TRACE...] [--files 300] [--seconds 600] [--seed 0] [--keep FOLDER]

Without a TRACE, the script makes small traces for each reader in turn and damages these. Given traces are
damaged instead, cut to some hundred rows unless ``--whole``. A process with bounded memory and time opens
each damaged file and requests its frames and report. The result must be an answer, or a ``BadInput`` of one
line that names the file; any other file is printed and kept in FOLDER, with the traceback beside it. At the
end the script prints the count by reader and outcome. The exit status is 1 if any file was kept.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz_seeds
from fuzz_damage import damaged

#: The memory and time that a file of a few megabytes may take; a file that takes more is a bomb.
MOST_BYTES = 6 << 30
MOST_GROWTH = 1 << 30
MOST_SECONDS = 20
#: The wall-clock time of an answer may be this many times its limit of CPU time.
IDLE = 6
#: The number of frames, drawn at random, that are requested beside the summary and the report.
ASKED = 3
FRAMES = (
    "kernels", "memops", "ops", "op_totals", "kernel_totals", "unattributed", "missing_costs",
    "communication", "collectives", "memory", "memory_by_op", "compiled", "groups", "meshes", "clocks",
    "efficiency", "utilization", "gaps", "range_totals", "notes", "own_costs",
    "engine_layers", "engine_runs",
)  # fmt: skip
READ, REFUSED, TRACEBACK, HANG = "read", "refused", "TRACEBACK", "HANG"
OUTCOMES = (READ, REFUSED, TRACEBACK, HANG)
#: Times of the summary, which are never negative unless a sum overflows 64 bits.
_TIMES = re.compile(r"time\Z|wall|busy|span")


def asked(file: Path, seed: int) -> tuple[str, str]:
    """Open the file and request its frames; return the outcome and an explanation."""
    from opscope.readers import BadInput

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = READ, ""
    try:
        _ask(file, random.Random(seed))
    except BadInput as error:
        outcome = REFUSED, str(error)
        if str(file) not in str(error):
            outcome = TRACEBACK, f"the error message does not name the file: {error}"
        elif len(error.what.splitlines()) != 1:
            outcome = TRACEBACK, f"the error message has several lines: {error}"
    except BaseException:  # noqa: BLE001 - also panics of Rust; these are what the script looks for
        outcome = TRACEBACK, traceback.format_exc()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown << 10 > MOST_GROWTH:
        outcome = HANG, f"used {grown >> 10} MiB"
    return outcome


def _ask(file: Path, dice: random.Random) -> None:
    import opscope
    from opscope.backends.recording_folder import parts
    from opscope.core.not_merged import NotMerged
    from opscope.core.question import layout
    from opscope.profile import Profile
    from opscope.readers.recording.reader import collect
    from opscope.reports import console
    from opscope.scale.merge import merge

    if file.is_dir() and parts(file):
        profile = Profile(collect(file))
    elif file.name.endswith(".partial.parquet"):
        profile = merge([file], strict=True)
    else:
        profile = opscope.load(file, strict=True)
    row = profile.summary().row(0, named=True)
    wrong = {k: v for k, v in row.items() if _TIMES.search(k) and type(v) is int and v < 0}
    # a stored profile is not checked: its own totals are read as they are
    if wrong and not (file / "meta.json").is_file():
        raise AssertionError(f"negative times: {wrong}")
    for name in dice.sample(FRAMES, ASKED):
        with suppress(NotMerged):
            getattr(profile, name)()
    shown = ["summary", "detail", "notes", "unattributed"]
    if not profile.cpu_only:
        shown.append("kernel")
    layout.write(console.tables(profile, shown), io.StringIO(), 100)


def work(tasks: Any, answers: Any) -> None:
    """Answer for the files in the queue until it has ``None``."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    warnings.simplefilter("ignore")
    sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - panics print there
    while (task := tasks.get()) is not None:
        answers.put(asked(Path(task[0]), task[1]))


class Asker:
    """A process that opens files; it is replaced if it dies or takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._tasks, self._answers = context.Queue(), context.Queue()
        self._process = context.Process(target=work, args=(self._tasks, self._answers), daemon=True)
        self._process.start()

    def __call__(self, file: Path, seed: int, seconds: float) -> tuple[str, str]:
        self._tasks.put((str(file), seed))
        begun, worked = time.monotonic(), self._worked()
        while True:
            try:
                answer: tuple[str, str] = self._answers.get(timeout=1)
                return answer
            except Exception:  # noqa: BLE001 - queue.Empty, of whichever context
                if not self._process.is_alive():
                    answer = TRACEBACK, f"the process ended with status {self._process.exitcode}"
                elif self._worked() - worked > seconds or time.monotonic() - begun > IDLE * seconds:
                    self._process.kill()
                    answer = HANG, f"no answer in {seconds} s of CPU time"
                else:
                    continue
                self._start()
                return answer

    def _worked(self) -> float:
        """Seconds of CPU time that the process has used; waits on a busy machine do not count."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has just ended, which the caller notices
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self._tasks.put(None)
        self._process.join(10)


def run(
    sources: Mapping[str, Sequence[Path]],
    *,
    files: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    keep: Path = Path("fuzz-found"),
    most_seconds: float = MOST_SECONDS,
) -> Counter[tuple[str, str]]:
    """Damage and open files until ``files`` or ``seconds`` is reached; return the counts."""
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str, str]] = set()
    asker, begun = Asker(), time.monotonic()
    readers = list(sources)
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder:
        number = seed
        while (files is None or number - seed < files) and (
            seconds is None or time.monotonic() - begun < seconds
        ):
            reader = readers[number % len(readers)]
            dice = random.Random(number)
            source = dice.choice(sources[reader])
            target = Path(folder) / f"{number}-{source.name}"
            damaged(source, target, dice)
            outcome, told = asker(target, number, most_seconds)
            counts[reader, outcome] += 1
            if outcome not in (READ, REFUSED):
                lines = told.strip().splitlines()
                places = [line.strip() for line in lines if "/opscope/" in line]
                key = (reader, lines[-1][:60], places[-1] if places else "")
                if key not in seen:
                    seen.add(key)
                    keep.mkdir(exist_ok=True, parents=True)
                    kept = keep / target.name
                    (shutil.copytree if target.is_dir() else shutil.copy)(target, kept)
                    (keep / f"{target.name}.txt").write_text(told)
                    print(f"{kept}: {key[1]} {key[2]}", flush=True)
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            number += 1
    asker.close()
    return counts


def table(counts: Counter[tuple[str, str]]) -> str:
    """The count by reader and outcome, as a text table."""
    rows = [["reader", *OUTCOMES, "files"]]
    readers = sorted({reader for reader, _ in counts})
    for reader in [*readers, "all"]:
        numbers = [
            sum(n for (r, o), n in counts.items() if o == outcome and reader in (r, "all"))
            for outcome in OUTCOMES
        ]
        rows.append([reader, *map(str, numbers), str(sum(numbers))])
    return "\n".join(row[0].ljust(14) + "".join(cell.rjust(11) for cell in row[1:]) for row in rows)


def reader_of(trace: Path) -> str:
    """The reader's name in the count, for a given trace."""
    from opscope.readers import format_of

    return format_of(trace)


def main() -> int:
    """Read the command line, damage and open the files, print the count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--files", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--whole", action="store_true", help="do not cut the given traces")
    given = parser.parse_args()
    files = 300 if given.files is None and given.seconds is None else given.files
    with tempfile.TemporaryDirectory() as folder:
        sources: dict[str, list[Path]] = {}
        for number, trace in enumerate(given.traces):
            small = trace if given.whole else fuzz_seeds.cut(trace, Path(folder) / str(number))
            sources.setdefault(reader_of(trace), []).append(small)
        counts = run(
            sources or fuzz_seeds.made(Path(folder)),
            files=files,
            seconds=given.seconds,
            seed=given.seed,
            keep=given.keep,
        )
    print(table(counts))
    return 1 if any(outcome in (TRACEBACK, HANG) for _, outcome in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
