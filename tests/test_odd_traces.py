"""What a trace may lack, and how its file may be named: every reader, and every command that once failed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

import opscope as library
from tests.command import opscope
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
fuzz_seeds = pytest.importorskip("fuzz_seeds")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return fuzz_seeds.made(tmp_path_factory.mktemp("seeds"))


def answered(*words: object) -> str:
    """What a command prints; it must succeed."""
    done = opscope(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def odd_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / os.fsdecode(b"\xff folder")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this system's names are UTF-8")
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_a_file_whose_name_is_not_utf_8_is_read_and_saved(seeds, odd_folder: Path) -> None:
    """Every reader; MindSpore's files are known by their whole names, so there the folder is odd alone."""
    for reader, files in seeds.items():
        if reader in pytest.importorskip("fuzz_commands").OF:
            continue  # no trace
        source = files[0]
        name = source.name if reader == "MindSpore" else os.fsdecode(b"\xfe") + source.name
        target = odd_folder / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        plain, odd = library.load(source), library.load(target)
        assert odd.summary().equals(plain.summary()), reader
        saved = odd_folder / f"{reader}.opscope"
        odd.save(saved)
        assert library.load(saved).summary().equals(plain.summary()), reader


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_commands_write_where_a_name_is_not_utf_8(seeds, odd_folder: Path) -> None:
    trace = odd_folder / os.fsdecode(b"\xfe.json")
    shutil.copyfile(seeds["Kineto JSON"][0], trace)
    out = odd_folder / "out"
    answered("report", trace, "--formats", "csv,json,parquet", "--output-path", out)
    answered("report", trace, "--html", odd_folder / "pages.html")
    answered(
        "dlprof",
        f"--database={trace}",
        "--reports=all",
        "--formats=parquet",
        f"--output_path={out}",
    )
    answered("redact", trace, "-o", odd_folder / "redacted")
    answered("partial", trace, "-o", odd_folder / "parts")
    answered(
        "merge",
        odd_folder / "parts",
        "-o",
        odd_folder / "job",
        "--fleet",
        odd_folder / "fleet",
        "--job",
        "a",
    )
    refused = opscope("export", trace, "--to", "tensorboard", "-o", odd_folder / "board")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "not UTF-8" in refused.stderr


def test_layers_of_merged_ranks_are_shown_together(seeds, tmp_path: Path) -> None:
    """Layers that differ in a number share a row; in what was merged, layers are texts, not categories."""
    whole = json.loads(seeds["Kineto JSON"][0].read_bytes())
    (layer,) = {
        e["name"]
        for e in whole["traceEvents"]
        if e.get("cat") == "python_function" and "Module" in e["name"]
    }
    for event in whole["traceEvents"]:
        if event.get("name") == layer:
            event["name"] = f"{layer}{event['ts'] % 7}"
    (trace := tmp_path / "trace.json").write_text(json.dumps(whole))
    answered("partial", trace, seeds["XPlane"][0], "-o", tmp_path / "parts", "--unrelated")
    answered("merge", tmp_path / "parts", "-o", tmp_path / "job.opscope", "--unrelated")
    assert "layer" in answered("report", tmp_path / "job.opscope", "--reports", "by_op,by_layer")


def test_dlprof_of_a_trace_without_ops(seeds, tmp_path: Path) -> None:
    stated = next(path for path in seeds["TensorRT"] if path.name == "stated.json")
    reports = "summary,detail,iteration,kernel,tensor,op_type,group_node,expert_systems"
    answered("dlprof", f"--database={stated}", f"--reports={reports}", f"--output_path={tmp_path}")
    assert (tmp_path / "dlprof_group_op.csv").is_file()


def test_a_note_whose_number_is_not_known(seeds, tmp_path: Path) -> None:
    profile = tmp_path / "profile.opscope"
    library.load(seeds["nsys SQLite"][0]).save(profile)
    file = next(profile.rglob("notes*.parquet"))
    notes = pl.read_parquet(file)
    told = notes.head(1).with_columns(
        severity=pl.lit("warning").cast(notes.schema["severity"]),
        what=pl.lit("the file is cut off (too early): what follows is missing").cast(
            notes.schema["what"]
        ),
        how_many=pl.lit(None, pl.Int64),
    )
    pl.concat([told, notes.tail(len(notes) - 1)]).write_parquet(file)
    assert "cut off" in answered("report", profile, "--reports", "summary,diagnosis,gaps")


def test_a_profile_is_exported_where_a_result_lacks_a_column(seeds, tmp_path: Path) -> None:
    """A timeline reads few columns of a profile; what it kept of kernels may not fit."""
    profile = shutil.copytree(seeds["profile"][0], tmp_path / "profile.opscope")
    file = profile / "extra.kernels.parquet"
    pl.read_parquet(file).drop("shared_memory").write_parquet(file)
    answered("export", profile, "--to", "chrome", "-o", tmp_path / "timeline")


@pytest.mark.parametrize("column", ["start", "end"])
def test_a_profile_whose_kernels_have_no_times_is_refused(column, seeds, tmp_path: Path) -> None:
    profile = shutil.copytree(seeds["profile"][0], tmp_path / "profile.opscope")
    file = profile / "kernels.parquet"
    pl.read_parquet(file).drop(column).write_parquet(file)
    for words in (["report"], ["export", "--to", "speedscope", "-o", tmp_path / "out"]):
        done = opscope(words[0], profile, *words[1:])
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert str(profile) in done.stderr


#: Kinds of events of which a trace may have one alone.
ALONE = ("kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "user_annotation")


@pytest.mark.parametrize("category", ALONE)
def test_commands_of_a_trace_with_one_event(category: str, seeds, tmp_path: Path) -> None:
    whole = json.loads(seeds["Kineto JSON"][0].read_bytes())
    event = next(event for event in whole["traceEvents"] if event.get("cat") == category)
    whole |= {"traceEvents": [event], "deviceProperties": []}
    event["args"] = {
        k: v for k, v in event.get("args", {}).items() if k not in ("device", "stream", "context")
    }
    (trace := tmp_path / "trace.json").write_text(json.dumps(whole))
    for words in (
        ["report"], ["advise", "--all"], ["kernels", "--each"], ["whatif", "--host=2"],
        ["export", "--to", "tensorboard", "-o", tmp_path / "board"],
        ["export", "--to", "perfetto", "-o", tmp_path / "timeline"],
        ["dlprof", "--reports=all", f"--output_path={tmp_path}"],
    ):  # fmt: skip
        name, *more = words
        given = [f"--database={trace}"] if name == "dlprof" else [trace]
        done = opscope(name, *given, *more)
        assert done.returncode in (0, 2), done.stderr
        assert done.returncode == 0 or str(trace) in done.stderr
