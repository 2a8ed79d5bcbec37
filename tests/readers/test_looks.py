"""What a file must look like for a reader to be asked: never less than what the reader recognises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.readers.looks import LOOKS

ROOT = Path(__file__).resolve().parents[2]
#: JSON, or what begins as JSON does, that each reader recognises: (reader, head, file's name).
RECOGNISED = [
    ("xplane", b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true}', "a.json"),
    ("xplane", b'{"traceEvents":[{"args":{"name": "/device:GPU:0 x"},"name": "/device:GPU:0 "', "a"),
    ("ncu", b"[INFO] begins\n==PROF== Connected to process 7", "log.txt"),
    ("ncu", b'{}\n"ID","Process ID","Process Name"', "a.csv"),
    ("pyprof", b"{'kShortName': 'k', 'kDuration': 5", "net.dict"),
    ("pyprof", b"{u'trace': [], 'kShortName': 'k'", "a.json"),
    ("rocm", b'{ "rocprofiler-sdk-tool": [', "a.json"),
    ("rocm", b'{ "traceEvents":[{}\n,{"args":{"name":"GPU0"}', "a.json"),
    ("rocm", b'[ {}, {"name": "process_name", "ph":"M", "pid":"0", "args":{"name":"GPU0"}', "a.json"),
    ("onnxruntime", b'[{"cat" : "Session","pid" :1', "a.json"),
    ("tensorrt", b'{"Layers": ["a"]}', "a.json"),
    ("tensorrt", b'{"Name": "a", "LayerType": "Convolution"', "a.json"),
    ("tensorrt", b'[ { "startEnqMs" : 1', "a.json"),
    ("tensorrt", b'[ { "count" : 10 }', "a.json"),
    ("tensorrt", b"[11/28/2026-10:00:00] [I] TensorRT version", "a.log"),
    ("tensorrt", b"[11/28/2026-10:00:00] [TRT] [I] Loaded engine size: 3 MiB", "a.log"),
    ("tensorrt", b"[TRT] [W] Using default stream", "a.log"),
    ("tensorrt", b"Layers:\nName: conv1, LayerType: CaskConvolution, Inputs: []", "a.txt"),
    ("mindspore", b'[{"name":"MatMul-op1","ph":"X"', "a.json"),
    ("mindspore", b"[]", "trace_view.json"),
    ("mindspore", b'{"op_side": 1, "operator": []}', "a.json"),
    ("mindspore", b'{"a": 1}', "communication_matrix.json"),
    ("mindspore", b"{0}-op1,1 Default/ReLU-op2,3 ", "a.txt"),
]  # fmt: skip
#: What the readers' rules look for, and what stands between.
PIECES = [
    *(word for look in LOOKS.values() for word in look.words),
    b"{", b"[", b"}", b"]", b":", b",", b" ", b"\n", b'"', b";", b"1", b"Session", b'"cat"', b'"name"',
    b'"traceEvents"', b'"args"', b"GPU0", b"COPY", b'"ph"', b'"operator"', b"-op1", b"123456;",
    b"HostCpuOps;", b"GpuOps;", b"Start Time(us)", b"Task Start ", b"Name", b"OP Type", b"Count", b"Total ",
    b"[11/28/2026-10:00:00] [I] ", b"&&&& RUNNING TensorRT.trtexec", b"=== Model Options ===", b"ID",
    b"{'kShortName': ", b"rocprofiler-sdk-tool", b"process_name", b"\xef\xbb\xbf", b"op_name,stream_id,start_time(us),duration(us)",
]  # fmt: skip
NAMES = ["a.json", "trace_view.json", "minddata_pipeline_0.json", "dataset_iterator.json",
         "x_timeline_summary_0.json", "a_cluster_analyse.json", "step_trace_time.json", "flops_0.json",
         "hccl_raw_0.json", "communication.json", "memory_record.json", "operator_memory.json",
         "npu_module_mem.json", "memory_usage_0.json", "api_statistic.json", "step_trace_point_info_0.json",
         "start_time_0.json", "profiler_info_0.json", "profiler_metadata.json", "parallel_strategy.json",
         "ascend_marey.json", "scope_map.json", "output_op_compute_time.json", "gpu_framework_0.json",
         "cpu_framework_0.json", "pipeline_profiling_0.json", "device_queue_profiling_0.json"]  # fmt: skip


def recognises(name: str, head: bytes, path: Path) -> bool:
    return bool(import_module(f"opscope.readers.{name}").recognise(head, path))


@pytest.mark.parametrize(("name", "head", "file"), RECOGNISED)
def test_a_reader_is_asked_of_what_it_recognises(name, head, file, tmp_path):
    path = tmp_path / file
    assert recognises(name, head, path)
    assert LOOKS[name].fits(head, path, is_folder=False)


@given(
    start=st.sampled_from([b"{", b"[", b" {", b"\xef\xbb\xbf["]),
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    file=st.sampled_from(NAMES),
)
def test_no_reader_recognises_what_it_is_not_asked_of(start, pieces, file):
    head, path = start + b"".join(pieces), Path("/nowhere") / file
    for name, look in LOOKS.items():
        if not look.fits(head, path, is_folder=False):
            assert not recognises(name, head, path), name


def test_a_folder_and_a_database_are_asked_of_few_readers(tmp_path):
    asked = {name for name, look in LOOKS.items() if look.fits(b"", tmp_path, is_folder=True)}
    assert asked == {"recording", "profile", "xplane", "nsys", "rocm", "mindspore"}
    head = b"SQLite format 3\0" + bytes(100)
    asked = {name for name, look in LOOKS.items() if look.fits(head, tmp_path / "a", False)}
    assert asked == {"nsys", "ascend_db", "nvprof", "dlprof", "rocm", "mindspore"}


def test_a_trace_of_kineto_loads_no_other_reader(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}))
    code = (
        "import sys; from opscope.readers import format_of; print(format_of(sys.argv[1]))\n"
        "print(*(name for name, module in sys.modules.items() if name.startswith('opscope.readers.')"
        " and hasattr(module, '__path__')))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=env, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["kineto", "opscope.readers.kineto"], done.stderr
