"""The files of light mode in a process's part of a recording, for the writer and the reader.

``light.bin`` is a snapshot, replaced as a whole; ``light.log`` has the records since then, and is emptied
once a snapshot holds them. A record is ten little-endian int64 (``RECORD``): its place among all records
of the process, which begins at 0, its kind, then for

* a step: number, begin (perf_counter_ns), duration, and the ns of it in each of ``PHASES`` but the last,
  which has the rest;
* a step that was also recorded in full (``FULL``): the same;
* a sample: time, number of its name, device (-1: none), the value as the bits of a float64, and zeros.

So both files are bounded, however long a training lasts, and a killed process loses a second at
most. The facts give the number of each name (``{"light_name": number, "name": text}``).
"""

from __future__ import annotations

import struct
from typing import Final

SNAPSHOT, LOG = "light.bin", "light.log"
MAGIC: Final = b"OPSLIGHT"
VERSION: Final = 1
#: Magic, version and length of the JSON that follows; then the arrays named there, one after another.
HEADER: Final = struct.Struct("<8sII")
RECORD: Final = struct.Struct("<10q")
#: The words of a record.
WIDTH: Final = 10
STEP, FULL, SAMPLE = range(3)

#: The parts of a step's time. They exclude each other and add up to the step.
PHASES: Final = ("input", "forward", "backward", "optimizer", "collective", "other")
INPUT, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE, OTHER = range(6)
#: Positions of a step's number, begin, duration and first phase in its record. The last phase,
#: ``OTHER``, is the rest of the step.
NUMBER, BEGIN, TOOK, FIRST_PHASE = 2, 3, 4, 5
