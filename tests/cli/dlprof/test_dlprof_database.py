"""`opscope dlprof --database`: reports of what was recorded before, without a run and without a second reading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import opscope
from opscope import readers
from tests.dlprof_bench import Bench

GOLDEN = ("nsys_profile.sqlite", "dlprof_dldb.sqlite")


def copied(bench: Bench, shared: Path, name: str) -> Path:
    return Path(shutil.copyfile(shared / "dlprof" / name, bench.folder / name))


def told(bench: Bench, name: str) -> dict:
    return json.loads((bench.folder / name).read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_an_export_and_a_database_of_dlprof_give_reports_and_a_profile(
    bench: Bench, shared: Path, name: str
) -> None:
    copied(bench, shared, name)
    status, said = bench.here("--mode=pytorch", "--reports=kernel,summary", f"--database={name}")
    assert status == 0, said
    assert bench.left() == sorted(
        [name, "dlprof.opscope", "dlprof_kernel.csv", "dlprof_summary.csv"]
    )
    assert told(bench, "dlprof_kernel.csv")["kernels"] == 59
    assert f"without reading {name} again: opscope dlprof --database=dlprof.opscope" in said
    assert "no effect with --database, as nothing is recorded: --mode" in said


def test_a_second_report_key_and_range_read_the_saved_profile_alone(
    bench: Bench, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copied(bench, shared, "nsys_profile.sqlite")
    assert bench.here("--nsys_database=nsys_profile.sqlite")[0] == 0
    source.write_bytes(b"poison")

    def read(*words: object, **more: object) -> None:
        raise AssertionError(f"a trace is parsed again: {words}")

    monkeypatch.setattr(readers, "open", read)
    again = ("--database=dlprof.opscope", "--force=true")
    for words, asked in [
        (["--reports=kernel"], {"key": None, "start": None, "stop": None}),
        (["--reports=kernel", "--key_op=CONV2D_1"], {"key": "CONV2D_1"}),
        (["--reports=kernel", "--iter_start=1", "--iter_stop=2"], {"start": 1, "stop": 2}),
    ]:
        status, said = bench.here(*again, *words)
        assert status == 0, said
        assert asked.items() <= told(bench, "dlprof_kernel.csv").items()
        assert told(bench, "dlprof_kernel.csv")["kernels"] == 59
    source.unlink()
    assert bench.here(*again, "--reports=all")[0] == 0
    assert len(bench.left()) == 9


def test_what_was_recorded_is_reported_from_again(nsys: Bench) -> None:
    nsys.dlprof("python", "train.py", FAKE_NSYS_KERNELS="work")
    shutil.rmtree(nsys.folder / "bin")
    status, said = nsys.here("--database", "dlprof.opscope", "--reports", "kernel", "--")
    assert status == 0, said
    assert told(nsys, "dlprof_kernel.csv")["kernels"] == 4


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep"])
def test_a_report_of_nsight_systems_goes_through_its_own_export(
    bench: Bench, shared: Path, suffix: str
) -> None:
    (bench.folder / f"x{suffix}").write_bytes(b"\0QuadD report")
    before = bench.left()
    status, said = bench.here(f"--database=x{suffix}", "--reports=kernel")
    assert status == 2
    assert f"x{suffix}: " in said
    assert "nsys" in said
    assert bench.left() == before
    export = shared / "dlprof" / "nsys_profile.sqlite"
    bench.script(
        "nsys", f'while [ $# -gt 1 ]; do [ "$1" = --output ] && cp "{export}" "$2"; shift; done'
    )
    status, said = bench.here(f"--database=x{suffix}", "--reports=kernel")
    assert status == 0, said
    assert told(bench, "dlprof_kernel.csv")["kernels"] == 59


def test_the_reports_are_those_of_the_same_profile(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    bench.here("--database=nsys_profile.sqlite")
    saved = opscope.load(bench.folder / "dlprof.opscope")
    parsed = opscope.load(bench.folder / "nsys_profile.sqlite")
    assert saved.kernels().equals(parsed.kernels())
    assert saved.ops().equals(parsed.ops())


def test_a_command_beside_a_database_is_not_run(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    status, said = bench.here("--database=nsys_profile.sqlite", "touch", "ran")
    assert status == 0
    assert "touch is not run" in said
    assert "ran" not in bench.left()


def test_names_folders_and_verbosity_are_those_of_a_run(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "dlprof_dldb.sqlite")
    words = (
        "--database=dlprof_dldb.sqlite",
        "--output_path=a/b",
        "--profile_name=p",
        "--base_name=r",
    )
    status, said = bench.here(*words, "--reports=tensor", "--formats=json", "-v", "minimal")
    assert status == 0
    assert said.splitlines() == [
        "opscope: wrote a/b/p.opscope",
        "opscope: wrote a/b/r_tensor_core.json",
    ]
    assert bench.left("a/b") == ["p.opscope", "r_tensor_core.json"]
    assert bench.here(*words, "-v", "quiet") == (0, "")
    assert bench.left("a/b") == ["p-2.opscope", "p.opscope", "r_tensor_core.json"]


def test_the_data_of_the_model_of_a_database(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    assert bench.here("--database=nsys_profile.sqlite", "--dump_model_data=true")[0] == 0
    data = told(bench, "dlprof_model_data.json")
    assert len(data["kernels"]) == 59


# ------------------------------------------------------------------ what cannot be read


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("empty.sqlite", b"", "the file is empty"),
        ("x.sqlite", b"SQLite format 3\0" + b"\xff" * 3000, "x.sqlite: "),
        ("x.txt", b"hello", "not a trace"),
        ("x.opscope", None, "no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_written(
    bench: Bench, name: str, content: bytes | None, fault: str
) -> None:
    if content is not None:
        (bench.folder / name).write_bytes(content)
    before = bench.left()
    status, said = bench.here(f"--database={name}", "--reports=all", "--output_path=new")
    assert status == 2
    assert name in said
    assert fault in said
    assert "Traceback" not in said
    assert bench.left() == before


def test_a_cut_database_leaves_nothing(bench: Bench, shared: Path) -> None:
    for name in GOLDEN:
        whole = (shared / "dlprof" / name).read_bytes()
        (bench.folder / name).write_bytes(whole[: len(whole) // 2])
        status, said = bench.here(f"--database={name}", "--reports=all")
        assert status == 2, said
        assert f"opscope: {name}: " in said
    assert bench.left() == sorted(GOLDEN)


def test_a_report_that_cannot_be_made_leaves_nothing(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    status, said = bench.here(
        "--database=nsys_profile.sqlite", "--reports=all", "--key_op=NO_SUCH_OP",
        "--dump_model_data=true", "--output_path=new",
    )  # fmt: skip
    assert status == 2
    assert "nsys_profile.sqlite: no op named 'NO_SUCH_OP'" in said
    assert bench.left() == ["nsys_profile.sqlite"]


def test_a_report_that_exists_is_not_replaced(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    (bench.folder / "dlprof_kernel.csv").write_text("old")
    status, said = bench.here("--database=nsys_profile.sqlite", "--reports=kernel")
    assert status == 2
    assert "dlprof_kernel.csv exists; --force=true replaces it" in said
    assert (bench.folder / "dlprof_kernel.csv").read_text() == "old"
    assert bench.left() == ["dlprof_kernel.csv", "nsys_profile.sqlite"]


def test_a_profile_needs_a_report_to_make(bench: Bench, shared: Path) -> None:
    copied(bench, shared, "nsys_profile.sqlite")
    bench.here("--database=nsys_profile.sqlite")
    status, said = bench.here("--database=dlprof.opscope")
    assert status == 2
    assert "no report is named: add --reports=all" in said


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("nsys_profile.sqlite", "nsys_profile.nsys-rep"),
        ("nsys_profile.sqlite", "dlprof.opscope"),
        ("mine_dldb.sqlite", "mine.opscope"),
    ],
)
def test_the_file_that_opscope_writes_in_the_place_of_dlprofs_is_named(
    bench: Bench, name: str, there: str
) -> None:
    (bench.folder / there).touch()
    status, said = bench.here(f"--database={name}", "--reports=all")
    assert status == 2
    assert f"{name}: no such file; did you mean {there}?" in said
