"""Partials: named after their source, written once and whole, at paths and at URLs; and the two commands."""

from __future__ import annotations

import json
import os

import polars as pl
import pytest
from typer.testing import CliRunner

from opscope.cli.app import app
from opscope.cli.start import run as run_app
from opscope.errors import BadInput
from opscope.scale import partial as of_partial
from opscope.scale import sound
from opscope.scale.merge import merge
from opscope.scale.partial import partial_name, write_partial
from tests.made_ranks import rank_files, rank_trace


def run(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_name_follows_place_version_size_and_options(tmp_path):
    file = rank_files(tmp_path, 1)[0]
    first = partial_name(str(file))
    assert first == partial_name(file)
    assert first.startswith("rank0-")
    assert partial_name(str(file), gpu="H100 SXM") != first
    os.utime(file, ns=(1, 1))
    later = partial_name(str(file))
    assert later != first
    other = tmp_path / "other" / "rank0.json"
    other.parent.mkdir()
    other.write_text(file.read_text())
    os.utime(other, ns=(1, 1))
    assert partial_name(str(other)) != later


def test_the_name_follows_the_analysis(tmp_path, monkeypatch):
    file = rank_files(tmp_path, 1)[0]
    first = partial_name(file)
    monkeypatch.setattr("opscope.scale.identity.ANALYSIS", 0)
    assert partial_name(file) != first


def test_a_partial_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    file = rank_files(tmp_path, 1)[0]
    name = write_partial(file, tmp_path / "parts")
    monkeypatch.setattr(of_partial, "load", lambda *_, **__: pytest.fail("it was read again"))
    assert write_partial(file, tmp_path / "parts") == name


def test_a_file_that_is_replaced_while_it_is_read_has_no_partial(tmp_path, monkeypatch):
    file = rank_files(tmp_path, 1)[0]
    real = of_partial.load

    def replaced(*given, **named):
        found = real(*given, **named)
        file.write_text(json.dumps(rank_trace(0, 1, slow=0)))
        return found

    monkeypatch.setattr(of_partial, "load", replaced)
    with pytest.raises(BadInput, match="was replaced while it was read"):
        write_partial(file, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_an_interrupted_partial_leaves_nothing(tmp_path, monkeypatch):
    file = rank_files(tmp_path, 1)[0]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(of_partial.packed, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_partial(file, tmp_path / "parts")
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_partial_is_small(shared, tmp_path):
    """A rank of 3 MB compressed comes to at most 100 kB, and nothing grows with the number of kernels."""
    name = write_partial(shared / "kineto/ddp_memory_v100.json.gz", tmp_path)
    assert (tmp_path / name).stat().st_size < 100_000


def test_commands_from_files_to_reports(tmp_path):
    rank_files(tmp_path, 4, slow=2)
    parts, job = tmp_path / "parts", tmp_path / "job.opscope"
    made = run("partial", f"{tmp_path}/rank[0-2].json", "-o", parts)
    assert made.exit_code == 0
    assert made.stderr.count("wrote") == 3
    again = run("partial", f"{tmp_path}/rank*.json", "-o", parts)
    assert (again.stderr.count("there already"), again.stderr.count("wrote")) == (3, 1)
    merged = run("merge", parts, "-o", job)
    assert merged.exit_code == 0
    assert "4 of 4 ranks" in merged.stderr
    assert run("merge", parts, "-o", job).exit_code == 2
    assert run("merge", parts, "-o", job, "--force").exit_code == 0
    shown = run("report", job, "-w", "0").stdout
    assert shown.startswith("Diagnosis\n")
    assert "\nSummary of 4 of 4 ranks" in shown
    assert "aten::mm" in shown
    late = json.loads(run("report", job, "--reports", "stragglers", "--json").stdout)
    assert late["stragglers"][0]["rank"] == 2


def test_a_folder_of_traces_has_a_partial_each(tmp_path):
    rank_files(tmp_path, 2)
    (tmp_path / "log.txt").write_text("started\n")
    run("partial", tmp_path, "-o", tmp_path / "parts")
    assert len(list((tmp_path / "parts").iterdir())) == 2


def test_the_first_line_counts_the_ranks_that_were_read(tmp_path):
    files = rank_files(tmp_path, 3)
    files[1].write_text(files[1].read_text()[:500])  # cut off
    parts, job = tmp_path / "parts", tmp_path / "job.opscope"
    made = run("partial", *files, "-o", parts)
    assert made.exit_code == 2
    assert "1 of 3 files could not be read" in made.stderr
    merged = run("merge", parts, "-o", job)
    assert merged.exit_code == 0
    assert f"left out: {files[1]}" in merged.stderr
    shown = run("report", job, "-w", "0").stdout
    assert "\nSummary of 2 of 3 ranks" in shown
    assert f"error: left out: {files[1]}" in shown
    assert "missing ranks: 1" in shown
    assert run_app_status(["merge", str(parts), "-o", str(job), "--force", "--strict"]) == 2
    files[1].write_text(json.dumps(rank_trace(1, 3)))  # it arrived whole at last
    assert run("partial", *files, "-o", parts).exit_code == 0
    assert merge(parts).merged_of == "3 of 3 ranks"


def run_app_status(words: list[str]) -> int:
    import sys

    before, sys.argv = sys.argv, ["opscope", *words]
    try:
        return run_app()
    finally:
        sys.argv = before


def test_reports_that_are_lacking_are_named(tmp_path):
    rank_files(tmp_path, 2)
    job = tmp_path / "job.opscope"
    run("partial", tmp_path, "-o", tmp_path / "parts")
    run("merge", tmp_path / "parts", "-o", job)
    both = run("report", job, "--reports", "roofline,idle", "--json")
    assert list(json.loads(both.stdout)) == ["schema", "idle"]
    assert "which lack roofline (a row is one execution of an op;" in both.stderr
    alone = run("report", job, "--reports", "roofline", "--json")
    assert alone.exit_code == 2
    assert alone.stdout == ""
    shown = run("report", job, "--reports", "roofline").stdout
    assert "made from partials, which hold no events" in shown
    assert "a row is one execution of an op" in " ".join(shown.split())
    assert run_app_status(["kernels", "--each", str(job)]) == 2
    assert run_app_status(["kernels", str(job)]) == 0
    assert run_app_status(["ops", str(job)]) == 0


def test_a_partial_can_be_read_by_any_parquet_reader(tmp_path):
    file = rank_files(tmp_path, 1)[0]
    name = write_partial(file, tmp_path)
    rows = pl.read_parquet(tmp_path / name)
    about = json.loads(rows.row(0, named=True)["data"])
    assert about["format"] == "opscope partial"
    assert about["source"]["place"] == str(file)


def test_half_a_character_in_what_a_partial_says_of_itself_is_refused():
    with pytest.raises(BadInput, match=r"p: damaged: .*surrogates"):
        sound.check("p", {"\ud800": 1}, {})
