"""The frames of ops, kernels, totals, costs, memory and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

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


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
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
            "process device peak_memory peak_time reserved in_use allocated released allocations"
            " peak_reserved peak_unused most_unused unpaired",
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
            "kind group members size dtype reduction calls present partial message_bytes time waiting_time"
            " bus_bandwidth",
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
            collectives=("count", "collectives, or messages, used to align the clock"),
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
