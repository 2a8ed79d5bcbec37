"""Collectives: zero model FLOPs, and the bytes that each rank must send and receive.

With n ranks and a buffer of S bytes, a rank sends (and receives) at least the following, as in
nccl-tests' bus bandwidth (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):
all-reduce 2·(n − 1)/n·S; all-gather, reduce-scatter and all-to-all (n − 1)/n·S, S the larger buffer;
broadcast, reduce, send and receive S.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from opscope.core.communication import OPS
from opscope.core.group_specs import group_size
from opscope.core.perf.registry import Cost, op, variant
from opscope.core.perf.shapes import NO_SHAPES, Span, distinct_tensors, lists, numel, outputs
from opscope.core.perf.shapes import cost as cost_of_parts
from opscope.core.schema import Arg, OpCall, SameAs

#: From the number of ranks to the share of S that crosses the wire, as (numerator, denominator).
FACTORS: Final[dict[str, Callable[[int], tuple[int, int]]]] = {
    "all_reduce": lambda n: (2 * (n - 1), n),
    "all_gather": lambda n: (n - 1, n),
    "reduce_scatter": lambda n: (n - 1, n),
    "all_to_all": lambda n: (n - 1, n),
    "one_shot_all_reduce": lambda n: (n - 1, 1),  # every rank reads every other's whole buffer
    "multimem_all_reduce": lambda n: (1, 1),  # the switch does the sum (NVLink SHARP)
    "broadcast": lambda n: (1, 1),
    "reduce": lambda n: (1, 1),
    "gather": lambda n: (n - 1, n),
    "scatter": lambda n: (n - 1, n),
    "send": lambda n: (1, 1),
    "recv": lambda n: (1, 1),
    "send_recv": lambda n: (1, 1),
    "permute": lambda n: (1, 1),
    "barrier": lambda n: (0, 1),
}
_WORDS: Final = (
    (re.compile(r"multimem_(one_shot_)?all_reduce", re.I), "multimem_all_reduce"),
    (re.compile(r"one_shot_all_reduce", re.I), "one_shot_all_reduce"),
    (re.compile(r"reduce[_-]?scatter|^psum_scatter", re.I), "reduce_scatter"),
    (
        re.compile(r"all[_-]?reduce|cross_device_reduce|^p(?:sum|max|min)\b|^psum_inv", re.I),
        "all_reduce",
    ),
    (re.compile(r"all[_-]?gather", re.I), "all_gather"),
    (re.compile(r"all[_-]?(?:to|2)[_-]?all|(?<![a-z0-9])a2a[_-]", re.I), "all_to_all"),
    (re.compile(r"permute", re.I), "permute"),
    (re.compile(r"broadcast", re.I), "broadcast"),
    (re.compile(r"barrier", re.I), "barrier"),
    (re.compile(r"scatter", re.I), "scatter"),
    (re.compile(r"gather", re.I), "gather"),
    (re.compile(r"reduce", re.I), "reduce"),
    # tokens of experts: DeepEP, mori, TensorRT-LLM, pplx
    (
        re.compile(
            r"(?:\bep|(?:[Dd]eep|hybrid)_?(?:ep|EP)|pplx|mori|uccl|A2A|Ep|[Mm]oe_?[Dd]istribute)(?:::|_)?"
            r".*(?:[Dd]ispatch|[Cc]ombine)"
        ),
        "all_to_all",
    ),
    # like NCCL's kernel, these ops serve messages of either direction: the name does not say whether it sends
    # or receives
    (re.compile(r"send_?i?recv|ncclSend\+ncclRecv|ncclRecv\+ncclSend", re.I), "send_recv"),
    (re.compile(r"send|(nccl|nvshmem)_put", re.I), "send"),
    (re.compile(r"recv|receive|(nccl|nvshmem)_get", re.I), "recv"),
)


def collective(text: str) -> str | None:
    """Return the kind of collective in a name (``ncclDevKernel_AllReduce_…``: ``all_reduce``), or None."""
    return next((kind for pattern, kind in _WORDS if pattern.search(text)), None)


def wire_bytes(kind: str, size: int, ranks: int) -> int:
    """Return the bytes that a rank must send; ``size`` is the larger of input and output (bytes)."""
    over, under = FACTORS[kind](max(ranks, 1))
    return size * over // under if ranks > 1 else 0


@op(
    *OPS,
    family="communication",
    source="bytes on the wire per rank: nccl-tests, PERFORMANCE.md",
    variants={"moves_nothing": "*wait* *-done *_wrap_tensor_autograd *Group*", "of_gloo": "gloo:*"},
)
def communicate(call: OpCall) -> Cost:
    """Zero model FLOPs; ``bytes_read`` is what a rank sends, ``bytes_written`` what it receives."""
    named = call.param("Collective name", call.param("collective", call.name))
    kind = collective(str(named))
    if "+" in call.name:
        return _group(call, kind)
    if variant(call, "moves_nothing"):
        return Cost()
    if kind is None:
        return _unknown("the trace does not record which collective it is")
    if variant(call, "of_gloo"):
        return _unknown("its bytes are counted at the op that called it")
    parts = distinct_tensors(call)
    stated = _integer(call, "bytes")
    ranks, note = group_size(call), ""
    if ranks is None and (ranks := _integer(call, "world_size")) is not None:
        note = f"the group is not recorded; all {ranks} ranks are assumed to take part"
    if ranks is None and kind not in _ANY_RANKS:
        return _unknown("the trace does not record how many ranks take part")
    if stated is None and not parts and kind != "barrier":
        return _unknown(NO_SHAPES)
    both = [*parts, *(outputs(call) or [])]
    if stated is not None:
        size = stated * (_shares(call.name, kind, ranks) if ranks else 1)
    else:
        size = buffer_bytes(call) or 0
        if kind in ("all_gather", "reduce_scatter") and len(both) == 1 and ranks:
            size *= ranks if kind == "all_gather" else 1
        if not size and any(numel(t) for t in both):
            return _unknown("the trace gives sizes without element types")
    crossing = Span("u8", wire_bytes(kind, size, ranks or 2))
    sent = [] if kind == "recv" else [crossing]
    received = [] if kind == "send" else [crossing]
    return cost_of_parts(sent, received, note="" if kind in _ANY_RANKS else note)


@op("_c10d_functional::batch_p2p_ops", family="communication", source="each message once")
def batch(call: OpCall) -> Cost:
    """Several messages at once; ``op_list`` says which tensors are sent and which are received."""
    words_, messages = (
        call.param("op_list"),
        [t for tensor_list in lists(call) for t in tensor_list],
    )
    if not isinstance(words_, tuple) or len(words_) != len(messages):
        return _unknown("the trace does not record which messages are sent and which received")
    kinds = [collective(str(word)) for word in words_]
    if not {*kinds} <= {"send", "recv"}:
        return _unknown("the batch has an operation that is neither a send nor a receive")
    pairs = list(zip(kinds, messages, strict=True))
    sent = [message for kind, message in pairs if kind == "send"]
    return cost_of_parts(sent, [message for kind, message in pairs if kind == "recv"])


def buffer_bytes(call: OpCall) -> int | None:
    """Return the bytes of a collective's larger side, input or output, on one rank; None if not known.

    It is the trace's own figure, else the size of the largest tensor or list of tensors among arguments and
    results. XLA combines collectives: an operation of HLO has a buffer for each operand.
    """
    stated = _integer(call, "bytes")
    if stated is not None or call.truncated:
        return stated
    if call.name.startswith(_COMBINED):
        given, results = (_nbytes(call, side) or 0 for side in (call.inputs, call.outputs or ()))
        # a started gathering has its operands among its results
        return max(given, results - given * ("gather-start" in call.name)) or None
    sizes = [_nbytes(call, arg) for arg in (*call.inputs, *(call.outputs or ()))]
    return max((size for size in sizes if size is not None), default=None)


def _nbytes(call: OpCall, value: Arg) -> int | None:
    if isinstance(value, tuple):
        sizes = [_nbytes(call, item) for item in value]
        sizes_known = [size for size in sizes if size is not None]
        return sum(sizes_known) if sizes_known and len(sizes_known) == len(sizes) else None
    if isinstance(value, SameAs):
        leaves = call.input_leaves()
        leaf = leaves[value.index] if 0 <= value.index < len(leaves) else None
        return None if leaf is None else leaf.nbytes
    return None if value is None else value.nbytes


#: Operations of HLO with any number of operands, which each have a buffer of their own.
_COMBINED: Final = ("hlo::all-", "hlo::reduce-scatter", "hlo::collective-broadcast")
#: Kinds whose bytes on the wire do not depend on the number of ranks.
_ANY_RANKS: Final = (
    "broadcast", "reduce", "send", "recv", "send_recv", "permute", "barrier", "multimem_all_reduce",
)  # fmt: skip


def _integer(call: OpCall, *keys: str) -> int | None:
    values = (call.param(key) for key in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool)), None)


def _shares(name: str, kind: str, ranks: int) -> int:
    """Return the factor from NCCL's count to the whole buffer: some collectives count one rank's share."""
    per_rank = kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return ranks if per_rank and name.startswith("nccl") and ":" not in name else 1


def _group(call: OpCall, kind: str | None) -> Cost:
    """The cost of several NCCL calls that one kernel runs: the sum of their sends and receives."""
    names = call.name.split("+")
    if set(names) <= {"ncclSend", "ncclRecv"}:
        if _integer(call, "bytes") is None:
            return _unknown("the trace does not record the messages' sizes")
        sent, received = (Span("u8", _integer(call, key) or 0) for key in ("sent", "received"))
        return cost_of_parts([sent], [received])
    return _unknown(f"the group has several kinds of collectives ({kind} and others)")


def _unknown(reason: str) -> Cost:
    return cost_of_parts(None, None, reason=reason)
