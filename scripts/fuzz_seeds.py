"""Make small valid traces, one or more for each reader, for ``fuzz.py`` to damage."""

from __future__ import annotations

import gzip
import importlib
import json
import sqlite3
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the writers of files in tests/

Rows = Sequence[Mapping[str, Any]]
PID = 4000
GPID = (1 << 56) | (PID << 24)
GTID = GPID | PID
FIRST = 1_700_000_000_000_000_000
MM = "aten::mm(f32[32,64], f32[64,128]) -> f32[32,128]"


def made(folder: Path) -> dict[str, list[Path]]:
    """Write the seeds of each reader into ``folder`` and return their paths."""
    nsys = nsys_sqlite(folder / "nsys.sqlite")
    one = kineto(folder / "kineto.json")
    return {
        "nsys SQLite": [nsys],
        "nsys Parquet": [nsys_parquet(nsys, folder / "nsys_pqtdir")],
        "nvprof": [nvprof(folder / "nvprof.sqlite")],
        "DLProf": [dlprof(folder / "dlprof.sqlite")],
        "Kineto JSON": [one],
        "ONNX Runtime JSON": [onnxruntime(folder / "onnxruntime.json")],
        "TensorRT": tensorrt(folder),
        "XPlane": xplane(folder),
        "profile": [profile(nsys, folder / "seed.opscope")],
        "partial": partials([one, nsys], folder / "parts"),
        "recording": [recording(folder / "recording")],
        "CUPTI": [cupti(folder / "cupti")],
        "log of requests": requests(folder),
        "samples of power": power(folder),
        "baseline": [baseline(one, folder / "baseline")],
        **{name: seeds_beside(module, folder) for name, module in beside_tests().items()},
    }


def beside_tests() -> dict[str, ModuleType]:
    """Return the modules of ``tests/readers`` that make files of a format: by the name in ``FORMAT``.

    Their ``seeds(folder)`` writes small valid files into the folder, which is there and empty, and returns their paths.
    """
    paths = sorted((ROOT / "tests" / "readers").rglob("*.py"))
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in paths
        if "\nFORMAT = " in path.read_text(encoding="utf-8")
    ]
    modules = [importlib.import_module(name) for name in names]
    return {module.FORMAT: module for module in modules}


def seeds_beside(module: ModuleType, folder: Path) -> list[Path]:
    """Write the seeds of a module of ``beside_tests`` into a folder of their own and return their paths."""
    apart = folder / module.__name__
    apart.mkdir()
    return list(module.seeds(apart))


def database(path: Path, tables: Mapping[str, Rows]) -> Path:
    """Write a SQLite file with these rows."""
    with sqlite3.connect(path) as db:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            # declared as in the tools' files: SQLite converts a number given as text if it can
            kinds = (
                f'"{c}" {"INTEGER" if isinstance(rows[0].get(c), int) else ""}' for c in columns
            )
            db.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
            db.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                [[row.get(name) for name in columns] for row in rows],
            )
    db.close()
    return path


# ------------------------------------------------------------------------------ databases


def nsys_sqlite(path: Path) -> Path:
    """Write every table and column that the reader of Nsight Systems requests."""
    texts = (
        "", "volta_sgemm_128x64_nn", "cudaLaunchKernel", MM, "opscope.torch", "step 3", "forward",
        "aten::relu(f32[32,128]) -> f32[32,128]", "python3", "_ZN2at6native18elementwise_kernelILi512ELi1EEEvv",
        "ncclDevKernel_AllReduce", "SMs Active", "layer:block1", "cudaGraphLaunch", "cudaMemcpyAsync",
    )  # fmt: skip
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": GPID}
    extents = {f"{what}{axis}": 1 for what in ("grid", "block", "cluster") for axis in "XYZ"}

    def call(number: int, name: int, start: int) -> dict[str, Any]:
        return {
            "start": start, "end": start + 40, "globalTid": GTID, "correlationId": number,
            "nameId": name,
        }  # fmt: skip

    def ran(number: int, start: int, **more: Any) -> dict[str, Any]:
        return {**place, "start": start, "end": start + 300, "correlationId": number, **more}

    def marked(kind: int, start: int, end: int | None, **more: Any) -> dict[str, Any]:
        return {
            "start": start, "end": end, "eventType": kind, "globalTid": GTID, "endGlobalTid": None,
            "domainId": 0, "category": None, "text": None, "textId": None, "rangeId": None,
            "int64Value": None, "uint64Value": None, "uint32Value": None, "int32Value": None,
            "doubleValue": None, "floatValue": None, "jsonTextId": None, "jsonText": None,
            "binaryData": None, **more,
        }  # fmt: skip

    kernels = [
        ran(n, 1500 + 1000 * n, demangledName=1 + 8 * (n % 2), shortName=1, registersPerThread=32,
            staticSharedMemory=0, dynamicSharedMemory=64, localMemoryPerThread=0,
            graphId=None if n < 6 else 5, graphNodeId=None if n < 6 else (5 << 32) + n, **extents)
        for n in range(8)
    ]  # fmt: skip
    ops = [
        marked(59, 1010 + 1000 * n, 1400 + 1000 * n, textId=3 + 4 * (n % 2), domainId=1,
               int64Value=(1 << 48) + n)
        for n in range(8)
    ]  # fmt: skip
    gpu = {
        "id": 0, "cuDevice": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "totalMemory": 80 << 30,
        "memoryBandwidth": 3352 * 10**9, "clockRate": 1_980_000_000, "smCount": 132,
        "maxWarpsPerSm": 64, "threadsPerWarp": 32, "computeMajor": 9, "computeMinor": 0,
    }  # fmt: skip
    old_gpu = {
        "name": "Tesla V100", "deviceId": 0, "pid": PID, "globalMemorySize": 16_384,
        "coreClockRate": 1_530_000, "numMultiprocessors": 80, "maxWarpsPerMultiprocessor": 64,
        "numThreadsPerWarp": 32, "computeCapabilityMajor": 7, "computeCapabilityMinor": 0,
    }  # fmt: skip
    return database(
        path,
        {
            "StringIds": [{"id": n, "value": text} for n, text in enumerate(texts)],
            "PROCESSES": [{"globalPid": GPID, "pid": PID, "name": "python3"}],
            "ThreadNames": [{"nameId": 8, "priority": 1, "globalTid": GTID}],
            "MPI_RANKS": [{"globalTid": GTID, "rank": 0}],
            "NVTX_EVENTS": [
                marked(75, 0, None, text="opscope.torch", domainId=1),
                marked(33, 0, None, text="forward", domainId=1, category=1),
                marked(59, 900, 5000, textId=5, domainId=1),
                marked(59, 5000, 9500, textId=5, domainId=1),
                marked(59, 950, 4900, text="layer:block1"),
                marked(60, 960, 4000, text="user", endGlobalTid=GTID, doubleValue=0.5),
                marked(34, 970, None, text="mark", uint64Value=4, jsonText='{"a":1}'),
                marked(59, 980, 4100, text="cudnn", binaryData=struct.pack("<QQ", 1, 2)),
                *ops,
                marked(59, 9000, None, textId=12),
            ],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(n, 2, 1100 + 1000 * n) for n in range(8)]
            + [call(20, 14, 9200), call(21, 13, 9300)],
            "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
            "CUPTI_ACTIVITY_KIND_MEMCPY": [
                ran(20, 9300, bytes=4096, graphNodeId=None, copyKind=1, srcKind=1, dstKind=2,
                    srcDeviceId=0, dstDeviceId=0)
            ],
            "CUPTI_ACTIVITY_KIND_MEMSET": [ran(22, 9900, bytes=64, graphNodeId=None, memKind=2)],
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [ran(23, 10_500, syncType=3, eventId=4)],
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [ran(21, 9700, graphId=5, graphExecId=6)],
            "CUDA_GRAPH_NODE_EVENTS": [
                {"start": 1050 + 1000 * n, "end": None, "globalTid": GTID, "graphNodeId": (5 << 32) + 6 + n,
                 "originalGraphNodeId": 6 + n, "graphId": 5}
                for n in range(2)
            ],
            "CUDA_GPU_MEMORY_USAGE_EVENTS": [
                {"start": 1000 + n, "globalPid": GPID, "deviceId": 0, "address": 4096, "bytes": 512,
                 "memoryOperationType": n % 2}
                for n in range(4)
            ],
            "GPU_METRICS": [
                {"timestamp": 1000 * n, "typeId": 1, "metricId": 1, "value": 50 + n} for n in range(4)
            ],
            "TARGET_INFO_GPU_METRICS": [{"typeId": 1, "metricId": 1, "metricName": "SMs Active [%]"}],
            "COMPOSITE_EVENTS": [{"id": 1, "start": 1200, "globalTid": GTID}],
            "SAMPLING_CALLCHAINS": [{"id": 1, "symbol": 8, "stackDepth": 0}],
            "SCHED_EVENTS": [
                {"start": 1000 * n, "isSchedIn": n % 2, "globalTid": GTID, "threadState": 1,
                 "threadBlock": 1}
                for n in range(6)
            ],
            "ENUM_SAMPLING_THREAD_STATE": [{"id": 1, "label": "Blocked"}],
            "TARGET_INFO_GPU": [gpu],
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": PID}],
            "TARGET_INFO_CUDA_GPU": [old_gpu],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "machine"}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": FIRST}],
            "ANALYSIS_DETAILS": [{"duration": 20_000, "startTime": 0, "stopTime": 20_000}],
            "DIAGNOSTIC_EVENT": [{"severity": 2, "text": "lost"}],
            "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.19.1"}],
            "META_DATA_CAPTURE": [{"name": "PROCESS_0:COMMAND", "value": "python3"}],
        },
    )  # fmt: skip


def nsys_parquet(source: Path, folder: Path) -> Path:
    """Write the same tables like ``nsys export --type=parquetdir``: one file per table."""
    folder.mkdir()
    with sqlite3.connect(source) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master").fetchall():
            rows = db.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in rows.description]
            frame = pl.DataFrame(rows.fetchall(), schema=names, orient="row")
            frame.write_parquet(folder / f"{table}.parquet")
    db.close()
    return folder


def nvprof(path: Path) -> Path:
    """Write markers, CUDA calls, kernels, copies, sets, waits and a device."""
    texts = (
        "-- null --", "volta_sgemm_128x64_nn", "addmm, seq = 7", "Tesla V100-SXM2-16GB",
        "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [{'name': '', 'type': 'tensor', "
        "'shape': (80, 512), 'dtype': 'float16'}]}",
        "_ZN2at6native18elementwise_kernelILi512ELi1EEEvv",
    )  # fmt: skip
    thread = struct.pack("<3I", 1, 7, 0)

    def marker(flags: int, time: int, number: int, name: int = 0) -> dict[str, Any]:
        return {
            "flags": flags, "timestamp": FIRST + time, "id": number, "objectKind": 2,
            "objectId": thread, "name": name, "domain": 0,
        }  # fmt: skip

    place = {"deviceId": 0, "contextId": 1, "streamId": 7}
    extents = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
    tables: dict[str, Rows] = {
        "StringTable": [{"_id_": n, "value": text} for n, text in enumerate(texts)],
        "CUPTI_ACTIVITY_KIND_MARKER": [
            one
            for n in range(4)
            for one in (
                marker(2, 1000 * n, 2 * n + 1, 4),
                marker(2, 1000 * n + 10, 2 * n + 2, 2),
                marker(4, 1000 * n + 800, 2 * n + 2),
                marker(4, 1000 * n + 900, 2 * n + 1),
            )
        ]
        + [marker(1, 50, 90, 2), marker(2, 3950, 91, 2)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {"start": FIRST + 1000 * n + 100, "end": FIRST + 1000 * n + 200, "cbid": 211,
             "processId": PID, "threadId": 7, "correlationId": n}
            for n in range(4)
        ],
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": [
            {**place, "start": FIRST + 1000 * n + 300, "end": FIRST + 1000 * n + 700,
             "correlationId": n, "registersPerThread": 32, "staticSharedMemory": 0,
             "dynamicSharedMemory": 0, "localMemoryPerThread": 0, "name": 1 + 4 * (n % 2), **extents}
            for n in range(4)
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {**place, "start": FIRST + 5000, "end": FIRST + 5100, "correlationId": 9, "bytes": 64,
             "copyKind": 1, "srcKind": 1, "dstKind": 3}
        ],
        "CUPTI_ACTIVITY_KIND_MEMSET": [
            {**place, "start": FIRST + 5200, "end": FIRST + 5300, "correlationId": 10, "bytes": 64,
             "memoryKind": 3}
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            {**place, "start": FIRST + 5400, "end": FIRST + 5500, "correlationId": 11, "type": 3}
        ],
        "CUPTI_ACTIVITY_KIND_DEVICE": [
            {"id": 0, "name": 3, "globalMemoryBandwidth": 898_048_000,
             "globalMemorySize": 16_914_055_168, "coreClockRate": 1_530_000,
             "numMultiprocessors": 80, "maxWarpsPerMultiprocessor": 64, "numThreadsPerWarp": 32,
             "computeCapabilityMajor": 7, "computeCapabilityMinor": 0, "uuid": b"0123456789abcdef"}
        ],
    }  # fmt: skip
    for rows in tables.values():
        for number, row in enumerate(rows):
            row.setdefault("_id_", number)  # type: ignore[attr-defined]
    return database(path, tables)


def dlprof(path: Path) -> Path:
    """Write ops, their instances, and their kernels, copies and sets."""
    words = (
        "default-domain", "conv2d", "float32", "fprop", "[[32,3,32,32],[6,3,5,5]]", "[[32,6,28,28]]",
        "volta_scudnn_128x32", "cudaLaunchKernel",
    )  # fmt: skip
    place = {"device_id": 0, "process_id": 743, "thread_id": 743}

    def launched(number: int, **more: Any) -> dict[str, Any]:
        start = 1_000_000 * number
        times = {"api_start": 100, "api_stop": 200, "gpu_start": 250, "gpu_stop": 500}
        return {**place, **{key: start + at for key, at in times.items()}, "name_id": 7, **more}

    return database(
        path,
        {
            "dictionary": [{"id": n, "string": word} for n, word in enumerate(words, start=1)],
            "read_only_grid_block": [{"id": 1, "x": 8, "y": 1, "z": 1}],
            "read_only_gpu_infos": [
                {"device_id": 0, "gpu_name": "NVIDIA GeForce RTX 2070 SUPER",
                 "compute_capability_major": 7, "compute_capability_minor": 5, "sm_count": 40}
            ],
            "read_only_system_config": [{"framework": "PyTorch 1.10", "dlprof_version": "v1.8.0"}],
            "read_only_ops": [
                {"id": n, "op_id": f"CONV2D_{n}", "op_name": f"/net/conv[{n}]", "op_type_id": 2,
                 "data_type_id": 3, "direction_id": 4, "stack_trace": "net.py:35\ntrain.py:3"}
                for n in (1, 2)
            ],
            "read_only_op_instances": [
                {"id": n, "read_only_ops_id": 1 + n % 2, "cpu_start": 1_000_000 * n,
                 "cpu_stop": 1_000_000 * n + 900, "process_id": 743, "thread_id": 743,
                 "input_shapes_id": 5, "output_shapes_id": 6}
                for n in range(4)
            ],
            "read_only_kernels": [
                launched(n, long_name_id=7, grid_id=1, block_id=1) for n in range(4)
            ],
            "read_only_memcpys": [launched(4, num_bytes=64, copy_kind=1)],
            "read_only_memsets": [launched(5, num_bytes=64)],
            "read_only_cuda_calls": [
                {"name_id": 8, "api_start": 6_000_000, "api_stop": 6_000_100, "thread_id": 743,
                 "process_id": 743}
            ],
        },
    )  # fmt: skip


# ------------------------------------------------------------------------------ JSON, protobuf


def kineto(path: Path) -> Path:
    """Write ops, steps, frames, CUDA calls, kernels, copies, waits, flows, memory, counters, collectives."""

    def event(cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
        spaced = {key.replace("__", " "): value for key, value in args.items()}
        return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur,
                "args": spaced}  # fmt: skip

    events: list[dict[str, Any]] = []
    for n in range(4):
        at = 1000.25 + 100 * n
        shapes = {"Input__Dims": [[2, 3], [3, 4]], "Input__type": ["float", "float"],
                  "Input__Strides": [[3, 1], [4, 1]], "Concrete__Inputs": ["", ""]}  # fmt: skip
        events += [
            event("cpu_op", "aten::mm", at, 50, 8, Sequence__number=n, Fwd__thread__id=0,
                  Ev__Idx=n, Record__function__id=n, **shapes),
            event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, 8, correlation=n),
            event("kernel", "volta_sgemm_128x64_nn", at + 20, 9, 7, device=0, context=1, stream=7,
                  correlation=n, grid=[1, 2, 3], block=[128, 1, 1], registers__per__thread=32,
                  shared__memory=64, **{"est. achieved occupancy %": 50, "graph id": 0,
                                        "graph node id": 0}),
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": n, "pid": 7, "tid": 8, "ts": at + 10},
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": n, "pid": 0, "tid": 7, "ts": at + 20},
        ]  # fmt: skip
    nccl = {
        "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024,
        "Group size": 2, "dtype": "Float", "Process Group Name": "0", "Seq": 1, "Comms Id": 3,
        "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
        "In split size": "[]", "Out split size": "[]", "Src Rank": 0, "Dst Rank": 1,
    }  # fmt: skip
    events += [
        event("user_annotation", "ProfilerStep#3", 900, 300, 8),
        event("user_annotation", "ProfilerStep#4", 1200, 300, 8),
        event("python_function", "nn.Module: Linear_0", 990, 400, 8, Python__id=1),
        event("python_function", "train.py(3): step", 980, 420, 8),
        event("cpu_op", "nccl:all_reduce", 1450, 20, 8, **nccl),
        event("cuda_runtime", "cudaLaunchKernel", 1455, 5, 8, correlation=50),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32", 1470, 90, 9, device=0, stream=9,
              correlation=50, **nccl),
        event("cuda_runtime", "cudaMemcpyAsync", 1480, 3, 8, correlation=51),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1490, 5, 7, device=0, stream=7,
              correlation=51, bytes=4096),
        event("gpu_memset", "Memset (Device)", 1500, 5, 7, device=0, stream=7, correlation=52, bytes=4),
        event("cuda_sync", "Stream Sync", 1505, 5, 7, device=0, stream=7, correlation=53,
              cuda_sync_kind="Stream Sync", wait_on_cuda_event_id=4),
        event("cuda_profiler_range", "k", 1510, 2, 0, metric=3.5, kernel="k"),
        event("mtia_runtime", "launch", 1511, 2, 8, correlation=60),
        event("triton", "other", 1512, 2, 8, stream=7, kernel_backend="triton", kernel_hash="c",
              num_warps=4, num_stages=2, kernel_file="a.py"),
        {"ph": "i", "name": "[memory]", "pid": 7, "tid": 8, "ts": 1005, "s": "t",
         "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 99, "Total Allocated": 512,
                  "Total Reserved": 1024}},
        {"ph": "i", "name": "[memory]", "pid": 7, "tid": 8, "ts": 1305, "s": "t",
         "args": {"Device Type": 1, "Device Id": 0, "Bytes": -512, "Addr": 99, "Total Allocated": 0,
                  "Total Reserved": 1024}},
        {"ph": "B", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 1600, "args": {}},
        {"ph": "E", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 8, "ts": 1650},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "main"}},
    ]  # fmt: skip
    device = {
        "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "computeMajor": 9,
        "computeMinor": 0, "numSms": 132, "maxThreadsPerMultiprocessor": 2048, "uuid": "GPU-1",
    }  # fmt: skip
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1],
             "pg_size": 2, "group_count": 1}  # fmt: skip
    whole = {
        "schemaVersion": 1, "deviceProperties": [device], "cuda_runtime_version": 12080,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_count": 1,
                            "pg_config": [group], "nccl_version": "2.27.3"},
        "baseTimeNanoseconds": FIRST, "traceName": "a.json", "traceEvents": events,
    }  # fmt: skip
    path.write_text(json.dumps(whole))
    return path


def tensorrt(folder: Path) -> list[Path]:
    """Write an engine's layers, their times, its runs, its summary, and a log that has all but the runs."""
    tensor = {"Name": "x", "Location": "Device", "Dimensions": [2, 4, 8, 8],
              "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}  # fmt: skip
    conv = {
        "Name": "conv + relu", "LayerType": "CaskConvolution", "Inputs": [tensor],
        "Outputs": [{**tensor, "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}],
        "ParameterType": "Convolution", "Kernel": [3, 3], "PrePadding": [1, 1], "PostPadding": [1, 1],
        "Stride": [1, 1], "Dilation": [1, 1], "OutMaps": 4, "Groups": 1, "Activation": "RELU",
        "Weights": {"Type": "Half", "Count": 144}, "Bias": {"Type": "Half", "Count": 4},
        "TacticName": "sm80_xmma_fprop", "TacticValue": "0x1", "StreamId": 0,
        "Metadata": "[ONNX Layer: conv]\x1e[ONNX Layer: relu]",
    }  # fmt: skip
    kgen = {"Name": "__myl_AddCast_myl0_1", "LayerType": "kgen", "Inputs": [tensor], "Outputs": [tensor],
            "TacticName": "__myl_AddCast_0x1", "StreamId": 0, "Metadata": ""}  # fmt: skip
    each = {"timeMs": 2.5, "averageMs": 0.625, "medianMs": 0.6, "percentage": 50.0}
    run = {"startEnqMs": 1.0, "endEnqMs": 1.1, "startH2dMs": 1.1, "endH2dMs": 1.2, "startComputeMs": 1.2,
           "endComputeMs": 3.2, "startD2hMs": 3.2, "endD2hMs": 3.3, "h2dMs": 0.1, "computeMs": 2.0,
           "d2hMs": 0.1, "latencyMs": 2.2}  # fmt: skip
    summary = {
        "performance_summary": {"Throughput": 400.0, "Latency": [1.0, 3.0, 2.0, 2.0, 2.9],
                                "Total Host Walltime": 0.01, "Total GPU Compute Time": 0.008},
        "inference_options": {"Duration": "3s (+ 200ms warm up)"},
        "device_information": {"Selected Device": "NVIDIA A100", "SMs": 108.0, "Compute Capability": 8.0},
    }  # fmt: skip
    shown = "Name: x, Location: Device, Dimensions: [2,4,8,8], Format/Datatype: Half"
    log = f"""&&&& RUNNING TensorRT.trtexec [TensorRT v101601] # trtexec
[07/07/2026-02:10:45] [I] === Device Information ===
[07/07/2026-02:10:45] [I] Selected Device: NVIDIA H100 PCIe
[07/07/2026-02:10:45] [I] SMs: 114
Name: conv, LayerType: CaskConvolution, Inputs: [ {{ {shown} }}], Outputs: [ {{ {shown} }}], ParameterType: \
Convolution, Kernel: [3,3], OutMaps: 4, Groups: 1, Weights: {{"Type": "Half", "Count": 144}}, Metadata: a
[07/07/2026-02:10:58] [I] === Performance summary ===
[07/07/2026-02:10:58] [I] Throughput: 400 qps
[07/07/2026-02:10:58] [I] Latency: min = 1 ms, max = 3 ms, mean = 2 ms, median = 2 ms, percentile(99%) = 2.9 ms
[07/07/2026-02:10:58] [I] === Profile (4 iterations ) ===
[07/07/2026-02:10:58] [I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer
[07/07/2026-02:10:58] [I]        2.50       0.6250       0.6000     100.0   conv
[07/07/2026-02:10:58] [I]        2.50       0.6250       0.6000     100.0   Total
""".replace("\\\n", "")
    texts = {
        "engine.graph.json": json.dumps({"Layers": [conv, kgen], "Bindings": ["x"]}),
        "times.json": json.dumps(
            [{"count": 4}, *({"name": one["Name"], **each} for one in (conv, kgen))]
        ),
        "runs.json": json.dumps([run] * 4),
        "stated.json": json.dumps(summary),
        "engine.log": log,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def onnxruntime(path: Path) -> Path:
    """Write a session: its set-up, two runs with a loop, fences, kernels, a copy, a pool's statistics."""

    def event(cat: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
        return {
            "cat": cat,
            "pid": 7,
            "tid": 8,
            "dur": dur,
            "ts": ts,
            "ph": "X",
            "name": name,
            "args": args,
        }

    def node(
        name: str, op: str, ts: int, dur: int, index: int, provider: str = "CPU"
    ) -> dict[str, Any]:
        stats = {
            "main_thread": {"thread_pool_name": "p", "thread_id": "1", "block_size": [1], "core": 0, "Run": 3,
                            "Wait": 4},
            "sub_threads": {"5": {"num_run": 1, "core": 1}},
        }  # fmt: skip
        return event(
            "Node", f"{name}_kernel_time", ts, dur, op_name=op, provider=f"{provider}ExecutionProvider",
            node_index=str(index), input_type_shape=[{"float": [2, 3]}, {"int64": [3, 4]}],
            output_type_shape=[{"float": [2, 4]}], activation_size="24", parameter_size="48",
            output_size="32", thread_scheduling_stats=stats,
        )  # fmt: skip

    extent = {f"{what}_{axis}": "1" for what in ("grid", "block") for axis in "xyz"}
    events = [
        event("Session", "model_loading_uri", 1, 20),
        event("Session", "session_initialization", 25, 400),
    ]
    for at in (1000, 2000):
        events += [
            event("Session", "model_run", at, 500),
            event("Session", "SequentialExecutor::Execute", at + 5, 490),
            event("Node", "/fc/MatMul_fence_before", at + 8, 2, op_name="MatMul"),
            node("/fc/MatMul", "MatMul", at + 10, 90, 0, "CUDA"),
            event("Kernel", "volta_sgemm_128x64_nn", at + 40, 30, op_name="MatMul", stream="7",
                  parent_name="/fc/MatMul_kernel_time", **extent),
            event("Kernel", "MemcpyHostToDevice", at + 80, 5, op_name="", stream="7", size="64",
                  parent_name="model_run", **dict.fromkeys(extent, "-1")),
            node("/Loop", "Loop", at + 110, 300, 1),
            *(node("Add_0", "Add", at + 120 + 50 * turn, 40, 0) for turn in range(5)),
        ]  # fmt: skip
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def xplane(folder: Path) -> list[Path]:
    """Write a file like XLA's on NVIDIA GPUs, and one with AMD's details of a kernel."""
    from tests.readers.cupti_xplane import H200, Cupti

    module = "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=5#"
    thunk = module + "::Thunk:#name=dense/dot_general,hlo_op=gemm_fusion_dot.3#"
    made = Cupti(H200)
    made.trace_me("train", 2_000, 90_000, step_num=4)
    for n in range(3):
        at = 3_000 + 10_000 * n
        made.launch("gemm_fusion_dot_3", n, at, at + 2_000, annotation=thunk)
        made.kernel("gemm_fusion_dot_3", n, at + 3_000, at + 6_000, graph=n // 2, node=n // 2)
    made.memcpy_call("H2D", 7, 50_000, 50_100, 64)
    made.memcpy("H2D", 7, 50_200, 50_300, 64)
    made.memset_call(8, 51_000, 51_100, 64)
    made.memset(8, 51_200, 51_300, 64)
    made.nvtx("", "step", 1_000, 60_000)
    made.overhead("CUPTI activity", 52_000, 52_100)
    made.unified("UM_MemcpyHtoD", 53_000, 53_100)
    made.residency(54_000, 54_100, 64, 4096)
    made.warnings.append("dropped")
    nvidia = folder / "nvidia.xplane.pb"
    nvidia.write_bytes(made.space())
    amd = Cupti({"core_count": 304, "memory_size": 192 << 30})
    told = "regs:2191500840 static_shared:0 group_mem:9 private_mem:4 grid:1,2,3 block:64,1,1"
    amd.call("Compute", 1, 2_000, 2_100, name="hipModuleLaunchKernel", annotation=thunk)
    amd.activity(
        "Compute", "Cijk_Ailk", 1, 3_000, 4_000, 1, own={"kernel_details": told}, graph=1, node=2
    )
    rocm = folder / "amd.xplane.pb"
    rocm.write_bytes(amd.space())
    return [nvidia, rocm]


# ------------------------------------------------------------------------------ our own


def profile(source: Path, folder: Path) -> Path:
    """Write a profile, with frames that were computed beside the trace."""
    import opscope

    profile = opscope.load(source)
    for name in ("op_totals", "kernels", "memops", "summary", "gaps", "diagnosis", "collectives"):
        getattr(profile, name)()
    profile.save(folder)
    return folder


def partials(sources: Sequence[Path], folder: Path) -> list[Path]:
    """Write the partial of each source."""
    from opscope.scale.partial import write_partial

    return [folder / write_partial(one, folder) for one in sources]


def recording(folder: Path) -> Path:
    """Write the recording of a process with ops, layers, steps and memory."""
    from opscope.core import recording_format as of

    part = folder / "part-machine-4000-1"
    part.mkdir(parents=True)
    meta = {
        "format": of.FORMAT, "version": of.VERSION, "host": "machine", "pid": PID, "start_time": 1,
        "rank": 0, "world_size": 1, "name": "train.py", "clock": "perf_counter_ns", "parent": 1,
        "versions": {"torch": "2.13"}, "command": ["python3", "train.py"], "boot": "b",
    }  # fmt: skip
    (part / of.META).write_text(json.dumps(meta))
    domain = "opscope.torch"
    texts = [(0, domain, None, MM), (1, domain, "layer", "net.block"), (2, "user", None, "eval"),
             (3, domain, "step", "step 3")]  # fmt: skip
    (part / of.STRINGS).write_text("".join(json.dumps(one) + "\n" for one in texts))
    facts = [
        {"start": 1000}, {"versions": {"torch": "2.13"}}, {"domain": domain, "number": 0},
        {"domain": "user", "number": 1}, {"thread": 0, "os_tid": 4000, "pthread_id": 9, "name": "main"},
        {"clock": [1000, FIRST, 50]}, {"clock": [2_000_001_000, FIRST + 2_000_000_000, 50]},
        {"probe": [1001, 1002, 4000]}, {"memory": -1, "total": 0, "reserved": None, "changes": 0},
        {"gpu": False}, {"note": "a note", "severity": "info", "how_many": 1},
        {"profiling": 1100, "profiler": "torch.profiler"},
        {"window": [1200, 9000], "steps": [3, 4], "ended": None, "chosen": False},
        {"cost": "ops", "time": 100, "calls": 3, "one_in": 1},
        {"in_steps": 50, "steps_ns": 4000, "until": 9000}, {"stop": 10_000},
    ]  # fmt: skip
    (part / of.FACTS).write_text("".join(json.dumps(one) + "\n" for one in facts))
    pop = of.POP_BASE
    records = [(3, 1500), (1, 1600), (of.PAYLOAD, 7), (0, 1700), (pop, 1800), (2, 1810),
               (pop - 1, 1850), (0, 1900), (of.COMPLETE_BASE, 1950), (pop, 2000), (pop, 2100),
               (of.MARK_BASE + 2, 2200), (3, 2300)]  # fmt: skip
    body = [(of.CHUNK, len(records)), *records]
    (part / of.EVENTS).write_bytes(b"".join(of.RECORD.pack(*one) for one in body))
    changes = [(1710, 4096, 512, 4000, -1, of.ALLOCATED), (1720, 4096, -1, 4000, -1, of.RELEASED),
               (1730, 8192, 64, 4000, -1, of.ALLOCATED)]  # fmt: skip
    (part / of.MEMORY).write_bytes(b"".join(of.MEMORY_RECORD.pack(*one) for one in changes))
    return folder


# ------------------------------------------------------- what is given beside a trace, baselines

#: The trace beside which logs and samples are given: it lies in their folder.
SERVED = "served.opscope"


def requests(folder: Path) -> list[Path]:
    """Write a server's log of requests in each of its forms, and the profile of the server."""
    from opscope.profile import Profile
    from tests.core.analysis.serving import test_requests as logs
    from tests.made_server import served, serving

    Profile(logs.unix(served(serving(3, 5, requests=2)))).save(folder / SERVED)
    rows = [(name, *(logs.UNIX + n for n in rest[:3]), *rest[3:]) for name, *rest in logs.TWO]
    spans = [json.dumps(logs.export(span)) for span in (logs.VLLM, logs.SGLANG)]
    tags = [
        {"key": "gen_ai.request.id", "value": "a"},
        {"key": "gen_ai.latency.e2e", "value": 0.009},
    ]
    jaeger = {
        "operationName": "llm_request",
        "startTime": logs.UNIX // 1000,
        "duration": 9100,
        "tags": tags,
    }
    lines = (
        "INFO 09-21 14:13:20 [logger.py:40] Received request cmpl-1: prompt: 'x', params: y",
        "INFO 09-21 14:13:21 [logger.py:71] Generated response cmpl-1 (streaming delta): output: 'y'",
        "INFO 09-21 14:13:22 [logger.py:71] Generated response cmpl-1 (streaming complete): output: 'yz'",
    )
    texts = {
        "requests.csv": logs.csv(rows), "otel.json": f"[{','.join(spans)}]", "otel-lines.json": "\n".join(spans),
        "jaeger.json": json.dumps({"data": [{"spans": [jaeger]}]}), "vllm.txt": "\n".join(lines) + "\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def power(folder: Path) -> list[Path]:
    """Write samples of power: ours, and nvidia-smi's."""
    ours, theirs = folder / "power.csv", folder / "nvidia-smi.csv"
    ours.write_text("time_ms,power\n0,300\n10,500\n20,500\n40,100\n")
    lines = (f"2026/09/21 14:13:20.{n:03}, 0, {300 + n}.25 W" for n in range(0, 100, 20))
    theirs.write_text("timestamp, index, power.draw [W]\n" + "\n".join(lines) + "\n")
    return [ours, theirs]


def baseline(source: Path, folder: Path) -> Path:
    """Write a folder of baselines with two names."""
    import opscope
    from opscope.baselines import folder as baselines

    folder.mkdir()
    for name in ("main", "change"):
        baselines.save(folder, name, opscope.load(source), "seed", "0")
    return folder


# ------------------------------------------------------------------------------ real ones


def cut(trace: Path, folder: Path, rows: int = 150) -> Path:
    """Copy a real trace with the first ``rows`` of each table, or a sample of its events; others whole."""
    folder.mkdir()
    target = folder / trace.name
    if trace.is_dir():
        return trace
    head = trace.read_bytes()[:16]
    if head.startswith(b"SQLite"):
        target.write_bytes(trace.read_bytes())
        with sqlite3.connect(target) as db:
            db.execute("PRAGMA journal_mode=OFF")
            for (table,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                if table.lower() not in (
                    "stringids",
                    "stringtable",
                    "dictionary",
                    "sqlite_sequence",
                ):
                    db.execute(f'DELETE FROM "{table}" WHERE rowid > {rows}')
            db.commit()
            db.execute("VACUUM")
        db.close()
    elif head[:2] == b"\x1f\x8b" or head[:1] in (b"{", b"["):
        data = trace.read_bytes()
        whole = json.loads(gzip.decompress(data) if head[:2] == b"\x1f\x8b" else data)
        events = whole["traceEvents"] if isinstance(whole, dict) else whole
        step = max(1, len(events) // (2 * rows))  # a sample of the rest, so that each kind occurs
        events[:] = events[:rows] + events[rows::step]
        target = folder / trace.name.removesuffix(".gz")
        target.write_text(json.dumps(whole))
    else:
        target.write_bytes(trace.read_bytes())
    return target


def cupti(folder: Path) -> Path:
    """Write the same recording with CUPTI's records of each kind that becomes a row."""
    from opscope.core.cupti import kinds
    from tests.cupti_records import call, kernel, record, write

    recording(folder)
    place = {"contextId": 1, "streamId": 7}
    first = b"".join(
        call(FIRST + 700 + n, FIRST + 705 + n, n + 1, thread=9)
        + kernel(FIRST + 800 + 20 * n, FIRST + 815 + 20 * n, n + 1, graphId=n, graphNodeId=n)
        for n in range(40)
    )
    second = b"".join(
        (
            record(kinds.MEMCPY, start=FIRST, end=FIRST + 5, copyKind=1, bytes=64, **place),
            record(kinds.MEMCPY2, start=FIRST, end=FIRST + 5, copyKind=10, dstDeviceId=1, **place),
            record(kinds.MEMSET, start=FIRST, end=FIRST + 5, bytes=64, **place),
            record(
                kinds.SYNCHRONIZATION, start=FIRST, end=FIRST + 9, type=2, cudaEventId=3, **place
            ),
            record(kinds.CUDA_EVENT, correlationId=1, eventId=3, **place),
            record(kinds.MEMORY2, timestamp=FIRST, memoryOperationType=1, memoryKind=3, bytes=512),
            record(kinds.MEMORY_POOL, timestamp=FIRST, memoryPoolOperationType=1, memoryPoolType=1),
            record(kinds.GRAPH_TRACE, start=FIRST, end=FIRST + 9, graphId=4, **place),
            record(kinds.OVERHEAD, start=FIRST, end=FIRST + 9, overheadKind=1 << 16),
            record(kinds.DEVICE, id=0, name=0x1000, computeCapabilityMajor=9),
            record(kinds.CONTEXT, contextId=1, deviceId=0),
        )
    )
    facts = [
        {"clock": [FIRST, 1000, 40]}, {"clock": [FIRST + 9000, 10_000, 40]},
        {"dropped": 2, "context": 1, "stream": 0}, {"threads": {"9": 4000}}, {"note": "a note"},
        {"sizes": {"10": 248}}, {"graph_nodes": [[1700, 4000, 3, 5, 0]]}, {"stop": 10_000},
    ]  # fmt: skip
    write(folder / "part-machine-4000-1", first, second, facts=facts)
    return folder
