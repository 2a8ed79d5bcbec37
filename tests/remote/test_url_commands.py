"""Every command that takes a file takes a URL, and what it writes may go to one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.made_ranks import rank_files


@pytest.fixture
def run(store, tmp_path):
    """Run ``opscope`` with the store's environment; it fails where it asks outside."""

    def run(*args):
        env = {**os.environ, **store.env, "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "tests.remote.outside", *args],
            env=env, capture_output=True, text=True, cwd=os.getcwd(),
        )  # fmt: skip

    return run


@pytest.fixture
def ranks(store, tmp_path):
    files = rank_files(tmp_path)
    for one in files:
        store.put(one.name, one)
    return files


def _said(result) -> tuple[int, str, str]:
    return result.returncode, result.stdout, result.stderr


def test_reports_and_lists_of_urls_are_those_of_files(run, store, ranks):
    local = list(map(str, ranks))
    for words in (["report", "--json"], ["kernels", "--csv"], ["advise", "--json"]):
        at_url = run(words[0], store.url("rank*.json"), *words[1:])
        assert at_url.returncode == 0, at_url.stderr
        assert at_url.stdout == run(words[0], *local, *words[1:]).stdout
    difference = run("diff", store.url("rank0.json"), store.url("rank1.json"), "--json")
    assert difference.returncode == 0, difference.stderr
    assert difference.stdout == run("diff", *local, "--json").stdout


def test_profiles_pages_exports_and_tables_are_written_to_urls(run, store, ranks, tmp_path):
    out = store.url("out")
    made = run("redact", store.url("rank0.json"), "-o", f"{out}/a.opscope")
    assert made.returncode == 0, made.stderr
    assert run("ops", f"{out}/a.opscope", "--csv").returncode == 0
    for words in (
        ["export", "--to", "chrome", "-o", f"{out}/a.json"],
        ["export", "--to", "html", "-o", f"{out}/a.html"],
        ["report", "--html", f"{out}/b.html"],
        [
            "report",
            "--reports",
            "summary",
            "--formats",
            "csv,json",
            "--output-path",
            f"{out}/tables",
        ],
    ):
        done = run(words[0], store.url("rank0.json"), *words[1:])
        assert done.returncode == 0, done.stderr
        assert f"wrote {out}" in done.stderr
        assert str(tmp_path.parent) not in done.stderr
    diff = run("diff", store.url("rank0.json"), store.url("rank1.json"), "--html", f"{out}/d.html")
    assert diff.returncode == 0, diff.stderr
    names = store.names()
    assert {"out/a.json", "out/a.html", "out/b.html", "out/d.html", "out/tables/rank0_summary.csv",
            "out/tables/rank0_summary.json"} <= set(names)  # fmt: skip
    whole = json.loads(store.fs().cat_file(f"{out}/a.json"))
    assert whole["traceEvents"]
    again = run("export", store.url("rank0.json"), "--to", "chrome", "-o", f"{out}/a.json")
    assert _said(again) == (2, "", f"opscope: {out}/a.json exists; --force replaces it\n")
    forced = run(
        "export", store.url("rank0.json"), "--to", "html", "-o", f"{out}/a.html", "--force"
    )
    assert forced.returncode == 0, forced.stderr
    again = run("redact", store.url("rank0.json"), "-o", f"{out}/a.opscope")
    assert _said(again) == (2, "", f"opscope: {out}/a.opscope exists; --force replaces it\n")


def test_what_cannot_be_read_or_written_ends_with_2_and_one_line(run, store, ranks, tmp_path):
    lost = run("report", store.url("nope.json"))
    assert _said(lost) == (2, "", f"opscope: {store.url('nope.json')}: no such file\n")
    nowhere = store.base.replace("bucket", "nowhere")
    if store.name != "seaweedfs":  # its administrator gets the bucket made
        refused = run(
            "export", store.url("rank0.json"), "--to", "chrome", "-o", f"{nowhere}/x.json"
        )
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"opscope: {nowhere}/x.json was not written: no such")
        assert refused.stderr.count("\n") == 1
    half = run("report", store.url("rank0.json"), store.url("nope.json"), "--json")
    assert half.returncode == 0
    assert f"left out: {store.url('nope.json')}: no such file" in half.stderr


def test_a_recording_is_made_on_a_disk(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "run", "-o", "s3://bucket/x.opscope", "--", "true"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "--output s3://bucket/x.opscope: a profile is recorded on a local disk only" in done.stderr
    )
