"""The format of a recording: what the recorder writes and the backends read.

A recording is a folder of parts, one a process (``part-<host>-<pid>-<start time>``), each with

* ``meta.json``: the process, written once, when the part is made;
* ``strings.jsonl``: ``[id, domain, category, text]``, one a line;
* ``facts.jsonl``: threads, numbers of domains, paired clock readings, what opscope itself has cost by
  then, notes, the stop; one object a line;
* ``events.bin``: chunks of 16-byte records, two little-endian int64 ``(code, value)`` each;
* ``memory.bin``, where memory is recorded: ``MEMORY_RECORD`` after ``MEMORY_RECORD``;
* the trace of a framework's own profiler, where one ran beside the recorder.

All but the first are only ever appended to, strings before the events that use them, so a process
that is killed leaves a readable part. ``core.capture.recorder_sink`` writes it, ``readers.recording.process_part`` reads it.
Times are ``time.perf_counter_ns`` (on Linux CLOCK_MONOTONIC); pairs with the Unix clock stand in the
facts.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import Final

FORMAT: Final = "opscope-recording"
VERSION: Final = 1
META, STRINGS, FACTS, EVENTS = "meta.json", "strings.jsonl", "facts.jsonl", "events.bin"
MEMORY: Final = "memory.bin"
#: The trace of JAX's or TensorFlow's profiler, and that of PyTorch's.
XPLANE: Final = "profile.xplane.pb"
KINETO: Final = "kineto.json"
#: A range of the profiler's that the recorder brackets. Adapters pass by names that begin so.
PROBE: Final = "opscope.probe"
#: The call, by PyTorch's name of the platform, that the recorder brackets where PyTorch's profiler runs.
PROBE_CALLS: Final = MappingProxyType(
    {"cuda": "cudaDriverGetVersion", "hip": "hipDriverGetVersion"}
)
#: These calls as profilers name them.
PROBE_CALL: Final = rf"^(?:{'|'.join(PROBE_CALLS.values())})(?:_v\d+)?$"

#: One change of memory: time (as the events'), address, bytes (``UNKNOWN_BYTES``: of a release, those
#: of the block that was allocated there last), thread of the system (0: not known), device (-1: the
#: CPU), and what happened (``ALLOCATED`` …). A numpy dtype could read it: ``<i8,<u8,<i8,<i4,<i2,<i2``.
MEMORY_RECORD: Final = struct.Struct("<qQqihh")
ALLOCATED, RELEASED, RESERVED, UNRESERVED = range(4)
UNKNOWN_BYTES: Final = -1
CPU_DEVICE: Final = -1

# The records. A push is (text id ≥ 0, time); its payload, if any, is the record before it.
PAYLOAD: Final = -2
#: Ids at and above are marks.
MARK_BASE: Final = 1 << 48
#: Codes from here down to COMPLETE_BASE are pops: POP_BASE - the domain's number. Ranges nest in
#: each domain by itself.
POP_BASE: Final = -16
#: Codes from here down to CHUNK are pops that also tell the text with outputs.
COMPLETE_BASE: Final = -(1 << 32)
#: (CHUNK - thread index, number of records that follow): the records are of that thread.
CHUNK: Final = -(1 << 60)
RECORD: Final = struct.Struct("<2q")
TWO_RECORDS: Final = struct.Struct("<4q")
RECORD_BYTES: Final = RECORD.size
#: Indices of threads and ids of texts from here up are given by a source, not by Python.
SOURCE_THREADS: Final = 1 << 20
SOURCE_TEXTS: Final = 1 << 40
