"""A driver without a language model: it asks ``diagnose`` and follows the first hint of each answer.

What it claims are fields of the answers that it got, never a search for the truth. ``scripts/agent_set.py`` runs it
on the set, and ``score`` judges its claims, or those of any other tool, with what they cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.planted_truths.truth import CANNOT_TELL, HEALTHY, SAID, Truth

#: The most calls that may be made, and what all their answers may come to.
CALLS, TOKENS = 5, 8_000
#: Makes a call with arguments; returns the answer as text.
Make = Callable[[str, Mapping[str, Any]], str]
#: Where each planted cause lies, or its figure: what the evidence must name.
PLACES: Mapping[str, str] = {
    "slow loader": r"loader|dataset|generator",
    "synchronising reads": r"local_scalar_dense|aten::item",
    "recompiling shapes": r"compil.{0,100} in \d+ of \d+ steps|compilation 0/\d",
    "late rank": r'"rank": ?{rank}\b',
    "lost kernels": r"\b{lost}\b",
    "memory growth": r"50\.3 MB",
    "unfused optimizer": r"aten::(mul_|add_|sqrt|addcdiv_)",
    "unfused attention": r"softmax|bmm",
    "casts": r"aten::(_to_copy|to\b)",
    "precision": r"f32\[",
    "padding": r"8190",
    "tiny ops": r"\[(64|32)\]",
    "pageable copies": r"from pageable",
    "transfers": r"from pinned",
    "uncovered communication": r"record_param_comms",
    "evaluation dominates": r"\d evaluations",
    "compile time dominates": r"went into compiling|slow start",
    "sleeping between ops": r"outside any op|sleep",
}


@dataclass(slots=True)
class Claim:
    """What is claimed of a run, and what it cost. ``tokens``: the bytes of all answers by four."""

    verdict: str = ""
    cause: str = ""
    where: str = ""
    calls: int = 0
    tokens: int = 0
    made: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Score:
    """Whether each part of a claim is right, and whether calls and tokens are within the bounds."""

    verdict: bool
    cause: bool
    where: bool
    within: bool

    @property
    def reached(self) -> bool:
        """Whether all of it is right."""
        return self.verdict and self.cause and self.where and self.within


def drive(make: Make, run: str) -> Claim:
    """Ask what bounds the run, then make the first call that each answer hints at, until none does."""
    claim = Claim()
    call, arguments = "diagnose", {"run": run}
    while call and claim.calls < CALLS:
        text = make(call, arguments)
        answer = json.loads(text)
        claim.calls += 1
        claim.tokens += -(-len(text.encode()) // 4)
        claim.made.append(f"{call} {json.dumps(arguments)}")
        if "error" in answer:
            raise AssertionError(f"{claim.made[-1]}: {answer['error']}")
        _learn(claim, answer)
        hints = answer.get("next", [])
        call = hints[0]["call"] if hints else ""
        arguments = hints[0]["arguments"] if hints else {}
        if f"{call} {json.dumps(arguments)}" in claim.made:
            break
    return claim


def _learn(claim: Claim, answer: Mapping[str, Any]) -> None:
    """Keep what an answer says: of the first the verdict and cause, of all the place in their evidence."""
    if claim.calls == 1:
        claim.verdict = answer["verdict"]
        detector = answer.get("cause", {}).get("detector", "")
        claim.cause = "; ".join([*answer["said"], detector])
    claim.where += f"{json.dumps(answer.get('where', {}), ensure_ascii=False)} "
    claim.where += " ".join(answer.get("said", [])) + " "
    claim.where += json.dumps(answer.get("rows", [])[:3], ensure_ascii=False)


def score(truth: Truth, claim: Claim) -> Score:
    """Judge a claim: the verdict, the cause by the patterns of ``SAID``, its place by those of ``PLACES``."""
    causes = (truth.cause, *truth.also)
    unknown = {HEALTHY: "healthy", CANNOT_TELL: "cannot tell", "lost kernels": "cannot tell"}
    verdicts = {unknown.get(cause, "cause") for cause in causes}
    text = claim.cause.replace("_", " ")
    named = [cause for cause in causes if re.search(SAID[cause], text, re.S | re.I)]
    return Score(
        claim.verdict in verdicts,
        bool(named),
        any(_is_placed(truth, cause, claim) for cause in named),
        claim.calls <= CALLS and claim.tokens <= TOKENS,
    )


def _is_placed(truth: Truth, cause: str, claim: Claim) -> bool:
    pattern = PLACES.get(cause)
    if pattern is None:  # what is healthy, or cannot be told, lies nowhere
        return True
    rank = truth.late[0] if truth.late is not None else ""
    pattern = pattern.replace("{rank}", str(rank)).replace("{lost}", str(truth.lost))
    return re.search(pattern, claim.where, re.I) is not None
