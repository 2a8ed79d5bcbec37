"""A file of a producer that opscope does not read is refused by name, and never read as Kineto's for its shape."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opscope import readers
from opscope.readers import BadInput

KINETO = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}]}


def x(name: str, cat: str = "", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 0, "ts": 100, "dur": 50, **more}


def named(label: str, pid: object = 0) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": label}}


PADDLE = [
    x("ProfileStep#1[12.674 ms]", "ProfileStep", pid=5, tid="5(Python)"),
    x("matmul dygraph[512.434 us]", "Operator", pid=5, tid="5(C++)", cname="thread_state_runnable"),
    x("Global_AddGradNode[3.2 us]", "OperatorInner", pid=5, tid="5(C++)"),
]
PADDLE_GPU = [
    x(
        "cudaLaunchKernel[0.004 ms]",
        "CudaRuntime",
        args={"correlation id": 5, "start_time": "1.0 us"},
    ),
    x("void gemm[1.204 ms]", "Kernel", tid=7, args={"device": 0, "stream": 7, "correlation id": 5}),
]
HOROVOD = [
    named("tensor0"),
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 0},
    {"ph": "E", "ts": 200, "pid": 0},
    {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 210, "pid": 0},
    {"ph": "E", "ts": 900, "pid": 0},
]
TF1 = [
    named("/job:localhost/replica:0/task:0/device:GPU:0 Compute"),
    x("MatMul", "Op", args={"name": "dense/MatMul", "op": "MatMul", "input0": "x"}),
]
EVENTS = {
    "PaddlePaddle": ({"schemaVersion": "1.0.2", "span_index": "0"}, PADDLE),
    "PaddlePaddle's": ({**KINETO, "span_indx": "0"}, PADDLE_GPU),
    "Horovod": (None, HOROVOD),
    "Horovod's": (None, [{"ph": "i", "name": "CYCLE_START", "ts": 1, "pid": 0, "s": "g"}, *HOROVOD[3:]]),
    "Ray": (None, [x("train_fn", "task", pid="10.0.0.1", tid="worker:1", cname="generic_work")]),
    "Ray's": (None, [x("f", "task::f", pid="Node 10.0.0.1", tid="Worker ID: 7")]),
    "TensorFlow 1": ({}, TF1),
    "TensorFlow 1's": ({}, [x("Conv2D", "Op", args={"op": "Conv2D"})]),
    "Spyre": (KINETO, [x("bmm_3 Cmpt Exec", args={"TS3": "1", "TS4": "9"}), x("x DmaI", args={"TS1": "3"})]),
    "NCCL's profiler": (None, [{"ph": "b", "cat": "GROUP_API", "name": "Group API", "ts": 1, "pid": 3}]),
    "MXNet": ({}, [named("gpu/0"), {**x("Convolution", "operator"), "ph": "B"}]),
    "before 1.8": (None, [x("aten::add", pid="CPU functions"), x("add", pid="CUDA functions")]),
    "unitrace": ({}, [x("zeCommandListAppend", "cpu_op"), x("gemm", "gpu_op")]),
    "VizTracer": ({"viztracer_metadata": {"version": "1"}}, [x("f (a.py:1)", "FEE")]),
    "py-spy": (None, [{**x("f", "py-spy"), "ph": "B"}]),
    "Clang": ({"beginningOfTime": 5}, [x("Source")]),
    "tlparse": (None, [{**x("dynamo", "dynamo_timed"), "ph": "B"}]),
    "Chrome or Node.js": ({"metadata": {}}, [x("RunTask", "disabled-by-default-devtools.timeline,toplevel")]),
}  # fmt: skip


@pytest.mark.parametrize("producer", EVENTS)
@pytest.mark.parametrize("order", ["written", "metadata last", "shuffled"])
def test_events_of_another_producer_are_refused_by_its_name(tmp_path, producer, order):
    keys, events = EVENTS[producer]
    events = list(events)
    if order == "metadata last":
        events.sort(key=lambda one: one["ph"] == "M")
    elif order == "shuffled":
        random.Random(7).shuffle(events)
    document = events if keys is None else {"traceEvents": events, **keys}
    for indent in (None, 2):
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document, indent=indent))
        with pytest.raises(BadInput, match="opscope does not read it") as error:
            readers.open(path)
        assert producer in error.value.what
        assert "\n" not in str(error.value)


def test_an_unclosed_timeline_and_a_packed_one_are_refused_too(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(HOROVOD)[:-1] + ",\n")
    with pytest.raises(BadInput, match="Horovod"):
        readers.open(path)
    path.write_bytes(gzip.compress(gzip.compress(json.dumps({"traceEvents": PADDLE}).encode())))
    with pytest.raises(BadInput, match=r"t\.json: PaddlePaddle"):
        readers.open(path)


def test_the_producer_is_known_by_events_far_behind_the_head(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**KINETO, "traceEvents": [named("python", 5)] * 30_000 + PADDLE}))
    with pytest.raises(BadInput, match="PaddlePaddle"):
        readers.open(path)


TREE = [{"children": [], "frame": {"name": "ROOT", "type": "function"}, "metrics": {}}]
JSON = {
    "Chakra": {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []},
    "execution trace": {
        "schema": "1.0.3",
        "pid": 1,
        "nodes": [{"id": 1, "name": "x", "ctrl_deps": 0}],
    },
    "speedscope": {"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []},
    "memory snapshot": {"segments": [], "device_traces": [[]]},
    "rocprof-sys": {"timemory": {"wall_clock": {}}},
    "pyinstrument": {"session": 1, "root_frame": {}},
    "nsys export": {"Type": 48, "CudaEvent": {"startNs": "100"}},
    "OpenTelemetry": {"resourceSpans": [{"scopeSpans": []}]},
    "Zipkin": [{"traceId": "a", "id": "b", "timestamp": 1}],
    "V8": {"nodes": [{"id": 1, "callFrame": {}}], "timeDeltas": [1]},
    "Linux perf": {"linux-perf-json-version": 1, "headers": {}, "samples": []},
    "TVM": {"calls": [{"Name": {"string": "add"}, "Duration (us)": {"microseconds": 3.0}}]},
}


@pytest.mark.parametrize("producer", JSON)
def test_json_without_events_is_refused_by_its_producers_name(tmp_path, producer):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(JSON[producer], indent=1))
    with pytest.raises(BadInput, match="opscope does not read it") as error:
        readers.open(path)
    assert producer in error.value.what


BYTES = {
    "pickle": pickle.dumps({"a": [1]}, protocol=2),
    "perf.data": b"PERFILE2" + bytes(100),
    "Parquet": b"PAR1" + bytes(100),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(100),
    "LZMA": lzma.compress(b"words", lzma.FORMAT_ALONE),
    "tinygrad": b"\x80\x05\x95\x20\0\0\0\0\0\0\0]\x94\x8c\x10tinygrad.helpers\x94\x8c\x0cProfileEvent\x93.",
    "LiteRT": b"============================== Run Order ==============================\n\t[node type]\t[start]\t[first]\t[avg ms]",
    "pickle, which": pickle.dumps({"a": [1]}, protocol=0),
    "pprof": b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x04\x0a\x01\x01\x12\x01\x05" + b"2\x03cpu",
    "perf script": b"python 1234 12345.678901:     250000 cycles:u: \n\t    7f00 foo (/lib/x.so)\n\n",
    "collapsed": b"main (a.py:1);f (a.py:3) 12\nmain (a.py:1) 3\n",
    "nvprof": b'==21== NVPROF is profiling process 21, command: ./a\n==21== Profiling result:\n"Type","Time(%)"\n',
    "nvprof's": b'==21== Profiling result:\n"Start","Duration","Grid X"\n',
    "nsys stats": b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n50.0,1000,10,100.0,gemm\n",
    "DLProf": b"Kernel Report\nKernel Name,Op ID,Op Name\n",
    "DLProf (": b"System Config\nGPU Count,1\n",
    "TraceLens": b"name,param: B,param: M,param: N\n",
    "TraceLens (": b"Parent op category,Parent cpu_op,Kernel name\n",
    "nsys stats (": b"Start (ns),Duration (ns),CorrId,GrdX,Name\n100,50,5,1,gemm\n",
    "printed table": b"-----  ----\n          Name    Self CPU %\n-----  ----\n",
    "DeepSpeed": b"\n-------- DeepSpeed Flops Profiler --------\nProfile Summary at step 10:\n",
    "OpenVINO": b"layerName;execStatus;layerType;execType;realTime (ms);\nconv;EXECUTED;Convolution;jit;0.5;\n",
    "nvidia-smi": b"timestamp, name, utilization.gpu [%]\n2026/01/01, NVIDIA H100, 98 %\n",
    "HLO": b"HloModule jit_f, entry_computation_layout={()->f32[]}\n",
    "Tracy": b"tlZ\x04" + bytes(50),
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n",
    "a picture of PyTorch's memory": b"<html>\n<head><meta charset=\"utf-8\" /><title>GPU Memory Timeline HTML</title>",
    "a picture of PyTorch's memory (": b"<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\nimport {add_local_files} from",
    "OpenVINO's": b"Command line parameters\n-m;net.xml\n-d;CPU\n\nConfiguration setup\ntopology;Model1\n",
    "Instruments": b"<?xml version=\"1.0\"?>\n<trace-query-result>\n<node xpath='//trace-toc[1]'>",
    "VTune": b"Function,CPU Time,CPU Time:Effective Time,Module\nsgemm,1.0,1.0,libmkl.so\n",
    "VTune (": b"Computing Task\tWork Size:Global\tComputing Task:Total Time\ngemm\t1024\t0.2\n",
    "AMD uProf": b"AMDuProf Profile Report\nVersion,4.2.850\n",
    "Austin": b"# austin: 3.6.0\n# interval: 100\nP1;T1;a.py:f:1 100\n",
    "Austin (": b"MOJ\x03\x01" + bytes(20),
    "Java": b"FLR\0\0\x02" + bytes(60),
    "an XML file": b'<?xml version="1.0"?>\n<net name="Model0" version="11">',
    "SVG": b'<?xml version="1.0" standalone="no"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN">',
    "HTML": b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
}  # fmt: skip


@pytest.mark.parametrize("producer", BYTES)
def test_bytes_of_another_producer_are_refused_by_its_name(tmp_path, producer):
    path = tmp_path / "t.bin"
    path.write_bytes(BYTES[producer])
    with pytest.raises(BadInput, match="opscope does not read it") as error:
        readers.open(path)
    assert producer.removesuffix(" (") in error.value.what


def test_files_of_frameworks_without_an_adapter_lead_to_simple_mode(tmp_path):
    path = tmp_path / "t.bin"
    for content in (BYTES["tinygrad"], BYTES["LiteRT"], json.dumps(JSON["TVM"]).encode()):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="opscope run --mode simple"):
            readers.open(path)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("form.template", b"bplist00", "Instruments: opscope does not read it"),
        ("r000hs.vtune", b"", "Intel's VTune: opscope does not read it"),
        ("report.csv", BYTES["OpenVINO"], "in it report.csv: OpenVINO's benchmark_app: opscope does not read it"),
    ],
)  # fmt: skip
def test_a_folder_of_another_producer_is_refused_by_its_name(tmp_path, name, data, says):
    (tmp_path / "other.log").write_text("a line\n")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match="a folder without traces") as error:
        readers.open(tmp_path)
    assert says in str(error.value)


DATABASES = {
    "memory snapshot as a database": ("device_traces", "segments", "blocks"),
    "MemSnapDump": ("trace_entry_0", "block_0", "dictionary"),
    "msprof-analyze": ("ClusterStepTraceTime", "HostInfo"),
    "a_table": ("a_table",),
}


@pytest.mark.parametrize("says", DATABASES)
def test_a_database_of_another_producer_is_refused_by_its_name_or_its_tables(tmp_path, says):
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as database:
        for table in DATABASES[says]:
            database.execute(f"CREATE TABLE {table} (id INTEGER)")
        database.commit()
    with pytest.raises(BadInput, match=says):
        readers.open(path)


def test_a_pickle_is_not_loaded(tmp_path):
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "loaded",)

    (tmp_path / "t.pickle").write_bytes(pickle.dumps(Evil()))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "t.pickle", "data.pkl")
    for name in ("t.pickle", "t.zip"):
        with pytest.raises(BadInput, match="pickle, which opscope never loads"):
            readers.open(tmp_path / name)
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (
            [x("a", "sleep"), x("b", "sleep"), x("c", "work")],
            r"of the kinds 'sleep' \(2\), 'work' \(1\)",
        ),
        (
            [{"ph": "B", "name": "a", "ts": 1, "pid": 0}, {"ph": "E", "ts": 2, "pid": 0}],
            "nothing that torch",
        ),
        (
            [{"ph": "C", "name": "power", "ts": 1, "pid": 0, "args": {"W": 3}}],
            r"of the kinds 'C' \(1\)",
        ),
        ([], "nothing that torch.profiler records$"),
    ],
)
def test_a_file_without_an_op_kernel_range_or_call_is_an_error_that_says_what_it_holds(
    tmp_path, events, says
):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(BadInput, match=says):
        readers.open(path)


def test_a_trace_of_kineto_in_which_nothing_ran_is_an_error(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**KINETO, "traceEvents": [named("python")]}))
    with pytest.raises(
        BadInput, match=r"torch\.profiler without any kernel, op, range or call: the profiler"
    ):
        readers.open(path)


def test_the_users_names_do_not_make_a_trace_anothers(tmp_path):
    """Ranges and kernels may be called as another producer's events are."""
    events = [
        x("nccl:all_reduce", "user_annotation"), x("stream0", "user_annotation", tid=3), x("task", "cpu_op"),
        x("worker: load", "user_annotation"), x("aten::mm", "cpu_op"), x("step[3 ms]", "user_annotation"),
        x("Op", "cpu_op"), named("python 3.11"), {**named("thread 5 (worker: 1)"), "name": "thread_name"},
        x("k", "kernel", tid="stream 7", args={"stream": 7, "correlation": 1}),
    ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**KINETO, "traceEvents": events}))
    assert len(readers.open(path)["kernels"]) == 1


def test_a_trace_of_kineto_into_which_a_tool_merged_its_events_stays_kinetos(tmp_path):
    merged = [x("aten::mm", "cpu_op"), x("f (a.py:1)", "FEE"), {**named("x"), "cat": "__metadata"}]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": merged, "viztracer_metadata": {}}))
    assert len(readers.open(path)["ranges"]) == 1


def test_no_real_trace_is_taken_for_anothers(shared):
    paths = [path for path in sorted((shared / "kineto").glob("*.json*")) if path.is_file()]
    assert len(paths) > 10
    for path in paths:
        assert readers.open(path).origin["format"] == "kineto"
