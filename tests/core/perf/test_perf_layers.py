"""Layers that are one op: their sizes are in their inputs, and states are no weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.rangetext import parse

SIZES = st.integers(1, 40)


def cost(text):
    found, why = perf.cost(parse(text))
    assert found is not None, why
    return found


def onednn(steps, batch, features, hidden):
    gates = 4 * hidden
    return (
        f"f32[{steps},{batch},{features}], f32[{gates},{features}], f32[{gates},{hidden}], "
        f"f32[{gates}], f32[{gates}], f32[{batch},{hidden}], f32[{batch},{hidden}]"
    )


LSTM = "{mode=2, hidden_size=%d, num_layers=1, has_biases=true, bidirectional=false, train=true}"


def test_the_states_of_onednn_s_layer_are_no_weights():
    call = f"aten::mkldnn_rnn_layer({onednn(5, 512, 64, 64)}) {LSTM % 64}"
    assert cost(call).matrix_flops == 167_772_160


@given(SIZES, SIZES, SIZES, SIZES)
def test_onednn_s_layer_counts_as_the_layer_around_it(steps, batch, features, hidden):
    state = f"f32[1,{batch},{hidden}]"
    weights = f"f32[{4 * hidden},{features}], f32[{4 * hidden},{hidden}], f32[{4 * hidden}], f32[{4 * hidden}]"
    whole = cost(
        f"aten::lstm.input(f32[{steps},{batch},{features}], [{state}, {state}], [{weights}])"
    )
    one = cost(f"aten::mkldnn_rnn_layer({onednn(steps, batch, features, hidden)}) {LSTM % hidden}")
    assert (one.matrix_flops, one.vector_flops) == (whole.matrix_flops, whole.vector_flops)


@given(SIZES, SIZES, SIZES, SIZES)
def test_its_backward_is_twice_its_forward(steps, batch, features, hidden):
    forward = f"{onednn(steps, batch, features, hidden)}"
    out, state = f"f32[{steps},{batch},{hidden}]", f"f32[{batch},{hidden}]"
    one = cost(f"aten::mkldnn_rnn_layer({forward}) {LSTM % hidden}")
    back = cost(
        f"aten::mkldnn_rnn_layer_backward({forward}, {out}, {state}, {state}, {out}, _, _, u8[99]) "
        f"{LSTM % hidden}"
    )
    assert back.matrix_flops == 2 * one.matrix_flops
    assert back.vector_flops == 2 * one.vector_flops
    gradients = 4 * (
        steps * batch * features + 4 * hidden * (features + hidden + 2) + 2 * batch * hidden
    )
    assert back.bytes_written == gradients


def test_a_projection_of_a_packed_sequence_is_a_weight_and_has_no_gates():
    weights = "f32[32,6], f32[32,3], f32[32], f32[32], f32[3,8]"
    packed = f"aten::lstm.data(f32[10,6], i64[4], [f32[1,4,3], f32[1,4,8]], [{weights}])"
    found = cost(packed)
    assert found.matrix_flops == 2 * 10 * (32 * 6 + 32 * 3 + 3 * 8)
    assert found.vector_flops == 22 * 10 * 8


def encoder(batch, length, width, inner):
    return (
        f"f32[{batch},{length},{width}], f32[{3 * width},{width}], f32[{3 * width}], f32[{width},{width}], "
        f"f32[{width}], f32[{width}], f32[{width}], f32[{width}], f32[{width}], f32[{inner},{width}], "
        f"f32[{inner}], f32[{width},{inner}], f32[{width}], _"
    )


@given(st.integers(1, 8), SIZES, st.integers(1, 6), st.integers(1, 6), SIZES)
def test_an_encoder_layer_is_the_sum_of_its_products(batch, length, heads, each, inner):
    width = heads * each
    call = f"aten::_transformer_encoder_layer_fwd({encoder(batch, length, width, inner)})"
    found = cost(f"{call} {{embed_dim={width}, num_heads={heads}, use_gelu=false}}")
    tokens = batch * length
    products = 2 * tokens * (4 * width * width + 2 * width * inner)
    assert found.matrix_flops == products + 4 * batch * length * length * width
    assert found.vector_flops > tokens * (inner + 2 * width)
    assert found.bytes_written == 4 * tokens * width


@pytest.mark.parametrize("heads", ["", "num_heads=0", "num_heads=5"])
def test_an_encoder_layer_of_which_the_heads_do_not_fit_is_not_known(heads):
    found, why = perf.cost(
        parse(f"aten::_transformer_encoder_layer_fwd({encoder(2, 3, 8, 9)}) {{{heads}}}")
        if heads
        else parse(f"aten::_transformer_encoder_layer_fwd({encoder(2, 3, 8, 9)})")
    )
    assert found is None
    assert "heads" in why
