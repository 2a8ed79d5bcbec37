"""``opscope advise``: what it prints in each form, what it refuses, and its gates."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import polars as pl
import pytest

from opscope.cli import start as application
from opscope.cli.advise import _detectors, _gates
from opscope.cli.gates import BadGate, Gate
from opscope.core.advice import ask
from opscope.core.advice.finding import CannotTell, Detector, Edit, Finding
from opscope.profile import Profile
from tests.command import opscope as command

WHERE = {"process": 0, "thread": 1}


def finding(what: str, **more) -> Finding:
    given = {
        "evidence": "train.py:3",
        "recommendation": "x = 1\ny = 2",
        "time": 40,
        "saving_least": 0,
    }
    given |= {"saving_most": 80, "reasoning": "Counted.", "confidence": "low"}
    return Finding(what=what, **(given | more))


def edit(factor: float) -> Edit:
    return Edit(kernels=(np.array([0]), np.array([factor])))


#: Of 100 ns, of which the kernel takes 84: what each detector answers.
ANSWERS = {
    "slow_gemm": [finding("the gemm is slow", edit=edit(0.5), rows=pl.DataFrame({"op": ["mm"]}))],
    "gone_gemm": [finding("the gemm is not needed", edit=edit(0.25), confidence="high")],
    "guessed": [finding("a guess", saving=7), finding("a vague one", saving_most=None)],
    "blind": CannotTell("no layers were recorded"),
    "content": [],
}


@pytest.fixture
def answers(monkeypatch):
    """Made detectors in the place of all others; a test may change what they answer."""
    given = dict(ANSWERS)
    made = {
        name: Detector(name=name, question="?", find=lambda _, name=name: given[name])
        for name in given
    }
    monkeypatch.setattr(ask, "detectors", lambda: made)
    return given


@pytest.fixture
def saved(trace_of, tmp_path) -> str:
    profile = Profile(
        trace_of(
            ranges=[{**WHERE, "domain": "opscope.torch", "category": "forward", "text": "mm()",
                     "start": 0, "end": 20}],
            calls=[{**WHERE, "name": "cudaLaunchKernel", "start": 10, "end": 14, "correlation": 1}],
            kernels=[{"process": 0, "device": 0, "stream": 7, "name": "gemm", "start": 16, "end": 100,
                      "correlation": 1}],
        )
    )  # fmt: skip
    profile.save(tmp_path / "run.opscope")
    return str(tmp_path / "run.opscope")


@pytest.fixture
def run(monkeypatch, capsys, answers):
    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", "advise", *map(str, args)])
        status = application.run()
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_the_table_has_the_findings_and_below_them_their_sentences(run, saved):
    status, out, err = run(saved, "-v")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("1 "))
    assert "gone_gemm" in lines[first]
    assert "2 findings simulated together save 63 ns of 100 ns" in out
    assert "Not simulated: guessed" in out
    assert "1. gone_gemm: the gemm is not needed" in out
    assert "  change: x = 1\n    y = 2\n" in out
    assert "blind cannot tell: no layers were recorded" in out
    assert "nothing found: content" in out


def test_json_holds_all_of_it(run, saved):
    status, out, _ = run(saved, "--json")
    assert status == 0
    told = json.loads(out)
    assert list(told) == [
        "schema", "diagnosis", "advice", "advice_combined", "advice_evidence", "cut",
    ]  # fmt: skip
    assert (told["schema"], told["cut"]) == ("opscope.advise/1", {})
    assert told["diagnosis"][0]["finding"] == "cannot tell"
    rows = {row["finding"]: row for row in told["advice"]}
    assert rows["the gemm is not needed"]["saving"] == 63
    assert rows["the gemm is not needed"]["saving_share"] == pytest.approx(0.63)
    assert rows["the gemm is slow"]["saving"] == 42
    assert "replay" in rows["the gemm is slow"]["reasoning"]
    assert rows["a vague one"]["saving"] is None
    assert [row["number"] for row in told["advice"]] == [1, 2, 3, 4, None, None]
    combined = told["advice_combined"]
    assert (combined["saving"], combined["new_wall_time"]) == (63, 37)
    assert (combined["simulated"], combined["not_simulated"]) == (2, 2)
    assert combined["omitted"] == "guessed"
    (row,) = told["advice_evidence"]
    assert (row["detector"], row["op"], row["number"]) == ("slow_gemm", "mm", 2)


def test_csv_and_markdown(run, saved):
    rows = list(csv.DictReader(io.StringIO(run(saved, "--csv")[1])))
    assert [row["detector"] for row in rows][-2:] == ["blind", "content"]
    assert len(list(csv.DictReader(io.StringIO(run(saved, "--csv", "--top", 1)[1])))) == 1
    text = run(saved, "--markdown", "--top", 1)[1]
    assert "| 1 | gone\\_gemm | 63 ns | 80 ns | high |" in text
    assert "3 findings more." in text
    assert "  ~~~~~~text\n  y = 2\n  ~~~~~~" in text
    assert "the gemm is slow" not in text


def test_markdown_of_a_trace_s_own_text_is_no_markup(run, saved, answers):
    answers["slow_gemm"] = [finding("<script>|`*_[x](y)", recommendation="a\n~~~\n# b")]
    text = run(saved, "--markdown", "--detectors", "slow_gemm")[1]
    assert "<script>" not in text
    assert "&lt;script\\>\\|\\`\\*\\_\\[x\\](y)" in text
    assert text.count("~~~~~~") == 2


def test_a_bound_keeps_the_estimate_within_it(run, saved, answers):
    answers["slow_gemm"] = [finding("bounded", edit=edit(0.0), saving_most=30)]
    (row,) = json.loads(run(saved, "--json", "--detectors", "slow_gemm")[1])["advice"]
    assert row["saving"] == 30
    assert "which the bounds make" in row["reasoning"]


def test_an_edit_that_does_not_fit_costs_only_itself(run, saved, answers, caplog):
    wrong = Edit(kernels=(np.array([7]), np.array([0.5])))
    answers["slow_gemm"] = [
        finding("wrong", edit=wrong),
        finding("wrong too", edit=wrong, saving=1),
    ]
    told = json.loads(run(saved, "--json")[1])
    rows = {row["finding"]: row["saving"] for row in told["advice"]}
    assert rows["wrong"] is None
    assert told["advice_combined"]["saving"] == 63
    assert told["advice_combined"]["omitted"] == "guessed, slow_gemm"
    assert "slow_gemm was not replayed" in caplog.text


def test_without_a_timeline_nothing_is_added_up(run, trace_of, tmp_path, answers):
    Profile(trace_of()).save(tmp_path / "empty.opscope")
    combined = json.loads(run(tmp_path / "empty.opscope", "--json")[1])["advice_combined"]
    assert combined["saving"] is None
    assert combined["reason"] == "the trace has no timeline to replay"
    for name in answers:
        answers[name] = []
    told = json.loads(run(tmp_path / "empty.opscope", "--json")[1])
    assert told["advice_combined"]["reason"] == "there is no finding"
    assert "no detector found anything" in run(tmp_path / "empty.opscope")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--detectors", "slow_gem"], "did you mean 'slow_gemm'"), (["--detectors", ","], "no detector"),
        (["--fail-on", "slow_gem"], "did you mean 'slow_gemm'"), (["--fail-on", "saving"], "no amount"),
        (["--fail-on", "saving>fast"], "is no gate"), (["--fail-on", "saving>5"], "is no gate"),
        (["--fail-on", "saving<5%"], "is no gate"), (["--fail-on", ""], "is no gate"),
        (["--fail-on", "blind", "--detectors", "content"], "does not ask blind"),
        (["--csv", "--json"], "choose one"), (["--json", "--markdown"], "choose one"),
    ],
)  # fmt: skip
def test_what_means_nothing_ends_with_status_2(run, saved, words, said):
    status, out, err = run(saved, *words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        (["slow-gemm"], "--fail-on slow-gemm: slow_gemm has a finding"),
        (["guessed"], "guessed has 2 findings"),
        (["saving>62%"], "all findings together save 63 ns, 63.0 % of the window's 100 ns"),
        (["saving>=63%"], "63 ns"), (["saving > 0.05 us"], "63 ns"), (["slow_gemm>41ns"], "42 ns"),
        (["content", "slow_gemm"], "slow_gemm"), (["guessed>6ns"], "guessed saves 7 ns"),
    ],
)  # fmt: skip
def test_a_gate_that_fails_ends_with_status_1_and_one_line(run, saved, gates, said):
    status, out, err = run(
        saved, *(word for gate in gates for word in ("--fail-on", gate)), "--json"
    )
    assert status == 1
    assert len(err.splitlines()) == 1
    assert said in err
    assert json.loads(out)["advice"]


@pytest.mark.parametrize("gate", ["content", "content>1ns", "slow_gemm>42ns", "gone_gemm>63%"])
def test_a_gate_that_holds_says_nothing(run, saved, gate):
    assert run(saved, "--fail-on", gate, "--csv")[::2] == (0, "")


@pytest.mark.parametrize("gate", ["blind", "blind>5%", "saving>90%", "guessed>90%"])
def test_a_gate_that_cannot_be_judged_says_so_and_fails_only_if_strict(run, saved, gate):
    status, _, err = run(saved, "--fail-on", gate)
    assert status == 0
    assert f"--fail-on {gate}: it cannot be judged" in err
    status, _, err = run(saved, "--fail-on", gate, "--strict")
    assert status == 1
    assert "(--strict)" in err


def test_several_gates_that_fail_are_told_in_one_line(run, saved):
    status, _, err = run(saved, "--fail-on", "guessed", "--fail-on", "slow_gemm")
    assert status == 1
    assert err.count("--fail-on") == 2
    assert len(err.splitlines()) == 1


def test_a_saving_of_all_that_nobody_knows_cannot_be_judged():
    row = {"detector": "a", "outcome": "found", "saving": 4, "saving_least": 0, "saving_most": 9}
    unknown = {"wall_time": 100, "saving": None, "reason": "no finding says what it does"}

    def verdict(text, rows, combined=unknown):
        return Gate.of(text, ["a"]).judge(rows, combined).fails

    assert verdict("saving>5%", [row]) is False
    assert verdict("saving>5%", [row, row]) is None
    assert verdict("saving>8%", [row, row]) is False
    assert verdict("saving>3%", [row, row]) is True
    assert verdict("saving>3%", [row], {**unknown, "wall_time": None}) is None
    assert verdict("saving>3ns", [{**row, "saving": None, "saving_least": 4}]) is True


def test_a_gate_is_read_with_its_spaces_and_spelling():
    assert Gate.of(" Slow-GEMM > 1.5 ms ", ["slow_gemm"])._limit(None) == 1.5e6
    with pytest.raises(BadGate, match="no gate"):
        Gate.of("a b", ["a"])


def test_names_are_completed(answers):
    assert _detectors("content,gu") == ["content,guessed"]
    assert _gates("s") == ["saving>5%", "slow_gemm"]


def test_selections_are_those_of_the_report(run, saved):
    assert run(saved, "--device", 0, "--json")[0] == 0
    assert run(saved, "--device", 9)[0] == 2


def test_a_raised_threshold_that_finds_nothing_is_said(saved, monkeypatch, capsys):
    raised = "unoverlapped_communication:least=90%"
    monkeypatch.setattr("sys.argv", ["opscope", "advise", saved, "--detectors", raised])
    assert application.run() == 0
    said = "nothing found: unoverlapped_communication (threshold: 90 % of a process's window)"
    assert said in capsys.readouterr().out.replace("\n", " ")


def test_a_saving_that_a_replay_does_not_see_is_no_proof_that_there_is_none(shared):
    """Of one rank's file the replay does not know what the others wait for: at most stays what it is."""
    said = command("advise", str(shared / "kineto/sampled_rank0.json.gz"))
    lines = [line for line in said.stdout.splitlines() if "communication" in line]
    assert any("saves nothing by a replay, at most 337 ms of the run" in line for line in lines), (
        lines
    )
    assert "All together save nothing of 1.23 s, by a replay" in said.stdout
    assert "about 0 ns" not in said.stdout
