"""The words of the frames of light mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "collective_phase": "time in collectives that the program called itself",
        "lost": "how much shorter all steps together were without it, at most",
        "step_cost": "what light mode's hooks took of a step, on average",
        "step_cost_error": "step_cost is right within this, 19 times in 20",
    },
    "fraction": {
        "step_cost_share": "step_cost / the mean step",
        "writing_share": "time that a thread of opscope's took to sum up and write / the time measured",
    },
    "count": {
        "counted_steps": "steps in the sampled time, of which the first and the last count in part; rounded",
        "full_steps": "steps that were recorded in full besides",
        "spells": "times at which steps stayed slow",
        "spells_recorded": "spells of which a few steps were recorded in full",
    },
    "J": {
        "energy": "energy that the GPU took in the sampled time",
        "step_energy": "energy / the steps in the sampled time",
    },
    "W": {
        "power": "energy / sampled_time",
        "max_power": "most power in any sample",
    },
    "text": {
        "text": "the finding, with its numbers",
        "to_try": "the first thing to try, or what to capture",
    },
    "yes/no": {"full": "whether everything was recorded besides, so that the step took longer"},
}
