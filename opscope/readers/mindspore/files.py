"""Recognise the files of MindSpore's profiler by their beginning, and find them in a folder.

The files of each version are known from its sources (``mindspore-ai/mindspore`` on GitHub, paths given as P
for ``mindspore/python/mindspore/profiler`` and C for ``mindspore/ccsrc``):

* 2.5 to 2.10, ``HOST_PID_TIME_ascend_ms/``: P/common/profiler_output_path.py, P/analysis/viewer/*;
* 2.0 to 2.4: P/parser/ascend_*_generator.py, which read CANN's ``PROF_*/mindstudio_profiler_output``;
* 1.8 to 2.1 on Ascend: P/parser/integrator.py, framework_parser.py, step_trace_parser.py,
  base_timeline_generator.py;
* on GPUs: C/plugin/device/gpu/hal/profiler/gpu_data_saver.{h,cc}, C/profiler/device/data_saver.{h,cc},
  P/parser/cpu_gpu_timeline_generator.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The kinds of files with times of single executions, the best first.
TIMED: Final = ("kernels", "timeline", "timestamps", "activities", "cpu", "ticks", "points")
#: Files with totals of each op, but no times; the best first.
TOTALS: Final = (
    "activity",
    "gpu_detail",
    "aicore",
    "dynamic",
    "statistic",
    "gpu_type",
    "aicore_type",
)
#: Files that only supplement others: shapes, clocks.
BESIDE: Final = ("shapes", "aicpu", "gpu_shapes")
#: The names of the files of MindSpore's dataset (kind ``dataset``); ``minddata`` describes their content.
DATASET: Final = re.compile(
    r"(device_queue|dataset_iterator|pipeline|minddata_pipeline_raw|minddata_aicpu|"
    r"minddata_getnext|minddata_cpu_utilization)(?:_profiling)?_[0-9]{1,6}\.(?:txt|json|csv)"
)

_CSV: Final = (
    ("ticks", re.compile(rb"step_num,start_point,end_point,total,fp_point,bp_point")),
    ("shapes", re.compile(rb"task_id,stream_id,block_dim,full_(?:op|kernel)_name,")),
    ("aicore", re.compile(rb"full_(?:op|kernel)_(?:name|time),execution_time")),
    ("aicore_type", re.compile(rb"(?:op|kernel)_type,(?:execution|total)_time,execution_frequency,percent")),
    ("aicpu", re.compile(rb"serial_number,(?:op|kernel)_type,total_time")),
    ("timestamps", re.compile(rb"op_name, ?stream_id, ?start_time\(\w+\), ?duration\(\w+\)")),
    ("activity", re.compile(rb"name,type,op_full_name,stream_id,block_dim,grid_dim,occurrences")),
    ("gpu_detail", re.compile(rb"op_side,op_type,op_name,(?:op_)?full_(?:op_)?name,\w+,\w+\(us\)")),
    ("cpu_totals", re.compile(rb"op_side,op_type,op_name,full_op_name,op_occurrences,\w+\(ms\)")),
    ("cpu_totals", re.compile(rb"op_type,type_occurrences,execution_frequency\(per-step\)")),
    ("gpu_type", re.compile(rb"op_type,type_occurrences,total_time\(us\)")),
)  # fmt: skip
_TEXT: Final = (
    ("cpu", re.compile(rb"[^;\n]{1,4096};HostCpuOps;")),
    ("gpu_ops", re.compile(rb"[^;\n]{1,4096};GpuOps;")),
    ("activities", re.compile(rb"[^;\n]{1,4000};[0-9]+;[0-9]{6,};[0-9.e+-]+\r?\n")),
    ("points", re.compile(rb"[^\s,]*-op[0-9]+,[0-9]+ [^\s,]*-op[0-9]+,[0-9]+ ")),
    ("points", re.compile(rb"[^\s,]*-op[0-9]+ [0-9]+,[0-9]+ ")),
)
#: Lanes that MindSpore and CANN name in their timelines, and MindSpore's names of graph nodes.
_LANE: Final = re.compile(
    rb'"(?:Ascend Hardware|Ascend Hardware.{0,20}|CANN|HCCL|Communication|Overlap Analysis|CPU OP[^"]{0,20}|'
    rb'Scope Layer[^"]{0,20}|Step Trace[^"]{0,40}|Model ID:[^"]{0,20}|NPU MEM|AI Core Freq|MindSpore|'
    rb'AICORE OP|AICPU OP|GPU Op)"|-op[0-9]+(?:_[0-9]+)?"'
)
_TIMELINE_NAME: Final = re.compile(
    r"(?:ascend|gpu|cpu)_timeline_display_[0-9]+\.json|trace_view\.json|"
    r"(?:msprof|task_time|hccl|step_trace|ge|acl|runtime|thread_group|msprof_tx)_(?:slice_)?[0-9_]+\.json"
)
#: Files of these tools without executions of ops, and what they contain instead.
_WITHOUT: Final = (
    (re.compile(r"minddata_|pipeline_profiling|dataset(?:_iterator|\.csv)|device_queue"), "input queues"),
    (re.compile(r"\w+_timeline_summary_|\w+_cluster_analyse|step_trace_time"), "sums over steps"),
    (re.compile(r"flops_"), "FLOPs without times"),
    (re.compile(r"hccl_raw|communication(?:_matrix)?\.json"), "totals of communication"),
    (re.compile(r"memory_record|operator_memory|npu_module_mem|memory_usage"), "memory"),
    (re.compile(r"api_statistic"), "totals of CANN's calls"),
    (re.compile(r"step_trace_point_info|start_time_|profiler_(?:info|metadata)"), "what describes others"),
    (re.compile(r"parallel_strategy|ascend_marey|scope_map"), "the parallel strategy"),
    (re.compile(r"output_(?:op_compute_time|format_data|data_preprocess)"), "what other files have too"),
    (re.compile(r"(?:gpu|cpu)_framework_"), "shapes of operators without times"),
)  # fmt: skip
#: How many levels of folders, and how many entries, are searched.
_DEPTH: Final = 4
_ENTRIES: Final = 20_000
#: Folders of one process's output.
_INSIDE: Final = re.compile(
    r"ASCEND_PROFILER_OUTPUT|FRAMEWORK|profiler|PROF_[0-9]+_[0-9]+_\w+|device_[0-9]+|"
    r"mindstudio_profiler_output|timeline|summary|analyze|host"
)
_PROCESS: Final = re.compile(r".*_ascend_(?:ms|pt)|rank_[0-9]+")
#: Folders that only these profilers make.
_MADE: Final = re.compile(
    r".*_[0-9]{14,20}_ascend_(?:ms|pt)|ASCEND_PROFILER_OUTPUT|PROF_[0-9]{6}_[0-9]{14,20}_\w+"
)
_OF_HOST: Final = re.compile(r"(.*)_[0-9]+_[0-9]{14,20}_ascend_ms")
_NUMBER: Final = re.compile(r"_([0-9]{1,6})(?:_detail_time|_detail|_type)?\.\w+\Z")
#: CANN's files: the device, the model and the iteration, or the time.
_MSPROF: Final = re.compile(
    r"(?:msprof|task_time|hccl|step_trace|op_summary|op_statistic)_([0-9]{1,6})(?:_[0-9]+){1,2}\.\w+\Z"
)
_CANN: Final = ("msprof", "op_summary", "op_statistic", "task_time", "hccl_", "step_trace_20")
_DEVICE: Final = re.compile(r"device_([0-9]{1,6})\Z")
_RANKED: Final = re.compile(
    r"(?:profiler_info|ascend_\w{1,16}_profiler)_([0-9]{1,6})\.(?:json|db)\Z"
)
_HEAD: Final = 65_536


@dataclass(frozen=True, slots=True)
class File:
    """A file of MindSpore's profiler: its kind, and the number of the rank or device in its name, if any."""

    path: Path
    kind: str
    rank: int | None


def kind_of(head: bytes, name: str) -> str | None:
    """Return the kind of a file that begins with ``head``; None if it is not from MindSpore's profiler.
    ``without``: a file without executions of ops."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[" and (b'"ph"' in start[:_HEAD] or not start[1:].strip(b" \r\n]")):
        ours = _LANE.search(start[:_HEAD]) or _TIMELINE_NAME.fullmatch(name)
        return "timeline" if ours else None
    if start[:1] == b"[" and _TIMELINE_NAME.fullmatch(name):
        return "timeline"  # it is truncated, or another tool's: that tool's reader decides
    if start[:1] == b"{" and b'"op_side"' in start and b'"operator"' in start:
        return "dynamic"
    line = start.partition(b"\n")[0].rstrip(b"\r")
    for kind, form in _CSV:
        if form.match(line):
            return kind
    columns = {part.strip().strip('"') for part in line.decode("utf-8", "replace").split(",")}
    if columns & {"Start Time(us)", "Task Start Time(us)"} and columns & {"Name", "Op Name"}:
        return "kernels"
    if {"OP Type", "Count"} <= columns and columns & {"Total Time(us)"}:
        return "statistic"
    for kind, form in _TEXT:
        if form.match(start):
            return kind
    if DATASET.fullmatch(name):
        return "dataset"
    return "without" if what_without(name) else None


def what_without(name: str) -> str | None:
    """Return the content of a file of MindSpore's profiler without executions of ops; None for other
    files."""
    for form, phrase in _WITHOUT:
        if form.match(name):
            return phrase
    return None


def rank_of(path: Path) -> int | None:
    """Return the number of the rank or device in the name of a file or of the folders around it."""
    match = _MSPROF.match(path.name)
    if match is None and not path.name.startswith(_CANN):
        match = _NUMBER.search(path.name)
    if match:
        return int(match.group(1))
    for folder in list(path.parents)[:3]:
        device = _DEVICE.match(folder.name)
        if device:
            return int(device.group(1))
    return None


def looks_ours(folder: Path) -> bool:
    """Whether ``folder`` is output of any version of MindSpore's profiler. Never raises."""
    if _MADE.fullmatch(folder.name):
        return True
    try:
        below = [name.name for name in os.scandir(folder) if name.is_dir(follow_symlinks=False)]
    except OSError:
        return False
    return any(_MADE.fullmatch(name) for name in below) or any(True for _ in _known(folder))


def files_in(folder: Path) -> list[File]:
    """Return the files of one profiler's output, sorted by path."""
    return sorted(_known(folder), key=lambda file: str(file.path))


def _known(folder: Path) -> Iterable[File]:
    seen = 0
    waiting = [(folder, 0)]
    ranked: int | None = None
    files_named: list[tuple[Path, str]] = []
    while waiting:
        here, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if seen > _ENTRIES:
                break
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH and _INSIDE.fullmatch(entry.name):
                    waiting.append((Path(entry.path), depth + 1))
            elif entry.is_file():
                info = _RANKED.match(entry.name)
                if info:
                    ranked = int(info.group(1))
                if entry.name.endswith((".json", ".csv", ".txt")):
                    kind = kind_of(_head(entry.path), entry.name)
                    if kind not in (None, "without"):
                        files_named.append((Path(entry.path), str(kind)))
    for path, kind in files_named:
        yield File(path, kind, ranked if ranked is not None else rank_of(path))


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def databases_in(folder: Path) -> list[Path]:
    """Return the databases of one profiler's output (``ascend_pytorch_profiler_0.db``), sorted."""
    name = "ascend_*_profiler*.db"
    return sorted([*folder.glob(name), *folder.glob(f"ASCEND_PROFILER_OUTPUT/{name}")])


def processes_in(folder: Path) -> list[Path]:
    """Return the folders of single processes (``*_ascend_ms``) in ``folder``, sorted."""
    try:
        return sorted(
            entry for entry in folder.iterdir() if entry.is_dir() and _PROCESS.fullmatch(entry.name)
        )
    except OSError:
        return []


def rank_twice(folders: Iterable[Path]) -> int | None:
    """Return a rank that occurs in several of the outputs, which are then several runs; None if there is
    none. Outputs of different hosts may share a device number: they belong to one job."""
    seen: set[tuple[str, int]] = set()
    for folder in folders:
        name = _OF_HOST.fullmatch(folder.name)
        host = name.group(1) if name else ""
        ranks = {file.rank or 0 for file in files_in(folder)}
        for rank in sorted(ranks):
            if (host, rank) in seen:
                return rank
        seen |= {(host, rank) for rank in ranks}
    return None
