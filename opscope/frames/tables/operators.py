"""The frames of operators, modules and the call tree."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_TIMES = "device_self share device_total device_mean host_self host_total host_mean kernels"
_CORES = (
    "tc_eligible tensor_core_self tensor_core_total tensor_core_time tensor_core_undetermined_time"
)
_OPERATOR = f"op_type calls uncaptured {_TIMES} {_CORES} reason"
_OF_SELF = ("fraction", "device_self / device_self of all rows")
_OF_TOTAL = ("fraction", "device_total / device_total of the first row")
_KERNELS = ("count", "kernels that it launched itself")
_ELIGIBLE = (
    "yes/no",
    "whether the op, or one inside it, could use Tensor Cores in some dtype; null for an unknown op",
)
_OPS_OWN = ("text", "the op's name")
_DEPTH = ("count", "number of rows around it")


def _operators(by: str, row: str) -> Frame:
    return Frame(
        f'operators("{by}")' if by else "operators()",
        f"one row per {row}, by device time of its own; time without an op is one row per reason",
        columns(
            f"op {by} {_OPERATOR}".replace("  ", " "),
            op=_OPS_OWN,
            share=_OF_SELF,
            kernels=_KERNELS,
            tc_eligible=_ELIGIBLE,
            tensor_core_time=("ns", "part of device_self in kernels that use Tensor Cores"),
            tensor_core_undetermined_time=(
                "ns",
                "part of device_self in kernels of which neither name nor op shows whether they use"
                " Tensor Cores",
            ),
        ),
    )


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield _operators("", "op name")
    yield _operators("inputs", "op name and inputs")
    yield _operators("source", "op name and call stack")
    yield Frame(
        "modules()",
        "one row per module, after the module around it, by device time; then what ran outside any",
        columns(
            "module_id parent_module depth module layer module_type row_kind inside module_calls call_time"
            " device_self device_total share forward_part backward_part rest_part host_self host_total"
            " kernels flops bytes allocated at_peak",
            depth=_DEPTH,
            layer=("text", "path of the module; null for rows that are none"),
            share=_OF_TOTAL,
            host_self=("ns", "time on the host in ops that it called itself, in any direction"),
            host_total=("ns", "host_self of it and of the modules inside it"),
            device_self=(
                "ns",
                "durations of the kernels, copies and sets of the ops that it called itself; without a"
                " GPU, their self time; null if they were not captured",
            ),
            kernels=("count", "kernels of it and of the modules inside it"),
            flops=("FLOP", "FLOPs of it and of the modules inside it, as far as they are known"),
            bytes=("bytes", "minimum bytes moved by it and the modules inside it, as far as known"),
            allocated=("bytes", "memory allocated by it and the modules inside it, added up"),
            at_peak=(
                "bytes",
                "blocks of it and of the modules inside it in use at the device's peak",
            ),
        ),
    )
    yield Frame(
        "call_tree()",
        "one row per path of frames, after the path around it, by time",
        columns(
            "path_id parent_path depth frame frame_kind calls merged host_self host_total device_self"
            " device_total stack",
            depth=_DEPTH,
            calls=("count", "ranges or kernels of this path"),
            host_self=("ns", "time on the host without the frames inside"),
            host_total=("ns", "host_self of it and of the frames inside it"),
            device_self=(
                "ns",
                "durations of the kernels or copies of this path; without a GPU, the ops' self time;"
                " null if they were not captured",
            ),
        ),
    )
    statistics = "op_type calls total mean share"
    device = (
        "ns",
        "device time of all calls, a nest's at the op that counts; without a GPU, self time",
    )
    mean = ("ns", "mean device time of one call")
    yield Frame(
        'operator_statistics("type")',
        "one row per op name, by time; time without an op is one row per reason",
        columns(f"op {statistics} operators reason", op=_OPS_OWN, total=device, mean=mean),
    )
    yield Frame(
        'operator_statistics("operator")',
        "one row per op, direction, layer and node, by time; time without an op is one row per reason",
        columns(
            f"op direction layer operator {statistics} reason", op=_OPS_OWN, total=device, mean=mean
        ),
    )
    yield Frame(
        "kernel_activities()",
        "one row per kernel name and op that launched it, by time",
        columns("name op calls total mean max min share", op=("text", "the op that launched it")),
    )
