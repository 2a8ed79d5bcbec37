"""For each of our readers, which files to ask it about, so that no other vendor's reader is loaded. A look is
a necessary condition, derived from the rules of ``recognise``; the reader decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .heads import SQLITE, is_json, is_pickle


@dataclass(frozen=True, slots=True)
class Look:
    """The files that a reader may accept: folders, SQLite databases, pickles, other non-JSON files; and JSON
    by the other fields. ``begins``: how the JSON may begin; ``words``: texts that its head may contain;
    ``names``: how the file's name may begin. Any one condition is enough."""

    folder: bool = False
    sqlite: bool = False
    other: bool = False
    pickle: bool = False
    begins: re.Pattern[bytes] | None = None
    words: tuple[bytes, ...] = ()
    names: re.Pattern[str] | None = None

    def fits(self, head: bytes, path: Path, is_folder: bool) -> bool:
        """Whether to ask the reader about the file that begins with ``head``."""
        if is_folder:
            return self.folder
        if head.startswith(SQLITE):
            return self.sqlite
        if is_pickle(head):
            return self.pickle
        if not is_json(head):
            return self.other
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if self.begins is not None and self.begins.match(start):
            return True
        if self.names is not None and self.names.match(path.name):
            return True
        return any(word in head for word in self.words)


#: Our readers, in the order in which they are asked. The order matters: a recording is a folder with a
#: ``meta.json`` as a profile is, and almost any bytes may be a report of Nsight Systems, which is
#: recognised by its file name.
LOOKS: Final[Mapping[str, Look]] = {
    "recording": Look(folder=True),
    "profile": Look(folder=True),
    # the size that it begins with may look like the begin of JSON or of a pickle
    "etdump": Look(other=True, pickle=True, words=(b"ED00",)),
    "xplane": Look(
        folder=True, other=True, words=(b'"highres-ticks"', b'"/host:CPU', b'"/device:')
    ),
    # a program's own lines before those of ncu may begin like JSON
    "ncu": Look(
        other=True,
        words=(b"==PROF==", b"==ERROR==", b"==WARNING==", b"Process ID", b"Process Name", b"Kernel Name"),
    ),
    "pyprof": Look(words=(b"'kShortName'",)),
    "memory_snapshot": Look(pickle=True, begins=re.compile(rb"\[\s*\[\s*-?[0-9]")),
    "flight_recorder": Look(pickle=True, words=(b'"pg_config"', b'"pg_status"', b'"profiling_name"')),
    "torch_trace": Look(other=True),
    "perfetto": Look(other=True),
    "proton": Look(
        other=True,
        begins=re.compile(rb'\[\s*\{\s*"(?:children|frame|metrics)"'),
        words=(b'"call_stack"', b'"GPU Stream ', b'"CPU Thread '),
    ),
    "nsys": Look(folder=True, sqlite=True, other=True),
    "ascend_db": Look(sqlite=True),
    "nvprof": Look(sqlite=True),
    "dlprof": Look(sqlite=True),
    "rocm": Look(
        folder=True,
        sqlite=True,
        other=True,
        begins=re.compile(
            rb'\{\s*"rocprofiler-sdk-tool"|\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}|\[\s*\{\s*\}'
        ),
    ),
    "onnxruntime": Look(words=(b'"Session"', b'"Node"')),
    "tensorrt": Look(
        other=True,
        begins=re.compile(rb"\[(?:\d\d/\d\d/|TRT\])"),
        words=(
            b'"Layers"', b'"Bindings"', b'"performance_summary"', b'"model_options"', b'"LayerType"',
            b'"startEnqMs"', b'"startInMs"', b'"count"', b'"timeMs"', b'"ComputeCapability"', b"TensorRT",
        ),
    ),
    "mindspore": Look(
        folder=True,
        sqlite=True,
        other=True,
        begins=re.compile(rb"\[|[^;\n]{1,4096};|[^\s,]*-op[0-9]"),
        words=(b'"op_side"', b"Time(us)"),
        names=re.compile(
            r"minddata_|pipeline_profiling|dataset|device_queue|\w+_timeline_summary_|\w+_cluster_analyse|"
            r"step_trace_|flops_|hccl_raw|communication|memory_|operator_memory|npu_module_mem|"
            r"api_statistic|start_time_|profiler_|parallel_strategy|ascend_marey|scope_map|output_|"
            r"(?:gpu|cpu)_framework_"
        ),
    ),
}  # fmt: skip
