"""The format of a recording: the files and records that a process writes while it runs.

A recording is a folder with one part per process (``part-<host>-<pid>-<start time>``). Each part has

* ``meta.json``: the process, written once, when the part is made;
* ``strings.jsonl``: ``[id, domain, category, text]``, one per line;
* ``facts.jsonl``: threads, numbers of domains, paired clock readings, opscope's own cost so far, samples of
  the processors, notes, which backend records and why, the stop; one object per line;
* ``events.bin``: chunks of 16-byte records, each two little-endian int64 ``(code, value)``;
* ``memory.bin``, if memory is recorded: a sequence of ``MEMORY_RECORD``;
* ``stacks.bin``, if Python stacks are sampled: a sequence of ``STACK_RECORD``; ``stacks.jsonl`` has their
  stacks, a tree: ``["code", id, file, function]``, ``["node", id, parent (-1: none), code, line]``, and
  ``["call", node, what the innermost frame called]``;
* the trace of a framework's own profiler, if one ran beside the recorder; ONNX Runtime has one a session;
* the records of CUPTI, if they were kept (``core.cupti.files``);
* of a ring, which keeps the last seconds or steps: folders ``segment-00000001`` … with the events, the memory
  and the timed facts of one stretch each, in place of ``events.bin`` and ``memory.bin``. Old ones are
  deleted; ``strings.jsonl`` and ``facts.jsonl`` are then rewritten without entries that no segment needs.

Every file but the first is only appended to, and strings are written before the events that use them, so
a killed process leaves a readable part. ``core.capture.recorder_sink`` writes this format,
``readers.recording.process_part`` reads it. Times are ``time.perf_counter_ns`` (on Linux CLOCK_MONOTONIC);
the facts contain pairs of it with the Unix clock.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import Final

FORMAT: Final = "opscope-recording"
VERSION: Final = 1
META, STRINGS, FACTS, EVENTS = "meta.json", "strings.jsonl", "facts.jsonl", "events.bin"
MEMORY: Final = "memory.bin"
STACKS, STACK_SAMPLES = "stacks.jsonl", "stacks.bin"
#: The folder of one stretch of a ring, by its number, and the pattern that finds all of a part.
SEGMENT: Final = "segment-{:08d}"
SEGMENTS: Final = "segment-" + "[0-9]" * 8
#: The file beside the parts with the facts that ``opscope run`` has about the process that it started:
#: ``pid``, ``boot``, ``began``, ``ended`` (ns, on the events' clock), ``status``.
LAUNCHED: Final = "launched.json"
#: Why a process was not recorded: its Python and the reason, one line each.
UNRECORDED: Final = "unrecorded-{}.txt"
#: The exit statuses of recorded processes that other processes of the program started, one JSON
#: object a line: ``pid``, ``boot``, ``seen`` (ns, on the events' clock), ``status``.
EXITS: Final = "exits.jsonl"
#: The trace of JAX's or TensorFlow's profiler, and the trace of PyTorch's profiler.
XPLANE: Final = "profile.xplane.pb"
KINETO: Final = "kineto.json"
#: The folder of ONNX Runtime's session number N: its profile, the model that it ran, and the one that it was
#: given, both without the values of weights.
ONNX_FOLDER: Final = "onnxruntime-{}"
ONNX_PROFILE, ONNX_MODEL, ONNX_ORIGINAL = "profile.json", "model.onnx", "original.onnx"
#: The folder of what MindSpore's profiler writes; the file in it with the compiled graphs' nodes, a
#: JSON object a line (``graph``, ``nodes``: name, call, layer, direction, forward node).
MINDSPORE: Final = "mindspore"
MINDSPORE_GRAPHS: Final = "graphs.jsonl"
#: Prefix of a range in the profiler's trace. The recorder reads its clock before and after such a
#: range. Adapters ignore names that begin with it.
PROBE: Final = "opscope.probe"
#: The call around which the recorder reads its clock while PyTorch's profiler runs, by PyTorch's
#: name of the platform.
PROBE_CALLS: Final = MappingProxyType(
    {"cuda": "cudaDriverGetVersion", "hip": "hipDriverGetVersion"}
)
#: Matches profilers' names of these calls.
PROBE_CALL: Final = rf"^(?:{'|'.join(PROBE_CALLS.values())})(?:_v\d+)?$"

#: One change of memory: time (on the events' clock), address, bytes (``UNKNOWN_BYTES`` for a release: the
#: size of the block last allocated at this address), the system's thread id (0: not known), device (-1: the
#: CPU), and the kind of change (``ALLOCATED`` …). As a numpy dtype: ``<i8,<u8,<i8,<i4,<i2,<i2``.
MEMORY_RECORD: Final = struct.Struct("<qQqihh")
ALLOCATED, RELEASED, RESERVED, UNRESERVED = range(4)
UNKNOWN_BYTES: Final = -1
#: A sample of a thread's stack: the start and the end of the time that it represents, how long the thread ran
#: or was ready to run in that time (-1: not known), the system's thread id, the node of ``stacks.jsonl`` (-1:
#: no frame), its number of samples, and its kind (``SAMPLED`` …). As a numpy dtype:
#: ``<i8,<i8,<i8,<i4,<i4,<i4,<i4``.
STACK_RECORD: Final = struct.Struct("<qqqiiii")
SAMPLED, COLLECTED = range(2)
CPU_DEVICE: Final = -1

# The records. A push is (text id ≥ 0, time); its payload, if any, is the record before it.
PAYLOAD: Final = -2
#: Codes from here up are marks: MARK_BASE + text id.
MARK_BASE: Final = 1 << 48
#: Codes from here down to COMPLETE_BASE are pops: POP_BASE - the domain's number. Ranges nest within each
#: domain separately.
POP_BASE: Final = -16
#: Codes from here down to CHUNK are pops that also give the text with outputs: COMPLETE_BASE - text id.
COMPLETE_BASE: Final = -(1 << 32)
#: (CHUNK - thread index, number of records that follow): these records belong to that thread.
CHUNK: Final = -(1 << 60)
RECORD: Final = struct.Struct("<2q")
TWO_RECORDS: Final = struct.Struct("<4q")
RECORD_BYTES: Final = RECORD.size
#: Thread indices and text ids from here up are assigned by a source (``recorder_sink.Source``).
SOURCE_THREADS: Final = 1 << 20
SOURCE_TEXTS: Final = 1 << 40
