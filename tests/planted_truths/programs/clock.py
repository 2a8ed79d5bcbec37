"""What a program plants in its phases, and how long that took by its own clock.

On a busy machine a sleep takes longer than asked for, and so does the code around it: what they took is written
to ``PLANTED_CLOCK`` at the end; of several ranks what each wrote, beside it.
"""

import atexit
import contextlib
import json
import os
import time

TOOK = {}
#: When this rank entered each collective: nanoseconds of the machine's clock.
ENTERED = []


@contextlib.contextmanager
def clocked(phase):
    """Take the time of a phase."""
    begin = time.perf_counter_ns()
    yield
    TOOK[phase] = TOOK.get(phase, 0) + time.perf_counter_ns() - begin


def asleep(phase, seconds):
    """Sleep, in this phase."""
    with clocked(phase):
        time.sleep(seconds)


def entered():
    """Note that this rank enters a collective now."""
    ENTERED.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))


@atexit.register
def write():
    if (TOOK or ENTERED) and "PLANTED_CLOCK" in os.environ:
        rank = f".{os.environ['RANK']}" if ENTERED else ""
        with open(os.environ["PLANTED_CLOCK"] + rank, "w", encoding="utf-8") as file:
            json.dump(ENTERED or TOOK, file)
