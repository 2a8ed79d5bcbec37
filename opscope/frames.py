"""The columns of every frame that a Profile returns: unit and meaning, in one place.

``WORDS`` is the vocabulary: a column's name has one unit and one meaning wherever it stands. The few
frames that use a name otherwise say so themselves, in ``FRAMES``. Documentation and reports read both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from types import MappingProxyType
from typing import Final

#: Every unit a column may have, and how to read it.
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ns": "nanoseconds; points in time are on the trace's clock",
        "bytes": "bytes",
        "FLOP": "floating-point operations, 2 for a multiply-add",
        "FLOP/s": "floating-point operations per second",
        "bytes/s": "bytes per second",
        "FLOP/byte": "floating-point operations per byte",
        "fraction": "a share; 1 is all",
        "ppm": "millionths",
        "count": "a number of things",
        "number": "an identifier or a place in an order",
        "text": "text",
        "yes/no": "true or false",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A documented column: its name, its unit (one of ``UNITS``), what it means."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: the call that returns it (``totals_by("op")``), what one row is, its columns in order."""

    call: str
    row: str
    columns: tuple[Column, ...]

    @property
    def method(self) -> str:
        """The method of Profile."""
        return self.call.partition("(")[0]


def _words() -> Iterator[Column]:
    for unit, meanings in _BY_UNIT.items():
        for name, meaning in meanings.items():
            yield Column(name, unit, meaning)


_BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "wall_time": "time from the first event to the last",
        "device_time": (
            "time of kernels, copies and sets, of an op those that it launched; without a GPU,"
            " self time"
        ),
        "device_attributed_time": "device_time whose op is known",
        "device_unattributed_time": "device_time whose op is not known; both add up to device_time exactly",
        "window_time": (
            "time during which kernels were captured, where that is a window of a longer run;"
            " else null"
        ),
        "device_busy": (
            "time in which at least one kernel, copy or set ran, summed over devices; without a"
            " GPU, an op, summed over processes"
        ),
        "kernel_time": "durations of all kernels added up; without a GPU, device_time",
        "attributed_time": "kernel_time whose op is known",
        "unattributed_time": "kernel_time whose op is not known; both add up to kernel_time exactly",
        "tensor_core_time": "time in kernels that use Tensor Cores (matrix cores on AMD)",
        "tensor_core_undetermined_time": (
            "time in kernels of which neither name nor op says whether they use Tensor Cores"
        ),
        "own_time": "time that opscope itself took while it recorded: all parts, threads and processes",
        "start": "when it began",
        "end": "when it ended",
        "duration": (
            "end - start of what ran, added up; of an op its kernels, copies and sets, without a"
            " GPU self time"
        ),
        "call_start": "when the CUDA call that launched it began",
        "call_end": "when the CUDA call that launched it ended",
        "cpu_time": "time on the host between begin and end of the op",
        "self_time": "time on the host less that of the ops inside it",
        "time": "time of the row",
        "total": "durations of all executions added up",
        "mean": "the mean duration",
        "min": "the shortest duration",
        "max": "the longest duration",
        "ideal_time": "time at the roof: the least that its FLOPs and bytes take on this device",
        "peak_time": "when the peak was reached for the first time",
        "window": "from the first step's start to the last one's end; without steps, all that ran",
        "communication_time": (
            "time inside the window during which the process was in a collective; null where only"
            " calls were seen"
        ),
        "computation_time": (
            "time inside the window during which anything else ran: kernels, or ops where there"
            " are none"
        ),
        "overlap_time": "time inside the window of both at once",
        "waiting_time": "time in collectives beyond that of the rank that spent least in each",
        "offset_ns": "what was added to its times",
        "error_ns": "how far its times may be off at most: no rank leaves a collective before all entered it",
        "spread_ns": "the usual time between the ends of one collective on two machines",
        "saving_least": "the least that the change would save",
        "saving_most": "the most that the change would save; null where nothing bounds it",
        "span": "time that the process recorded",
        "steps_span": "part of span inside steps that ended",
        "steps_time": "part of steps_span that was opscope's own, all parts together",
    },
    "bytes": {
        "bytes": "bytes that must at least be read and written",
        "bytes_read": "bytes that must at least be read",
        "bytes_written": "bytes that must at least be written",
        "shared_memory": "shared memory of a block, static and dynamic",
        "peak_memory": "the most that was in use at one time",
        "reserved": "the most that the allocator held of the device's memory",
        "in_use": "what was in use at the end",
        "allocated": "all allocations added up",
        "released": "all releases added up",
        "at_peak": "the op's blocks that were in use at the device's peak",
        "message_bytes": "messages added up, each the larger of what goes in and what comes out",
    },
    "FLOP": {
        "matrix_flops": "FLOPs of matrix products, 2 for a multiply-add",
        "vector_flops": "all other FLOPs",
        "flops": "matrix_flops + vector_flops",
        "masked_flops": "part of matrix_flops that a causal or banded mask makes needless",
        "done_flops": "matrix FLOPs of the step, recomputation included",
        "model_flops": "matrix FLOPs of forward and backward, each once",
    },
    "FLOP/s": {
        "attained_flops": "FLOPs / duration, of what has known FLOPs",
        "attainable_flops": "the roof: the most FLOP/s at this intensity on this device",
        "peak": "dense peak of the dtype, of the process's devices together",
    },
    "bytes/s": {
        "attained_bandwidth": "bytes / duration, of what has known bytes and crosses no link",
        "bus_bandwidth": "what crosses each rank's link at least, by the shortest time in each collective",
    },
    "FLOP/byte": {"intensity": "FLOPs / bytes, of what has both"},
    "fraction": {
        "attributed_share": "attributed_time / kernel_time",
        "launched_share": "device time that has a launch record / all device time",
        "flops_share": "launched device time whose FLOPs are known / launched device time",
        "kernel_flops_share": "the same among kernels alone: without copies and sets, which compute nothing",
        "bytes_share": "launched device time whose bytes are known / launched device time",
        "own_share": "own_time / the time recorded",
        "own_steps_share": "part of own_time that fell into steps / the steps' time",
        "share": "time of the row / time of all rows",
        "running": "the shares of this row and of all above it, added up",
        "efficiency": "ideal_time / duration of what is rated; 1 is the roof",
        "rated": "part of the duration that has a roof",
        "over": "part of the rated duration in calls above their roof",
        "mfu": "model FLOPs utilization: model_flops / (time · peak); null where the peak is not known",
        "hfu": "hardware FLOPs utilization: done_flops / (time · peak)",
        "known": (
            "part of the step's kernel time whose FLOPs are known; below 1, mfu and hfu are lower"
            " bounds"
        ),
        "communication_share": "communication_time / window",
        "overlap": "part of all communication, outside the window too, during which something else ran",
    },
    "ppm": {"drift_ppm": "how much slower its clock runs than the first machine's"},
    "count": {
        "window_steps": "steps that lie in the captured window",
        "steps": "training steps seen",
        "processes": "processes seen",
        "devices": "devices used",
        "kernels": "kernel executions",
        "copies": "copies and sets",
        "files": "files given",
        "files_read": "files that could be read",
        "depth": "how many ops are around it",
        "registers": "registers of a thread",
        "calls": "how often it ran: calls of an op, executions of a kernel",
        "shapes": "different inputs the op was called with; the row shows those with most of its time",
        "layers": "layers; the row shows the one with most of its time",
        "sources": "source lines; the row shows the one with most of its time",
        "ops": "ops; the row shows the one with most of its time",
        "serving": "kernels that only serve another, such as a split-K reduction",
        "main": "kernels that do the op's own work",
        "allocations": "allocations seen",
        "collectives": "collectives, sends and receives",
        "size": "ranks of the group; of a mesh, along this dimension",
        "world_size": "ranks of the job",
        "how_many": "records that it is about",
    },
    "number": {
        "op_id": "the op's range in the trace; null where there is no op",
        "parent_id": "op_id of the op around it",
        "forward_op_id": "op_id of the forward op whose gradient this computes",
        "process": "the process's number in this profile",
        "thread": "the thread's number in its process",
        "device": "the device's number in its process; -1 is the CPU",
        "context": "the CUDA context",
        "stream": "the CUDA stream",
        "correlation": "the CUPTI correlation id, which ties it to its launch within the process",
        "graph": "the CUDA graph that it was replayed from",
        "graph_node": "the CUDA graph's node",
        "replay": (
            "the CUDA call that replayed the CUDA graph it is in, by its place among the calls;"
            " -1 outside of CUDA graphs"
        ),
        "peer": "the other device of a copy between two",
        "seq": "PyTorch's autograd sequence number",
        "step": "the step's number",
        "rank": "the process's rank among all",
        "global_rank": "the process's rank among all",
        "first_rank": "the lowest rank on the machine",
        "mesh": "the mesh's number in its process",
        "index": "which dimension of the mesh it is",
        "coordinate": "where along the dimension the process lies",
        "one_in": "one call in so many was timed; null: calls times the usual cost of one",
    },
    "text": {
        "op": (
            "the operator, named as its framework names it; of several, the one with most of the"
            " row's time"
        ),
        "op_type": "the op's family: gemm, conv, attention …",
        "direction": "forward, backward, optimizer, input or communication",
        "layer": "path of the module that called the op",
        "source": (
            "file and line: of the library that holds the model if any, then the user's,"
            " innermost first"
        ),
        "range": "the user's innermost range (annotate, record_function, NVTX)",
        "phase": "input, forward, backward, optimizer, or as the program calls it",
        "state": "what the thread did: running, or why it was off the CPU; null where it was not recorded",
        "inputs": "dtypes, shapes and layouts of the inputs, in the notation of range-text.md",
        "outputs": "dtypes, shapes and layouts of the outputs",
        "dtypes": "the distinct dtypes of inputs and outputs",
        "params": "scalar parameters by name",
        "reason": "why it has no op, from a closed list; null where it has one",
        "why": "why the cost is not known",
        "lacks": "what is not known of the cost: FLOPs, bytes, or both",
        "kind": "kind of work: matrix products, attention …; of several, the one with most of the row's time",
        "name": "the kernel's name",
        "grid": "the grid's size: x,y,z",
        "block": "the block's size: x,y,z",
        "detector": "the detector that looked",
        "outcome": "found, cannot tell, or nothing found",
        "finding": "what the program does, with its figures",
        "evidence": "where it does so: source lines, layers or ops",
        "recommendation": "what to change",
        "reasoning": "how the bounds of the saving were computed",
        "confidence": "how likely the change saves time: high, medium or low",
        "src_kind": "memory that is read: device, pinned, pageable, managed, array, host",
        "dst_kind": "memory that is written, likewise",
        "tc_reason": "why Tensor Cores are not used, where they could be",
        "dtype": "the dtype of most matrix FLOPs, whose peak is taken",
        "note": "what the cost model remarks on this call",
        "bound": "what binds it, most of its time: tensor, vector, memory or latency",
        "over_reason": (
            "why it, or most of its calls, is above the roof: cache-resident, timer resolution,"
            " fast algorithm, or modelling error"
        ),
        "region": "the compiled region, by the number of its compilation",
        "fused": "the ops that a generated kernel does",
        "group": (
            "the process group's name; of a mesh, the group of those that differ in this"
            " coordinate alone"
        ),
        "members": "ranks of the group: 0-3, 0-6:2 (every second), 0,3,5",
        "ranks": "ranks of the group, written as members are",
        "reduction": "what the ranks' values become: sum, avg, max …; null where it is not recorded",
        "backend": "what carries the group's messages: nccl, gloo …",
        "description": "what PyTorch made the group for",
        "dimension": "the mesh dimension's name: dp, tp …",
        "host": "the machine's name",
        "method": "how its clock was aligned: same clock, ends of collectives, Unix clocks, not aligned",
        "part": "a part of opscope",
        "severity": "info, warning or error",
        "what": "what the reader of the trace found",
    },
    "yes/no": {
        "leaf": "whether no op is inside it",
        "canonical": "whether its FLOPs and bytes count: one op of a nest does, so that they may be added up",
        "tensor_core": (
            "whether it, or any of its kernels, uses Tensor Cores (matrix cores on AMD); null"
            " where neither name nor op says so"
        ),
        "tc_eligible": "whether the op's family could use Tensor Cores in some dtype",
        "tc_ready": "whether the op as it stands can use Tensor Cores",
        "inferred": "whether its op was inferred from an order rather than read from the trace",
        "fast_algorithm": "whether a kernel's name shows Winograd or FFT, which multiply less often",
        "over_link": (
            "whether most of its time moved data to the host or another device, so that it has no"
            " roof"
        ),
        "incomplete": "whether the trace lacks some of its kernels, so that it has no roof",
    },
}

#: The vocabulary: what a column of this name holds, whichever frame it stands in.
WORDS: Final[Mapping[str, Column]] = MappingProxyType({word.name: word for word in _words()})


def columns(names: str, **otherwise: tuple[str, str]) -> tuple[Column, ...]:
    """The columns named, blank-separated, as ``WORDS`` has them; ``otherwise`` gives (unit, meaning) of
    those that are not there, or mean something else here. Raises KeyError for a name that neither has."""
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

_NO_TIME = ("text", "why the device time is not known; null where it is")
_OP_KERNELS = ("count", "kernels that the op and the ops inside it launched")
_KERNEL_S_OP = ("text", "the op that the kernel most often belongs to")
_OF_DEVICE = ("fraction", "time / all device time")
_BY_TIME = "one row per {}, by device time; what has no op is one row per reason"


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
                "durations of all kernels, copies and sets added up; without a GPU, the ops' self time and"
                " thread time inside steps outside any op",
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
            device=("text", "the device that the call names: cpu, cuda:0 …"),
            device_time=(
                "ns",
                "durations of the kernels, copies and sets that the op and the ops inside it launched;"
                " without a GPU, self_time; null where they were not captured",
            ),
            kernels=_OP_KERNELS,
            reason=_NO_TIME,
        ),
    )
    yield Frame(
        "kernels()",
        "one row per kernel execution, with its part, by duration, of its op's FLOPs and bytes",
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
            kind=("text", "HtoD, DtoH, DtoD, HtoH, PtoP … by where it reads and writes; memset"),
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
        "one row per kind of work, op and direction; per kernel name where the op does not say its kind",
        columns(
            "kind op direction name reason device_time calls",
            name=("text", "the kernel's name, where it decides the kind; else null"),
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
                "the op with most of the row's time; a kernel's name, or a reason, where no op is known",
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
        "one row per user range: what ran in it, innermost; the row without a range is what ran in none",
        columns(
            "range device_time share calls kernels copies matrix_flops vector_flops flops bytes",
            calls=("count", "kernels, copies and sets; without a GPU, ops"),
        ),
    )
    yield Frame(
        "unattributed()",
        "one row per reason for which time has no op",
        columns(
            "reason kernels copies kernel_time time share",
            time=("ns", "device time without an op; adds up to the summary's"),
            kernel_time=("ns", "part of time that is kernels'"),
            share=_OF_DEVICE,
        ),
    )
    yield Frame(
        "gaps()",
        "one row per reason, user range, phase and thread state for which time has no op",
        columns(
            "reason range phase state kernels copies time share",
            time=("ns", "device time without an op; adds up to the summary's"),
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
                "the op; a compiled region under its name, a kernel without an op under its own",
            ),
            calls=("count", "kernels, copies and sets; without a GPU, calls of the op"),
            time=("ns", "their device time; without a GPU, self time"),
            share=(
                "fraction",
                "time / device time that has a launch record; without a GPU, / self time of all ops",
            ),
        ),
    )
    yield Frame("efficiency()", "one row per execution of an op that counts", _EACH_RATED)
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
        "one row per torch.compile region, direction and what ran in it",
        columns(
            "region direction name fused source calls time share",
            name=("text", "the kernel's name; without a GPU, the op that the region's code called"),
            time=("ns", "device time; without a GPU, the op's time on the host"),
            share=("fraction", "time / the region's time in that direction"),
        ),
    )
    yield Frame(
        "memory()",
        "one row per process and device: the most memory in use",
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
            bytes=("bytes", "all that the op allocated"),
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
            calls=("count", "collectives, each once for every rank that is seen in it"),
            time=("ns", "time in them, all ranks added up"),
        ),
    )
    yield Frame(
        "groups()",
        "one row per process and process group that it is a member of",
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
        "one row per machine: how its clock was put on the first machine's",
        columns(
            "host processes first_rank method offset_ns drift_ppm error_ns spread_ns collectives",
            collectives=("count", "collectives that the clock was aligned by"),
        ),
    )
    yield Frame(
        "advice()",
        "one row per finding, by the most that it may save; then one per detector that cannot tell or found nothing",
        columns(
            "detector outcome finding evidence recommendation time saving_least saving_most reasoning confidence"
            " reason",
            time=("ns", "the time that the finding is about"),
            reason=("text", "why the detector cannot tell"),
        ),
    )
    yield Frame(
        "own_costs()",
        "one row per process and part of opscope: what it took while it recorded",
        columns(
            "process part time calls one_in span steps_span steps_time",
            time=("ns", "time that this part took; parts do not overlap"),
        ),
    )
    yield Frame(
        "notes()",
        "one row per remark of whatever read the trace",
        columns("severity what how_many"),
    )


_EACH_RATED: Final = columns(
    "op_id op inputs direction layer step range replay duration tensor_core fast_algorithm kernels"
    " serving main over_link matrix_flops vector_flops masked_flops bytes bytes_read bytes_written dtype note intensity"
    " attained_flops attained_bandwidth attainable_flops ideal_time efficiency bound over_reason incomplete",
    kernels=("count", "kernels, copies and sets of this execution"),
    attained_flops=("FLOP/s", "(matrix_flops - masked_flops + vector_flops) / duration"),
    attained_bandwidth=("bytes/s", "bytes / duration"),
    intensity=("FLOP/byte", "(matrix_flops - masked_flops + vector_flops) / bytes"),
)

#: Every frame that a Profile returns, by the call that returns it.
FRAMES: Final[Mapping[str, Frame]] = MappingProxyType({frame.call: frame for frame in _frames()})


def describe(facade: type) -> None:
    """Add to the docstring of each method of ``facade`` the columns of the frames that it returns."""
    for frame in FRAMES.values():
        method = getattr(facade, frame.method)
        if method.__doc__ is None:  # python -OO
            continue
        wide = max(len(column.name) for column in frame.columns)
        lines = [f"    {one.name:<{wide}}  {one.unit}: {one.meaning}" for one in frame.columns]
        said = (cleandoc(method.__doc__), "", f"``{frame.call}``: {frame.row}.", "", *lines)
        method.__doc__ = "\n".join(said)
