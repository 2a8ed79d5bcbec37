"""Which tables each report is made of, and what its columns mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from .suggest import unknown

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

#: A report's name and the frame it is; the order is the order of output.
REPORTS: Final[Mapping[str, Callable[[Profile], pl.DataFrame]]] = {
    "summary": lambda profile: profile.summary(),
    "unattributed": lambda profile: profile.unattributed(),
    "gaps": lambda profile: profile.gaps(),
    "by_kind": lambda profile: profile.totals_by("kind"),
    "by_op": lambda profile: profile.totals_by("op"),
    "by_layer": lambda profile: profile.totals_by("layer"),
    "by_source": lambda profile: profile.totals_by("source"),
    "by_dtype": lambda profile: profile.totals_by("dtype"),
    "range": lambda profile: profile.range_totals(),
    "detail": lambda profile: profile.op_totals(),
    "kernel": lambda profile: profile.kernel_totals(),
    "roofline": lambda profile: profile.efficiency("op"),
    "roofline_kernel": lambda profile: profile.efficiency("kernel"),
    "roofline_layer": lambda profile: profile.efficiency("layer"),
    "roofline_step": lambda profile: profile.efficiency("step"),
    "utilization": lambda profile: profile.utilization(),
    "compiled": lambda profile: profile.compiled(),
    "memory": lambda profile: profile.memory(),
    "memory_by_op": lambda profile: profile.memory_by_op(),
    "communication": lambda profile: profile.communication(),
    "collectives": lambda profile: profile.collectives(),
    "groups": lambda profile: profile.groups(),
    "meshes": lambda profile: profile.meshes(),
    "clocks": lambda profile: profile.clocks(),
    "missing": lambda profile: profile.missing_costs(),
    "own_costs": lambda profile: profile.own_costs(),
    "notes": lambda profile: profile.notes(),
}
#: The report that divides the time by something.
BY: Final[Mapping[str, str]] = {
    "kind": "by_kind",
    "op": "by_op",
    "shape": "detail",
    "layer": "by_layer",
    "source": "by_source",
    "dtype": "by_dtype",
    "range": "range",
    "kernel": "kernel",
}
#: Other spellings that people know.
ALIASES: Final[Mapping[str, str]] = {
    "op": "detail",
    "ops": "detail",
    "kernels": "kernel",
    "missing_costs": "missing",
    "efficiency": "roofline",
    "ranges": "range",
    "mfu": "utilization",
}
#: Units and meaning of the columns that CSV, JSON and Parquet hold; times are ns, sizes bytes.
COLUMNS: Final[Mapping[str, str]] = {
    "wall_time": "ns from the first event to the last",
    "device_attributed_time": "ns of device_time whose op is known",
    "device_unattributed_time": "ns of device_time whose op is not known; with device_attributed_time it is all",
    "device_busy": "ns in which at least one kernel, copy or set ran, summed over devices",
    "kernel_time": "ns, the durations of all kernels added up; without a GPU, the ops' self time",
    "attributed_time": "ns of kernel_time whose op is known",
    "unattributed_time": "ns of kernel_time whose op is not known; with attributed_time it is all",
    "attributed_share": "attributed_time / kernel_time, a fraction of 1",
    "launched_share": "device time that has a launch record / all device time, a fraction of 1",
    "flops_share": "launched device time whose FLOPs are known / launched device time, a fraction of 1",
    "kernel_flops_share": "the same among kernels alone: copies and sets, known to compute nothing, left out",
    "bytes_share": "launched device time whose bytes are known / launched device time, a fraction of 1",
    "tensor_core_time": "ns in kernels that use Tensor Cores",
    "tensor_core_undetermined_time": "ns in kernels of which nothing tells whether they use Tensor Cores",
    "steps": "training steps seen",
    "processes": "processes seen",
    "devices": "devices used",
    "kernels": "kernel executions",
    "copies": "copies and sets",
    "files": "files given",
    "files_read": "files that could be read",
    "own_time": "ns that opscope itself took while it recorded, all its parts, threads and processes",
    "own_share": "own_time / the time recorded, a fraction of 1",
    "own_steps_share": "own_time that fell into steps / the steps' time, a fraction of 1",
    "reason": "why a kernel, a copy, or a block of memory, has no op, or an op no device time, from a closed list",
    "window_time": "ns during which kernels were captured: a window of a long run; null where all was",
    "window_steps": "steps that lie in that window",
    "why": "why the cost is not known",
    "lacks": "what is not known of it: FLOPs, bytes, or both",
    "time": "ns",
    "share": "fraction of 1 of the report's total time",
    "running": "the shares of this row and of all above it, added up",
    "shapes": "how many different inputs the op was called with; the row's inputs have most of its time",
    "layers": "in how many layers; the row's layer has most of its time",
    "sources": "from how many source lines; the row's source has most of its time",
    "ops": "how many ops; the row's op (a kernel's name where none is known) has most of its time",
    "op": "the operator, named as its framework names it",
    "op_type": "the family of the op: gemm, conv, attention …",
    "direction": "forward, backward, optimizer, input or communication",
    "layer": "path of the module that called the op",
    "source": "file and line of a library that holds the model, then of the user's code, innermost first",
    "range": "the innermost range of the user's own (annotate, record_function, NVTX)",
    "phase": "input, forward, backward, optimizer; else what the program calls it",
    "state": "what the thread did, where the trace tells: running, or why it is off the CPU",
    "inputs": "dtypes, shapes and layouts of the inputs, in the notation of range-text.md",
    "outputs": "the same of the outputs",
    "dtypes": "the distinct dtypes of inputs and outputs",
    "params": "scalar parameters by name",
    "calls": "how many times",
    "cpu_time": "ns on the host between begin and end of the op",
    "self_time": "ns on the host less that of the ops inside it",
    "device_time": "ns of the kernels, copies and sets (of an op those that it launched); on a CPU, self time",
    "matrix_flops": "FLOP of matrix products, 2 per multiply-add",
    "vector_flops": "all other FLOP",
    "flops": "matrix_flops + vector_flops",
    "bytes": "bytes that must at least be read and written; of memory, all that was allocated",
    "name": "the kernel's name; in a compiled region on the CPU, what its code called",
    "total": "ns, all executions",
    "mean": "ns, the mean execution",
    "min": "ns, the shortest execution",
    "max": "ns, the longest execution",
    "tensor_core": "whether the kernel uses Tensor Cores; null where neither its name nor its op tells",
    "duration": "ns, the kernels of all its calls",
    "ideal_time": "ns at the roof: the least time for its FLOPs and bytes on this device",
    "efficiency": "ideal_time / duration of what is rated; 1 is the roof",
    "rated": "share of the duration that has a roof",
    "bound": "what binds most of its time: tensor, vector, memory or latency",
    "attained_flops": "FLOP/s over the duration of what has known FLOPs",
    "attained_bandwidth": "bytes/s over the duration of what has known bytes and crosses no link",
    "intensity": "FLOP per byte, of what has both",
    "over": "share of the rated duration in calls above their roof",
    "over_reason": "why most of those are: cache-resident, timer resolution, fast algorithm; else modelling error",
    "step": "the step's number",
    "process": "the process's number in this profile",
    "done_flops": "matrix FLOP of the step, recomputation included",
    "model_flops": "matrix FLOP of forward and backward, each once",
    "dtype": "the dtype of most matrix FLOPs, whose peak is taken",
    "peak": "dense FLOP/s of that dtype, of the process's devices together",
    "mfu": "model FLOPs utilization: model_flops / (time · peak); null where the peak is not known",
    "region": "the compiled region, by the number of its compilation",
    "fused": "the ops that a generated kernel does",
    "peak_memory": "bytes, the most that was in use at one time",
    "peak_time": "ns, when that was for the first time, on the trace's clock",
    "reserved": "bytes, the most that the allocator held of the device's memory",
    "in_use": "bytes in use at the end",
    "allocated": "bytes, all allocations",
    "released": "bytes, all releases",
    "allocations": "how many allocations",
    "at_peak": "bytes of the op's blocks that were in use at the device's peak",
    "hfu": "hardware FLOPs utilization: done_flops / (time · peak)",
    "known": "share of the step's kernel time whose FLOPs are known: below 1, mfu and hfu are at least that",
    "rank": "the process's rank among all (in the groups report: within the group)",
    "window": "ns from the first step's start to the last one's end, else of all that ran",
    "communication_time": "ns inside the window during which the process was in a collective; null where only calls were seen",
    "communication_share": "communication_time / window",
    "computation_time": "ns inside the window during which anything else ran: kernels, or ops where there are none",
    "overlap_time": "ns inside the window of both at once",
    "overlap": "share of all communication, outside the window too, that something else ran beside",
    "collectives": "collectives, sends and receives; in the clocks report those aligned by",
    "message_bytes": "bytes of the messages: of each the larger of what goes in and what comes out",
    "waiting_time": "ns in collectives beyond the rank that spent least in each",
    "kind": "kind of work: matrix products, attention … (reports.md); of a collective all_reduce, all_gather …",
    "group": "the process group's name",
    "reduction": "what the ranks' values become: sum, avg, max …; null where none is told",
    "members": "ranks of the group: 0-3, 0-6:2 (every second), 0,3,5",
    "size": "how many ranks the group, or the mesh along this dimension, has",
    "bus_bandwidth": "bytes/s that cross each rank's link at least, by the shortest time in each collective",
    "ranks": "ranks of the group, as in members",
    "global_rank": "the process's rank among all",
    "world_size": "how many ranks there are in all",
    "backend": "what carries the group's messages: nccl, gloo …",
    "description": "what PyTorch made the group for",
    "mesh": "the mesh's number in its process",
    "index": "which dimension of the mesh it is",
    "dimension": "the dimension's name: dp, tp …",
    "coordinate": "where along the dimension the process lies",
    "device": "kind of device; of memory its number, -1 is the CPU",
    "host": "the machine's name",
    "first_rank": "the lowest rank on this machine",
    "method": "how its clock was aligned: same clock, ends of collectives, Unix clocks, not aligned",
    "offset_ns": "ns added to its times",
    "error_ns": "ns that its times may be off at most: no rank leaves a collective before all entered it",
    "spread_ns": "ns between the ends of one collective on two machines, usually",
    "drift_ppm": "by how much its clock runs slower than the first, in millionths",
    "part": "a part of opscope",
    "one_in": "one call in so many was timed; null: their number times what one takes",
    "span": "ns that the process recorded",
    "steps_span": "ns of them inside steps that ended",
    "steps_time": "ns of these that were opscope's own, all parts together",
    "severity": "info, warning or error",
    "what": "what the reader has to tell",
    "how_many": "how many records it is about",
}


class UnknownReport(ValueError):
    """A report was asked for that does not exist; the message lists those that do."""


def divided(by: str) -> list[str]:
    """The reports that divide the time by each of these (``BY``), comma-separated. Raises UnknownReport."""
    made = []
    for name in filter(None, map(str.strip, by.split(","))):
        if name not in BY:
            raise UnknownReport(f"--by: {unknown('division', name, BY)}")
        made.append(BY[name])
    return made


def resolve(names: Iterable[str]) -> list[str]:
    """The names as ``REPORTS`` has them, in its order. Raises UnknownReport."""
    wanted: set[str] = set()
    for name in names:
        clean = name.strip().lower().replace("-", "_")
        clean = ALIASES.get(clean, clean)
        if clean not in REPORTS:
            raise UnknownReport(unknown("report", name, REPORTS))
        wanted.add(clean)
    return [name for name in REPORTS if name in wanted]


def frames(
    profile: Profile, names: Iterable[str], top: int | None = None
) -> dict[str, pl.DataFrame]:
    """Each named report's frame, the first ``top`` rows of it (None: all), in the order of ``REPORTS``."""
    made = {name: REPORTS[name](profile) for name in resolve(names)}
    return made if top is None else {name: frame.head(top) for name, frame in made.items()}
