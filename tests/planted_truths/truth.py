"""What is true of a planted program or trace, and whether what opscope says first of it is right.

The truth comes from the generator alone. ``SAID`` lists for each cause the findings of the diagnosis, or names
of detectors, that name it; a word of the text where a finding's name is wider than the cause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HEALTHY, CANNOT_TELL, STARVED = "healthy", "cannot tell", "starved machine"
#: What names each cause: patterns of ``finding`` (the diagnosis's finding, or a detector), or of both and the
#: text as ``finding: text``, with spaces for underscores.
SAID: Mapping[str, str] = {
    "slow loader": r"input-bound|data loader|cpu decoding",
    "synchronising reads": r"synchronising calls|sync calls|value reads",
    "recompiling shapes": r"recompilations|compilation: .*compiled.* in \d+ of \d+ steps",
    "late rank": r"straggler|uneven ranks",
    "lost kernels": r"cannot tell: .*(lost|missing|without a kernel|fewer)|lost records",
    "memory growth": r"memory growth|grow",
    "unfused optimizer": r"unfused optimizer",
    "unfused attention": r"unfused attention",
    "casts": r"cast",
    "precision": r"mixed precision|tf32 off|precision|compute-bound: .*(16 bits|autocast)",
    "padding": r"tensor shapes|padding",
    "tiny ops": r"host-bound|host bound|launch bound|batch size|no fusion|small kernels|elementwise chains",
    "transfers": r"copy-bound|transfer bound",
    "pageable copies": r"pageable",
    "uncovered communication": r"communication-bound|unoverlapped communication|communication share",
    "compile time dominates": r"compilation|warm up|slow start|recompilations",
    "evaluation dominates": r"evaluation",
    "sleeping between ops": r"host-bound|host bound|outside|sleep",
    HEALTHY: r"\Ahealthy: ",
    CANNOT_TELL: r"\Acannot tell: ",
    STARVED: r"\Astarved: ",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted. Times in ns; what is not planted is None and not judged."""

    name: str
    cause: str
    #: ``trace`` or ``program``.
    made: str
    framework: str
    size: int
    #: The files of a trace, or the program and its arguments.
    what: Sequence[str]
    steps: int | None
    #: Each phase's time over all steps, ``outside`` among them.
    phases: Mapping[str, int] | None = None
    #: The rank that is late, and by how much over all steps.
    late: tuple[int, int] | None = None
    #: Other causes that are as true, and may come first.
    also: Sequence[str] = ()
    ranks: int = 1
    #: By how much a phase may be off, as a part of the steps.
    within: float = 0.02
    #: How many kernels are missing in the file.
    lost: int | None = None
    #: What ``opscope run`` is told beside the program.
    options: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        """Write the truth beside what it is of."""
        (folder / f"{self.name}.truth.json").write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(path: Path) -> Truth:
        """Return the truth in a file."""
        return Truth(**json.loads(path.read_text()))


@dataclass(slots=True)
class Said:
    """What opscope says of it."""

    first: str
    text: str
    #: All findings of the diagnosis and of the advice, in their order, as ``finding: text``.
    findings: list[str]
    steps: int | None
    phases: dict[str, int] = field(default_factory=dict)
    #: The rank that comes last most often, and its lateness over all steps (ns).
    late: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """``right``: the cause first; ``later``: named, not first; ``missed``; ``false``: sick said of the healthy,
    healthy of the sick, or a cause of what nobody can tell."""

    cause: str
    steps: bool | None
    #: The largest error of a phase, as a part of all steps.
    phases: float | None
    late: float | None


def said_of(profile: Any) -> Said:
    """Return what a profile's diagnosis, advice, steps and phases say."""
    rows = profile.diagnosis().to_dicts()
    advice = profile.advice().filter(profile.advice()["outcome"] == "found").to_dicts()
    findings = [
        f"{row['finding']}: {row['text']}; {row['to_try'] or ''}; {row.get('detector') or ''}"
        for row in rows
    ]
    findings += [f"{row['detector']}: {row['finding']}" for row in advice]
    steps = profile.summary()["steps"][0]
    phases: dict[str, int] = {}
    for row in profile.step_phases().to_dicts():
        if row["step"] is not None and row["time"] is not None:
            phases[row["phase"]] = phases.get(row["phase"], 0) + row["time"]
    # when the ranks start is no lateness of a step
    every = profile.steps()["step"].drop_nulls()
    stepping = profile.select(steps=(every.min(), every.max())) if len(every) else profile
    late = stepping.stragglers().to_dicts()
    return Said(
        rows[0]["finding"] if rows else "",
        rows[0]["text"] if rows else "",
        findings,
        steps or None,
        phases,
        (late[0]["rank"], late[0]["lateness"]) if late and late[0]["lateness"] else None,
    )


def judge(truth: Truth, said: Said) -> Judgement:
    """Compare what opscope says with the truth."""
    causes = (truth.cause, *truth.also)
    # a detector is called by its name or in words
    texts = [text.replace("_", " ") for text in said.findings]
    named = [any(re.search(SAID[cause], text, re.S | re.I) for cause in causes) for text in texts]
    sound = said.first in (HEALTHY, CANNOT_TELL)
    if named and named[0]:
        word = "right"
    elif truth.cause in (HEALTHY, CANNOT_TELL) or said.first == HEALTHY:
        word = "false"
    else:
        word = "later" if any(named) else "missed"
    if truth.cause == HEALTHY and word == "false" and sound:
        word = "missed"  # nothing false is said
    steps = None if truth.steps is None else said.steps == truth.steps
    return Judgement(word, steps, _phases(truth, said), _late(truth, said))


def _phases(truth: Truth, said: Said) -> float | None:
    if truth.phases is None:
        return None
    whole = sum(truth.phases.values())
    return max(abs(said.phases.get(name, 0) - time) for name, time in truth.phases.items()) / whole


def _late(truth: Truth, said: Said) -> float | None:
    """Return how far the lateness is off, as a part of it; 1 if another rank or none is named."""
    if truth.late is None:
        return None
    rank, time = truth.late
    if said.late is None or said.late[0] != rank:
        return 1.0
    return abs(said.late[1] / time - 1)
