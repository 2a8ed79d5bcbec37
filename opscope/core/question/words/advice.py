"""The words of the frames of what to change in the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "saving_least": "lower bound of what the change would save",
        "saving_most": "upper bound of what the change would save; null if nothing bounds it",
        "step_saving": "median over the steps of what the changes save of each; null without steps",
    },
    "count": {
        "simulated": "findings whose change was replayed",
        "not_simulated": "findings whose change could not be replayed",
        "count": "how many the row stands for",
    },
    "number": {"number": "the finding's number, 1 for the one that saves most"},
    "text": {
        "detector": "name of the detector",
        "outcome": "found, cannot tell, or nothing found",
        "finding": "what the program does, with its figures",
        "evidence": "where the program does it: source lines, layers or ops",
        "recommendation": "what to change",
        "reasoning": "how the saving and its bounds were computed",
        "confidence": "how likely the change saves time: high, medium or low",
        "omitted": "the detectors whose findings could not be replayed",
        "detail": "what else there is to say of the row",
    },
}
