"""Runs with planted causes: who follows opscope's own hints reaches each cause in five calls and 8,000 tokens.

The made traces of the set are driven here; programs where their framework is (``tests/on_*/test_planted_truths.py``),
and the whole set by ``scripts/agent_set.py``.
"""

from __future__ import annotations

import json
import runpy
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from opscope.agents.answering import reply
from opscope.agents.runs import Runs
from tests.planted_truths import agent_set
from tests.planted_truths.driver import CALLS, TOKENS, Claim, drive, score
from tests.planted_truths.truth import CANNOT_TELL

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "agent_set.py"


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    runs, claims = Runs((folder,)), {}
    for truth in agent_set.make(folder):
        files = agent_set.files_of(truth)
        claims[truth.cause] = (
            truth,
            drive(lambda call, given: reply(runs, call, given).text, files),
        )
    return claims


@pytest.mark.parametrize("cause", agent_set.MADE)
def test_the_cause_is_reached(claims, cause):
    truth, claim = claims[cause]
    assert score(truth, claim).reached, (score(truth, claim), claim)


def test_no_claim_is_right_of_another_cause(claims):
    for truth, _ in claims.values():
        for other, claim in claims.values():
            # where kernels are lost it is right that what bounds the run cannot be told
            if other is not truth and (truth.cause, other.cause) != (CANNOT_TELL, "lost kernels"):
                assert not score(truth, claim).reached, (truth.cause, other.cause)


def test_a_claim_without_the_place_or_beyond_the_bounds_is_not_reached(claims):
    truth, claim = claims["late rank"]
    assert not score(truth, replace(claim, where="")).reached
    assert not score(replace(truth, late=(0, 1)), claim).reached, "another rank"
    assert not score(truth, replace(claim, verdict="healthy")).reached
    assert not score(truth, replace(claim, calls=CALLS + 1)).reached
    assert not score(truth, replace(claim, tokens=TOKENS + 1)).reached
    lost, claim = claims["lost kernels"]
    assert not score(replace(lost, lost=24), claim).reached


def test_the_set_has_twenty_runs_of_four_frameworks_and_more():
    truths = agent_set.truths()
    assert len(agent_set.MADE) + len(truths) == 20
    assert {truth.framework for truth in truths} >= {"torch", "jax", "tensorflow", "mindspore"}


def test_a_driver_ends_at_a_hint_that_it_followed_already():
    again = {
        "verdict": "cause",
        "said": ["x"],
        "next": [{"call": "diagnose", "arguments": {"run": "a"}}],
    }
    assert drive(lambda call, given: json.dumps(again), "a").calls == 1
    deeper = iter(range(9))
    claim = drive(
        lambda call, given: json.dumps(
            {**again, "next": [{"call": "ask", "arguments": {"question": str(next(deeper))}}]}
        ),
        "a",
    )
    assert claim.calls == CALLS


def test_the_script_scores_the_claims_of_any_tool(tmp_path, capsys):
    script = runpy.run_path(str(SCRIPT))
    truth, _ = (
        truth for truth in agent_set.make(tmp_path) if truth.cause in ("padding", "healthy")
    )
    (tmp_path / "runs.json").write_text(json.dumps({"runs": {truth.name: truth.what[0]}}))
    claim = Claim("cause", "tensor_shapes", "N = 8190 is no multiple of 8", 2, 900)
    assert script["report"](tmp_path, {truth.name: asdict(claim)}) == 0
    assert script["report"](tmp_path, {truth.name: asdict(replace(claim, where="somewhere"))}) == 1
    assert script["report"](tmp_path, {}) == 1
    assert "NOT reached: where" in capsys.readouterr().out
