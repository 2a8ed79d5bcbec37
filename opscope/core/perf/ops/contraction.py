"""Contractions of any number of operands: einsum, tensordot, chains of matrices."""

from __future__ import annotations

import re

from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import (
    as_ints,
    cost,
    distinct_tensors,
    ints_param,
    need,
    product,
    promote,
    result,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall

from .gemm import SOURCE, product_cost


@op("aten::tensordot", family="gemm", source=SOURCE)
def tensordot(call: OpCall) -> Cost:
    """2·(free sizes of both)·(contracted sizes)."""
    a, b = need(call, 0, "first operand"), need(call, 1, "second operand")
    left, right = ints_param(call, "dims_self"), ints_param(call, "dims_other")
    if left is None or right is None:
        raise CannotKnow("the trace does not record the contracted dimensions")
    s, t = sizes(a), sizes(b)
    k = product(s[d] for d in left)
    free = [n for d, n in enumerate(s) if d not in {x % len(s) for x in left}]
    other = [n for d, n in enumerate(t) if d not in {x % len(t) for x in right}]
    return product_cost(call, a, b, (*free, *other), k)


_EINSUM = re.compile(r"[A-Za-z.,> -]*\Z")


def einsum_flops(equation: str, shapes: list[tuple[int, ...]]) -> tuple[int, tuple[int, ...]]:
    """Return the FLOPs and the result shape of an einsum, contracted pairwise from left to right.

    A pair costs 2 per multiply-add if it sums over an index, else 1 per product. Left to right is
    torch's order without opt_einsum; ``opt_einsum.contract_path`` with ``optimize='auto-hq'`` may find
    a cheaper order. Raises CannotKnow if equation and shapes do not fit.
    """
    if not _EINSUM.match(equation):
        raise CannotKnow("the einsum's equation cannot be read")
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise CannotKnow("the einsum's equation does not fit its operands")
    names: list[list[str]] = []
    size: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        labels = _labels(term, len(shape))
        for label, dim in zip(labels, shape, strict=True):
            if size.get(label, 1) != 1 and dim not in (1, size[label]):
                raise CannotKnow("the einsum's sizes do not agree")
            size[label] = dim if size.get(label, 1) == 1 else size[label]
        names.append(labels)
    every = [x for labels in names for x in labels]
    if arrow:
        dots = [x for x in dict.fromkeys(every) if x.startswith(".")]
        target = [x for x in right.replace("...", "") if x not in "."]
        target = sorted(dots) * ("..." in right) + target
    else:
        target = sorted({x for x in every if every.count(x) == 1 or x.startswith(".")})
    flops = 0
    current = names[0]
    for index, other in enumerate(names[1:], start=2):
        later = {x for labels in names[index:] for x in labels} | set(target)
        union = list(dict.fromkeys([*current, *other]))
        kept = [x for x in union if x in later]
        flops += product(size[x] for x in union) * (2 if len(kept) < len(union) else 1)
        current = kept
    if len(names) == 1 and set(current) - set(target):
        flops = product(size[x] for x in current)
    return flops, tuple(size[x] for x in target)


def _labels(term: str, rank: int) -> list[str]:
    if "..." not in term:
        if len(term) != rank:
            raise CannotKnow("the einsum's equation does not fit its operands")
        return list(term)
    before, _, after = term.partition("...")
    count = rank - len(before) - len(after)
    if count < 0:
        raise CannotKnow("the einsum's equation does not fit its operands")
    return [*before, *(f".{count - n:02d}" for n in range(count)), *after]


@op("aten::einsum", "Einsum", "XlaEinsum", family="gemm", source="2 per multiply-add, pairwise")
def einsum(call: OpCall) -> Cost:
    """Operands are contracted pairwise from left to right."""
    equation = call.param("equation")
    if not isinstance(equation, str):
        raise CannotKnow("the trace does not record the einsum's equation")
    operands = tensors(call)
    flops, shape = einsum_flops(equation, [sizes(t) for t in operands])
    dtype = promote(operands)
    return cost(distinct_tensors(call), [result(call, shape, dtype)], matrix=flops, dtype=dtype)


@op(
    "aten::chain_matmul",
    "aten::linalg_multi_dot",
    family="gemm",
    source="2·M·N·K in the cheapest order",
)
def multi_dot(call: OpCall) -> Cost:
    """The cheapest order of the chain, found by dynamic programming as both ops do."""
    chain = tensors(call)
    if len(chain) < 2:
        raise CannotKnow("the trace has no shapes for the chain")
    shapes = [sizes(t) for t in chain]
    first = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    dims = [*first, *(s[1] if len(s) > 1 else 1 for s in shapes[1:])]
    count = len(chain)
    best = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for low in range(count - length):
            high = low + length
            best[low][high] = min(
                best[low][cut]
                + best[cut + 1][high]
                + 2 * dims[low] * dims[cut + 1] * dims[high + 1]
                for cut in range(low, high)
            )
    out = (*shapes[0][:-1], *shapes[-1][1:])
    dtype = promote(chain)
    flops = best[0][count - 1]
    return cost(chain, [result(call, out, dtype)], matrix=flops, dtype=dtype)


@op("aten::_trilinear", family="gemm", source="2 per multiply-add, pairwise")
def trilinear(call: OpCall) -> Cost:
    """Three operands, with dimensions of 1 inserted, multiplied and summed over ``sumdim``."""
    operands = [need(call, n, "operand") for n in range(3)]
    total = as_ints(call.param("sumdim"))
    added = [as_ints(call.param(f"expand{n}")) for n in (1, 2, 3)]
    if total is None or None in added:
        raise CannotKnow("the trace does not record the contraction")
    rank = len(sizes(operands[0])) + len(added[0] or ())
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]
    terms = [
        "".join(c for index, c in enumerate(letters) if index not in (gone or ())) for gone in added
    ]
    kept = "".join(c for index, c in enumerate(letters) if index not in total)
    flops, shape = einsum_flops(f"{','.join(terms)}->{kept}", [sizes(t) for t in operands])
    dtype = promote(operands)
    return cost(distinct_tensors(call), [result(call, shape, dtype)], matrix=flops, dtype=dtype)
