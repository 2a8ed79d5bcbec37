"""Damage traces in many ways and do with each what a user may: it must be read rightly, or refused.

Usage: python scripts/fuzz.py [TRACE...] [--files 300] [--seconds 600] [--seed 0] [--keep FOLDER]
       [--commands NAMES] [--readers NAMES] [--counts FILE]
       python scripts/fuzz.py --add FILE...

Without a TRACE, the script makes small traces for each reader in turn and damages these. Given traces are
damaged instead, cut to some hundred rows unless ``--whole``. A process with bounded memory and time does one
of ``fuzz_commands.NAMES`` with each damaged file: a command, the library's frames or the viewer's answers. The
result must be an answer whose totals add up, or a refusal of one line that names the file. Any other file is
printed and kept in FOLDER, with what came of it beside it. At the end the script prints the counts by reader and
by command; with ``--counts`` they are added to a file, which later runs go on with. ``--add`` prints what several
such files come to together: runs beside each other need files and seeds of their own. The exit status is 1 if
any file was kept.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz_commands
import fuzz_seeds
from fuzz_commands import MEMORY, READ, REFUSED, TIME, TRACEBACK, WRONG, Case
from fuzz_damage import damaged

#: The memory and time that a file of a few megabytes may take; a file that takes more is a bomb.
MOST_BYTES = 6 << 30
MOST_GROWTH = 1 << 30
MOST_SECONDS = 20
#: The bytes of a file that a command may write.
MOST_WRITTEN = 1 << 30
#: The wall-clock time of an answer may be this many times its limit of CPU time.
IDLE = 6
#: So many files are counted at a time, so that a run that is ended loses few.
BATCH = 100
OUTCOMES = (READ, REFUSED, TRACEBACK, MEMORY, TIME, WRONG)
#: Counts by reader, command and outcome.
Counts = Counter[tuple[str, str, str]]


def asked(name: str, case: Case) -> tuple[str, str]:
    """Do with the file what ``name`` says; return the outcome and an explanation."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = fuzz_commands.judged(name, case)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown << 10 > MOST_GROWTH:
        outcome = MEMORY, f"used {grown >> 10} MiB"
    return outcome


def work(tasks: Any, answers: Any) -> None:
    """Answer for the files in the queue until it has ``None``."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    warnings.simplefilter("ignore")
    sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - panics print there
    while (task := tasks.get()) is not None:
        answers.put(asked(*task))


class Asker:
    """A process that opens files; it is replaced if it dies or takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._tasks, self._answers = context.Queue(), context.Queue()
        self._process = context.Process(target=work, args=(self._tasks, self._answers), daemon=True)
        self._process.start()

    def __call__(self, name: str, case: Case, seconds: float) -> tuple[str, str]:
        self._tasks.put((name, case))
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
                    answer = TIME, f"no answer in {seconds} s of CPU time"
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
    commands: Sequence[str] = fuzz_commands.NAMES,
    asker: Asker | None = None,
) -> Counts:
    """Damage and open files until ``files`` or ``seconds`` is reached; return the counts.

    With an ``asker`` its process is used and left running.
    """
    counts: Counts = Counter()
    seen: set[tuple[str, str]] = set()
    own, begun = asker is None, time.monotonic()
    asker = asker or Asker()
    readers = list(sources)
    number = seed
    with suppress(KeyboardInterrupt):
        while (files is None or number - seed < files) and (
            seconds is None or time.monotonic() - begun < seconds
        ):
            reader = readers[number % len(readers)]
            dice = random.Random(number)
            name = dice.choice(commands)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                if reader in fuzz_commands.OF and dice.random() < 0.9:
                    name = dice.choice(fuzz_commands.OF[reader])
                case = _case(sources[reader], Path(folder), number, dice)
                outcome, told = asker(name, case, most_seconds)
                counts[reader, name, outcome] += 1
                if outcome not in (READ, REFUSED):
                    _keep(case.file, keep, f"{reader}: {name}: {outcome}", told, seen)
            number += 1
    if own:
        asker.close()
    return counts


def _case(sources: Sequence[Path], folder: Path, number: int, dice: random.Random) -> Case:
    source = dice.choice(sources)
    target = folder / f"{number}-{source.name}"
    kernel_time = damaged(source, target, dice)
    (folder / "written").mkdir()
    return Case(target, dice.choice(sources), folder / "written", dice, kernel_time)


def _keep(file: Path, keep: Path, which: str, told: str, seen: set[tuple[str, str]]) -> None:
    """Keep a file of each fault, with what came of it."""
    lines = told.strip().splitlines()
    places = [line.strip() for line in lines if "/opscope/" in line]
    key = (lines[-1][:60], places[-1] if places else which)
    if key in seen:
        return
    seen.add(key)
    keep.mkdir(exist_ok=True, parents=True)
    for path in file.parent.glob(f"{file.name}*"):  # what lies beside it, too
        if path.is_dir():
            with suppress(shutil.Error):  # of pipes
                shutil.copytree(path, keep / path.name, symlinks=True)
        else:
            shutil.copy(path, keep / path.name)
    (keep / f"{file.name}.txt").write_text(f"{which}\n{told}")
    print(f"{keep / file.name}: {which}: {key[0]} {key[1]}", flush=True)


def table(counts: Counts, of: int) -> str:
    """The counts by reader (``of`` 0) or by command (``of`` 1) and outcome, in Markdown."""
    heads = [("reader", "command")[of], "files", *OUTCOMES]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name in [*sorted({key[of] for key in counts}), "all"]:
        numbers = [
            sum(n for key, n in counts.items() if key[2] == outcome and name in (key[of], "all"))
            for outcome in OUTCOMES
        ]
        rows.append([name, *(f"{number:,}" for number in (sum(numbers), *numbers))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def counted(file: Path) -> Counts:
    """The counts in a file."""
    return Counter({tuple(key): n for *key, n in json.loads(file.read_text())})


def added(counts: Counts, file: Path) -> Counts:
    """Add the counts to those in the file, if there is one; return all."""
    counts = counts + counted(file) if file.is_file() else counts
    file.write_text(json.dumps([[*key, n] for key, n in sorted(counts.items())]))
    return counts


def reader_of(trace: Path) -> str:
    """The reader's name in the count, for a given trace."""
    from opscope.readers import format_of

    return format_of(trace)


def main() -> int:
    """Read the command line, damage and open the files, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--files", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--whole", action="store_true", help="do not cut the given traces")
    parser.add_argument("--commands", default=",".join(fuzz_commands.NAMES))
    parser.add_argument(
        "--readers", help="only these, as the table names them, with commas between"
    )
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--add", type=Path, nargs="+", metavar="FILE")
    given = parser.parse_args()
    if given.add:
        return _told(sum(map(counted, given.add), Counter()))
    files = given.files or (300 if given.seconds is None else 1 << 62)
    with tempfile.TemporaryDirectory() as folder:
        sources: dict[str, list[Path]] = {}
        for number, trace in enumerate(given.traces):
            small = trace if given.whole else fuzz_seeds.cut(trace, Path(folder) / str(number))
            sources.setdefault(reader_of(trace), []).append(small)
        sources = sources or fuzz_seeds.made(Path(folder))
        if given.readers:
            sources = {name: sources[name] for name in given.readers.split(",")}
        counts: Counts = Counter()
        until = time.monotonic() + (given.seconds or float("inf"))
        asker = Asker()  # one for all: to start it takes as long as twenty files
        while (done := sum(counts.values())) < files and time.monotonic() < until:
            some = run(
                sources,
                files=min(BATCH, files - done),
                seconds=until - time.monotonic(),
                seed=given.seed + done,
                keep=given.keep,
                commands=given.commands.split(","),
                asker=asker,
            )
            counts += some
            everything = added(some, given.counts) if given.counts else counts
            if sum(some.values()) < min(BATCH, files - done):  # Ctrl-C
                break
        asker.close()
    _told(everything)
    return any(outcome not in (READ, REFUSED) for _, _, outcome in counts)


def _told(counts: Counts) -> int:
    """Print the counts; return 1 if any file was neither read nor refused."""
    print(table(counts, 0), table(counts, 1), sep="\n\n")
    return any(outcome not in (READ, REFUSED) for _, _, outcome in counts)


if __name__ == "__main__":
    sys.exit(main())
