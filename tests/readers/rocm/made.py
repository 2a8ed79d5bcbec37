"""Write one small run as each of AMD's profilers writes it, from the sources that ``opscope/readers/rocm`` names.

The run: process 4242 with one thread, an MI300X as node 2. Inside ``step 0`` are a PyTorch op and an op in
opscope's own text; each launches a kernel. Then come a copy, a mark, a barrier and an allocation. Times are ns.
No real rocpd database is public: these are made from the schema's column names and types.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: What scripts/fuzz_seeds.py calls the files of ``seeds``.
FORMAT = "ROCm"
T = 5_000_000_000_000
PID = TID = 4242
NODE, KERNEL = 2, "_Z9my_kernelPfi"
OWN = "aten::addmm(f16[8], f16[8,16], f16[16,8]) -> f16[8,8]"
TORCH = "aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], [3, 4]]"
#: name, start, end of roctx ranges; the last is a mark.
RANGES = (("step 0", 1000, 9000), (TORCH, 1500, 3000), (OWN, 3500, 5000), ("here", 6000, 6000))
#: name, start, end, correlation.
CALLS = (
    ("hipLaunchKernel", 1600, 1700, 11),
    ("hipLaunchKernel", 3600, 3700, 12),
    ("hipMemcpyAsync", 4000, 4100, 13),
)
#: correlation, dispatch, start, end, work-items, work-group; 1000 work-items in groups of 64 are 16 groups.
DISPATCHES = (
    (11, 1, 2000, 2500, (1000, 4, 1), (64, 2, 1)),
    (12, 2, 4000, 4600, (512, 1, 1), (256, 1, 1)),
)
LDS, LDS_STATIC, SCRATCH, ARCH, ACCUM, SGPR = 768, 256, 16, 32, 8, 48
COPY = (13, 4700, 4900, 4096)
#: counter, dispatch, value of an instance.
COUNTS = (
    ("SQ_WAVES", 1, 100.0),
    ("SQ_WAVES", 1, 28.0),
    ("FETCH_SIZE", 1, 10.5),
    ("SQ_WAVES", 2, 7.0),
)
GPU = {
    "size": 304, "node_id": NODE, "logical_node_id": 2, "type": 2, "cu_count": 304, "simd_per_cu": 4,
    "wave_front_size": 64, "max_waves_per_cu": 32, "max_engine_clk_fcompute": 2100, "name": "gfx942",
    "product_name": "AMD Instinct MI300X", "vendor_name": "AMD", "id": {"handle": 9001},
    "mem_banks": [{"heap_type": 1, "size_in_bytes": 206_141_652_992}],
}  # fmt: skip
CPU = {"node_id": 0, "type": 1, "name": "AMD EPYC 9654", "cu_count": 96, "id": {"handle": 9000}}
LAUNCH_KINDS = {"roctx": "MARKER_CORE_RANGE_API", "hip": "HIP_RUNTIME_API_EXT"}


def table(
    db: sqlite3.Connection, name: str, rows: Sequence[Mapping[str, Any]], columns: str = ""
) -> None:
    """Make a table and its rows; ``columns`` are those that no row has."""
    names = list(dict.fromkeys([*columns.split(), *(key for row in rows for key in row)]))
    quoted = ", ".join(f'"{one}"' for one in names)
    db.execute(f'CREATE TABLE "{name}" ({quoted})')
    marks = ", ".join("?" * len(names))
    db.executemany(
        f'INSERT INTO "{name}" VALUES ({marks})', [[row.get(one) for one in names] for row in rows]
    )


# ------------------------------------------------------------------------------ rocpd


def rocpd(path: Path, version: str = "3.0", uuid: str = "_0001", pid: int = PID) -> Path:
    """Write a rocpd database: version 3.0, 4.1 (places in ``rocpd_track``), or draft (and times in a table)."""
    db = sqlite3.connect(path)
    strings: dict[str, int] = {}

    def text(words: str) -> int:
        return strings.setdefault(words, len(strings) + 1)

    events: list[dict[str, Any]] = []
    tracks: dict[tuple[Any, ...], int] = {}
    times: list[int] = []

    def event(category: str, stack: int, extdata: str = "{}") -> int:
        events.append(
            {"id": len(events) + 1, "category_id": text(category), "stack_id": stack, "correlation_id": 0,
             "extdata": extdata}
        )  # fmt: skip
        return len(events)

    def placed(start: int, end: int, **where: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"nid": 1, "pid": pid, "tid": TID, **where}
        row: dict[str, Any] = {}
        if version == "3.0":
            return {**found, "start": T + start, "end": T + end}
        row["track_id"] = tracks.setdefault(tuple(sorted(found.items())), len(tracks) + 1)
        if version == "4.1":
            return {**row, "start": T + start, "end": T + end}
        for name, value in (("start_id", T + start), ("end_id", T + end)):
            times.append(value)
            row[name] = len(times)
        return row

    regions, samples = [], []
    for words, start, end in RANGES:
        of = event(LAUNCH_KINDS["roctx"], 100 + len(regions), json.dumps({"message": words}))
        if start == end:
            here = placed(start, end)
            sample: dict[str, Any] = {"id": 1, "event_id": of, "name_id": text("roctxMarkA")}
            if version == "3.0":
                tracks[("marks",)] = 1
                sample |= {"track_id": 1, "timestamp": T + start}
            else:
                sample |= {"track_id": here["track_id"]}
                key, value = (
                    ("timestamp", T + start)
                    if version == "4.1"
                    else ("timestamp_id", here["start_id"])
                )
                sample[key] = value
            samples.append(sample)
            continue
        regions.append({"name_id": text("roctxThreadRangeA"), "event_id": of, **placed(start, end)})
    for name, start, end, stack in CALLS:
        of = event(LAUNCH_KINDS["hip"], stack)
        regions.append({"name_id": text(name), "event_id": of, **placed(start, end)})
    dispatches, pmc = [], []
    for stack, number, start, end, grid, group in DISPATCHES:
        of = event("KERNEL_DISPATCH", stack)
        sizes = {
            f"{what}_size_{axis}": size
            for what, all_sizes in (("grid", grid), ("workgroup", group))
            for axis, size in zip("xyz", all_sizes, strict=True)
        }
        where = placed(start, end, agent_id=NODE, queue_id=1, stream_id=3)
        dispatches.append(
            {"id": number, "kernel_id": 7, "dispatch_id": number, "private_segment_size": SCRATCH,
             "group_segment_size": LDS, "event_id": of, **sizes, **where}
        )  # fmt: skip
        pmc += [
            {"event_id": of, "pmc_id": 1 + (name != "SQ_WAVES"), "value": value}
            for name, dispatch, value in COUNTS
            if dispatch == number
        ]
    stack, start, end, size = COPY
    copy = {
        "name_id": text("MEMORY_COPY_HOST_TO_DEVICE"), "dst_agent_id": NODE, "src_agent_id": 0, "size": size,
        "event_id": event("MEMORY_COPY", stack), **placed(start, end, stream_id=3),
    }  # fmt: skip
    allocated = [
        {
            "type": kind,
            "level": "REAL",
            "address": 64,
            "size": size,
            **placed(at, at + 5, agent_id=agent),
        }
        for kind, at, size, agent in (("ALLOC", 500, 1 << 20, NODE), ("FREE", 9500, 0, None))
    ]
    if version != "3.0":  # the categories have a table of their own
        names = {one["category_id"] for one in events}
        by_id = {number: words for words, number in strings.items()}
        table(
            db, f"rocpd_info_category{uuid}", [{"id": n, "name": by_id[n]} for n in sorted(names)]
        )
    table(db, f"rocpd_metadata{uuid}", [{"id": 1, "tag": "schema_version", "value": version[0]}])
    table(db, f"rocpd_string{uuid}", [{"id": n, "string": words} for words, n in strings.items()])
    table(db, f"rocpd_info_node{uuid}", [{"id": 1, "hostname": "node-a"}])
    command = "/usr/bin/python train.py --token SECRET"
    table(
        db, f"rocpd_info_process{uuid}",
        [{"id": pid, "nid": 1, "pid": pid, "command": command, "environment": '{"TOKEN":"SECRET"}'}],
    )  # fmt: skip
    table(
        db,
        f"rocpd_info_thread{uuid}",
        [{"id": TID, "nid": 1, "pid": pid, "tid": TID, "name": "main"}],
    )
    agents = [
        {"id": one["node_id"], "nid": 1, "pid": pid, "type": "GPU" if one["type"] == 2 else "CPU",
         "name": one["name"], "product_name": one.get("product_name"), "extdata": json.dumps(one)}
        for one in (CPU, GPU)
    ]  # fmt: skip
    table(db, f"rocpd_info_agent{uuid}", agents)
    table(
        db, f"rocpd_info_kernel_symbol{uuid}",
        [{"id": 7, "kernel_name": f"{KERNEL}.kd", "display_name": None, "group_segment_size": LDS_STATIC,
          "sgpr_count": SGPR, "arch_vgpr_count": ARCH, "accum_vgpr_count": ACCUM}],
    )  # fmt: skip
    table(db, f"rocpd_info_pmc{uuid}", [{"id": 1, "name": "SQ_WAVES", "symbol": "SQ_WAVES"},
                                       {"id": 2, "name": "FETCH_SIZE", "symbol": "FETCH_SIZE"}])  # fmt: skip
    table(db, f"rocpd_event{uuid}", events)
    rows = [
        {"id": n, **(dict(key) if key != ("marks",) else {"pid": pid, "tid": TID})}
        for key, n in tracks.items()
    ]
    table(db, f"rocpd_track{uuid}", rows, "id nid pid tid agent_id queue_id stream_id name_id")
    if times:
        table(
            db,
            f"rocpd_timestamp{uuid}",
            [{"id": n + 1, "value": value} for n, value in enumerate(times)],
        )
    table(db, f"rocpd_region{uuid}", regions)
    table(db, f"rocpd_sample{uuid}", samples)
    table(db, f"rocpd_kernel_dispatch{uuid}", dispatches)
    table(db, f"rocpd_pmc_event{uuid}", pmc)
    table(db, f"rocpd_memory_copy{uuid}", [copy])
    table(db, f"rocpd_memory_allocate{uuid}", allocated)
    db.commit()
    db.close()
    return path


# ------------------------------------------------------------------------------ rocprofv3


def tool_json(path: Path) -> Path:
    """Write rocprofv3's JSON."""

    def record(kind: int, operation: int, start: int, end: int, link: int) -> dict[str, Any]:
        return {
            "size": 64, "kind": kind, "operation": operation, "thread_id": TID,
            "correlation_id": {"internal": link, "external": 0},
            "start_timestamp": T + start, "end_timestamp": T + end,
        }  # fmt: skip

    def sizes(x: int, y: int, z: int) -> dict[str, int]:
        return {"x": x, "y": y, "z": z}

    dispatched = [
        {
            **record(1, 0, start, end, link),
            "stream_id": {"handle": 3},
            "dispatch_info": {
                "agent_id": {"handle": 9001}, "queue_id": {"handle": 18446744073709551600}, "kernel_id": 7,
                "dispatch_id": number, "private_segment_size": SCRATCH, "group_segment_size": LDS,
                "grid_size": sizes(*grid), "workgroup_size": sizes(*group),
            },
        }
        for link, number, start, end, grid, group in DISPATCHES
    ]  # fmt: skip
    counted = [
        {
            "thread_id": TID,
            "dispatch_data": one,
            "records": [
                {"counter_id": {"handle": 1 if name == "SQ_WAVES" else 2}, "value": value}
                for name, number, value in COUNTS
                if number == one["dispatch_info"]["dispatch_id"]
            ],
        }
        for one in dispatched
    ]
    link, start, end, size = COPY
    process = {
        "metadata": {"pid": PID, "init_time": T, "fini_time": T + 20_000},
        "agents": [CPU, GPU],
        "counters": [{"id": {"handle": 1}, "name": "SQ_WAVES"}, {"id": {"handle": 2}, "name": "FETCH_SIZE"}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "KERNEL_DISPATCH", "operations": ["COMPLETE"]},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
                {"kind": "MARKER_CORE_API", "operations": ["roctxRangePushA", "roctxMarkA", "roctxRangePop"]},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
            ],
            "marker_api": [{"key": 100 + n, "value": words} for n, (words, _, _) in enumerate(RANGES)],
        },
        "kernel_symbols": [
            {"kernel_id": 7, "kernel_name": f"{KERNEL}.kd", "formatted_kernel_name": "my_kernel(float*, int)",
             "group_segment_size": LDS_STATIC, "arch_vgpr_count": ARCH, "accum_vgpr_count": ACCUM,
             "sgpr_count": SGPR}
        ],
        "callback_records": {"counter_collection": counted},
        "buffer_records": {
            "kernel_dispatch": dispatched,
            "hip_api": [record(2, int(name != "hipLaunchKernel"), *rest) for name, *rest in CALLS],
            "marker_api": [
                *(record(3, int(a == b), a, b, 100 + n) for n, (_, a, b) in enumerate(RANGES)),
                record(3, 2, 9000, 9001, 190),
            ],
            "memory_copy": [
                {**record(4, 1, start, end, link), "src_agent_id": {"handle": 9000},
                 "dst_agent_id": {"handle": 9001}, "bytes": size}
            ],
        },
    }  # fmt: skip
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path


def lines(path: Path, header: str, rows: Sequence[Sequence[Any]]) -> Path:
    """Write a CSV; texts in quotes."""
    written = [header]
    for row in rows:
        written.append(",".join(f'"{one}"' if isinstance(one, str) else str(one) for one in row))
    path.write_text("\n".join(written) + "\n")
    return path


V3_KERNELS = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,"
    "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
V3_API = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"


def v3_folder(folder: Path, prefix: str = "4242_") -> Path:
    """Write rocprofv3's CSVs of the run (``--output-format csv``)."""
    folder.mkdir(parents=True, exist_ok=True)
    lines(
        folder / f"{prefix}kernel_trace.csv",
        V3_KERNELS,
        [
            ("KERNEL_DISPATCH", f"Agent {NODE}", 1, 3, TID, number, 7, "my_kernel(float*, int)", link,
             T + start, T + end, 512, SCRATCH, ARCH, ACCUM, SGPR, *group, *grid)
            for link, number, start, end, grid, group in DISPATCHES
        ],
    )  # fmt: skip
    lines(
        folder / f"{prefix}hip_api_trace.csv",
        V3_API,
        [("HIP_RUNTIME_API", n, PID, TID, link, T + a, T + b) for n, a, b, link in CALLS],
    )
    lines(
        folder / f"{prefix}marker_api_trace.csv",
        V3_API,
        [
            ("MARKER_CORE_API", words.replace('"', '""'), PID, TID, 100 + n, T + a, T + b)
            for n, (words, a, b) in enumerate(RANGES)
        ],
    )
    link, start, end, _ = COPY
    lines(
        folder / f"{prefix}memory_copy_trace.csv",
        "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
        [
            (
                "MEMORY_COPY",
                "MEMORY_COPY_HOST_TO_DEVICE",
                3,
                "Agent 0",
                f"Agent {NODE}",
                link,
                T + start,
                T + end,
            )
        ],
    )
    by_number = {number: (link, start, end) for link, number, start, end, _, _ in DISPATCHES}
    total: dict[tuple[str, int], float] = {}
    for name, number, value in COUNTS:
        total[name, number] = total.get((name, number), 0) + value
    lines(
        folder / f"{prefix}counter_collection.csv",
        "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,"
        "Workgroup_Size,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Counter_Name,"
        "Counter_Value,Start_Timestamp,End_Timestamp",
        [
            (by_number[number][0], number, f"Agent {NODE}", 1, PID, TID, 512, 7, "my_kernel(float*, int)", 256, 512,
             SCRATCH, ARCH, ACCUM, SGPR, name, f"{value:.6f}", T + by_number[number][1], T + by_number[number][2])
            for (name, number), value in total.items()
        ],
    )  # fmt: skip
    lines(
        folder / f"{prefix}agent_info.csv",
        "Node_Id,Logical_Node_Id,Agent_Type,Wave_Front_Size,Cu_Count,Max_Waves_Per_Cu,Max_Engine_Clk_Fcompute,"
        "Local_Mem_Size,Name,Vendor_Name,Product_Name",
        [(0, 0, "CPU", 0, 96, 0, 0, 0, "AMD EPYC 9654", "CPU", "AMD EPYC 9654"),
         (NODE, 2, "GPU", 64, 304, 32, 2100, 0, "gfx942", "AMD", "AMD Instinct MI300X")],
    )  # fmt: skip
    return folder


# ------------------------------------------------------------------------------ rocprofv2 and v1


def v2_folder(folder: Path) -> Path:
    """Write rocprofv2's CSVs: a blank line after each header, counters as columns, ranges as events."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results_4242.csv").write_text(
        "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,"
        "Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES\n\n"
        + "".join(
            f"{number},{NODE},1,{PID},{TID},{grid[0] * grid[1]},{group[0] * group[1]},512,{SCRATCH},{ARCH},{ACCUM},"
            f'{SGPR},64,"my_kernel(float*, int) (.kd)",{T + start},{T + end},{link},7.000000\n'
            for link, number, start, end, grid, group in DISPATCHES
        )
    )
    (folder / "hip_api_trace_4242.csv").write_text(
        "Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID\n\n"
        + "".join(f'HIP_API_DOMAIN,"{n}",{T + a},{T + b},{link}\n' for n, a, b, link in CALLS)
    )
    (folder / "roctx_trace_4242.csv").write_text(
        "Domain,ROCTX_ID,Message,Timestamp\n\n"
        f'ROCTX_DOMAIN,0,"step 0",{T + 1000}\nROCTX_DOMAIN,0,"inner",{T + 1500}\nROCTX_DOMAIN,0,,{T + 3000}\n'
        f'ROCTX_DOMAIN,5,"other",{T + 3100}\nROCTX_DOMAIN,0,,{T + 9000}\nROCTX_DOMAIN,5,,{T + 9100}\n'
    )
    return folder


def v1_database(path: Path) -> Path:
    """Write rocprof v1's database of a run with --hip-trace --roctx-trace."""
    db = sqlite3.connect(path)
    common = {"pid": PID, "tid": TID}
    api = [
        {
            "BeginNs": T + a,
            "EndNs": T + b,
            **common,
            "Name": n,
            "args": "",
            "Index": link,
            "__section": 2,
            "__lane": TID,
        }
        for n, a, b, link in CALLS
    ]
    table(db, "HIP", api)
    ops = [
        {"BeginNs": T + a, "EndNs": T + b, "dev-id": NODE, "queue-id": 1, "Name": "my_kernel(float*, int)", **common,
         "stream-id": 3, "Index": link}
        for link, _, a, b, _, _ in DISPATCHES
    ]  # fmt: skip
    link, start, end, _ = COPY
    ops += [
        {
            **ops[0],
            "BeginNs": T + start,
            "EndNs": T + end,
            "Name": "CopyHostToDevice",
            "Index": link,
        },
        {**ops[0], "BeginNs": T + 5000, "EndNs": T + 5100, "Name": "Marker", "Index": 14},
    ]
    table(db, "OPS", ops)
    marks = [
        {
            "BeginNs": T + a,
            "EndNs": T + max(b, a + 1),
            **common,
            "Name": words,
            "Index": n,
            "__section": 0,
            "__lane": TID,
        }
        for n, (words, a, b) in enumerate(RANGES)
    ]
    table(db, "rocTX", marks)
    db.commit()
    db.close()
    return path


# ------------------------------------------------------------------------------ rocmProfileData


def rpd(path: Path) -> Path:
    """Write a ``.rpd`` of today's schema: domains, arguments apart, PyTorch's ops in domain ``torch``."""
    db = sqlite3.connect(path)
    strings: dict[str, int] = {}
    unique: list[str] = []

    def text(words: str) -> int:
        return strings.setdefault(words, len(strings) + 1)

    api: list[dict[str, Any]] = []

    def call(
        number: int,
        name: str,
        start: int,
        end: int,
        domain: str,
        category: str = "",
        args: str = "",
    ) -> None:
        unique.append(args)
        api.append(
            {"id": number, "pid": PID, "tid": TID, "start": T + start, "end": T + end, "apiName_id": text(name),
             "category_id": text(category), "domain_id": text(domain), "args_id": len(unique)}
        )  # fmt: skip

    for name, start, end, link in CALLS:
        launch = "hipExtModuleLaunchKernel" if link == 12 else name
        call(link, launch, start, end, "hip")
    call(1, "UserMarker", 1000, 9000, "roctx", "range", "step 0")
    call(
        2, "aten::mm", 1500, 3000, "torch", "function", '{"seq":1,"op_id":2,"sizes":[[2,3],[3,4]]}'
    )
    call(3, "OpTable::writeRows", 7000, 7100, "rpd_tracer", "overhead", "count=2")
    call(4, "UserMarker", 6000, 6000, "roctx", "mark", "here")
    call(14, "hipStreamWaitEvent", 5000, 5010, "hip")
    kernel, copied, barrier = (text(one) for one in ("KernelExecution", "Memcpy", "Barrier"))
    named, empty = text(KERNEL), text("")
    link, start, end, size = COPY
    times = [(11, 2000, 2500, kernel, named), (12, 4000, 4600, kernel, named), (link, start, end, copied, empty),
             (14, 5100, 5900, barrier, empty)]  # fmt: skip
    ops = [
        {"id": 1000 + n, "gpuId": NODE, "queueId": 1, "sequenceId": 0, "completionSignal": "", "start": T + a,
         "end": T + b, "description_id": words, "opType_id": kind}
        for n, (_, a, b, kind, words) in enumerate(times)
    ]  # fmt: skip
    table(db, "rocpd_api", api)
    table(db, "rocpd_op", ops)
    table(
        db,
        "rocpd_api_ops",
        [{"id": n + 1, "api_id": one[0], "op_id": 1000 + n} for n, one in enumerate(times)],
    )
    shapes = [
        {"api_ptr_id": link, "stream": "0x0", **dict(zip(("gridX", "gridY", "gridZ"), sizes, strict=True)),
         "workgroupX": 64, "workgroupY": 1, "workgroupZ": 1, "groupSegmentSize": 256, "privateSegmentSize": 0,
         "kernelName_id": named}
        # 16 work-groups each: hipLaunchKernel counts them, hipExtModuleLaunchKernel counts work-items
        for link, sizes in ((11, (16, 1, 1)), (12, (1024, 1, 1)))
    ]  # fmt: skip
    table(db, "rocpd_kernelapi", shapes)
    table(db, "rocpd_copyapi", [{"api_ptr_id": 13, "stream": "0x0", "size": size, "kind": 1}])
    table(db, "rocpd_string", [{"id": n, "string": words} for words, n in strings.items()])
    table(db, "rocpd_ustring", [{"id": n + 1, "string": words} for n, words in enumerate(unique)])
    table(
        db, "rocpd_monitor",
        [{"id": 1, "deviceType": "gpu", "deviceId": NODE, "monitorType": "sclk", "start": T, "end": T + 5, "value": "2100"}],
    )  # fmt: skip
    table(db, "rocpd_metadata", [{"id": 1, "tag": "schema_version", "value": "2"}])
    db.commit()
    db.close()
    return path


def seeds(folder: Path) -> list[Path]:
    """Write a run in each format of AMD's profilers, and some of its tables apart."""
    v3, v2 = v3_folder(folder / "v3"), v2_folder(folder / "v2")
    apart = [
        folder / name for name in ("kernel_trace.csv", "counter_collection.csv", "results_1.csv")
    ]
    for source, target in zip(
        (v3 / "4242_kernel_trace.csv", v3 / "4242_counter_collection.csv", v2 / "results_4242.csv"),
        apart,
        strict=True,
    ):
        target.write_bytes(source.read_bytes())
    databases = [rocpd(folder / f"{name}.db", name) for name in ("3.0", "4.1", "draft")]
    others = [v1_database(folder / "results.db"), rpd(folder / "trace.rpd")]
    return [v3, v2, *apart, *databases, *others, tool_json(folder / "results.json")]
