"""The cost models against loops that count every multiply-add and every element touched."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.ops.attention import causal_pairs, window_pairs
from opscope.core.perf.ops.contraction import einsum_flops
from opscope.core.perf.shapes import broadcast, touched
from opscope.core.perf.windows import covered
from opscope.core.schema import OpCall, SameAs, TensorSpec

SMALL = st.integers(1, 4)


def known(call):
    cost, why = perf.cost(call)
    assert cost is not None, why
    return cost


# ---------------------------------------------------------------------------- convolutions


def convolve(n, channels, out_channels, groups, spatial, kernel, stride, padding, dilation):
    """Loop over every output, tap and channel: (output sizes, multiply-adds, input elements read)."""
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)
    ]
    adds, read = 0, set()
    for batch, group in itertools.product(range(n), range(groups)):
        for _ in range(out_channels // groups):
            for place in itertools.product(*map(range, out)):
                for tap in itertools.product(*map(range, kernel)):
                    at = tuple(
                        o * s - p + t * d
                        for o, s, p, t, d in zip(place, stride, padding, tap, dilation, strict=True)
                    )
                    inside = all(0 <= a < size for a, size in zip(at, spatial, strict=True))
                    for channel in range(channels // groups):
                        adds += 1  # padding is multiplied like the rest
                        if inside:
                            read.add((batch, group, channel, *at))
    return out, adds, len(read)


@st.composite
def windows_of(draw, rank):
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    spatial = [draw(st.integers(d * (k - 1) + 1, 7)) for k, d in zip(kernel, dilation, strict=True)]
    stride = [draw(st.integers(1, 4)) for _ in range(rank)]
    padding = [draw(st.integers(0, 2)) for _ in range(rank)]
    return spatial, kernel, stride, padding, dilation


@given(
    window=st.integers(1, 2).flatmap(windows_of),
    n=st.integers(1, 2),
    per_group=st.integers(1, 2),
    out_per_group=st.integers(1, 2),
    groups=st.integers(1, 3),
)
def test_convolution(window, n, per_group, out_per_group, groups):
    spatial, kernel, stride, padding, dilation = window
    channels, outs = per_group * groups, out_per_group * groups
    out, adds, read = convolve(n, channels, outs, groups, *window)
    call = OpCall(
        "aten::convolution",
        (
            TensorSpec("f16", (n, channels, *spatial)),
            TensorSpec("f16", (outs, per_group, *kernel)),
            TensorSpec("f16", (outs,)),
        ),
        None,
        (
            ("stride", tuple(stride)),
            ("padding", tuple(padding)),
            ("dilation", tuple(dilation)),
            ("transposed", False),
            ("groups", groups),
        ),
    )
    cost = known(call)
    assert cost.matrix_flops == 2 * adds
    results = n * outs
    for size in out:
        results *= size
    weights = outs * per_group
    for size in kernel:
        weights *= size
    assert cost.bytes_written == 2 * results
    # the windows of a dimension do not depend on the others': a product of what each touches
    assert cost.bytes_read == 2 * (read + weights + outs)
    by_input, by_weight = perf.input_grad(call)[0], perf.weight_grad(call)[0]
    assert by_input.matrix_flops == by_weight.matrix_flops == 2 * adds


@given(
    window=st.integers(1, 2).flatmap(windows_of), extra=st.integers(0, 1), n=st.integers(1, 2),
    per_group=st.integers(1, 2), out_per_group=st.integers(1, 2), groups=st.integers(1, 3),
)  # fmt: skip
def test_transposed_convolution(window, extra, n, per_group, out_per_group, groups):
    """Each input element meets each weight of its channel once, whatever falls off the edge; which
    results there are is where the windows land."""
    spatial, kernel, stride, padding, dilation = window
    padding = [min(p, d * (k - 1)) for p, k, d in zip(padding, kernel, dilation, strict=True)]
    rank = len(spatial)
    adds, landed = 0, [set() for _ in range(rank)]
    for _ in itertools.product(range(n), range(groups), range(per_group)):
        for place in itertools.product(*map(range, spatial)):
            for _ in range(out_per_group):
                for tap in itertools.product(*map(range, kernel)):
                    adds += 1
                    for axis in range(rank):
                        landed[axis].add(place[axis] * stride[axis] + tap[axis] * dilation[axis])
    call = OpCall(
        f"aten::conv_transpose{rank}d",
        (
            TensorSpec("f32", (n, per_group * groups, *spatial)),
            TensorSpec("f32", (per_group * groups, out_per_group, *kernel)),
        ),
        None,
        (("stride", tuple(stride)), ("padding", tuple(padding)), ("output_padding", (extra,) * rank),
         ("groups", groups), ("dilation", tuple(dilation))),
    )  # fmt: skip
    sides = [max(places) + 1 - 2 * p + extra for places, p in zip(landed, padding, strict=True)]
    if min(sides) < 1:
        return
    cost = known(call)
    assert cost.matrix_flops == 2 * adds
    results = n * out_per_group * groups
    for side in sides:
        results *= side
    assert cost.bytes_written == 4 * results
    inputs = n * per_group * groups
    for size in spatial:
        inputs *= size
    weights = per_group * groups * out_per_group
    for size in kernel:
        weights *= size
    assert cost.bytes_read == 4 * (inputs + weights)
    by_input, by_weight = perf.input_grad(call)[0], perf.weight_grad(call)[0]
    assert by_input.matrix_flops == by_weight.matrix_flops == 2 * adds
    assert by_input.bytes_written == 4 * inputs
    assert by_weight.bytes_written == 4 * weights


@given(
    size=st.integers(1, 30), kernel=st.integers(1, 5), stride=st.integers(1, 6),
    before=st.integers(0, 3), dilation=st.integers(1, 3),
)  # fmt: skip
def test_positions_touched_along_a_dimension(size, kernel, stride, before, dilation):
    out = max((size + 2 * before - dilation * (kernel - 1) - 1) // stride + 1, 0)
    seen = {o * stride - before + t * dilation for o in range(out) for t in range(kernel)} & set(
        range(size)
    )
    assert covered(size, out, kernel, stride, before, dilation) == len(seen)


# ------------------------------------------------------------------------------- attention


@given(queries=st.integers(0, 12), keys=st.integers(0, 12), aligned_end=st.booleans())
def test_causal_mask(queries, keys, aligned_end):
    shift = keys - queries if aligned_end else 0
    pairs = sum(1 for i in range(queries) for j in range(keys) if j <= i + shift)
    assert causal_pairs(queries, keys, aligned_end) == pairs


@given(
    queries=st.integers(0, 9), keys=st.integers(0, 9), left=st.integers(-1, 5),
    right=st.integers(-1, 5), shift=st.integers(-4, 4),
)  # fmt: skip
def test_sliding_window(queries, keys, left, right, shift):
    pairs = 0
    for i, j in itertools.product(range(queries), range(keys)):
        pairs += (left < 0 or j >= i + shift - left) and (right < 0 or j <= i + shift + right)
    assert window_pairs(queries, keys, left, right, shift) == pairs


@given(
    b=SMALL, kv=st.integers(1, 2), ratio=st.integers(1, 3), n=SMALL, d=SMALL, causal=st.booleans()
)
def test_attention(b, kv, ratio, n, d, causal):
    adds = live = 0
    for _, i, j in itertools.product(range(b * kv * ratio), range(n), range(n)):
        adds += 2 * d  # a score and its weighted value
        live += 2 * d if not causal or j <= i else 0
    q, k = TensorSpec("bf16", (b, kv * ratio, n, d)), TensorSpec("bf16", (b, kv, n, d))
    call = OpCall(
        "aten::scaled_dot_product_attention", (q, k, SameAs(1)), None, (("is_causal", causal),)
    )
    cost = known(call)
    assert cost.matrix_flops == 2 * adds
    assert cost.matrix_flops - cost.masked_flops == 2 * live


# ------------------------------------------------------------------- pooling and reductions


@given(window=windows_of(2), planes=SMALL)
def test_pooling(window, planes):
    spatial, kernel, stride, _, _ = window
    padding, dilation = [min(1, k // 2) for k in kernel], [1, 1]
    comparisons = additions = divisions = 0
    out, _, read = convolve(1, 1, 1, 1, spatial, kernel, stride, padding, dilation)
    if min(out) < 1:
        return
    for _ in range(planes):
        for _ in itertools.product(*map(range, out)):
            taps = list(itertools.product(*map(range, kernel)))
            comparisons += len(taps) - 1
            additions += len(taps) - 1
            divisions += 1
    params = (
        ("kernel_size", tuple(kernel)),
        ("stride", tuple(stride)),
        ("padding", tuple(padding)),
    )
    x = TensorSpec("f32", (1, planes, *spatial))
    top = known(OpCall("aten::max_pool2d", (x,), None, params))
    mean = known(OpCall("aten::avg_pool2d", (x,), None, params))
    assert top.vector_flops == comparisons
    assert mean.vector_flops == additions + divisions
    assert top.bytes_read == 4 * planes * read
    assert top.bytes_written == 4 * planes * out[0] * out[1]


@given(n=st.integers(1, 12), o=st.integers(1, 12))
def test_adaptive_pooling(n, o):
    read = sum(1 for i in range(o) for p in range(n) if i * n // o <= p < -(-(i + 1) * n // o))
    x = TensorSpec("f32", (2, 3, n))
    mean = known(OpCall("aten::adaptive_avg_pool1d", (x,), None, (("output_size", (o,)),)))
    assert mean.vector_flops == 6 * read  # one fewer additions, one division
    top = known(OpCall("aten::adaptive_max_pool1d", (x,), None, (("output_size", (o,)),)))
    assert top.vector_flops == 6 * (read - o)


@given(shape=st.lists(SMALL, min_size=1, max_size=3), data=st.data())
def test_scans(shape, data):
    """Every element but the first of its row takes one operation."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    adds = sum(1 for index in itertools.product(*map(range, shape)) if index[axis] > 0)
    x = TensorSpec("f32", tuple(shape))
    cost = known(OpCall("aten::cumsum", (x,), None, (("dim", axis),)))
    assert cost.vector_flops == adds


@given(
    b=SMALL, kv=st.integers(1, 2), ratio=st.integers(1, 2), nq=SMALL, nk=SMALL, d=SMALL, dv=SMALL,
    left=st.integers(-1, 3), right=st.integers(-1, 3),
)  # fmt: skip
def test_windowed_attention(b, kv, ratio, nq, nk, d, dv, left, right):
    """Tokens before heads, grouped queries, values of another width, a window from the end."""
    pairs = adds = 0
    for _, i, j in itertools.product(range(b * kv * ratio), range(nq), range(nk)):
        adds += d + dv
        at = i + nk - nq
        pairs += (left < 0 or j >= at - left) and (right < 0 or j <= at + right)
    shapes = (b, nq, kv * ratio, d), (b, nk, kv, d), (b, nk, kv, dv)
    params = (("window_size_left", left), ("window_size_right", right))
    call = OpCall(
        "flash_attn::_flash_attn_forward", tuple(TensorSpec("f16", s) for s in shapes), None, params
    )
    cost = known(call)
    assert cost.matrix_flops == 2 * adds
    if left >= 0 or right >= 0:
        assert cost.matrix_flops - cost.masked_flops == 2 * pairs * (d + dv)
    # all of q, k and v once, and a result as wide as the values
    assert cost.bytes_read == 2 * sum(TensorSpec("f16", s).numel for s in shapes)
    assert cost.bytes_written == 2 * b * nq * kv * ratio * dv


@given(shape=st.lists(SMALL, min_size=1, max_size=4), data=st.data())
def test_reductions(shape, data):
    dims = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
    keep = data.draw(st.booleans())
    groups = {}
    for index in itertools.product(*map(range, shape)):
        key = tuple(i for d, i in enumerate(index) if d not in dims)
        groups[key] = groups.get(key, 0) + 1
    additions = sum(count - 1 for count in groups.values())
    x = TensorSpec("f32", tuple(shape))
    params = (("dim", tuple(dims)), ("keepdim", keep))
    total = known(OpCall("aten::sum", (x,), None, params))
    assert total.vector_flops == additions
    assert total.bytes_written == 4 * len(groups)
    mean = known(OpCall("aten::mean", (x,), None, params))
    assert mean.vector_flops == additions + len(groups)
    top = known(OpCall("aten::amax", (x,), None, params))
    assert top.vector_flops == additions


@given(shape=st.lists(SMALL, min_size=1, max_size=3), data=st.data())
def test_softmax(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    row = shape[axis]
    rows = 1
    for size in shape:
        rows *= size
    rows //= row
    # per row: the maximum, the differences, the exponentials, their sum, the quotients
    each = (row - 1) + row + row + (row - 1) + row
    x = TensorSpec("f16", tuple(shape))
    cost = known(OpCall("aten::_softmax", (x,), None, (("dim", axis), ("half_to_float", False))))
    assert cost.vector_flops == rows * each


# --------------------------------------------------------------- broadcasting and products


@st.composite
def broadcastable(draw):
    shape = draw(st.lists(SMALL, max_size=4))
    one = [draw(st.sampled_from([n, 1])) for n in shape]
    other = [draw(st.sampled_from([n, 1])) for n in shape]
    return tuple(one[draw(st.integers(0, len(one))) :]), tuple(other)


@given(shapes=broadcastable())
def test_broadcasting(shapes):
    left, right = shapes
    out = broadcast(left, right)
    read_left, read_right, count = set(), set(), 0
    for index in itertools.product(*map(range, out)):
        count += 1
        for shape, seen in ((left, read_left), (right, read_right)):
            tail = index[len(index) - len(shape) :]
            seen.add(tuple(0 if n == 1 else i for i, n in zip(tail, shape, strict=True)))
    cost = known(OpCall("aten::mul", (TensorSpec("f32", left), TensorSpec("f32", right))))
    assert cost.vector_flops == count
    assert cost.bytes_read == 4 * (len(read_left) + len(read_right))
    assert cost.bytes_written == 4 * count


@given(shape=st.lists(SMALL, min_size=1, max_size=3), data=st.data())
def test_strided_tensors_are_what_they_touch(shape, data):
    """Expanded dimensions once, gaps not at all."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, data.draw(st.sampled_from([0, step, 2 * step])))
        step = max(step, strides[0] * size, 1)
    seen = {
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    }
    assert touched(TensorSpec("f32", tuple(shape), None, tuple(strides))) == len(seen)


@given(lead=st.lists(SMALL, max_size=2), m=SMALL, k=SMALL, n=SMALL)
def test_batched_product(lead, m, k, n):
    adds = 0
    for _ in itertools.product(*map(range, [*lead, m, n, k])):
        adds += 1
    left, right = TensorSpec("f64", (*lead, m, k)), TensorSpec("f64", (k, n))
    cost = known(OpCall("aten::matmul", (left, right)))
    assert cost.matrix_flops == 2 * adds
    by_input = perf.input_grad(OpCall("aten::matmul", (left, right)))[0]
    assert by_input.matrix_flops == 2 * adds


@given(sizes=st.fixed_dictionaries(dict.fromkeys("bijk", SMALL)))
def test_einsum(sizes):
    shapes = [tuple(sizes[c] for c in "bij"), tuple(sizes[c] for c in "bjk")]
    adds = 0
    for _ in itertools.product(*(range(sizes[c]) for c in "bijk")):
        adds += 1
    flops, out = einsum_flops("bij,bjk->bik", shapes)
    assert out == tuple(sizes[c] for c in "bik")
    assert flops == 2 * adds
    assert einsum_flops("...ij,...jk->...ik", shapes) == (flops, out)
    # without an arrow what appears once stays: b is summed as well
    assert einsum_flops("bij,bjk", shapes)[1] == (sizes["i"], sizes["k"])


@given(tokens=st.integers(1, 5), features=SMALL, hidden=SMALL, both_ways=st.booleans())
def test_lstm(tokens, features, hidden, both_ways):
    ways = 2 if both_ways else 1
    weights = []
    for _ in range(ways):
        weights += [
            TensorSpec("f32", (4 * hidden, features)),
            TensorSpec("f32", (4 * hidden, hidden)),
        ]
    adds = 0
    for _ in range(tokens * 2 * ways):  # two entries in the batch
        for _ in range(4 * hidden):
            adds += features + hidden
    state = TensorSpec("f32", (ways, 2, hidden))
    call = OpCall(
        "aten::lstm", (TensorSpec("f32", (tokens, 2, features)), (state, state), tuple(weights))
    )
    cost = known(call)
    assert cost.matrix_flops == 2 * adds
    assert cost.vector_flops == 22 * hidden * tokens * 2 * ways
    both = perf.backward_costs(call)[0]
    assert both.matrix_flops == 2 * cost.matrix_flops
