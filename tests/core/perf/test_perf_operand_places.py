"""Each operand is taken from its place in the op's schema, and counts come from loops over elements."""

from __future__ import annotations

import itertools
import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.schema import OpCall, TensorSpec

SMALL = st.integers(1, 4)
SHAPES = st.lists(SMALL, min_size=1, max_size=3).map(tuple)
SCHEMAS = json.loads((files("opscope.core.dialects") / "aten_schemas.json").read_text())["aten"]


def f32(*shape):
    return TensorSpec("f32", shape)


def i64(*shape):
    return TensorSpec("i64", shape)


def called(word, operands, params=None, overload=0):
    """The call with the operands, by name, in the order of the op's schema; the other places are absent."""
    told = [one.lstrip("*+") for one in SCHEMAS[word][overload].split() if one[0] in "*+"]
    assert set(operands) <= set(told), (operands, told)
    inputs = tuple(operands.get(name) for name in told)
    return OpCall(f"aten::{word}", inputs, None, tuple((params or {}).items()))


def known(call):
    cost, why = perf.cost(call)
    assert cost is not None, why
    return cost


def elements(shape):
    return list(itertools.product(*map(range, shape)))


def rows_of(shape, dim):
    return {place[:dim] + place[dim + 1 :] for place in elements(shape)}


def without(shape, dim, keepdim):
    return shape[:dim] + ((1,) if keepdim else ()) + shape[dim + 1 :]


# ------------------------------------------------------------------------ scatters of gradients


@given(SHAPES, st.data(), st.booleans())
def test_a_selected_value_s_gradient_is_moved_and_not_computed(shape, data, keepdim):
    dim = data.draw(st.integers(0, len(shape) - 1))
    picked = without(shape, dim, keepdim)
    call = called(
        "value_selecting_reduction_backward",
        {"grad": f32(*picked), "indices": i64(*picked)},
        {"dim": dim, "sizes": shape, "keepdim": keepdim},
    )
    found = known(call)
    assert found.flops == 0
    assert found.bytes_read == (4 + 8) * len(rows_of(shape, dim))
    assert found.bytes_written == 4 * len(elements(shape))


def test_a_selected_value_s_gradient_without_the_size_has_unknown_bytes():
    found = known(OpCall("aten::value_selecting_reduction_backward", (f32(3), i64(3))))
    assert (found.flops, found.bytes_read, found.bytes_written) == (0, 36, None)
    assert found.bytes_reason


@given(SHAPES, st.integers(1, 4))
def test_a_gather_s_gradient_does_not_read_the_input(shape, picked):
    index = (picked, *shape[1:])
    call = called(
        "gather_backward",
        {"grad": f32(*index), "self": f32(*shape), "index": i64(*index)},
        {"dim": 0, "sparse_grad": False},
    )
    found, count = known(call), len(elements(index))
    assert (found.flops, found.bytes_read) == (count, 12 * count)
    assert found.bytes_written == 4 * len(elements(shape))


@given(SHAPES, st.integers(1, 4))
def test_an_index_select_s_gradient_has_the_input_s_size(shape, picked):
    call = called(
        "index_select_backward",
        {"grad": f32(picked, *shape[1:]), "index": i64(picked)},
        {"self_sizes": shape, "dim": 0},
    )
    found, count = known(call), len(elements((picked, *shape[1:])))
    assert (found.flops, found.bytes_read) == (count, 4 * count + 8 * picked)
    assert found.bytes_written == 4 * len(elements(shape))


@given(SHAPES, st.data())
def test_a_running_maximum_s_gradient_is_one_addition_per_element(shape, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    operands = {"grad": f32(*shape), "input": f32(*shape), "indices": i64(*shape)}
    found, count = (
        known(called("cummaxmin_backward", operands, {"dim": dim})),
        len(elements(shape)),
    )
    assert (found.flops, found.bytes_read, found.bytes_written) == (count, 12 * count, 4 * count)


@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 3))
def test_a_masked_select_s_gradient_reads_the_mask_and_not_the_input(picked, rows, width):
    operands = {
        "grad": f32(picked),
        "input": f32(rows, 1),
        "mask": TensorSpec("bool", (rows, width)),
    }
    found = known(called("masked_select_backward", operands))
    assert (found.flops, found.bytes_read) == (0, 4 * picked + rows * width)
    assert found.bytes_written == 4 * rows * width


def test_a_sparse_gather_s_gradient_writes_a_coordinate_per_dimension():
    operands = {"self": f32(100, 50), "index": i64(3, 4), "grad": f32(3, 4)}
    found = known(called("_gather_sparse_backward", operands, {"dim": 0}))
    assert (found.flops, found.bytes_read, found.bytes_written) == (0, 8 * 12, 8 * 2 * 12)


# ---------------------------------------------------------------------------------------- scans


def counted_cumprod_backward(row):
    """The gradient of a cumulative product of non-zero numbers, by one pass from the end, and its steps."""
    xs, grads, steps, result = row, [1.0] * len(row), 0, []
    ys = list(itertools.accumulate(xs, lambda a, b: a * b))
    if len(xs) == 1:
        return grads, 0
    total = None
    for x, y, grad in reversed(list(zip(xs, ys, grads, strict=True))):
        part = y * grad
        steps += 1
        if total is None:
            total = part
        else:
            total += part
            steps += 1
        result.append(total / x)
        steps += 1
    return result[::-1], steps


def test_the_counted_gradient_of_a_cumulative_product_is_the_gradient():
    row, step = [1.5, -2.0, 0.5, 3.0], 1e-6
    found, _ = counted_cumprod_backward(row)
    for place, value in enumerate(found):
        moved = [x + step * (n == place) for n, x in enumerate(row)]
        before, after = (sum(itertools.accumulate(xs, lambda a, b: a * b)) for xs in (row, moved))
        assert (after - before) / step == pytest.approx(value, rel=1e-4)


@given(SHAPES, st.data())
def test_a_cumulative_product_s_gradient(shape, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    operands = {"grad": f32(*shape), "input": f32(*shape), "output": f32(*shape)}
    found = known(called("cumprod_backward", operands, {"dim": dim}))
    steps = len(rows_of(shape, dim)) * counted_cumprod_backward([2.0] * shape[dim])[1]
    assert found.flops == steps
    if shape[dim] == 1:  # the gradient is returned as it is
        assert found.bytes == 0
    else:
        assert found.bytes == 16 * len(elements(shape))
        assert "zero" in found.note


@given(SHAPES, st.data())
def test_a_cumulative_sum_s_gradient_is_a_cumulative_sum(shape, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    call = called("cumsum", {"self": f32(*shape)}, {"dim": dim})
    costs, why = perf.backward_costs(call)
    assert costs is not None, why
    assert costs.flops == known(call).flops == (shape[dim] - 1) * len(rows_of(shape, dim))
    assert costs.bytes_read == (0 if shape[dim] == 1 else 4 * len(elements(shape)))


@given(SHAPES, st.data(), st.sampled_from(["cumprod", "cummax", "cummin"]))
def test_a_scan_s_gradient_from_the_forward_alone_is_the_backward_op_s(shape, data, word):
    params = {"dim": data.draw(st.integers(0, len(shape) - 1))}
    alone, why = perf.backward_costs(called(word, {"self": f32(*shape)}, params))
    assert alone is not None, why
    operands = {"grad": f32(*shape), "input": f32(*shape)}
    if word == "cumprod":
        back = called("cumprod_backward", {**operands, "output": f32(*shape)}, params)
    else:
        back = called("cummaxmin_backward", {**operands, "indices": i64(*shape)}, params)
    whole = known(back)
    assert (alone.flops, alone.bytes) == (whole.flops, whole.bytes)


# ------------------------------------------------------------------------------------ variances


def counted_variance(row):
    """The variance of a row by its definition, and the operations that it takes."""
    steps, total = 0, row[0]
    for value in row[1:]:
        total, steps = total + value, steps + 1
    mean, steps = total / len(row), steps + 1
    squares = []
    for value in row:
        squares.append((value - mean) ** 2)
        steps += 2
    total = squares[0]
    for value in squares[1:]:
        total, steps = total + value, steps + 1
    return total / max(len(row) - 1, 1), steps + 1


@given(SMALL, SMALL, st.sampled_from(["", "_mean"]))
def test_variances_and_deviations(rows, width, more):
    value, steps = counted_variance([3.0, 5.0, 7.0])
    assert value == 4.0
    steps = counted_variance([1.0] * width)[1]
    for word, root in (("var", 0), ("std", 1)):
        call = called(f"{word}{more}", {"self": f32(rows, width)}, {"dim": (1,), "unbiased": True})
        assert known(call).flops == rows * (steps + root)


# ------------------------------------------------------------------------------ rows with rows


def counted_cosine(a, b, eps=1e-8):
    """The cosine of two rows, and the floating-point operations that it takes."""
    steps = 0

    def dot(xs, ys):
        nonlocal steps
        steps += 2 * len(xs) - 1
        return sum(x * y for x, y in zip(xs, ys, strict=True))

    norms = []
    for row in (a, b):
        norms.append(max(dot(row, row) ** 0.5, eps))
        steps += 2  # root, comparison
    top = dot(a, b)
    steps += 2  # product of the norms, quotient
    return top / (norms[0] * norms[1]), steps


@given(SHAPES, st.data())
def test_cosine_similarity(shape, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    call = called(
        "cosine_similarity", {"x1": f32(*shape), "x2": f32(*shape)}, {"dim": dim, "eps": 1e-8}
    )
    found, rows = known(call), len(rows_of(shape, dim))
    value, steps = counted_cosine([3.0] * shape[dim], [2.0] * shape[dim])
    assert value == pytest.approx(1.0)
    assert found.flops == rows * steps
    assert found.bytes == 4 * (2 * len(elements(shape)) + rows)


def test_cosine_similarity_of_all_pairs_broadcasts():
    call = called("cosine_similarity", {"x1": f32(5, 1, 8), "x2": f32(1, 7, 8)}, {"dim": 2})
    found = known(call)
    assert found.flops == 5 * 7 * counted_cosine([1.0] * 8, [1.0] * 8)[1]
    assert found.bytes == 4 * (5 * 8 + 7 * 8 + 5 * 7)


def test_cosine_similarity_without_its_dimension_is_unknown():
    cost, why = perf.cost(OpCall("aten::cosine_similarity", (f32(2, 3), f32(2, 3))))
    assert cost is None
    assert "dimension" in why
    api = OpCall("torch.nn.functional.cosine_similarity", (f32(2, 3, 4), f32(2, 3, 4)))
    assert known(api).bytes_written == 4 * 2 * 4  # rows along dim 1 by default


@given(SMALL, SMALL)
def test_pairwise_distance_adds_epsilon(rows, width):
    found = known(called("pairwise_distance", {"x1": f32(rows, width), "x2": f32(rows, width)}))
    # subtract, add ε, square; add the squares, root
    assert found.flops == rows * (3 * width + (width - 1) + 1)


# --------------------------------------------------------------------------- bags and segments


def counted_groups(lengths, mean):
    """The operations per column to bring rows together by groups of these lengths."""
    steps = 0
    for length in lengths:
        for row in range(length):
            steps += row > 0
        steps += mean and length > 0
    return steps


LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def bounds(note):
    """The least and the most operations per column that a note tells."""
    least, _, most = note.partition("no trace records: ")[2].partition(" operations")[0].split()
    return int(least), int(most)


@given(LENGTHS, SMALL, st.integers(0, 2), st.booleans(), st.booleans())
def test_a_bag_s_count_is_exact_or_bounded_whatever_bags_are_empty(
    lengths, width, mode, last, weighted
):
    count, bags = sum(lengths), len(lengths)
    offsets = i64(bags + last)
    operands = {"weight": f32(100, width), "indices": i64(count), "offsets": offsets}
    if weighted and mode == 0:
        operands["per_sample_weights"] = f32(count)
    params = {"mode": mode, "include_last_offset": last, "padding_idx": -1}
    found = known(called("_embedding_bag", operands, params))
    products = count * width if "per_sample_weights" in operands else 0
    truth = counted_groups(lengths, mode == 1)
    if found.note:
        least, most = bounds(found.note)
        assert least <= truth <= most
        assert found.flops == least * width + products
    else:
        assert found.flops == truth * width + products


@given(st.integers(0, 6), st.integers(1, 6), st.booleans())
def test_a_bag_s_bounds_are_reached(count, bags, mean):
    operands = {"weight": f32(100, 1), "indices": i64(count), "offsets": i64(bags)}
    found = known(called("_embedding_bag", operands, {"mode": int(mean), "padding_idx": -1}))
    every = {
        counted_groups(lengths, mean)
        for lengths in itertools.product(range(count + 1), repeat=bags)
        if sum(lengths) == count
    }
    assert (bounds(found.note) if found.note else (found.flops,) * 2) == (min(every), max(every))


def test_a_bag_s_padding_is_data():
    operands = {"weight": f32(100, 8), "indices": i64(6), "offsets": i64(1)}
    found = known(called("_embedding_bag", operands, {"mode": 0, "padding_idx": 3}))
    assert (found.flops, bounds(found.note)) == (0, (0, 5))


@given(SMALL, SMALL, SMALL, st.booleans(), st.sampled_from([None, "sum", "mean", "max"]))
def test_bags_of_equal_length_are_exact(bags, per_bag, width, weighted, mode):
    """torch.nn.functional has the indices first, and takes the mean where no mode is given."""
    weighted = weighted and mode == "sum"
    inputs = [i64(bags, per_bag), f32(100, width)] + [f32(bags, per_bag)] * weighted
    params = (("mode", mode),) if mode else (("sparse", False),)
    found = known(OpCall("torch.nn.functional.embedding_bag", tuple(inputs), None, params))
    truth = counted_groups([per_bag] * bags, mode in (None, "mean"))
    assert (found.flops, found.note) == (width * (truth + weighted * bags * per_bag), "")
    assert found.bytes_written == 4 * bags * width


def test_an_embedding_is_the_same_with_its_operands_exchanged():
    table, indices = f32(100, 16), i64(2, 3)
    for name, inputs in (
        ("aten::embedding", (table, indices)),
        ("torch.nn.functional.embedding", (indices, table)),
    ):
        found = known(OpCall(name, inputs))
        assert (found.bytes_read, found.bytes_written) == (4 * 6 * 16 + 8 * 6, 4 * 6 * 16)


@given(LENGTHS, SMALL, st.sampled_from(["sum", "mean", "max"]))
def test_a_segment_s_count_is_exact_or_bounded(lengths, width, reduce):
    call = called(
        "segment_reduce",
        {"data": f32(sum(lengths), width), "lengths": i64(len(lengths))},
        {"reduce": reduce, "axis": 0},
    )
    found, truth = known(call), counted_groups(lengths, reduce == "mean")
    least, most = bounds(found.note) if found.note else (truth, truth)
    assert least <= truth <= most
    assert found.flops == least * width


@given(LENGTHS, SMALL, st.sampled_from(["Sum", "Mean"]))
def test_tensorflow_s_segments_are_exact_or_bounded(lengths, width, word):
    rows, segments = sum(lengths), len(lengths)
    out = (f32(segments, width),)
    truth = counted_groups(lengths, word == "Mean")
    for call in (
        OpCall(f"Segment{word}", (f32(rows, width), i64(rows)), out),
        OpCall(f"SparseSegment{word}", (f32(100, width), i64(rows), i64(rows)), out),
    ):
        found = known(call)
        least, most = bounds(found.note) if found.note else (truth, truth)
        assert least <= truth <= most
        assert found.flops == least * width


@given(st.integers(1, 6), SMALL, SMALL, st.integers(0, 2))
def test_a_bag_s_gradient(count, bags, width, mode):
    operands = {
        "grad": f32(bags, width),
        "indices": i64(count),
        "offset2bag": i64(count),
        "bag_size": i64(bags),
        "maximum_indices": i64(bags, width),
    }
    params = {"num_weights": 50, "mode": mode, "padding_idx": -1}
    found = known(called("_embedding_bag_dense_backward", operands, params))
    sum_of_rows, of_bags = count * width, bags * width
    assert found.flops == (sum_of_rows, sum_of_rows + of_bags, of_bags)[mode]
    places = (2 * count, 2 * count + bags, of_bags)[mode]
    assert found.bytes_read == 4 * of_bags + 8 * places
    assert found.bytes_written == 4 * 50 * width


# -------------------------------------------------------------------- operands in other places


def counted_substitution(n):
    """The operations of one triangular system of n unknowns, to the leading term's exactness: n²."""
    return sum(2 * known_ones + 1 for known_ones in range(n))  # multiply, subtract … divide


@given(SMALL, SMALL)
def test_a_triangular_system_from_the_right_has_a_system_per_row(n, k):
    a, right, left = f32(n, n), f32(n, k), f32(k, n)
    there = called("linalg_solve_triangular", {"self": a, "B": right}, {"left": True})
    back = called("linalg_solve_triangular", {"self": a, "B": left}, {"left": False})
    assert known(there).flops == known(back).flops == k * counted_substitution(n)


@given(SMALL, SMALL, SMALL, st.integers(2, 3))
def test_cudnn_s_grid_sampler_has_its_gradient_last(n, channels, side, grown):
    x, grid = f32(n, channels, side, side), f32(n, side, grown * side, 2)
    grad = f32(n, channels, side, grown * side)
    cudnn = known(
        called("cudnn_grid_sampler_backward", {"self": x, "grid": grid, "grad_output": grad})
    )
    plain = known(
        called(
            "grid_sampler_2d_backward",
            {"grad_output": grad, "input": x, "grid": grid},
            {"interpolation_mode": 0, "output_mask": (True, True)},
        )
    )
    assert cudnn == plain
    assert plain.flops == 2 * 2 * 4 * len(elements(grad.shape))


@given(SMALL, SMALL, st.integers(2, 4))
def test_onednn_s_pooling_has_its_output_before_its_input(n, channels, side):
    grad, x = f32(n, channels, side, side), f32(n, channels, 2 * side, 2 * side)
    operands = {"grad_output": grad, "output": grad, "input": x}
    found = known(called("mkldnn_max_pool2d_backward", operands, {"kernel_size": (2, 2)}))
    assert found.flops == len(elements(grad.shape))
    assert found.bytes_written == 4 * len(elements(x.shape))


@given(SMALL, st.integers(5, 6), st.integers(2, 4))
def test_onednn_s_convolution_has_its_input_before_its_gradient(c, o, size):
    x, grad, w = f32(2, c, 2 * size, 2 * size), f32(2, o, size, size), f32(o, c, 2, 2)
    params = (("stride", (2, 2)), ("output_mask", (True, True, False)))
    onednn = known(OpCall("aten::mkldnn_convolution_backward", (x, grad, w), None, params))
    plain = known(OpCall("aten::convolution_backward", (grad, x, w), None, params))
    assert onednn == plain
    assert plain.flops == 2 * 2 * (2 * size * size * o * c * 4)


@given(SMALL, SMALL, SMALL)
def test_a_ctc_loss_s_gradient_is_the_same_with_lengths_as_tensors(steps, batch, labels):
    shared = {
        "grad": f32(batch),
        "log_probs": f32(steps, batch, 7),
        "targets": i64(batch, labels),
        "neg_log_likelihood": f32(batch),
        "log_alpha": f32(batch, steps, 2 * labels + 1),
    }
    lengths = {"input_lengths": i64(batch), "target_lengths": i64(batch)}
    plain = known(called("_ctc_loss_backward", shared))
    told = known(called("_ctc_loss_backward", {**shared, **lengths}, overload=1))
    states = steps * batch * (2 * labels + 1)
    assert plain.flops == told.flops == 10 * states + 2 * steps * batch * 7


@given(st.integers(2, 5), SMALL)
def test_gathered_statistics_are_merged_and_the_input_is_not_read(processes, channels):
    operands = {
        "input": f32(64, channels, 32, 32),
        "mean": f32(processes, channels),
        "invstd": f32(processes, channels),
        "running_mean": f32(channels),
        "running_var": f32(channels),
        "counts": f32(processes),
    }
    found = known(called("batch_norm_gather_stats_with_counts", operands))
    assert found.bytes_read == 4 * (2 * processes * channels + 2 * channels + processes)
    assert found.bytes_written == 4 * 4 * channels
    assert found.flops == 16 * processes * channels


def test_the_sums_of_a_batch_norm_s_gradient_are_one_per_channel():
    shape = (8, 5, 4, 4)
    operands = {"grad_out": f32(*shape), "input": f32(*shape), "mean": f32(5), "invstd": f32(5)}
    params = {"input_g": True, "weight_g": True, "bias_g": False}
    found = known(called("batch_norm_backward_reduce", operands, params))
    assert (found.flops, found.bytes_written) == (5 * 640, 4 * 3 * 5)


@given(SMALL, SMALL)
def test_an_rms_norm_s_gradient_without_a_weight(rows, width):
    operands = {
        "grad_out": f32(rows, width),
        "input": f32(rows, width),
        "rstd": f32(rows, 1),
    }
    bare = known(called("_fused_rms_norm_backward", operands))
    whole = known(called("_fused_rms_norm_backward", {**operands, "weight": f32(width)}))
    assert (bare.flops, whole.flops) == (6 * rows * width, 9 * rows * width)


@given(SMALL, SMALL, st.booleans())
def test_the_gates_of_a_cell_write_its_states_and_gradients(batch, hidden, bias):
    state, units = f32(batch, hidden), batch * hidden
    kept = f32(batch, 4 * hidden)
    operands = {"grad_hy": state, "cx": state, "cy": state, "workspace": kept}
    lstm = known(called("_thnn_fused_lstm_cell_backward_impl", operands, {"has_bias": bias}))
    assert lstm.bytes_written == 4 * (4 * units + units + bias * 4 * hidden)
    operands = {"grad_hy": state, "workspace": f32(batch, 5 * hidden)}
    gru = known(called("_thnn_fused_gru_cell_backward", operands, {"has_bias": bias}))
    assert gru.bytes_written == 4 * (2 * 3 * units + units + bias * 2 * 3 * hidden)
    gates = f32(batch, 4 * hidden)
    operands = {"input_gates": gates, "hidden_gates": gates, "cx": state}
    forward = known(called("_thnn_fused_lstm_cell", operands))
    assert forward.bytes_written == 4 * (2 * units + 4 * units)


def test_a_packed_sequence_s_gradient_has_the_padded_input_s_size():
    operands = {"grad": f32(7, 16), "batch_sizes": i64(4)}
    params = {"input_size": (4, 3, 16), "batch_first": False}
    found = known(called("_pack_padded_sequence_backward", operands, params))
    assert (found.flops, found.bytes_written) == (0, 4 * 4 * 3 * 16)
    packed = {"data": f32(7, 16), "batch_sizes": i64(4)}
    padded = known(called("_pad_packed_sequence", packed, {"total_length": -1}))
    assert padded.bytes_written is None
    assert "padding" in padded.bytes_reason


# ------------------------------------------------------------------------------- interpolation


def test_an_unknown_mode_of_interpolation_is_unknown():
    resized = (("size", (8, 8)), ("mode", "sinc"))
    cost, why = perf.cost(
        OpCall("torch.nn.functional.interpolate", (f32(1, 3, 4, 4),), None, resized)
    )
    assert cost is None
    assert "sinc" in why


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_antialiasing_multiplies_the_taps_in_both_directions(kind):
    small, large = f32(1, 3, 4, 4), f32(1, 3, 16, 8)
    plain = {"output_size": (4, 4), "input_size": (1, 3, 16, 8)}
    word = f"upsample_{kind}2d"
    back = known(called(f"{word}_backward", {"grad_output": small}, plain)).flops
    smooth = known(called(f"_{word}_aa_backward", {"grad_output": small}, plain)).flops
    there = known(called(word, {"input": large}, {"output_size": (4, 4)})).flops
    smooth_there = known(called(f"_{word}_aa", {"input": large}, {"output_size": (4, 4)})).flops
    assert smooth == 8 * back
    assert smooth_there == 8 * there
    api = (("size", (4, 4)), ("mode", kind), ("antialias", True))
    found = known(OpCall("torch.nn.functional.interpolate", (large,), None, api))
    assert found.flops == smooth_there
