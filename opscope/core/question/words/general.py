"""The words of the frames of ops, kernels, totals, costs, memory and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "median": "median duration of one execution",
        "p90": "90th percentile of the runs, by trtexec's rule",
        "p95": "95th percentile of the runs, by trtexec's rule",
        "p99": "99th percentile of the runs, by trtexec's rule",
        "wall_time": "time from the first event to the last",
        "device_time": (
            "durations of kernels, copies and sets added up, for an op of those that it launched;"
            " without a GPU, self time"
        ),
        "device_attributed_time": "part of device_time whose op is known",
        "device_unattributed_time": "the rest of device_time: its op is not known",
        "window_time": (
            "length of the window in which kernels were captured; null if the run was not limited"
            " to a window"
        ),
        "device_busy": (
            "time during which at least one kernel, copy or set ran, summed over devices; without"
            " a GPU, time during which at least one op ran, summed over processes"
        ),
        "kernel_time": "durations of all kernels added up; without a GPU, device_time",
        "attributed_time": "part of kernel_time whose op is known",
        "unattributed_time": "the rest of kernel_time: its op is not known",
        "tensor_core_time": "time in kernels that use Tensor Cores (matrix cores on AMD)",
        "tensor_core_undetermined_time": (
            "time in kernels for which neither name nor op shows whether they use Tensor Cores"
        ),
        "own_time": "time that opscope itself took while it recorded: all parts, threads and processes",
        "start": "time at which it began",
        "end": "time at which it ended",
        "duration": (
            "end - start, added up over the row's executions; for an op, over its kernels, copies and"
            " sets; without a GPU, self time"
        ),
        "call_start": "time at which the CUDA call that launched it began",
        "call_end": "time at which the CUDA call that launched it ended",
        "cpu_time": "time on the host from the op's begin to its end",
        "self_time": "cpu_time less that of the ops inside the op",
        "time": "time of the row",
        "total": "durations of all executions added up",
        "mean": "mean duration of one execution",
        "min": "shortest duration of one execution",
        "max": "longest duration of one execution",
        "ideal_time": "time at the roof: the least time that its FLOPs and bytes take on this device",
        "peak_time": "time at which the peak was first reached",
        "window": "time from the first step's start to the last step's end; without steps, of all that ran",
        "communication_time": (
            "time inside the window during which the process was in a collective; null if only the"
            " collectives' calls were recorded"
        ),
        "computation_time": (
            "time inside the window during which anything else ran: kernels, or ops if there are no"
            " kernels"
        ),
        "overlap_time": "time inside the window during which communication and computation both ran",
        "waiting_time": "time in collectives beyond the shortest time that any rank spent in each",
        "offset_ns": "amount added to the machine's times to align them",
        "error_ns": (
            "largest possible error of the machine's aligned times, from the rule that no rank leaves"
            " a collective before all have entered it"
        ),
        "spread_ns": "typical time between the ends of one collective on two machines",
        "span": "time that the process recorded",
        "steps_span": "part of span inside steps that ended",
        "steps_time": "part of steps_span that opscope itself took, in all parts; null if no hook is timed",
    },
    "bytes": {
        "bytes": "minimum bytes that must be read and written",
        "bytes_read": "minimum bytes that must be read",
        "bytes_written": "minimum bytes that must be written",
        "shared_memory": "shared memory per block, static and dynamic",
        "peak_memory": "most memory in use at one time",
        "reserved": "most device memory that the allocator reserved at one time",
        "in_use": "memory in use at the end",
        "allocated": "all allocations added up",
        "released": "all releases added up",
        "at_peak": "the op's blocks that were in use at the device's peak",
        "message_bytes": "messages added up, each by the larger of its input and output",
    },
    "FLOP": {
        "matrix_flops": "FLOPs of matrix products, 2 for a multiply-add",
        "vector_flops": "all other FLOPs",
        "flops": "matrix_flops + vector_flops",
        "masked_flops": "part of matrix_flops that a causal or banded mask makes unnecessary",
        "done_flops": "matrix FLOPs of the step, recomputation included",
        "model_flops": "matrix FLOPs of forward and backward, each counted once",
    },
    "FLOP/s": {
        "attained_flops": "FLOPs without those that a mask saves / duration, over work with known FLOPs",
        "attainable_flops": "the roof: the most FLOP/s possible at this intensity on this device",
        "peak": "dense peak of the dtype, summed over the process's devices",
    },
    "bytes/s": {
        "attained_bandwidth": "bytes / duration, over work with known bytes that crosses no link",
        "bus_bandwidth": (
            "minimum bytes that cross each rank's link / the shortest time of a rank in each collective"
        ),
    },
    "FLOP/byte": {"intensity": "FLOPs / bytes, over work for which both are known"},
    "fraction": {
        "attributed_share": "attributed_time / kernel_time",
        "launched_share": "device time that has a launch record / all device time",
        "flops_share": (
            "launched device time whose FLOPs are known / launched device time; of all device time if the"
            " source records no launches"
        ),
        "kernel_flops_share": "flops_share of kernels alone, without copies and sets, which compute nothing",
        "bytes_share": "launched device time whose bytes are known / launched device time",
        "own_share": "own_time / the time recorded",
        "own_steps_share": "part of own_time inside steps / the steps' time",
        "share": "time of the row / time of all rows",
        "running": "sum of share over this row and all rows above it",
        "efficiency": "ideal_time / duration, over work that has a roof; 1 is the roof",
        "rated": "part of the duration that has a roof",
        "over": "part of the rated duration in calls above their roof",
        "mfu": "model FLOPs utilization: model_flops / (time · peak); null if the peak is not known",
        "hfu": "hardware FLOPs utilization: done_flops / (time · peak)",
        "known": (
            "part of the step's kernel time whose FLOPs are known; below 1, mfu and hfu are lower"
            " bounds"
        ),
        "communication_share": "communication_time / window",
        "overlap": "part of all communication, also outside the window, during which something else ran",
    },
    "1/s": {
        "throughput": "runs / wall_time",
    },
    "ppm": {"drift_ppm": "how much slower the machine's clock runs than the first machine's"},
    "count": {
        "runs": "runs over which the times were taken",
        "window_steps": "steps inside the captured window",
        "steps": "training steps seen",
        "processes": "processes seen",
        "devices": "devices used",
        "kernels": "kernel executions",
        "copies": "copies and sets",
        "files": "files given",
        "files_read": "files that could be read",
        "depth": "number of ops around it",
        "registers": "registers per thread",
        "calls": "number of executions: calls of an op, executions of a kernel",
        "shapes": "number of different inputs of the op; the row shows the inputs with most of its time",
        "layers": "number of layers; the row shows the layer with most of its time",
        "sources": "number of source lines; the row shows the line with most of its time",
        "ops": "number of ops; the row shows the op with most of its time",
        "serving": "kernels that only support another kernel, such as a split-K reduction",
        "main": "kernels that do the op's own work",
        "allocations": "allocations seen",
        "collectives": "collectives, sends and receives",
        "size": "ranks of the group; for a mesh, ranks along this dimension",
        "world_size": "ranks of the job",
        "how_many": "number of records that the note is about",
    },
    "number": {
        "op_id": "id of the op's range in the trace; null if there is no op",
        "parent_id": "op_id of the op around it",
        "forward_op_id": "op_id of the forward op whose gradient this op computes",
        "process": "the process's number in this profile",
        "thread": "the thread's number in its process",
        "device": "the device's number in its process; -1 is the CPU",
        "context": "the CUDA context",
        "stream": "the CUDA stream",
        "correlation": "the CUPTI correlation id, which links it to its launch within the process",
        "graph": "the CUDA graph that replayed it",
        "graph_node": "its node in the CUDA graph",
        "replay": (
            "the CUDA call that replayed its CUDA graph, by its index among the trace's calls; -1"
            " outside CUDA graphs"
        ),
        "peer": "the other device of a copy between two devices",
        "seq": "PyTorch's autograd sequence number",
        "step": "the step's number",
        "rank": "the process's rank in the job",
        "global_rank": "the process's rank in the job",
        "first_rank": "lowest rank on the machine",
        "mesh": "the mesh's number in its process",
        "index": "number of the mesh dimension",
        "coordinate": "the process's coordinate along the dimension",
        "one_in": (
            "N if one call in N was timed; null if the time is the number of calls times the usual cost"
            " of a call"
        ),
    },
    "text": {
        "engine": "the TensorRT engine: the name of its files, or the one that the program gave it",
        "layer_type": "TensorRT's layer type, which says how the layer is computed",
        "role": (
            "compute, reformat, quantize, dequantize, no-op, constant or plugin; null if the engine gives"
            " names only"
        ),
        "precision": "dtype of the layer's first input; tf32 if the tactic's name says so",
        "formats": (
            "arrangement of the inputs -> of the outputs: linear, NHWC8, NC/32HW32; null if not stated"
        ),
        "tactic": "the tactic's name: the kernel, or the family of kernels, that computes it",
        "origins": "layers of the original network that it computes",
        "measure": (
            "as trtexec calls it: Latency, Enqueue Time, H2D Latency, GPU Compute Time, D2H Latency"
        ),
        "measured": (
            "recorded: computed from the runs of a timing file, without those that warm up; stated: by"
            " trtexec's summary"
        ),
        "op": "the op, by its framework's name; of several ops, the one with most of the row's time",
        "op_type": "the op's family: gemm, conv, attention …",
        "direction": "forward, backward, optimizer, input or communication",
        "layer": "path of the module that called the op",
        "source": (
            "file and line: the line of the library that defines the model, if any, then the user's"
            " lines, innermost first"
        ),
        "range": "the user's innermost range (annotate, record_function, NVTX)",
        "phase": "input, forward, backward, optimizer, or the program's own name for it",
        "state": "what the thread did: running, or why it was off the CPU; null if not recorded",
        "inputs": "dtypes, shapes and layouts of the inputs, in the notation of range-text.md",
        "outputs": "dtypes, shapes and layouts of the outputs",
        "dtypes": "distinct dtypes of inputs and outputs",
        "params": "scalar parameters by name",
        "reason": "why it has no op, from a closed list; null if it has an op",
        "why": "why the cost is not known",
        "lacks": "which part of the cost is not known: FLOPs, bytes, or both",
        "kind": (
            "kind of work: matrix products, attention …; of several kinds, the one with most of the row's"
            " time"
        ),
        "name": "the kernel's name",
        "grid": "size of the grid: x,y,z",
        "block": "size of the block: x,y,z",
        "src_kind": "kind of memory that is read: device, pinned, pageable, managed, array, host",
        "dst_kind": "kind of memory that is written; values as in src_kind",
        "tc_reason": "why Tensor Cores are not used although they could be",
        "dtype": "dtype of most matrix FLOPs; its peak is used",
        "note": "the cost model's remark on this call",
        "bound": "what limits most of its time: tensor, vector, memory or latency",
        "over_reason": (
            "why it, or most of its calls, is above the roof: cache-resident, timer resolution,"
            " fast algorithm, or modelling error"
        ),
        "region": "the compiled region, by the number of its compilation",
        "fused": "the ops that a generated kernel computes",
        "group": (
            "name of the process group; for a mesh, of the group whose members differ in this"
            " coordinate alone"
        ),
        "members": "ranks of the group: 0-3, 0-6:2 (every second), 0,3,5",
        "ranks": "ranks of the group, in the notation of members",
        "reduction": "how the ranks' values are combined: sum, avg, max …; null if not recorded",
        "backend": "library that carries the group's messages: nccl, gloo …",
        "description": "PyTorch's description of the group's purpose",
        "dimension": "name of the mesh dimension: dp, tp …",
        "host": "the machine's name",
        "method": (
            "how its clock was aligned: same clock, ends of collectives, sends and receives, Unix clocks,"
            " not aligned"
        ),
        "part": "the part of opscope",
        "severity": "info, warning or error",
        "what": "what the reader of the trace found",
    },
    "yes/no": {
        "leaf": "whether no op is inside it",
        "canonical": (
            "whether its FLOPs and bytes count: one op of each nest counts, so that they can be added up"
        ),
        "tensor_core": (
            "whether it, or any of its kernels, uses Tensor Cores (matrix cores on AMD); null if"
            " neither name nor op shows it"
        ),
        "tc_eligible": "whether the op's family could use Tensor Cores in some dtype",
        "tc_ready": "whether this call of the op can use Tensor Cores",
        "inferred": "whether its op was inferred from an order instead of read from the trace",
        "fast_algorithm": "whether a kernel's name shows Winograd or FFT, which need fewer multiplications",
        "over_link": (
            "whether most of its time moved data to or from the host or another device, so that it has no"
            " roof"
        ),
        "incomplete": "whether the trace lacks some of its kernels, so that it has no roof",
    },
}
