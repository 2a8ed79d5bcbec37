"""Rare ops: each model against what PyTorch computes, counted, or against a reference of its own."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from opscope.core import perf
from opscope.core.perf.ops.unknown_cost import REASONS
from opscope.core.rangetext import parse

aten = torch.ops.aten
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def text(tensor: torch.Tensor | None) -> str:
    names = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.uint8: "u8"}
    return "_" if tensor is None else f"{names[tensor.dtype]}{list(tensor.shape)}".replace(" ", "")


def cost_of(name: str, *tensors: torch.Tensor | None, **params: object):
    def word(value):
        if isinstance(value, (tuple, list)):
            return "[" + ", ".join(map(word, value)) + "]"
        return str(value).lower() if isinstance(value, bool) else str(value)

    told = ", ".join(f"{key}={word(value)}" for key, value in params.items())
    found, why = perf.cost(parse(f"{name}({', '.join(map(text, tensors))}) {{{told}}}"))
    assert found is not None, why
    return found


@pytest.mark.skipif(VERSION < (2, 13), reason="older names may be gone")
def test_every_op_of_pytorch_has_an_entry():
    # in a process of its own: torch.compile registers others, which only its graphs have
    listing = "import torch; print(*torch._C._dispatch_get_all_op_names())"
    told = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, check=True, text=True
    )
    names = {name.partition(".")[0] for name in told.stdout.split()}
    mine = {name for name in names if name.startswith(("aten::", "prims::", "c10d::"))}
    assert len(mine) > 1200
    assert [name for name in sorted(mine) if perf.entry_of(name) is None] == []


@pytest.mark.parametrize(
    ("name", "reason"), [(name, reason) for reason, _, names in REASONS for name in names.split()]
)
def test_what_cannot_be_known_says_why(name, reason):
    found, why = perf.cost(parse(f"{name}(f32[2,3], f32[2,3])"))
    if found is None:
        assert why == reason
    else:  # a move: no FLOPs, that is known
        assert (found.flops, found.bytes, found.bytes_reason) == (0, None, reason)


# ---------------------------------------------------------------- second derivatives


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 2))
    inner, outer = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    each = st.lists(st.integers(1, 2), min_size=rank, max_size=rank)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    return rank, groups, inner, outer, kernel, stride, dilation, draw(st.booleans())


@given(convolutions(), st.tuples(*[st.booleans()] * 3), st.tuples(*[st.booleans()] * 3))
def test_a_convolution_s_second_derivative(conv, given_, mask):
    """FLOPs are those of the convolutions that PyTorch makes of it."""
    rank, groups, inner, outer, kernel, stride, dilation, transposed = conv
    x = torch.randn(2, inner, *[5] * rank)
    shape = (inner, outer // groups) if transposed else (outer, inner // groups)
    w = torch.randn(*shape, *kernel)
    args = (stride, [0] * rank, dilation, transposed, [0] * rank, groups)
    grad = aten.convolution(x, w, None, *args)
    ggs = [
        like if wanted else None
        for like, wanted in zip((x, w, torch.randn(outer)), given_, strict=True)
    ]
    with FlopCounterMode(display=False) as counter:
        aten._convolution_double_backward(*ggs, grad, w, x, *args, list(mask))
    found = cost_of(
        "aten::_convolution_double_backward", *ggs, grad, w, x,
        transposed=transposed, output_mask=mask, groups=groups,
    )  # fmt: skip
    terms = given_[0] * (mask[0] + mask[1]) + given_[1] * (mask[0] + mask[2])
    one = 2 * (x if transposed else grad).numel() // (x if transposed else grad).shape[1]
    assert found.matrix_flops == terms * one * w.numel()
    if all(mask):  # PyTorch makes what is not asked for as well
        fits = all(
            transposed or (5 - 1 - gap * (size - 1)) % step == 0
            for size, step, gap in zip(kernel, stride, dilation, strict=True)
        )
        # where a stride leaves a rest, PyTorch makes a larger weight gradient and cuts it
        assert found.matrix_flops <= counter.get_total_flops()
        assert not fits or found.matrix_flops == counter.get_total_flops()


class Counted:
    """An array whose arithmetic is counted, one an element and operation."""

    total = 0

    def __init__(self, value):
        self.value = np.asarray(value, np.float64)

    def _made(self, value, each=1):
        Counted.total += each * np.asarray(value).size
        return Counted(value)

    def __add__(self, other):
        return self._made(self.value + _raw(other))

    def __sub__(self, other):
        return self._made(self.value - _raw(other))

    def __mul__(self, other):
        return self._made(self.value * _raw(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return self._made(_raw(other) - self.value)

    def sigmoid(self):
        return self._made(1 / (1 + np.exp(-self.value)), 4)

    def round(self):
        return self._made(np.round(self.value))

    def within(self, low, high):
        Counted.total += 2 * self.value.size
        return Counted((self.value >= low) & (self.value <= high))

    def sum(self):
        Counted.total += self.value.size
        return self.value.sum()


def _raw(other):
    return other.value if isinstance(other, Counted) else other


@given(st.integers(1, 4), st.integers(1, 5))
def test_a_gated_unit_s_derivatives(rows, half):
    """Each formula has PyTorch's values, and as many operations as the model says."""
    x, dx, grad, dgrad = (torch.randn(rows, 2 * half, dtype=torch.float64) for _ in range(4))
    grad, dgrad = grad[:, :half].contiguous(), dgrad[:, :half].contiguous()
    y = aten.glu(x, 1)
    a, b = (Counted(part) for part in x.chunk(2, 1))
    da, db = (Counted(part) for part in dx.chunk(2, 1))
    Counted.total = 0
    s = b.sigmoid()
    tangent = da * s + Counted(y) * (db - s * db)
    assert np.allclose(tangent.value, aten.glu_jvp(y, x, dx, 1))
    assert Counted.total == cost_of("aten::glu_jvp", y, x, dx, dim=1).flops

    grad_x = aten.glu_backward(grad, x, 1)
    ga = Counted(grad_x[:, :half])
    Counted.total = 0
    s = b.sigmoid()
    r = db - db * s
    d = Counted(dgrad) * s + ga * r
    gated = a * s
    other = d * (a - gated) + ga * (da - da * s - gated * r)
    expected = aten.glu_backward_jvp(grad_x, grad, x, dgrad, dx, 1)
    assert np.allclose(np.concatenate([d.value, other.value], 1), expected)
    found = cost_of("aten::glu_backward_jvp", grad_x, grad, x, dgrad, dx, dim=1)
    assert Counted.total == found.flops


@given(st.integers(1, 30), st.floats(0.1, 2), st.integers(0, 4))
def test_the_gradients_of_a_learned_step(count, scale, zero):
    """Values are PyTorch's, additions of the sums included in the count."""
    x, grad = torch.randn(count) * 3, torch.randn(count)
    step, point, low, high, factor = torch.tensor([scale]), torch.tensor([float(zero)]), 0, 7, 0.5
    inverse = 1 / scale
    Counted.total = 0
    q = (Counted(x) * inverse + zero).round()
    inside = q.within(low, high)
    by_x = Counted(grad) * inside
    clipped = Counted(np.clip(q.value, low, high))
    by_scale = (((clipped - zero) * scale - Counted(x)) * inverse) * Counted(grad) * factor
    # outside the range the scale's part is the bound itself: as many operations or fewer
    by_zero = Counted(grad) * -scale * factor
    total = Counted.total + 2 * count  # both sums
    found = cost_of(
        "aten::_fake_quantize_learnable_per_tensor_affine_backward", grad, x, step, point
    )
    assert total == found.flops
    dx, dscale, dzero = aten._fake_quantize_learnable_per_tensor_affine_backward(
        grad, x, step, point, low, high, factor
    )
    assert np.allclose(by_x.value, dx, atol=1e-5)
    kept = inside.value.astype(bool)
    bound = np.where(q.value < low, low - zero, high - zero) * grad.numpy() * factor
    assert np.allclose(np.where(kept, by_scale.value, bound).sum(), dscale, rtol=1e-3, atol=1e-3)
    assert np.allclose(by_zero.value[~kept].sum(), dzero, rtol=1e-3, atol=1e-3)


def test_an_exponential_s_gradient_is_one_of_twice_the_size():
    found = cost_of("aten::matrix_exp_backward", torch.ones(3, 4, 4), torch.ones(3, 4, 4))
    assert found.flops == cost_of("aten::linalg_matrix_exp", torch.ones(3, 8, 8)).flops
    x = torch.randn(4, 4, dtype=torch.float64) / 4
    grad = torch.randn(4, 4, dtype=torch.float64)
    block = torch.zeros(8, 8, dtype=torch.float64)
    block[:4, :4], block[4:, 4:], block[:4, 4:] = x.mT, x.mT, grad
    assert torch.allclose(aten.matrix_exp_backward(x, grad), torch.matrix_exp(block)[:4, 4:])


# --------------------------------------------------------------------- linear algebra


@given(st.integers(1, 4), st.integers(1, 4))
def test_a_tensor_read_as_a_matrix(a, b):
    n = a * b
    eye = torch.eye(n)
    square = eye.reshape(a, b, a, b)
    assert aten.linalg_tensorinv(square, 2).shape == (a, b, a, b)
    inverse = cost_of("aten::linalg_tensorinv", square, ind=2)
    assert (inverse.flops, inverse.bytes) == (cost_of("aten::linalg_inv", eye).flops, 2 * 4 * n * n)
    side = torch.ones(a, b)
    solved = cost_of("aten::linalg_tensorsolve", square, side)
    assert solved.flops == cost_of("aten::linalg_solve", eye, torch.ones(n)).flops
    assert solved.bytes == 4 * (n * n + 2 * n)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(1, 3), max_size=2))
def test_a_linear_combination(n, m, rest):
    x, rows = torch.randn(m, *rest), torch.randn(n, m)
    made = aten._compute_linear_combination(x, rows)
    assert torch.allclose(made, torch.tensordot(rows, x, 1), atol=1e-5)
    with FlopCounterMode(display=False) as counter:
        rows @ x.reshape(m, -1)
    found = cost_of("aten::_compute_linear_combination", x, rows)
    assert found.flops == counter.get_total_flops()
    assert found.bytes == 4 * (x.numel() + rows.numel() + made.numel())


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_linear_layer_s_gradients(m, n, k, bias):
    grad, x, w = torch.ones(m, n), torch.ones(m, k), torch.ones(n, k)
    with FlopCounterMode(display=False) as counter:
        grad @ w
    by_input = cost_of("aten::mkldnn_linear_backward_input", grad, w, input_size=[m, k])
    by_weight = cost_of("aten::mkldnn_linear_backward_weights", grad, x, bias_defined=bias)
    assert by_input.matrix_flops == by_weight.matrix_flops == counter.get_total_flops()
    assert by_input.bytes == 4 * (m * n + n * k + m * k)
    assert by_weight.bytes == 4 * (m * n + m * k + n * k + (n if bias else 0))
    assert by_weight.vector_flops == ((m - 1) * n if bias else 0)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_a_recurrent_layer_s_backward_is_twice_its_forward(time, features, hidden, layers, both):
    net = torch.nn.LSTM(features, hidden, layers, bidirectional=both)
    x = torch.ones(time, 2, features)
    states = [torch.ones(layers, 2, hidden)] * 2
    weights = ", ".join(text(one) for one in net.parameters())
    listed = f"{text(x)}, [{', '.join(map(text, states))}], [{weights}]"
    forward, _ = perf.cost(parse(f"aten::_lstm_mps({listed}) {{num_layers={layers}}}"))
    same, _ = perf.cost(parse(f"aten::lstm({listed}) {{num_layers={layers}}}"))
    backward, _ = perf.cost(
        parse(f"aten::lstm_mps_backward(_, _, _, f32[2], f32[2], {text(x)}, f32[2], "
              f"[{', '.join(map(text, states))}], [{weights}])")
    )  # fmt: skip
    assert forward.flops == same.flops
    assert backward.flops == 2 * forward.flops


# ------------------------------------------------------------------ numbers and bits


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 9))
def test_sobol_points_are_one_exclusive_or_each(dimension, points, before):
    engine = torch.quasirandom.SobolEngine(dimension)
    state, quasi = engine.sobolstate, torch.zeros(dimension, dtype=torch.int64)
    drawn, after = aten._sobol_engine_draw(quasi, points, state, dimension, before, torch.float32)
    operations, columns, here = 0, set(), quasi.numpy().copy()
    expected = np.empty((points, dimension))
    for number in range(points):
        place = (~(before + number) & (before + number + 1)).bit_length() - 1  # lowest zero bit
        columns.add(place)
        for axis in range(dimension):
            here[axis] ^= int(state[axis, place])
            expected[number, axis] = here[axis] * 2.0**-30
            operations += 2
    assert np.allclose(drawn, expected)
    assert (after.numpy() == here).all()
    found = cost_of(
        "aten::_sobol_engine_draw", quasi, state, n=points, dimension=dimension,
        num_generated=before,
    )  # fmt: skip
    assert found.flops == operations
    most = 8 * dimension * (1 + min(points.bit_length(), 30))  # columns of direction numbers
    assert found.bytes_read == most
    assert 8 * dimension * (1 + len(columns)) <= most + 8 * dimension  # one more far along
    assert found.bytes_written == 4 * points * dimension + 8 * dimension
    skipped = cost_of("aten::_sobol_engine_ff_", quasi, state, n=points, dimension=dimension)
    assert skipped.flops == operations // 2


def test_sobol_scrambling_by_its_loops():
    """A triangular matrix of bits by each of the 30 direction numbers of two dimensions."""
    dimension, bits = 2, 30
    engine = torch.quasirandom.SobolEngine(dimension)
    state = engine.sobolstate.clone()
    matrices = torch.randint(2, (dimension, bits, bits)).tril()
    for axis in range(dimension):
        matrices[axis].fill_diagonal_(1)
    packed = torch.mv(matrices.reshape(-1, bits), 2 ** torch.arange(bits - 1, -1, -1))
    expected, operations = state.clone(), 0
    for axis, column in product(range(dimension), range(bits)):
        number, made = int(state[axis, column]), 0
        for row in range(bits):
            added = 0
            for bit in range(bits):
                added += int(packed.reshape(dimension, bits)[axis, row]) >> bit & number >> bit & 1
                operations += 2
            made |= (added & 1) << (bits - 1 - row)
        expected[axis, column] = made
    aten._sobol_engine_scramble_(state, matrices, dimension)
    assert torch.equal(state, expected)
    found = cost_of("aten::_sobol_engine_scramble_", state, matrices, dimension=dimension)
    assert found.flops == operations


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4))
def test_a_sum_to_a_size(dims):
    x = torch.ones([size for size, _ in dims])
    size = [1 if gone else one for one, gone in dims]
    found = cost_of("aten::sum_to_size", x, size=size)
    made = x.sum_to_size(size)
    # what each result holds is the number of ones that were added up
    assert found.flops == int((made - 1).sum())
    assert found.bytes == (0 if made.numel() == x.numel() else 4 * (x.numel() + made.numel()))


@pytest.mark.skipif(VERSION < (2, 13), reason="came later")
@pytest.mark.parametrize("kind", ["byte", "4bit", "2bit"])
@given(rows=st.integers(1, 3), quarters=st.integers(1, 4))
def test_a_packed_table_has_the_size_that_pytorch_gives_it(kind, rows, quarters):
    table = torch.randn(rows, 4 * quarters)
    ranges = torch.stack([table.amin(1), table.amax(1)], 1)
    name = f"embedding_bag_{kind}_prepack_with_rowwise_min_max"
    packed = getattr(torch.ops.quantized, name)(table, ranges)
    back = getattr(torch.ops.quantized, f"embedding_bag_{kind}_unpack")(packed)
    assert back.shape == table.shape
    assert cost_of(f"quantized::{name}", table, ranges).bytes_written == packed.numel()
    unpacked = cost_of(f"quantized::embedding_bag_{kind}_unpack", packed)
    assert unpacked.bytes_written == 4 * table.numel()
    assert unpacked.flops == 2 * table.numel()


def test_messages_of_a_batch():
    call = '_c10d_functional::batch_p2p_ops([f32[3], f32[5]]) {op_list=["isend", "irecv"]}'
    found, _ = perf.cost(parse(call))
    assert (found.bytes_read, found.bytes_written) == (12, 20)
    found, _ = perf.cost(parse("_c10d_functional::batch_p2p_ops([f32[3], f32[5]])"))
    assert found.bytes is None
    assert "which messages are sent" in found.bytes_reason


@pytest.mark.parametrize(("verb", "sides"), [("nccl_put", (40, 0)), ("nvshmem_get", (0, 40))])
def test_one_sided_messages(verb, sides):
    found, _ = perf.cost(parse(f"symm_mem::{verb}(f32[10])"))
    assert (found.bytes_read, found.bytes_written) == sides


def test_a_gradient_accumulates_where_there_was_one():
    x = torch.ones(6)
    assert cost_of("inductor::accumulate_grad_", x, x, x).flops == 6
    assert cost_of("inductor::accumulate_grad_", x, None, x).flops == 0


def test_quantised_products_count_as_others():
    a, b = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
    with FlopCounterMode(display=False) as counter:
        a @ b
    assert cost_of("quantized::matmul", a, b).flops == counter.get_total_flops()
    assert math.prod((2, 3, 5)) * 4 * 2 == counter.get_total_flops()


# ------------------------------------------------------------------ layers that are one op


@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)
)
def test_an_encoder_layer_in_one_op_does_what_its_parts_do(batch, length, heads, each, inner):
    width = heads * each
    layer = torch.nn.TransformerEncoderLayer(width, heads, inner, dropout=0.0, batch_first=True)
    x = torch.ones(batch, length, width)
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with plain, FlopCounterMode(display=False) as counter:
        layer(x)  # in training it is not one op
    weights = (
        layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias,
        layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias,
        layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias,
        layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias,
    )  # fmt: skip
    whole = cost_of("aten::_transformer_encoder_layer_fwd", x, *weights, num_heads=heads)
    assert whole.matrix_flops == counter.get_total_flops()


# ------------------------------------------------------------ gradients of selections and scans


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 1))
def test_gradients_of_selections_write_what_pytorch_returns(rows, columns, keepdim, dim):
    x = torch.randn(rows, columns)
    values, places = x.max(dim, keepdim)
    grad = torch.randn_like(values)
    told = {"dim": dim, "sizes": tuple(x.shape), "keepdim": keepdim}
    result = aten.value_selecting_reduction_backward(grad, dim, places, x.shape, keepdim)
    assert result.count_nonzero() == grad.count_nonzero()  # each is moved to a place of its own
    found = cost_of("aten::value_selecting_reduction_backward", grad, places, **told)
    assert (found.flops, found.bytes_written) == (0, size_of(result))
    assert found.bytes_read == size_of(grad) + size_of(places)

    running, places = x.cummax(dim)
    grad = torch.randn_like(running)
    result = aten.cummaxmin_backward(grad, x, places, dim)
    assert torch.allclose(result, torch.zeros_like(x).scatter_add(dim, places, grad))
    found = cost_of("aten::cummaxmin_backward", grad, x, places, dim=dim)
    assert (found.flops, found.bytes_written) == (grad.numel(), size_of(result))

    index = torch.randint(rows, (3,))
    grad = torch.randn(3, columns)
    result = aten.index_select_backward(grad, x.shape, 0, index)
    found = cost_of("aten::index_select_backward", grad, index, self_sizes=tuple(x.shape), dim=0)
    assert (found.flops, found.bytes_written) == (grad.numel(), size_of(result))
    index = torch.randint(rows, (3, columns))
    result = aten.gather_backward(grad, x, 0, index, False)
    found = cost_of("aten::gather_backward", grad, x, index, dim=0, sparse_grad=False)
    assert (found.flops, found.bytes_written) == (grad.numel(), size_of(result))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1))
def test_a_cumulative_product_s_gradient_is_a_product_a_reversed_sum_and_a_quotient(
    rows, columns, dim
):
    x = torch.rand(rows, columns, dtype=torch.float64) + 0.5
    y, grad = x.cumprod(dim), torch.randn(rows, columns, dtype=torch.float64)
    result = aten.cumprod_backward(grad, x, dim, y)
    w = grad * y
    assert torch.allclose(result, w.flip(dim).cumsum(dim).flip(dim) / x)
    scan = cost_of("aten::cumsum", w, dim=dim).flops
    found = cost_of("aten::cumprod_backward", grad, x, y, dim=dim)
    # a row of one element gives its gradient back
    assert found.flops == (0 if x.shape[dim] == 1 else w.numel() + scan + x.numel())


def test_a_cosine_s_rows_are_along_its_dimension_and_a_distance_s_along_the_last():
    a, b = torch.randn(5, 1, 8), torch.randn(1, 7, 8)
    for dim in range(3):
        result = torch.cosine_similarity(a, b, dim)
        found = cost_of("aten::cosine_similarity", a, b, dim=dim, eps=1e-8)
        assert found.bytes_written == size_of(result)
        assert found.flops == 6 * 5 * 7 * 8 + 3 * result.numel()
    assert torch.pairwise_distance(a, a, eps=0.25).sub(math.sqrt(8) * 0.25).abs().max() < 1e-5
    found = cost_of("aten::pairwise_distance", a, b, p=2.0, eps=1e-6, keepdim=False)
    assert found.bytes_written == size_of(torch.pairwise_distance(a, b))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_empty_bags_of_pytorch_are_within_the_bounds(mode, last):
    table, indices = torch.randn(10, 1), torch.arange(4)
    offsets = torch.tensor([0, 0, 0, 3, 4, 4][: 5 + last])
    result, *_ = torch._embedding_bag(table, indices, offsets, mode=mode, include_last_offset=last)
    lengths = [0, 0, 3, 1, 0]
    assert result.flatten().count_nonzero() == sum(length > 0 for length in lengths)
    told = {"mode": mode, "include_last_offset": last, "padding_idx": -1}
    found = cost_of("aten::_embedding_bag", table, indices, offsets, **told)
    truth = sum(lengths) if mode == 1 else sum(max(length - 1, 0) for length in lengths)
    if mode == 1:
        assert (found.flops, found.note) == (truth, "")
    else:
        assert found.flops == 0 <= truth <= 3
        assert "0 to 3 operations" in found.note
