"""The unit and meaning of every column of every frame that a Profile returns.

``WORDS`` gives each column name one unit and one meaning for all frames. The few frames in which a name
means something else override it in ``FRAMES``. Documentation and reports are generated from both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from types import MappingProxyType
from typing import Final

#: Every unit that a column can have, with its explanation.
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ns": "nanoseconds; points in time are on the trace's clock",
        "bytes": "bytes",
        "FLOP": "floating-point operations, 2 for a multiply-add",
        "FLOP/s": "floating-point operations per second",
        "bytes/s": "bytes per second",
        "FLOP/byte": "floating-point operations per byte",
        "fraction": "a part of a whole; 1 is the whole",
        "ppm": "parts per million",
        "1/s": "how many per second",
        "count": "how many there are",
        "number": "an identifier or an index",
        "text": "text",
        "yes/no": "true or false",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A documented column: its name, its unit (one of ``UNITS``) and its meaning."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: the call that returns it (``totals_by("op")``), the meaning of a row, the columns in order."""

    call: str
    row: str
    columns: tuple[Column, ...]

    @property
    def method(self) -> str:
        """The name of the Profile method that returns this frame."""
        return self.call.partition("(")[0]


def _words() -> Iterator[Column]:
    for unit, meanings in _BY_UNIT.items():
        for name, meaning in meanings.items():
            yield Column(name, unit, meaning)


_BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
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
        "saving_least": "lower bound of what the change would save",
        "saving_most": "upper bound of what the change would save; null if nothing bounds it",
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
        "detector": "name of the detector",
        "outcome": "found, cannot tell, or nothing found",
        "finding": "what the program does, with its figures",
        "evidence": "where the program does it: source lines, layers or ops",
        "recommendation": "what to change",
        "reasoning": "how the bounds of the saving were computed",
        "confidence": "how likely the change saves time: high, medium or low",
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
        "method": "how its clock was aligned: same clock, ends of collectives, Unix clocks, not aligned",
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

#: The vocabulary: the unit and meaning of a column name in every frame that does not override it.
WORDS: Final[Mapping[str, Column]] = MappingProxyType({word.name: word for word in _words()})


def columns(names: str, **otherwise: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns with these space-separated names, as defined in ``WORDS``.

    ``otherwise`` gives (unit, meaning) for names that ``WORDS`` lacks or that mean something else here.
    Raises KeyError for a name in neither.
    """
    return tuple(
        Column(name, *otherwise[name]) if name in otherwise else WORDS[name]
        for name in names.split()
    )


_COST = "matrix_flops vector_flops flops bytes"
_CALL = "inputs outputs dtypes params"
_RUN = "process device context stream start end duration"
_LAUNCHED = f"call_start call_end op_id op op_type direction seq layer step source range {_CALL}"
_SUMS = "device_time share running calls kernels self_time cpu_time flops bytes reason"
_RATES = (
    "attained_flops attained_bandwidth intensity ideal_time efficiency rated over bound over_reason"
)
_RATED = f"calls duration matrix_flops vector_flops bytes {_RATES}"

_NO_TIME = ("text", "why the device time is not known; null if it is known")
_OP_KERNELS = ("count", "kernels that the op and the ops inside it launched")
_KERNEL_S_OP = ("text", "the op that the kernel most often belongs to")
_OF_DEVICE = ("fraction", "time / all device time")
_BY_TIME = "one row per {}, by device time; time without an op is one row per reason"


def _totals(by: str, key: str, row: str, usual: str) -> Frame:
    return Frame(f'totals_by("{by}")', _BY_TIME.format(row), columns(f"{key} kind {usual} {_SUMS}"))


def _rated(by: str, row: str) -> Frame:
    return Frame(
        f'efficiency("{by}")', f"one row per {row}, by duration", columns(f"{by} {_RATED}")
    )


def _frames() -> Iterator[Frame]:
    yield Frame(
        "summary()",
        "one row: the whole profile",
        columns(
            "wall_time device_time device_attributed_time device_unattributed_time window_time window_steps"
            " device_busy kernel_time attributed_time unattributed_time attributed_share launched_share"
            " flops_share kernel_flops_share bytes_share tensor_core_time tensor_core_undetermined_time"
            " steps processes devices kernels copies files files_read own_time own_share own_steps_share",
            device_time=(
                "ns",
                "durations of all kernels, copies and sets added up; without a GPU, the ops' self time plus"
                " the threads' time inside steps but outside any op",
            ),
        ),
    )
    yield Frame(
        "ops()",
        "one row per op instance",
        columns(
            "op_id parent_id depth leaf canonical process thread device start end cpu_time self_time"
            " device_time op op_type direction seq forward_op_id layer step source range"
            f" {_CALL} {_COST} kernels reason",
            device=("text", "the device named in the call: cpu, cuda:0 …"),
            device_time=(
                "ns",
                "durations of the kernels, copies and sets that the op and the ops inside it launched;"
                " without a GPU, self_time; null if they were not captured",
            ),
            kernels=_OP_KERNELS,
            reason=_NO_TIME,
        ),
    )
    yield Frame(
        "kernels()",
        "one row per kernel execution; an op's FLOPs and bytes are divided among its kernels by duration",
        columns(
            f"{_RUN} name correlation grid block registers shared_memory graph graph_node {_LAUNCHED}"
            f" {_COST} tensor_core tc_eligible tc_ready tc_reason reason inferred",
        ),
    )
    yield Frame(
        "memops()",
        "one row per copy or set",
        columns(
            f"{_RUN} kind src_kind dst_kind peer bytes correlation graph_node {_LAUNCHED} reason",
            kind=("text", "direction of a copy: HtoD, DtoH, DtoD, HtoH, PtoP …; memset for a set"),
            bytes=("bytes", "bytes copied or set"),
        ),
    )
    yield Frame(
        "op_totals()",
        "one row per distinct op (name, direction, layer, source line, inputs, outputs, parameters),"
        " by device time",
        columns(
            f"op op_type direction layer source {_CALL} calls kernels cpu_time self_time device_time {_COST}"
            " share reason",
            reason=_NO_TIME,
        ),
    )
    yield Frame(
        "kernel_totals()",
        "one row per kernel name, by time",
        columns(
            "name calls total mean min max share op tensor_core flops bytes",
            op=_KERNEL_S_OP,
        ),
    )
    yield Frame(
        "kinds()",
        "one row per kind of work, op and direction; per kernel name if the op does not give the kind",
        columns(
            "kind op direction name reason device_time calls",
            name=("text", "the kernel's name if it decides the kind; else null"),
            calls=("count", "kernels; without a GPU, calls of the op"),
        ),
    )
    yield Frame(
        'totals_by("kind")',
        "one row per kind of work, by device time",
        columns(
            "kind device_time share running calls op ops",
            op=(
                "text",
                "the op with most of the row's time; a kernel's name or a reason if no op is known",
            ),
            calls=("count", "kernels; without a GPU, calls of the ops"),
        ),
    )
    yield _totals(
        "op", "op direction", "op and direction", "inputs layer source shapes layers sources"
    )
    yield _totals("layer", "layer", "layer", "op source ops sources")
    yield _totals("source", "source", "source line", "op layer ops layers")
    yield _totals("dtype", "dtypes", "set of dtypes", "op layer ops layers")
    yield Frame(
        "range_totals()",
        "one row per user range: what ran with this range as the innermost; range is null for what ran"
        " outside all ranges",
        columns(
            "range device_time share calls kernels copies matrix_flops vector_flops flops bytes",
            calls=("count", "kernels, copies and sets; without a GPU, ops"),
        ),
    )
    yield Frame(
        "unattributed()",
        "one row per reason why device time has no op",
        columns(
            "reason kernels copies kernel_time time share",
            time=(
                "ns",
                "device time without an op; adds up to the summary's device_unattributed_time",
            ),
            kernel_time=("ns", "part of time spent in kernels"),
            share=_OF_DEVICE,
        ),
    )
    yield Frame(
        "gaps()",
        "one row per reason, user range, phase and thread state of device time without an op",
        columns(
            "reason range phase state kernels copies time share",
            time=(
                "ns",
                "device time without an op; adds up to the summary's device_unattributed_time",
            ),
            share=_OF_DEVICE,
        ),
    )
    yield Frame(
        "missing_costs()",
        "one row per op whose FLOPs or bytes are not known, by device time",
        columns(
            "op op_type lacks calls time share why",
            op=(
                "text",
                "the op; for a compiled region its name, for a kernel without an op the kernel's name",
            ),
            calls=("count", "kernels, copies and sets; without a GPU, calls of the op"),
            time=("ns", "their device time; without a GPU, self time"),
            share=(
                "fraction",
                "time / device time that has a launch record; without a GPU, time / self time of all ops",
            ),
        ),
    )
    yield Frame("efficiency()", "one row per execution of a canonical op", _EACH_RATED)
    yield _rated("op", "op name")
    yield Frame(
        'efficiency("kernel")',
        "one row per kernel name, by duration",
        columns(f"name op {_RATED}", op=_KERNEL_S_OP),
    )
    yield _rated("layer", "layer")
    yield _rated("direction", "direction")
    yield _rated("step", "step")
    yield _rated("range", "user range")
    yield Frame(
        "utilization()",
        "one row per step and process",
        columns(
            "step process time done_flops model_flops dtype peak mfu hfu known",
            time=("ns", "wall time of the step"),
        ),
    )
    yield Frame(
        "compiled()",
        "one row per torch.compile region, direction, and kernel or op that ran in it",
        columns(
            "region direction name fused source calls time share",
            name=("text", "the kernel's name; without a GPU, the op that the region's code called"),
            time=("ns", "device time; without a GPU, the op's time on the host"),
            share=("fraction", "time / the region's time in that direction"),
        ),
    )
    yield Frame(
        "memory()",
        "one row per process and device: the peak of memory in use",
        columns(
            "process device peak_memory peak_time reserved in_use allocated released allocations",
        ),
    )
    yield Frame(
        "memory_by_op()",
        "one row per process, device and op that allocated memory",
        columns(
            "process device at_peak share op direction layer source allocations bytes reason",
            share=("fraction", "at_peak / the device's peak"),
            bytes=("bytes", "sum of everything that the op allocated"),
        ),
    )
    yield Frame(
        "communication()",
        "one row per process that ran kernels or collectives",
        columns(
            "process rank window communication_time communication_share computation_time overlap_time overlap"
            " collectives message_bytes waiting_time"
        ),
    )
    yield Frame(
        "collectives()",
        "one row per process group, kind of collective, dtype and reduction, over all ranks, by time",
        columns(
            "kind group members size dtype reduction calls message_bytes time waiting_time bus_bandwidth",
            kind=("text", "kind of collective: all_reduce, all_gather, send …"),
            dtype=("text", "dtype of the messages"),
            calls=("count", "collectives, each counted once per rank seen in it"),
            time=("ns", "time in these collectives, all ranks added up"),
        ),
    )
    yield Frame(
        "groups()",
        "one row per process and process group of which it is a member",
        columns(
            "process group rank size ranks global_rank world_size backend description",
            rank=("number", "the process's rank within the group"),
        ),
    )
    yield Frame(
        "meshes()",
        "one row per process and dimension of a DeviceMesh",
        columns(
            "process mesh index dimension size coordinate group device",
            device=("text", "kind of device: cuda, cpu"),
        ),
    )
    yield Frame(
        "clocks()",
        "one row per machine: how its clock was aligned with the first machine's",
        columns(
            "host processes first_rank method offset_ns drift_ppm error_ns spread_ns collectives",
            collectives=("count", "collectives used to align the clock"),
        ),
    )
    yield Frame(
        "engine_layers()",
        "one row per layer of a TensorRT engine, in the engine's order",
        columns(
            "process engine layer op layer_type role precision mean median share total runs inputs outputs"
            " formats tactic origins matrix_flops vector_flops flops bytes attained_flops"
            " attained_bandwidth efficiency bound reason",
            layer=("text", "the layer's name in the engine"),
            op=("text", "the layer's kind: TensorRT's parameter type, else its layer type"),
            mean=("ns", "mean time of one run of the layer; null if nothing timed it"),
            median=("ns", "median time of one run of the layer"),
            share=("fraction", "total / the total of all layers of the engine"),
            total=("ns", "time of all runs added up"),
            matrix_flops=("FLOP", "part of flops in products and convolutions, of one run"),
            vector_flops=("FLOP", "part of flops in other operations, of one run"),
            flops=("FLOP", "operations of one run"),
            bytes=("bytes", "minimum bytes of one run, weights included"),
            attained_flops=("FLOP/s", "flops / mean"),
            attained_bandwidth=("bytes/s", "bytes / mean"),
            efficiency=("fraction", "time at the roof / time taken"),
            reason=("text", "why flops is null"),
        ),
    )
    yield Frame(
        "engine_runs()",
        "one row per measure of a TensorRT engine's runs, and where it comes from",
        columns(
            "process engine measure measured runs min max mean median p90 p95 p99 total wall_time throughput",
            runs=("count", "runs that count"),
            min=("ns", "shortest of the runs"),
            max=("ns", "longest of the runs"),
            mean=("ns", "mean of the runs"),
            median=("ns", "median of the runs"),
            total=("ns", "all runs added up"),
            wall_time=(
                "ns",
                "from the first run's start to the last run's end, on the host's clock",
            ),
        ),
    )
    yield Frame(
        "advice()",
        "one row per finding, by the most that it may save; then one per detector that cannot tell or"
        " found nothing",
        columns(
            "detector outcome finding evidence recommendation time saving_least saving_most reasoning"
            " confidence reason",
            time=("ns", "the time that the finding is about"),
            reason=("text", "why the detector cannot tell"),
        ),
    )
    yield Frame(
        "own_costs()",
        "one row per process and part of opscope: the part's own cost while it recorded",
        columns(
            "process part time calls one_in span steps_span steps_time",
            time=("ns", "time that this part took; parts do not overlap"),
        ),
    )
    yield Frame(
        "notes()",
        "one row per remark of the reader of the trace",
        columns("severity what how_many"),
    )


_EACH_RATED: Final = columns(
    "op_id op inputs direction layer step range replay duration tensor_core fast_algorithm kernels"
    " serving main over_link matrix_flops vector_flops masked_flops bytes bytes_read bytes_written dtype note"
    " intensity attained_flops attained_bandwidth attainable_flops ideal_time efficiency bound over_reason"
    " incomplete",
    kernels=("count", "kernels, copies and sets of this execution"),
    attained_flops=("FLOP/s", "(matrix_flops - masked_flops + vector_flops) / duration"),
    attained_bandwidth=("bytes/s", "bytes / duration"),
    intensity=("FLOP/byte", "(matrix_flops - masked_flops + vector_flops) / bytes"),
)

#: Every frame that a Profile returns, by the call that returns it.
FRAMES: Final[Mapping[str, Frame]] = MappingProxyType({frame.call: frame for frame in _frames()})


def describe(facade: type) -> None:
    """Append the columns of the returned frames to the docstring of each method of ``facade``."""
    for frame in FRAMES.values():
        method = getattr(facade, frame.method)
        if method.__doc__ is None:  # python -OO
            continue
        wide = max(len(column.name) for column in frame.columns)
        lines = [f"    {one.name:<{wide}}  {one.unit}: {one.meaning}" for one in frame.columns]
        pieces = (cleandoc(method.__doc__), "", f"``{frame.call}``: {frame.row}.", "", *lines)
        method.__doc__ = "\n".join(pieces)
