"""Every reader says how far it has come, by the bytes of its files as they lie on the disk."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

import opscope
from opscope import readers
from opscope.core import progress
from opscope.readers.formats import find
from opscope.readers.looks import LOOKS
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
#: Every reader of ours but that of profiles, which reads its tables when they are asked for.
READERS = sorted({*LOOKS, "kineto"} - {"profile"})


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    made = pytest.importorskip("fuzz_seeds")
    return made.made(tmp_path_factory.mktemp("seeds"))


@pytest.fixture(scope="module")
def traces(seeds):
    """The seeds by the reader that takes them; what only a command of its own takes is no trace."""
    others = {"profile", *pytest.importorskip("fuzz_commands").OF}
    traces = {reader: [] for reader in READERS}
    for name, paths in seeds.items():
        for path in paths if name not in others else ():
            traces[find(path).name].append(path)
    return traces


def told_by(path, read):
    """What is told while ``read`` reads the path: each time of the stage that reads, and its total."""
    told = []

    def listener(stage: progress.Stage) -> None:
        if isinstance(stage, progress.Reading):
            told.append((stage.done, stage.total, stage.over))

    with progress.listening(listener):
        read(path)
    return told


@pytest.mark.parametrize("reader", READERS)
def test_the_reader_itself_moves_on_before_it_is_done(reader, traces):
    def read(path: Path) -> None:
        with progress.reading([path]):
            find(path).read(path)

    assert traces[reader], "scripts/fuzz_seeds.py has no trace of it"
    for path in traces[reader]:
        told = told_by(path, read)
        assert any(done and not over for done, _, over in told), path
        assert told[-1] == (told[-1][1], told[-1][1], True), path


@pytest.mark.parametrize("reader", READERS)
def test_the_total_is_the_size_of_the_files(reader, traces):
    path = traces[reader][0]
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    told = told_by(path, readers.open)
    size = sum(one.stat().st_size for one in files)
    assert {total for _, total, _ in told} == {size}
    done = [one for one, _, _ in told]
    assert done == sorted(done)
    assert done[-1] == size


def test_a_packed_file_counts_as_it_lies_on_the_disk(seeds, tmp_path):
    packed = tmp_path / "kineto.json.gz"
    packed.write_bytes(gzip.compress(seeds["Kineto JSON"][0].read_bytes()))
    told = told_by(packed, readers.open)
    assert told[-1] == (packed.stat().st_size, packed.stat().st_size, True)


def test_a_large_file_is_told_of_block_by_block(seeds, tmp_path, monkeypatch):
    from opscope.readers.kineto import json_events

    monkeypatch.setattr(json_events, "BLOCK", 512)
    path = seeds["Kineto JSON"][0]
    blocks = -(-path.stat().st_size // 512)
    assert blocks > 3
    done = {one for one, _, _ in told_by(path, readers.open)}
    assert len(done) > blocks - 2


def test_several_files_are_one_stage(seeds, tmp_path):
    first, other = seeds["Kineto JSON"][0], seeds["nvprof"][0]
    told = told_by([first, other], readers.open)
    both = first.stat().st_size + other.stat().st_size
    assert {total for _, total, _ in told} == {both}
    assert sum(over for _, _, over in told) == 1
    assert any(first.stat().st_size <= done < both for done, _, over in told if not over)


def test_a_profile_is_told_of_when_its_tables_are_asked_for(seeds):
    names = []
    with progress.listening(lambda stage: names.append(stage.name)):
        profile = opscope.load(seeds["profile"][0])
        assert not names
        assert len(profile.trace["kernels"])
    assert set(names) == {"reading kernels.parquet"}


def test_load_tells_a_callback_and_nobody_else(seeds, capfd):
    told = []
    opscope.load(seeds["Kineto JSON"][0], progress=lambda *what: told.append(what))
    size = seeds["Kineto JSON"][0].stat().st_size
    assert told[0] == ("reading kineto.json", 0, size)
    assert told[-1] == ("reading kineto.json", size, size)
    many = len(told)
    opscope.load(seeds["Kineto JSON"][0])
    assert len(told) == many
    assert capfd.readouterr() == ("", "")


def test_a_callback_can_end_the_load(seeds):
    def enough(stage: str, done: int, total: int | None) -> None:
        if done:
            raise InterruptedError(stage)

    with pytest.raises(InterruptedError, match="reading"):
        opscope.load(seeds["nsys SQLite"][0], progress=enough)


def test_analysis_is_told_of_too(seeds, tmp_path):
    names = []
    profile = opscope.load(seeds["Kineto JSON"][0])
    with progress.listening(lambda stage: names.append(stage.name)):
        profile.advice()
        profile.save(tmp_path / "out.opscope")
    assert {"linking kernels to ops", "asking detectors", "writing the profile"} <= set(names)


@pytest.mark.parametrize("to", ["perfetto", "chrome", "speedscope", "otlp"])
def test_an_export_ends_with_all_of_its_slices(to, seeds, tmp_path):
    from opscope.exports.formats import export

    profile = opscope.load(seeds["nsys SQLite"][0])
    profile.kernels()
    told = []
    with progress.listening(
        lambda stage: told.append((stage.unit, stage.done, stage.total, stage.over))
    ):
        export(profile, to, tmp_path / "out")
    written = [one[1:] for one in told if one[0] == progress.SLICES]
    assert any(done > 0 and not over for done, _, over in written)
    assert written[-1][0] == written[-1][1] > 0
