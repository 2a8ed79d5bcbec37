"""Notes of a profile: the same whatever else was asked of it, and a word where saved results are not used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import opscope
from opscope.cli.app import app
from opscope.core.analysis.critical.graph import NO_SYNCS
from opscope.profile import Profile

ANEW = "another version of opscope saved this profile"


@pytest.fixture
def trace(trace_of):
    """An op launches a kernel, and a call waits for it, which the trace does not say."""
    place = {"process": 0, "thread": 1}
    op = {**place, "text": "aten::mm(f32[2,3])", "domain": "opscope.torch", "kind": "pushpop"}
    called = [("cudaLaunchKernel", 10, 14, 1), ("cudaDeviceSynchronize", 20, 200, 2)]
    return lambda: trace_of(
        ranges=[{**op, "category": "forward", "start": 0, "end": 15}],
        calls=[
            {**place, "name": name, "start": start, "end": end, "correlation": number}
            for name, start, end, number in called
        ],
        kernels=[
            {"process": 0, "device": 0, "stream": 7, "name": "gemm", "start": 30, "end": 190, "correlation": 1}
        ],
    )  # fmt: skip


@pytest.fixture
def older(trace, tmp_path) -> Path:
    """A profile whose results another version stored."""
    path = tmp_path / "p.opscope"
    profile = Profile(trace())
    profile.summary()
    profile.save(path)
    meta = json.loads((path / "meta.json").read_text())
    meta["meta"]["analysis"] -= 1
    (path / "meta.json").write_text(json.dumps(meta))
    return path


def whats(profile: Profile, **asked: bool) -> list[str]:
    return profile.notes(**asked)["what"].to_list()


def test_notes_are_the_same_before_and_after_every_other_question(trace):
    first, after = Profile(trace()), Profile(trace())
    after.critical_path()
    after.critical_totals()
    after.what_if(host=0.5)
    after.advice()
    after.advice_combined()
    after.diagnosis()
    after.iterations()
    assert first.notes().equals(after.notes())
    with_path = first.notes(critical_path=True)
    assert NO_SYNCS in with_path["what"].to_list()
    assert NO_SYNCS not in whats(after)
    assert with_path.equals(after.notes(critical_path=True))


def test_notes_of_real_traces_do_not_depend_on_what_was_asked_before(shared):
    path = shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the trace is not here")
    first, after = opscope.load(path), opscope.load(path)
    after.critical_totals()
    after.steps()
    after.op_totals()
    assert first.notes().equals(after.notes())
    assert first.notes(critical_path=True).equals(after.notes(critical_path=True))


def test_a_saved_profile_has_the_notes_of_its_trace_whatever_was_asked_before(trace, tmp_path):
    profile = Profile(trace())
    profile.critical_path()
    profile.save(tmp_path / "p.opscope")
    again = opscope.load(tmp_path / "p.opscope")
    assert whats(again) == whats(profile)
    assert whats(again, critical_path=True) == whats(profile, critical_path=True)


def test_the_results_of_a_profile_that_another_version_saved_are_kept_without_a_word(older):
    opened = opscope.load(older)
    assert not [what for what in whats(opened) if ANEW in what]
    summary = opened.summary()
    again = opscope.load(older)
    assert "summary" in again._stored
    assert again.summary().equals(summary)
    assert not [what for what in whats(again) if ANEW in what]


def test_a_note_says_so_where_they_cannot_be_kept(older, monkeypatch):
    monkeypatch.setenv("OPSCOPE_KEEP", "0")
    (note,) = [what for what in whats(opscope.load(older)) if what.startswith(ANEW)]
    assert note in whats(opscope.load(older).select(device=0))


def test_commands_say_that_a_profile_of_another_version_is_computed_anew(older, monkeypatch):
    monkeypatch.setenv("OPSCOPE_KEEP", "0")
    for words in (["report", str(older)], ["diff", str(older), str(older), "--json"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0
        assert f"{older}: {ANEW}" in result.stderr
    result = CliRunner().invoke(app, ["diff", str(older), str(older), "--json"])
    assert json.loads(result.stdout)


def test_a_profile_of_this_version_is_not_said_to_be_computed_anew(trace, tmp_path):
    Profile(trace()).save(tmp_path / "p.opscope")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "p.opscope")])
    assert (result.exit_code, ANEW in result.stderr) == (0, False)


def test_json_with_reports_of_the_critical_path_has_what_the_path_takes_for_granted(trace):
    from opscope.reports.registry import frames

    for names in (["critical_totals", "notes"], ["notes", "critical_totals"]):
        assert NO_SYNCS in frames(Profile(trace()), names)["notes"]["what"].to_list()
    profile = Profile(trace())
    profile.critical_totals()
    assert NO_SYNCS not in frames(profile, ["notes"])["notes"]["what"].to_list()
