"""The table of versions of Nsight Systems, the command line made from it, and what is found of a run."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.backends.machine import Machine
from opscope.backends.nsys import command, preflight, reports, tool, versions, where
from opscope.backends.nsys.versions import RELEASES, nearest, version_of


def made(version: tuple[int, int], **changed: object) -> tool.Tool:
    row = replace(nearest(version), **changed)
    return tool.Tool("nsys", version, row.name, row)


def test_each_row_says_where_its_facts_are_from_and_rows_are_in_order() -> None:
    assert [one.version for one in RELEASES] == sorted({one.version for one in RELEASES})
    assert all(len(one.source) > 20 for one in RELEASES)
    assert {one.name for one in RELEASES if one.measured} == {
        "2020.4",
        "2022.4",
        "2023.4",
        "2024.2",
    }


@given(st.tuples(st.integers(2000, 2040), st.integers(1, 9)))
def test_the_nearest_version_is_never_newer_unless_there_is_no_older(
    version: tuple[int, int],
) -> None:
    row = nearest(version)
    assert row.version <= version or row is RELEASES[0]
    assert not any(row.version < one.version <= version for one in RELEASES)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2020.4.3.7-10543b6\n", (2020, 4)),
        ("NVIDIA Nsight Systems version 2026.3.1.157-263138048394v0", (2026, 3)),
        ("nsys: command not found", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_nsys_prints(
    text: str, version: tuple[int, int] | None
) -> None:
    assert version_of(text) == version


HELP = """
usage: nsys profile [<args>] [application] [<application args>]

        -c, --capture-range=

           Possible values are none, cudaProfilerApi, nvtx.

        --capture-range-end=

           Possible values are 'none', 'stop', 'repeat[:N]' or 'repeat-shutdown:N'.
           If 'none', capture range end will be ignored.

        (Experimental) --new-thing=<granularity>[:<launch origin>]

           With it --trace=mpi is not needed.

        -o, --output=

        -t, --trace=

           Possible values are 'cuda', 'nvtx',
           'sonar' or 'none'.
           Default is 'cuda,nvtx,osrt,opengl'.
"""


def test_an_unknown_version_is_known_by_its_help() -> None:
    found = tool.by_help(HELP, RELEASES[0])
    assert found is not None
    assert found.options == {"capture-range", "capture-range-end", "new-thing", "output", "trace"}
    assert found.traces == {"cuda", "nvtx", "sonar", "none"}
    assert found.ends == {"none", "stop", "repeat", "repeat-shutdown"}
    assert tool.by_help("no such thing", RELEASES[0]) is None
    assert tool.by_help("usage: nsys profile\n\t--other=", RELEASES[0]) is None


@pytest.mark.parametrize("version", [one.version for one in RELEASES])
def test_no_version_is_given_an_option_that_it_lacks(version: tuple[int, int]) -> None:
    every = command.Wanted(command.NVTX, "stop", 2, 3, ("osrt", "mpi"))
    words = command.line(made(version), every, Path("x")).words[2:]
    names = {word.removeprefix("--").partition("=")[0] for word in words}
    assert names <= nearest(version).options
    assert {"trace", "output", "capture-range", "delay", "duration", "kill"} <= names


def test_seconds_are_never_cut_to_nothing() -> None:
    # 2022.4 takes --delay=0.5 for 0 without a word in its status
    line = command.line(made((2022, 4)), command.Wanted(delay=0.5, duration=0.2), Path("x"))
    assert {"--delay=1", "--duration=1"} <= set(line.words)
    assert len(line.notes) == 2
    line = command.line(made((2023, 4)), command.Wanted(delay=0.5), Path("x"))
    assert "--delay=0.5" in line.words
    assert not line.notes


def test_patterns_of_a_name() -> None:
    filled = command.filled_in("a-%q{RANK}-%%-%p", {"RANK": "3"})
    assert filled == f"a-3-%-{os.getpid()}"
    assert command.filled_in("a-%h", {}) != "a-%h"
    for name in ("%q{RANK}", "100%", "%n"):
        if name == "100%":  # a lone % at the end is no pattern
            assert command.filled_in(name, {}) == name
            continue
        with pytest.raises(ValueError, match="--output"):
            command.filled_in(name, {})


@pytest.mark.parametrize(
    ("environ", "implementation"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0"}, "openmpi"),
        ({"PMI_RANK": "0"}, "mpich"),
        ({"I_MPI_ROOT": "/opt"}, "mpich"),
        ({"RANK": "0"}, None),
    ],
)
def test_the_implementation_of_mpi_is_seen_in_the_environment(
    environ: dict[str, str], implementation: str | None
) -> None:
    assert command.mpi(environ) == implementation


def test_nsys_is_found_where_nvidia_installs_it_the_newest_first(tmp_path: Path) -> None:
    for version in ("2023.4.4", "2024.10.1", "2024.9.1"):
        path = tmp_path / f"opt/nvidia/nsight-systems/{version}/bin/nsys"
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    found = where.find(Machine({"PATH": ""}, tmp_path))
    assert found is not None
    assert "2024.10.1" in found
    assert where.find(Machine({"PATH": ""}, tmp_path / "nothing")) is None


def test_a_report_is_moved_to_another_disk_whole(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("no second file system at /dev/shm")
    folder = other / f"opscope-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "report.nsys-rep").write_text("events")
        kept = reports.keep(folder / "report.nsys-rep", tmp_path / "x.opscope", force=False)
        assert kept.read_text() == "events"
        assert [path.name for path in tmp_path.iterdir()] == ["x.nsys-rep"]
        assert not any(folder.iterdir())
    finally:
        shutil.rmtree(folder)


def test_the_reports_of_a_run_are_in_the_order_of_their_ranges(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        (tmp_path / f"report.{number}.nsys-rep").write_text("events")
    (tmp_path / "report.3.nsys-rep").touch()  # empty: not written to its end
    found = reports.left(tmp_path, "")
    assert [path.name for path in found.reports] == [f"report.{n}.nsys-rep" for n in (1, 2, 10)]


def test_progress_is_no_fault_and_a_fault_is_told_once() -> None:
    log = (
        "Generating '/tmp/nsys-report-1.qdstrm'\n\r[1/1] [0%   ] x\r[1/1] [====100%] x\n"
        "The target application returned non-zero exit code 3\n"
        "WARNING: Backtraces will not be collected because sampling is disabled.\n"
        "Failed to create '/a/x.nsys-rep': No such file or directory.\n"
        "Failed to create '/a/x.nsys-rep': No such file or directory.\n"
    )
    assert reports.faults(log) == ["Failed to create '/a/x.nsys-rep': No such file or directory."]


@pytest.mark.parametrize(
    ("version", "silent"),
    [
        ((2020, 4), False),
        ((2022, 4), True),
        ((2023, 4), True),
        ((2024, 2), True),
        ((2026, 1), False),
    ],
)
def test_the_trap_of_the_package_nvtx_is_told_where_it_was_measured(
    version: tuple[int, int], silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.2.17")
    lines = [*preflight.findings(made(version), Machine({}, gpu="nvidia"), False, {"TMPDIR": "/"})]
    assert any("package nvtx itself" in line for line in lines) is silent
    assert not [
        *preflight.findings(made(version), Machine({}, gpu="nvidia"), True, {"TMPDIR": "/"})
    ]


@pytest.mark.parametrize(
    ("release", "why"), [("0.2.11", "nvtx 0.2.11 is too old"), ("0.2.18", ""), ("unknown", "")]
)
def test_a_package_nvtx_that_is_too_old_is_told(
    release: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: release)
    lines = [
        *preflight.findings(made((2023, 4)), Machine({}, gpu="nvidia"), False, {"TMPDIR": "/"})
    ]
    assert [why in line for line in lines] == ([True] if why else [])


def test_a_temporary_folder_that_nsys_cannot_use_is_told(tmp_path: Path) -> None:
    environ = {"TMPDIR": str(tmp_path / "nothing")}
    lines = [*preflight.findings(made((2023, 4)), Machine({}, gpu="nvidia"), True, environ)]
    assert len(lines) == 1
    assert "cannot write to its temporary folder" in lines[0]
    assert versions.OLDEST < (2020, 4)
