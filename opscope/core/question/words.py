"""The vocabulary: the one unit and meaning that a column's name has in the frames of several questions.

A name that one question alone uses stands in that question.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .column import UNITS, Column

_BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "saving_most": "upper bound of what the change would save; null if nothing bounds it",
        "new_wall_time": "time that it would take with the change",
        "saving": "wall_time - new_wall_time; negative if it would take longer",
        "kernel_busy": "time during which at least one kernel ran",
        "a": "mean per step of the first run",
        "b": "mean per step of the second run",
        "median": "median duration of one execution",
        "p90": "90th percentile of the runs, by trtexec's rule",
        "p95": "95th percentile of the runs, by trtexec's rule",
        "p99": "99th percentile of the runs, by trtexec's rule",
        "wall_time": "time from the first event to the last",
        "device_time": (
            "durations of kernels, copies and sets added up, for an op of those that it launched; "
            "without a GPU, self time"
        ),
        "kernel_time": "durations of all kernels added up; without a GPU, device_time",
        "tensor_core_time": "time in kernels that use Tensor Cores (matrix cores on AMD)",
        "tensor_core_undetermined_time": (
            "time in kernels for which neither name nor op shows whether they use Tensor Cores"
        ),
        "start": "time at which it began",
        "end": "time at which it ended",
        "duration": (
            "end - start, added up over the row's executions; for an op, over its kernels, copies and "
            "sets; without a GPU, self time"
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
        "window": (
            "time from the first step's start to the last step's end; without steps, of all that ran"
        ),
        "overlap_time": (
            "time inside the window during which communication and computation both ran"
        ),
        "waiting_time": (
            "time in collectives beyond the shortest time that any rank spent in each"
        ),
        "input_wait": "time in which the thread with the steps waited for input",
        "sampled_time": "time that the samples cover",
        "busy_time": "part of the time in which at least one of them ran",
        "idle_time": "the rest of the time: nothing ran",
        "host_wait": (
            "part of idle_time in gaps whose next work was launched after the one before had ended"
        ),
        "kernel_wait": (
            "part of idle_time in gaps below 30 µs whose next work had been launched in time"
        ),
        "other_wait": (
            "part of idle_time in longer gaps whose next work had been launched in time"
        ),
        "unknown_wait": "part of idle_time whose next work has no launch record",
        "launching_time": "time of the launch calls that launched it",
        "device_self": (
            "durations of the kernels, copies and sets that it launched itself; without a GPU, the "
            "ops' self time; null if none of them was captured"
        ),
        "device_total": "device_self of it and of all that is inside it",
        "host_self": "time on the host without the ops inside; CUDA calls are part of it",
        "host_total": "time on the host with the ops inside",
        "waited": (
            "how long it, or the longest of those that called it, had waited when the recording "
            "ended; null if it ended"
        ),
        "input_phase": "time in which the step waited for its input",
        "forward_phase": "time in the forward pass",
        "backward_phase": "time in the backward pass",
        "optimizer_phase": "time in the optimizer",
        "outside_phases": "time outside these phases",
        "transfer_time": (
            "the shortest time of a rank in each collective, once for each rank in it"
        ),
        "lateness": (
            "how much later it entered than the first rank, in collectives that it entered last"
        ),
        "caused_waiting": ("waiting of the other ranks in the collectives that it entered last"),
        "median_work": (
            "median over its steps of the step's time less the waiting in collectives; null if that "
            "is not known"
        ),
    },
    "number": {
        "number": "the finding's number, 1 for the one that saves most",
        "op_id": "id of the op's range in the trace; null if there is no op",
        "process": "the process's number in this profile",
        "thread": "the thread's number in its process",
        "device": "the device's number in its process; -1 is the CPU",
        "context": "the CUDA context",
        "stream": "the CUDA stream",
        "correlation": (
            "the CUPTI correlation id, which links it to its launch within the process"
        ),
        "graph_node": "its node in the CUDA graph",
        "seq": "PyTorch's autograd sequence number",
        "step": "the step's number",
        "rank": "the process's rank in the job",
        "collective": ("which of the group's collectives it is, as its record or its order says"),
    },
    "text": {
        "detector": "name of the detector",
        "finding": "what the program does, with its figures",
        "device_name": "model of the device",
        "limited_by": (
            "what allows no more blocks on a multiprocessor: block size (its warps), registers, "
            "shared memory, blocks per SM; nothing if all of its warps are occupied"
        ),
        "occupancy_reason": "why the achieved occupancy is not known, from a closed list",
        "engine": (
            "the TensorRT engine: the name of its files, or the one that the program gave it"
        ),
        "measure": (
            "as trtexec calls it: Latency, Enqueue Time, H2D Latency, GPU Compute Time, D2H Latency"
        ),
        "op": (
            "the op, by its framework's name; of several ops, the one with most of the row's time"
        ),
        "op_type": "the op's family: gemm, conv, attention …",
        "direction": "forward, backward, optimizer, input or communication",
        "layer": "path of the module that called the op",
        "source": (
            "file and line: the line of the library that defines the model, if any, then the user's "
            "lines, innermost first"
        ),
        "range": "the user's innermost range (annotate, record_function, NVTX)",
        "phase": "input, forward, backward, optimizer, or the program's own name for it",
        "inputs": ("dtypes, shapes and layouts of the inputs, in the notation of range-text.md"),
        "outputs": "dtypes, shapes and layouts of the outputs",
        "dtypes": "distinct dtypes of inputs and outputs",
        "params": "scalar parameters by name",
        "reason": "why it has no op, from a closed list; null if it has an op",
        "kind": (
            "kind of work: matrix products, attention …; of several kinds, the one with most of the "
            "row's time"
        ),
        "name": "the kernel's name",
        "grid": "size of the grid: x,y,z",
        "block": "size of the block: x,y,z",
        "src_kind": ("kind of memory that is read: device, pinned, pageable, managed, array, host"),
        "dst_kind": "kind of memory that is written; values as in src_kind",
        "dtype": "dtype of most matrix FLOPs; its peak is used",
        "bound": "what limits most of its time: tensor, vector, memory or latency",
        "group": (
            "name of the process group; for a mesh, of the group whose members differ in this "
            "coordinate alone"
        ),
        "members": "ranks of the group: 0-3, 0-6:2 (every second), 0,3,5",
        "part": "the part of opscope",
        "loader": "the data loader, by its class and that of its dataset",
        "verdict": (
            "input-bound (share is above 5 %, also without the longest wait), not input-bound, or "
            "cannot tell"
        ),
        "kernel_sequence": "names of the kernels in order, separated by |",
        "kernel": "the kernel's own name, without template arguments",
        "cause": (
            "local compute, input, launch, or an earlier wait; null if the trace does not show it"
        ),
        "seen_on": (
            "where the phases were seen: host (ranges and ops), device (kernels), or the source "
            "itself states them"
        ),
    },
    "fraction": {
        "saving_share": "saving / wall_time",
        "gpu_utilization": "kernel_busy / the window",
        "sm_efficiency": (
            "estimate: multiprocessors that have a block, from the grids of all kernels that run at "
            "one time, / all multiprocessors; the mean over the window; kernels of unknown grid count "
            "as 0"
        ),
        "achieved_occupancy": (
            "estimate: warps of the blocks that there are for each multiprocessor, at most those that "
            "fit, / warps that it can hold; a mean is weighted by the kernels' time"
        ),
        "theoretical_occupancy": (
            "warps of the blocks that fit on a multiprocessor at one time / warps that it can hold; a "
            "mean is weighted by the kernels' time"
        ),
        "tensor_core_share": "tensor_core_time / the kernels' durations added up",
        "grid_known": (
            "part of the kernels' time whose grid and number of multiprocessors are known"
        ),
        "occupancy_known": "part of the kernels' time whose achieved occupancy is known",
        "tail_share": (
            "estimate: part of all waves' places for blocks that is empty in the last wave; so much "
            "shorter might it be with a full last wave, if all blocks take equally long"
        ),
        "blocks_per_sm": (
            "blocks of the grid / multiprocessors of the device; more than 1 is usual"
        ),
        "waves": (
            "blocks of the grid / blocks that fit on the device at one time; 2.5 are two full waves "
            "and half a wave"
        ),
        "share": "time of the row / time of all rows",
        "efficiency": "ideal_time / duration, over work that has a roof; 1 is the roof",
        "machine": "busy part of all processors of the machine",
        "cores": (
            "processor time of the process / time; 1 is one processor, several threads can use more"
        ),
        "child_cores": "cores of its child processes, sampled once a second",
        "idle_share": "idle_time / the time of the row",
        "over_mean": ("median over the steps of its work / the mean work of all ranks in the step"),
    },
    "count": {
        "sm_count": "multiprocessors of the device (AMD: compute units)",
        "steps_a": "steps of the first run that are compared, of all its processes",
        "steps_b": "likewise of the second",
        "runs": "runs over which the times were taken",
        "steps": "training steps seen",
        "processes": "processes seen",
        "kernels": "kernel executions",
        "copies": "copies and sets",
        "depth": "number of ops around it",
        "registers": "registers per thread",
        "calls": "number of executions: calls of an op, executions of a kernel",
        "layers": "number of layers; the row shows the layer with most of its time",
        "ops": "number of ops; the row shows the op with most of its time",
        "allocations": "allocations seen",
        "collectives": "collectives, sends and receives",
        "size": "ranks of the group; for a mesh, ranks along this dimension",
        "queue_depth": "batches that were ready when the program asked for one",
        "samples": "samples of the processors",
        "launches": "calls that launched work",
        "occurrences": "how often the sequence ran",
        "sequence_length": "kernels, copies and sets of the sequence",
        "compared": "collectives, of each rank, of which at least two ranks' times are known",
        "last": "of those compared, collectives that it alone entered last",
    },
    "bytes": {
        "bytes": "minimum bytes that must be read and written",
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
        "model_flops": "matrix FLOPs of forward and backward, each counted once",
    },
    "FLOP/s": {
        "attained_flops": (
            "FLOPs without those that a mask saves / duration, over work with known FLOPs"
        ),
    },
    "bytes/s": {
        "attained_bandwidth": ("bytes / duration, over work with known bytes that crosses no link"),
        "bus_bandwidth": (
            "minimum bytes that cross each rank's link / the shortest time of a rank in each "
            "collective"
        ),
        "median_bandwidth": "median of the bandwidths of single copies",
    },
    "FLOP/byte": {
        "intensity": "FLOPs / bytes, over work for which both are known",
    },
    "yes/no": {
        "tensor_core": (
            "whether it, or any of its kernels, uses Tensor Cores (matrix cores on AMD); null if "
            "neither name nor op shows it"
        ),
        "tc_eligible": "whether the op's family could use Tensor Cores in some dtype",
        "slow": (
            "whether it is an outlier: modified z-score above 3.5 and at least 5 % above the median; "
            "null for fewer than five steps"
        ),
        "warm_up": (
            "whether it is one of the first, which are slower than the later ones: modified z-score "
            "above 3.5 and at least a fifth above the median of the second half; null for fewer than "
            "five"
        ),
    },
}
NO_WORDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({})
#: The unit and meaning of a column name in every frame that does not say otherwise.
WORDS: Final[Mapping[str, Column]] = MappingProxyType(
    {
        name: Column(name, unit, meaning)
        for unit, meanings in _BY_UNIT.items()
        for name, meaning in meanings.items()
    }
)
assert set(_BY_UNIT) <= set(UNITS), "a unit that is none"


def columns(
    names: str, own: Mapping[str, tuple[str, str]] = NO_WORDS, **otherwise: tuple[str, str]
) -> tuple[Column, ...]:
    """Return the columns with these space-separated names, as defined in ``WORDS``.

    ``otherwise`` gives (unit, meaning) for names that ``WORDS`` lacks or that mean something else here;
    ``own`` those of several frames of a question. Raises KeyError for a name in none.
    """
    otherwise = {**own, **otherwise}
    return tuple(
        Column(name, *otherwise[name]) if name in otherwise else WORDS[name]
        for name in names.split()
    )
