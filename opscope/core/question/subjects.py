"""The subject of each question, given by the folder that its module is in."""

from __future__ import annotations

from typing import Final

from .index import QUESTIONS, REPORTS

#: Folder below ``opscope.core`` → subject, in the order of lists.
SUBJECTS: Final = {
    "analysis.summary": "Where the time went",
    "advice": "What bounds it, and what to change",
    "analysis.steps": "Steps and iterations",
    "analysis.ops": "Operators, layers, kernels",
    "analysis.device": "The device, its queues and launches",
    "analysis.roofline": "Limits of the device, and hardware counters",
    "analysis.memory": "Memory",
    "analysis.host": "The program, its input and the processors",
    "analysis.serving": "Inference servers, their phases and tokens",
    "analysis.ranks": "Many ranks and their communication",
    "analysis.critical": "What held up the run",
    "analysis.diff": "The difference of two runs",
    "pyprof": "As PyProf says it",
}


def subject(name: str) -> str:
    """Return the subject of the question or report ``name``. Raises KeyError if there is none."""
    module = QUESTIONS[REPORTS.get(name, name)].removeprefix("opscope.core.")
    room = module.split(".")
    return SUBJECTS.get(".".join(room[:2])) or SUBJECTS.get(room[0]) or SUBJECTS["analysis.summary"]
