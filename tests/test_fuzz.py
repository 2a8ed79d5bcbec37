"""Three hundred damaged traces, of every reader: each is read, or refused in one line."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest

from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def fuzz():
    # by its name, for the processes that it spawns import it so
    return importlib.import_module("fuzz")


@pytest.mark.parametrize("files", [90, pytest.param(600, marks=pytest.mark.full)])
def test_damaged_traces_are_read_or_refused(files, fuzz, tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    seeds = fuzz.fuzz_seeds.made(tmp_path / "seeds")
    # the test waits for a busy machine, the script does not
    counts = fuzz.run(seeds, files=files, seed=1, keep=tmp_path / "found", most_seconds=300)
    assert sum(counts.values()) == files
    assert {reader for reader, _ in counts} == set(seeds)
    wrong = {outcome for _, outcome in counts} - {fuzz.READ, fuzz.REFUSED}
    told = [path.read_text() for path in sorted((tmp_path / "found").glob("*.txt"))]
    assert not wrong, "\n".join(told)
    # damage that leaves nothing to read would find nothing
    assert sum(counts[reader, fuzz.READ] for reader in seeds) > files / 2


def test_a_sound_trace_of_every_reader_is_read(fuzz, tmp_path: Path) -> None:
    seeds = fuzz.fuzz_seeds.made(tmp_path)
    for files in seeds.values():
        for file in files:
            assert fuzz.asked(file, 0) == (fuzz.READ, "")


def test_the_same_seed_makes_the_same_damage(fuzz, tmp_path: Path) -> None:
    from fuzz_damage import damaged

    seeds = fuzz.fuzz_seeds.made(tmp_path)
    for name in ("nvprof", "Kineto JSON", "XPlane"):
        made = []
        for copy in ("a", "b"):
            target = tmp_path / f"{copy}-{name}"
            damaged(seeds[name][0], target, random.Random(5))
            made.append(target.read_bytes())
        assert made[0] == made[1]
