"""Formats that other packages add: found by their entry points, held to what our own readers are held to."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import opscope
from opscope import readers
from opscope.core import registered
from opscope.readers import BadInput
from opscope.readers.looks import LOOKS

READER = Path(__file__).resolve().parents[1] / "other_package" / "kernels_csv.py"
ROOT = Path(opscope.__file__).resolve().parents[1]
ROWS = "kernel,stream,begin_us,end_us\nsgemm,7,1.0,3.5\nrelu,7,4.0,4.5\n"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(name=value)``: a package with these entry points, on the path; ``source`` is its module."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "kernels_csv", raising=False)

    def make(source: str | None = None, **points: str) -> Path:
        if source is None:
            shutil.copy(READER, site)
        else:
            (site / "kernels_csv.py").write_text(source)
        info = site / "kernels_csv-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels-csv\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in (points or {"csv": "kernels_csv"}).items()]
        (info / "entry_points.txt").write_text("\n".join(["[opscope.readers]", *lines, ""]))
        readers.formats._others.cache_clear()
        registered._all_entry_points.cache_clear()
        return site

    yield make
    readers.formats._others.cache_clear()
    sys.modules.pop("kernels_csv", None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(ROWS)
    return path


def test_a_format_of_another_package_is_opened_as_any_other(install: Install, file: Path) -> None:
    with pytest.raises(BadInput, match="not a trace"):
        readers.open(file)
    install()
    assert readers.format_of(file) == "csv"
    profile = opscope.load(file)
    assert profile.kernels().select("name", "stream", "duration").rows() == [
        ("sgemm", 7, 2500),
        ("relu", 7, 500),
    ]
    assert profile.trace.origin["format"] == "kernels-csv"


def test_its_reader_sees_what_is_packed_unpacked(install: Install, tmp_path: Path) -> None:
    install()
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(ROWS.encode()))
    assert readers.format_of(packed) == "csv"


def test_files_of_a_folder_are_told_apart(install: Install, tmp_path: Path) -> None:
    install()
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"rank{rank}.csv").write_text(ROWS.replace("relu", f"relu{rank}"))
    (folder / "README").write_text("not a trace")
    assert len(readers.open(folder)["kernels"]) == 4


def test_the_command_reads_it_in_a_process_of_its_own(install: Install, file: Path) -> None:
    site = install()
    path = os.pathsep.join(map(str, (ROOT, site)))

    def report(place: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "opscope", "report", str(place)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    done = report(file)
    assert done.returncode == 0, done.stderr
    assert "sgemm" in done.stdout
    damaged = file.with_name("damaged.csv")
    damaged.write_text(ROWS.replace("7,1.0", "seven,1.0"))
    done = report(damaged)
    assert done.returncode == 2
    assert done.stderr.startswith(f"opscope: {damaged}: not kernels: ")
    assert done.stderr.count("\n") == 1


def test_what_a_stranger_reads_is_mended_as_what_we_read(install: Install, file: Path) -> None:
    install()
    file.write_text(ROWS + "never,7,9.0,1e15\n")
    trace = readers.open(file)
    assert trace["kernels"]["name"].cast(str).to_list() == ["sgemm", "relu"]
    assert len(trace["notes"]) == 1


@pytest.mark.parametrize(
    ("reads", "what"),
    [
        ("raise KeyError('x')", "the reader csv of another package failed: KeyError: 'x'"),
        ("return {}", "the reader csv of another package failed: TypeError: it returned dict"),
    ],
)
def test_a_reader_that_fails_is_named_with_the_file(
    install: Install, file: Path, reads: str, what: str
) -> None:
    install(f"def recognise(head, path): return True\ndef read(path): {reads}\n")
    with pytest.raises(BadInput, match=what) as error:
        readers.open(file)
    assert str(error.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("source", "points", "said"),
    [
        ("1 / 0", {}, "csv (kernels_csv) is left out: ZeroDivisionError"),
        ("read = recognise = None", {}, "is left out: TypeError: it lacks recognise"),
        (None, {"kineto": "kernels_csv"}, "is left out: ValueError: the name belongs to one"),
        (
            "def recognise(head, path): raise KeyError('x')\ndef read(path): ...",
            {},
            "the reader csv cannot say whether it reads",
        ),
    ],
)
def test_a_reader_that_cannot_be_asked_costs_no_other_file(
    install: Install,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    source: str | None,
    points: dict[str, str],
    said: str,
) -> None:
    install(source, **points)
    trace = tmp_path / "t.json"
    trace.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 1, "dur": 2}]}'
    )
    assert len(readers.open(trace)["ranges"]) == 1
    assert said in caplog.text


def test_our_own_formats_are_not_asked_of_others_but_json(install: Install, tmp_path: Path) -> None:
    """JSON is asked for last of all, for many formats are JSON."""
    install("def recognise(head, path): return True\ndef read(path): ...")
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    assert readers.format_of(tmp_path / "t.json") == "csv"
    profile = tmp_path / "p.opscope"
    profile.mkdir()
    (profile / "meta.json").write_text("{}")
    assert readers.format_of(profile) == "profile"


@pytest.mark.parametrize("name", [*LOOKS, readers.formats._LAST])
def test_our_rooms_are_readers_too(name: str) -> None:
    found = readers.formats._ours(name)
    assert found.reader.recognise.__doc__
    assert found.reader.read.__doc__
    with pytest.raises(BadInput):
        found.reader.read(Path("/nowhere/at/all"))
