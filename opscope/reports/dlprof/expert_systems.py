"""DLProf's expert systems: what those of opscope's detectors say that answer a rule of DLProf's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from opscope.core.advice.ask import CANNOT_TELL, FOUND, detectors
from opscope.core.dlprof.model import Model
from opscope.profile import Profile

#: How the rules of DLProf begin in the ``known_as`` of a detector.
_DLPROF: Final = "DLProf: "
#: The detector that reports a key op would answer.
_ITERATIONS: Final = "no_iterations"


def rules() -> Mapping[str, tuple[str, ...]]:
    """Return DLProf's rules, each with the names of the detectors that answer it."""
    names_by_rule: dict[str, tuple[str, ...]] = {}
    for name, detector in detectors().items():
        for alias in detector.known_as:
            if alias.startswith(_DLPROF):
                rule = alias.removeprefix(_DLPROF)
                names_by_rule[rule] = (*names_by_rule.get(rule, ()), name)
    return dict(sorted(names_by_rule.items()))


def findings(profile: Profile, model: Model) -> tuple[pl.DataFrame, list[str]]:
    """Return what was found, in DLProf's columns with opscope's detector and times (ns) after, and notes.

    Notes say what could not be told, and what was looked for and not found. The detectors look at the whole
    profile. Where a key op makes iterations, their absence is no finding.
    """
    answers = {name: rule for rule, names in rules().items() for name in names}
    said = profile.advice(detectors=sorted(answers))
    if model.found.found:
        said = said.filter(pl.col("detector") != _ITERATIONS)
    problems = said.filter(pl.col("outcome") == FOUND).select(
        pl.col("finding").alias("Problem"),
        pl.col("recommendation").alias("Recommendation"),
        pl.col("detector").replace_strict(answers, default=None).alias("Expert System"),
        pl.col("detector").alias("Detector"),
        pl.col("confidence").alias("Confidence"),
        pl.col("time").alias("Time (ns)"),
        pl.col("saving").alias("Estimated Saving (ns)"),
        pl.col("saving_least").alias("Least Saving (ns)"),
        pl.col("saving_most").alias("Most Saving (ns)"),
    )
    notes = [
        f"{answers[name]} ({name}) cannot be told: {' '.join((reason or '').split())}"
        for name, outcome, reason in said.select("detector", "outcome", "reason").rows()
        if outcome == CANNOT_TELL
    ]
    asked = set(said["detector"])
    loud = set(said.filter(pl.col("outcome").is_in([FOUND, CANNOT_TELL]))["detector"])
    if quiet := sorted(asked - loud):
        notes.append(
            "nothing found by: " + ", ".join(f"{answers[name]} ({name})" for name in quiet)
        )
    notes.append("detectors that DLProf had no rule for: opscope advise FILE")
    return problems, notes
