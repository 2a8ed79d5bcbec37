"""Small files of MindSpore's profiler, written as its sources write them.

The numbers are made up; names, columns, units and quoting follow the sources that each function names (repository
mindspore-ai/mindspore).
"""

from __future__ import annotations

import json
from pathlib import Path

#: What scripts/fuzz_seeds.py calls the files of ``seeds``.
FORMAT = "MindSpore"
#: Unix time, us, of the first event.
FIRST = "1700000000000000"
CONV = "Default/network-WithLossCell/_backbone-LeNet/conv1-Conv2d/Conv2D-op13"
GRAD = "Gradients/Default/network-WithLossCell/_backbone-LeNet/conv1-Conv2d/Grad_Conv2D/Conv2DBackpropFilter-op53"
APPLY = "Default/optimizer-Momentum/ApplyMomentum-op55"

#: analysis/viewer/ascend_kernel_details_viewer.py: CANN's columns renamed, without Device_id; Step ID is there
#: where a schedule was set. Times are texts with a tab after them, as CANN writes them for spreadsheets.
KERNEL_DETAILS = f"""\
Step ID,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),\
Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,\
Output Formats,Context ID
1,4294967295,4,2,{CONV},Conv2D,dynamic,AI_CORE,"{FIRST}.125\t",10.5,0,24,0,NO,\
"""
KERNEL_DETAILS += f'''"4,1,8,8;6,1,5,5","FLOAT16;FLOAT16","NCHW;NCHW","4,6,4,4","FLOAT16","NCHW",N/A
1,4294967295,5,2,{GRAD},Conv2DBackpropFilter,dynamic,AI_CORE,"{FIRST[:-2]}20.250\t",4,0,24,0,NO,"4,1,8,8;4,6,4,4",\
"FLOAT16;FLOAT16","NCHW;NCHW","6,1,5,5","FLOAT16","NCHW",N/A
1,4294967295,6,3,hcom_allReduce__101_0_1,hcom_allReduce_,N/A,HCCL,"{FIRST[:-2]}25.000\t",100,0,0,0,N/A,N/A,N/A,N/A,\
N/A,N/A,N/A,N/A
2,4294967295,7,2,PynativeFramework::PyBoostLaunchAclnn::aclnnMatmul/aclnnMatmul_MatMulCommon_MatMulV2,MatMulV2,dynamic,\
AI_CORE,"{FIRST[:-3]}200.000\t",7.25,0,24,0,NO,"32,400;400,120","DT_BF16;DT_BF16","ND;FRACTAL_NZ","32,120",\
"DT_BF16","ND",N/A
2,4294967295,8,2,{APPLY},ApplyMomentum,dynamic,AI_CPU,"{FIRST[:-3]}300.000\t",2,0,1,0,NO,,,,,,,N/A
'''


def event(name, pid, tid, ts, dur, **args):
    """A complete event as analysis/parser/timeline_event/base_event.py writes it: times are texts."""
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "cat": "",
        "args": args,
    }


def lane(pid, name, threads=None, label="NPU"):
    """The events that name a lane (analysis/parser/timeline_creator)."""
    rows = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}},
            {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}]  # fmt: skip
    for tid, text in (threads or {}).items():
        rows.append(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": text}}
        )
    return rows


def trace_view() -> list[dict]:
    """``trace_view.json`` of an Ascend: host, CANN, the device, HCCL, what is derived."""
    at = FIRST[:-3]
    hccl = {"notify_id": 1, "stream id": 3, "task id": 6, "src rank": 0, "dst rank": 1, "transport type": "SDMA",
            "size(Byte)": 4096, "data type": "FP32", "link type": "HCCS", "bandwidth(GB/s)": 20.0}  # fmt: skip
    return [
        *lane(1, "MindSpore", {77: "Thread 77"}, "CPU"),
        *lane(5, "CANN", {77: "Thread 77"}, "CPU"),
        *lane(6, "Ascend Hardware", {2: "Stream 2", 3: "Stream 3"}),
        *lane(7, "HCCL", {0: "Plane 0", 9: "Communication Kernel"}),
        *lane(8, "Overlap Analysis", {0: "Computing"}),
        *lane(3, "Scope Layer", {0: "Scope Layer"}, "CPU"),
        *lane(9, "python3", {77: "Thread 77"}, "CPU"),
        event("ProfilerStep#7", 1, 77, f"{at}000.000", "150.500"),
        event("RunOp::KernelLaunch::Default/Conv2D-op13", 1, 77, f"{at}001.000", "2.000"),
        event("aclrtLaunchKernel", 5, 77, f"{at}002.000", "1.000"),
        event(CONV, 6, 2, f"{at}010.125", "10.500", **{"Task Type": "AI_CORE", "Stream Id": 2, "Task Id": 4}),
        event("EVENT_WAIT", 6, 2, f"{at}021.000", "30.000", **{"Task Type": "EVENT_WAIT", "Stream Id": 2, "Task Id": 5}),
        event("MEMCPY_ASYNC", 6, 2, f"{at}052.000", "3.000", **{"Task Type": "MEMCPY_ASYNC", "Stream Id": 2, "Task Id": 7}),
        event("SDMA_SQE", 6, 3, f"{at}060.001", "40.000", **{"Task Type": "SDMA_SQE", "Stream Id": 3, "Task Id": 6}),
        event("Memcpy", 7, 0, f"{at}060.001", "40.000", **hccl, **{"task type": "Memcpy"}),
        event("hcom_allReduce__101_0_1", 7, 9, f"{at}060.000", "41.000"),
        event("Computing", 8, 0, f"{at}010.125", "10.500"),
        event("Default", 3, 0, f"{at}010.125", "10.500"),
        event("forward", 9, 77, f"{at}001.000", "20.000"),
        event("Default/Cast-op1", 2, 0, f"{at}120.000", "4.000", type="HostCpuOps"),
        *lane(2, "CPU OP", {0: "Thread 0"}, "CPU"),
    ]  # fmt: skip


#: ccsrc/plugin/device/gpu/hal/profiler/gpu_data_saver.{h,cc}, ccsrc/profiler/device/data_saver.{h,cc}.
GPU = {
    "gpu_op_detail_info_0.csv": "op_side,op_type,op_name,op_full_name,op_occurrences,op_total_time(us),"
    "op_avg_time(us),total_proportion,cuda_activity_cost_time(us),cuda_activity_call_count\n"
    f"Device,Conv2D,Conv2D-op13,{CONV},2,50.5,25.25,0.8,21,2\n"
    f"Device,ApplyMomentum,ApplyMomentum-op55,{APPLY},1,10,10,0.2,4.5,1\n",
    "gpu_op_type_info_0.csv": "op_type,type_occurrences,total_time(us),total_proportion,avg_time(us)\n"
    "Conv2D,2,50.5,0.8,25.25\nApplyMomentum,1,10,0.2,10\n",
    "gpu_activity_data_0.csv": "name,type,op_full_name,stream_id,block_dim,grid_dim,occurrences,"
    "total_duration(us),avg_duration(us),max_duration(us),min_duration(us)\n"
    f'"void conv<float, 3>(float*, int)",cuLaunchKernel,{CONV},17,"128,1,1","4,2,1",2,21,10.5,11,10\n'
    f'"momentum(float*)",cuLaunchKernel,{APPLY},17,"256,1,1","1,1,1",1,4.5,4.5,4.5,4.5\n',
    "activity_execute_timestamp_0.txt": f"void conv<float, 3>(float*, int);17;{FIRST}000;11\n"
    f"void conv<float, 3>(float*, int);17;{FIRST[:-3]}200000;10\n"
    f"momentum(float*);17;{FIRST[:-3]}300000;4.5\n",
    "gpu_op_execute_timestamp_0.txt": f"{CONV};GpuOps;{FIRST}000,25.25 {FIRST[:-3]}190000,25.25 \n"
    f"{APPLY};GpuOps;{FIRST[:-3]}290000,10 \n",
    "start_time_0.txt": f"host_monotonic_raw_time(ns): 12345\ngpu_start_time(ns): {FIRST}000\n",
    # the asynchronous form: each line a step, times in ns
    "step_trace_profiling_0.txt": f"{CONV},{FIRST}000 {CONV},{FIRST}000 {GRAD},{FIRST}100 {APPLY},{FIRST[:-3]}150000\n"
    f"{CONV},{FIRST[:-3]}190000 {CONV},{FIRST[:-3]}190000 {GRAD},{FIRST[:-3]}200000 {APPLY},{FIRST[:-3]}310000\n",
    "gpu_framework_0.txt": "Conv2D;Conv2D-op13;0;input_0:[4, 1, 8, 8];input_1:[6, 1, 5, 5];\n",
}
#: minddata/dataset/engine/perf: cpu_sampler.cc, connector_size.cc, profiling.cc.
CPU = {
    "cpu_processor_num": 8,
    "time_stamp": [1000, 1100, 1300],
    "device_info": {"user_utilization": [0, 20, 40], "sys_utilization": [0, 5, 10]},
    "process_info": {"user_utilization": [100, 300], "sys_utilization": [20, 0]},
    "op_info": [
        {"op_id": 1, "metrics": {"user_utilization": [0, 90, 30], "sys_utilization": [0, 10, 0]}}
    ],
}
PIPELINE = {
    "sampling_interval": 100,
    "op_info": [
        {"op_id": 0, "op_type": "EpochCtrlOp", "num_workers": 1, "children": [1], "metrics": None},
        {"op_id": 1, "op_type": "MapOp", "num_workers": 4,
         "metrics": {"output_queue": {"length": 16, "size": [0, 16, 4]}}},
    ],
}  # fmt: skip
#: Batches 1 to 3 of a queue for 8: 5, 0 and 1 ms until the pipeline gave them, 2 ms to hand each on.
QUEUE = "".join(
    f"0 1 {n} 2 {time}\n0 2 {n} {get + 2} {time}\n0 0 {n} {get} {time}\n1 8 {n} {ready} {time}\n"
    for n, get, ready, time in ((1, 5, 0, 100), (2, 0, 8, 110), (3, 1, 3, 125))
)
OP_STATISTIC = """\
Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)
3,Conv2D,AI_CORE,3,30.5,10,10.167,10.5,75.3
3,GetNext,AI_CPU,1,10,10,10,10,24.7
"""


def ascend_folder(folder: Path) -> Path:
    """One rank's output of 2.5 to 2.10 on an Ascend."""
    out = folder / "host_4000_20231114221320000_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out / "kernel_details.csv").write_text(KERNEL_DETAILS)
    (out / "trace_view.json").write_text(json.dumps(trace_view()))
    (out / "op_statistic.csv").write_text(OP_STATISTIC)
    (out / "step_trace_time.csv").write_text(
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n1,14.5,100,0,100,10,114.5,0,100,0\n"
    )
    (out / "communication.json").write_text("{}")
    (out.parent / "profiler_info_3.json").write_text('{"ms_version": "2.7.0"}')
    return out.parent


def gpu_folder(folder: Path) -> Path:
    """The output of 1.8 to 2.1 on a GPU."""
    out = folder / "profiler"
    out.mkdir(parents=True)
    for name, data in GPU.items():
        (out / name).write_text(data)
    return out


def dataset_folder(folder: Path) -> Path:
    """What the dataset of 2.10 tells of itself."""
    (folder / "minddata_cpu_utilization_0.json").write_text(json.dumps(CPU))
    (folder / "pipeline_profiling_0.json").write_text(json.dumps(PIPELINE))
    (folder / "device_queue_profiling_0.txt").write_text(QUEUE)
    return folder


def seeds(folder: Path) -> list[Path]:
    """Write the output of an Ascend and of a GPU, and each of their files apart."""
    ascend, gpu = ascend_folder(folder), gpu_folder(folder / "gpu")
    (folder / "dataset").mkdir()
    dataset = dataset_folder(folder / "dataset")
    inside = ascend / "ASCEND_PROFILER_OUTPUT"
    names = ("kernel_details.csv", "trace_view.json", "op_statistic.csv")
    apart = (
        "activity_execute_timestamp_0.txt",
        "gpu_op_detail_info_0.csv",
        "gpu_activity_data_0.csv",
    )
    return [
        ascend,
        gpu,
        dataset,
        *(inside / name for name in names),
        *(gpu / name for name in apart),
    ]
