"""Damaged traces of every reader, by every command: each is read with totals that add up, or refused in one line."""

from __future__ import annotations

import importlib
import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def fuzz():
    # by its name, for the processes that it spawns import it so
    return importlib.import_module("fuzz")


@pytest.fixture(scope="module")
def seeds(fuzz, tmp_path_factory):
    return fuzz.fuzz_seeds.made(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("files", [60, 600])
def test_damaged_traces_are_read_or_refused(files, fuzz, seeds, tmp_path: Path) -> None:
    # the test waits for a busy machine, the script does not
    counts = fuzz.run(seeds, files=files, seed=1, keep=tmp_path / "found", most_seconds=300)
    assert sum(counts.values()) == files
    assert {reader for reader, _, _ in counts} == set(seeds)
    wrong = {outcome for _, _, outcome in counts} - {fuzz.READ, fuzz.REFUSED}
    told = [path.read_text() for path in sorted((tmp_path / "found").glob("*.txt"))]
    assert not wrong, "\n".join(told)
    # damage that leaves nothing to read would find nothing
    assert sum(n for (_, _, outcome), n in counts.items() if outcome == fuzz.READ) > files / 3


def case(fuzz, file: Path, folder: Path, **more: object):
    folder.mkdir(exist_ok=True)
    return fuzz.Case(file, file, folder, random.Random(0), **more)


def test_a_sound_trace_of_every_reader_is_read(fuzz, seeds, tmp_path: Path) -> None:
    for reader, files in seeds.items():
        name = fuzz.fuzz_commands.OF.get(reader, ("load",))[0]
        for number, file in enumerate(files):
            folder = tmp_path / f"{reader} {number}"
            assert fuzz.asked(name, case(fuzz, file, folder)) == (fuzz.READ, ""), file


def test_every_command_is_asked_of_a_sound_trace(fuzz, seeds, tmp_path: Path) -> None:
    (file,) = seeds["Kineto JSON"]
    for number, name in enumerate(fuzz.fuzz_commands.NAMES):
        outcome, told = fuzz.asked(name, case(fuzz, file, tmp_path / str(number)))
        # a selection may have nothing, and a file is not merged with itself
        assert outcome == fuzz.READ or (outcome == fuzz.REFUSED and len(told.splitlines()) == 1), (
            told
        )


def test_the_same_seed_makes_the_same_damage(seeds, tmp_path: Path) -> None:
    from fuzz_damage import damaged

    for name in ("nvprof", "Kineto JSON", "XPlane"):
        made = []
        for copy in ("a", "b"):
            target = tmp_path / f"{copy}-{name}"
            damaged(seeds[name][0], target, random.Random(5))
            made.append(target.read_bytes())
        assert made[0] == made[1]


def test_totals_that_are_wrong_are_seen(fuzz, seeds, tmp_path: Path) -> None:
    (file,) = seeds["nvprof"]
    with closing(sqlite3.connect(file)) as db:
        query = 'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL'
        (kernel_time,) = db.execute(query).fetchone()
    right, wrong = (
        fuzz.asked("load", case(fuzz, file, tmp_path, kernel_time=time))[0]
        for time in (kernel_time, kernel_time + 1)
    )
    assert (right, wrong) == (fuzz.READ, fuzz.WRONG)


@pytest.mark.parametrize("reader", ["nsys SQLite", "nvprof", "Kineto JSON"])
def test_doubled_and_dropped_kernels_count_as_their_records_do(
    reader, fuzz, seeds, tmp_path: Path
) -> None:
    from fuzz_damage import records_of

    times = set()
    for number in range(12):
        target = tmp_path / f"{number}-{seeds[reader][0].name}"
        target.write_bytes(seeds[reader][0].read_bytes())
        kernel_time = records_of(target, random.Random(number))
        outcome = fuzz.asked("load", case(fuzz, target, tmp_path / "out", kernel_time=kernel_time))
        assert outcome[0] in (fuzz.READ, fuzz.REFUSED), outcome
        times.add(kernel_time)
    assert len(times) > 1


def test_what_was_counted_is_added_to_a_file(fuzz, tmp_path: Path) -> None:
    counts = fuzz.Counter({("nvprof", "report", fuzz.READ): 2})
    for _ in range(2):
        both = fuzz.added(counts, tmp_path / "counts")
    assert both == {("nvprof", "report", fuzz.READ): 4}
    assert json.loads((tmp_path / "counts").read_text()) == [["nvprof", "report", fuzz.READ, 4]]
    assert fuzz.table(both, 0).splitlines()[-1] == "| all | 4 | 4 | 0 | 0 | 0 | 0 | 0 |"


@pytest.mark.parametrize("outcome", ["read", "traceback"])
def test_counts_of_runs_beside_each_other_are_added_up(
    outcome, fuzz, tmp_path, monkeypatch, capsys
):
    files = [tmp_path / name for name in ("a", "b")]
    for file, made in zip(files, (fuzz.READ, outcome), strict=True):
        fuzz.added(fuzz.Counter({("nvprof", "report", made): 2}), file)
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--add", *map(str, files)])
    assert fuzz.main() == (outcome != fuzz.READ)
    assert "| all | 4 | " in capsys.readouterr().out
