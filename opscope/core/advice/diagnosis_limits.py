"""The thresholds of the diagnosis: from which part of the time on something is a finding."""

from __future__ import annotations

from typing import Final

#: A step is bound by its input above this part of its time (the PyTorch profiler plug-in's rule).
INPUT: Final = 0.05
#: Compiling inside steps that are no warm-up; as for input, because it should be nothing at all.
COMPILING: Final = 0.05
#: Communication that nothing hides (the plug-in's rule), and every other part of the time that is told.
WORTH: Final = 0.1
#: Time of a CPU's steps outside any op: some is normal, as Python runs between ops (as in light mode).
OUTSIDE: Final = 0.3
#: It is surely more than that if the steps differ so little that it is after so many standard errors.
ERRORS: Final = 2
#: A device that is busy for less of the time is not healthy (the plug-in's rule: utilization below 50 %).
BUSY: Final = 0.5
#: First steps that took more of all steps' time than this are named before what bounds the others; compiling
#: is above half of what was recorded.
MOSTLY: Final = 0.9
#: What well-made kernels attain of their roof. Roofs are dense peaks, which nothing attains.
ATTAINED: Final = 0.6
#: Memory is near its limit above this part of the device's (the plug-in's rule).
FULL: Final = 0.9
#: A rank is the slow one if it causes this part of all waiting, and its lateness is worth telling.
CAUSES: Final = 0.5
#: Kernels of a median below this (ns) take less time than the host needs to launch them, about 5 to 10 µs.
SHORT: Final = 10_000
#: What Python takes between two ops at most (ns), recording included; beyond it is the program's own code.
BETWEEN: Final = 50_000
#: Of fewer pieces of work on a device nothing is said.
LEAST: Final = 10
CANNOT_TELL: Final = "cannot tell"
HEALTHY: Final = "healthy"
