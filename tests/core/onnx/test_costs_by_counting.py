"""FLOPs of ONNX's nodes and of those that ONNX Runtime makes, against loops that count multiply-adds."""

from itertools import product

import pytest

from opscope.core.perf import cost
from opscope.core.rangetext import parse


def flops(text):
    """The matrix FLOPs of a call; the reason where they cannot be known."""
    found, reason = cost(parse(text))
    return found.matrix_flops if found is not None else reason


def product_by_loops(a, b):
    """2 per multiply-add of [..., M, K] · [..., K, N], one at a time."""
    count = 0
    for _ in product(*map(range, (*a[:-1], b[-1], a[-1]))):
        count += 2
    return count


def conv_by_loops(x, w, strides, pads, dilations, groups):
    """2 per weight and position of the padded input, padding included as every convention does."""
    count = 0
    sizes = [
        (size + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1
        for size, k, stride, pad, dilation in zip(
            x[2:], w[2:], strides, pads, dilations, strict=True
        )
    ]
    for _ in product(range(x[0]), range(w[0]), *map(range, sizes)):  # each result
        for _ in product(range(x[1] // groups), *map(range, w[2:])):  # each of its weights
            count += 2
    return count, (x[0], w[0], *sizes)


def dims(shape):
    return ",".join(map(str, shape))


@pytest.mark.parametrize("op", ["Conv", "FusedConv"])
@pytest.mark.parametrize(
    ("x", "w", "stride", "pad", "dilation", "groups"),
    [((2, 3, 9, 7), (4, 3, 3, 3), 1, 1, 1, 1), ((1, 4, 8, 8), (8, 2, 3, 3), 2, 0, 1, 2),
     ((1, 6, 9, 9), (6, 1, 3, 3), 1, 2, 2, 6)],
)  # fmt: skip
def test_convolutions(op, x, w, stride, pad, dilation, groups):
    count, out = conv_by_loops(x, w, (stride,) * 2, (pad,) * 2, (dilation,) * 2, groups)
    attributes = f"{{group={groups}, pads=[{pad}, {pad}, {pad}, {pad}], strides=[{stride}, {stride}], dilations=[{dilation}, {dilation}], kernel_shape=[3, 3]}}"
    assert flops(f"{op}(f32[{dims(x)}], f32[{dims(w)}]) -> f32[{dims(out)}] {attributes}") == count


def test_quantised_convolutions_in_both_layouts():
    x, w = (1, 3, 8, 8), (4, 3, 3, 3)
    count, out = conv_by_loops(x, w, (1, 1), (1, 1), (1, 1), 1)
    last = (1, 8, 8, 4)
    scales = "f32[], u8[]"
    for op in ("QLinearConv", "QLinearConv_nhwc"):
        for a, b in ((x, out), ((1, 8, 8, 3), last)):
            text = f"{op}(u8[{dims(a)}], {scales}, i8[{dims(w)}], f32[4], i8[4], {scales}) -> u8[{dims(b)}]"
            assert flops(text) == count
    assert (
        flops(f"ConvInteger(u8[{dims(x)}], i8[{dims(w)}], u8[], i8[]) -> i32[{dims(out)}]") == count
    )
    text = f"NhwcFusedConv(f16[1,8,8,3], f16[{dims(w)}]) -> f16[{dims(last)}]"
    assert flops(text) == count


def test_channels_that_were_padded_to_whole_blocks_do_not_count():
    padded = "Conv(f32[2,3,16,16], f32[16,3,3,3]) -> f32[2,16,16,16] "
    count, _ = conv_by_loops((2, 3, 16, 16), (8, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    assert flops(padded + '{domain="com.microsoft.nchwc", unpadded=[8, 3, 3, 3]}') == count
    found, _ = cost(parse(padded + '{domain="com.microsoft.nchwc"}'))
    assert found.matrix_flops == 2 * count
    assert "padded" in found.note


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        ("MatMul(f32[2,5,3], f32[3,4]) -> f32[2,5,4]", (2, 5, 3), (3, 4)),
        ("Gemm(f32[5,3], f32[4,3], f32[4]) -> f32[5,4] {transB=1}", (5, 3), (3, 4)),
        ("FusedGemm(f32[3,5], f32[3,4], f32[4]) -> f32[5,4] {transA=1}", (5, 3), (3, 4)),
        ("FusedMatMul(f32[2,5,3], f32[2,4,3]) -> f32[2,5,4] {transB=1}", (2, 5, 3), (2, 3, 4)),
        ("FusedMatMul(f32[5,2,3], f32[2,3,4]) -> f32[2,5,4] {transBatchA=1}", (2, 5, 3), (2, 3, 4)),
        ("MatMulInteger(u8[5,3], i8[3,4], u8[], i8[]) -> i32[5,4]", (5, 3), (3, 4)),
        (
            "QLinearMatMul(u8[5,3], f32[], u8[], i8[3,4], f32[], i8[], f32[], u8[]) -> u8[5,4]",
            (5, 3),
            (3, 4),
        ),
        ("DynamicQuantizeMatMul(f32[5,3], i8[3,4], f32[4], i8[4]) -> f32[5,4]", (5, 3), (3, 4)),
        (
            "MatMulIntegerToFloat(u8[5,3], i8[3,4], f32[], f32[4], u8[], i8[]) -> f32[5,4]",
            (5, 3),
            (3, 4),
        ),
        (
            "MatMulNBits(f32[2,5,32], u8[4,1,16], f32[4]) -> f32[2,5,4] {K=32, N=4, bits=4}",
            (2, 5, 32),
            (32, 4),
        ),
        ("QGemm(u8[5,3], f32[], u8[], i8[4,3], f32[], i8[]) -> u8[5,4] {transB=1}", (5, 3), (3, 4)),
    ],
)
def test_products(text, a, b):
    assert flops(text) == product_by_loops(a, b)


def test_a_product_whose_weight_was_packed_away_is_unknown():
    # a bias as long as the rows must not pass for the weight
    assert "packed weight" in flops("Gemm(f32[5,4], _, f32[4]) -> f32[5,4]")
    assert "packed weight" in flops("Gemm(f32[5,4], f32[4]) -> f32[5,4]")


def attention_by_loops(batch, heads, queries, keys, size, out, causal=False):
    """(2 per multiply-add of scores and context, those that a causal mask spares)."""
    count = masked = 0
    for _, _, i, j in product(range(batch), range(heads), range(queries), range(keys)):
        work = 2 * size + 2 * out
        count += work
        masked += work if causal and j > i + keys - queries else 0
    return count, masked


def test_attention_with_its_projection_and_past():
    b, n, h, d, past = 2, 5, 3, 4, 6
    wide = h * d
    weight = f"f32[{wide},{3 * wide}], f32[{3 * wide}]"
    projection = product_by_loops((b, n, wide), (wide, 3 * wide))
    count, masked = attention_by_loops(b, h, n, n, d, d, causal=True)
    text = f"Attention(f32[{b},{n},{wide}], {weight}) -> f32[{b},{n},{wide}] {{num_heads={h}, unidirectional=1}}"
    found, _ = cost(parse(text))
    assert (found.matrix_flops, found.masked_flops) == (projection + count, masked)
    count, masked = attention_by_loops(b, h, n, n + past, d, d, causal=True)
    kept = f"f32[2,{b},{h},{past},{d}]"
    text = f"Attention(f32[{b},{n},{wide}], {weight}, _, {kept}) -> (f32[{b},{n},{wide}], f32[2,{b},{h},{n + past},{d}]) {{num_heads={h}, unidirectional=1}}"
    found, _ = cost(parse(text))
    assert (found.matrix_flops, found.masked_flops) == (projection + count, masked)
    text = f"QAttention(u8[{b},{n},{wide}], i8[{wide},{3 * wide}], f32[{3 * wide}], f32[], f32[], _, u8[], i8[]) -> f32[{b},{n},{wide}] {{num_heads={h}}}"
    assert flops(text) == projection + attention_by_loops(b, h, n, n, d, d)[0]


def test_attention_of_three_unequal_widths():
    text = "Attention(f32[2,5,8], f32[8,22], f32[22]) -> f32[2,5,6] {num_heads=2, qkv_hidden_sizes=[8, 8, 6]}"
    count, _ = attention_by_loops(2, 2, 5, 5, 4, 3)
    assert flops(text) == product_by_loops((2, 5, 8), (8, 22)) + count


def test_multi_head_attention_in_each_layout():
    b, n, m, h, d, e = 2, 5, 7, 3, 4, 2
    count, _ = attention_by_loops(b, h, n, m, d, e)
    plain = f"MultiHeadAttention(f32[{b},{n},{h * d}], f32[{b},{m},{h * d}], f32[{b},{m},{h * e}]) -> f32[{b},{n},{h * e}] {{num_heads={h}}}"
    assert flops(plain) == count
    cross = f"MultiHeadAttention(f32[{b},{n},{h * d}], f32[{b},{h},{m},{d}], f32[{b},{h},{m},{e}]) -> f32[{b},{n},{h * e}] {{num_heads={h}}}"
    assert flops(cross) == count
    packed = f"MultiHeadAttention(f32[{b},{n},{h},3,{d}]) -> f32[{b},{n},{h * d}] {{num_heads={h}}}"
    assert flops(packed) == attention_by_loops(b, h, n, n, d, d)[0]
    past = f"MultiHeadAttention(f32[{b},1,{h * d}], f32[{b},1,{h * d}], f32[{b},1,{h * d}], _, _, _, f32[{b},{h},6,{d}], f32[{b},{h},6,{d}]) -> f32[{b},1,{h * d}] {{num_heads={h}}}"
    assert flops(past) == attention_by_loops(b, h, 1, 7, d, d)[0]


def test_grouped_queries_with_a_cache_that_grows_and_with_a_buffer():
    b, h, g, d = 2, 4, 2, 8
    head = f"GroupQueryAttention(f32[{b},1,{h * d}], f32[{b},1,{g * d}], f32[{b},1,{g * d}], f32[{b},{g},6,{d}], f32[{b},{g},6,{d}], i32[{b}], i32[])"
    tail = f"{{num_heads={h}, kv_num_heads={g}}}"
    grows = f"{head} -> (f32[{b},1,{h * d}], f32[{b},{g},7,{d}], f32[{b},{g},7,{d}]) {tail}"
    assert flops(grows) == attention_by_loops(b, h, 1, 7, d, d)[0]
    buffer = f"{head} -> (f32[{b},1,{h * d}], f32[{b},{g},6,{d}], f32[{b},{g},6,{d}]) {tail}"
    assert "data that no trace records" in flops(buffer)
    packed = f"GroupQueryAttention(f32[{b},5,{(h + 2 * g) * d}], _, _) -> f32[{b},5,{h * d}] {tail}"
    found, _ = cost(parse(packed))
    count, masked = attention_by_loops(b, h, 5, 5, d, d, causal=True)
    assert (found.matrix_flops, found.masked_flops) == (count, masked)


def test_attention_of_the_standard():
    b, h, g, n, m, d, e = 2, 4, 2, 5, 7, 8, 6
    four = f"Attention(f32[{b},{h},{n},{d}], f32[{b},{g},{m},{d}], f32[{b},{g},{m},{e}]) -> f32[{b},{h},{n},{e}]"
    count, _ = attention_by_loops(b, h, n, m, d, e)
    assert flops(four) == count
    three = f"Attention(f32[{b},{n},{h * d}], f32[{b},{m},{g * d}], f32[{b},{m},{g * e}]) -> f32[{b},{n},{h * e}] {{q_num_heads={h}, kv_num_heads={g}}}"
    assert flops(three) == count


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(op, gates):
    t, b, i, h, directions = 5, 2, 4, 3, 2
    count = 0
    for _ in product(range(directions), range(t), range(b), range(gates * h)):
        count += 2 * i + 2 * h
    text = f"{op}(f32[{t},{b},{i}], f32[{directions},{gates * h},{i}], f32[{directions},{gates * h},{h}]) -> f32[{t},{directions},{b},{h}]"
    assert flops(text) == count
    if op == "LSTM":
        text = f"DynamicQuantizeLSTM(f32[{t},{b},{i}], i8[{directions},{i},{4 * h}], i8[{directions},{h},{4 * h}]) -> f32[{t},{directions},{b},{h}]"
        assert flops(text) == count
        plain, _ = cost(parse("LSTM(f32[5,2,4], f32[2,12,4], f32[2,12,3]) -> f32[5,2,2,3]"))
        quantised, _ = cost(parse(text))
        assert quantised.vector_flops == plain.vector_flops


def test_norms_that_add_before_they_normalise():
    def vector(text):
        found, reason = cost(parse(text))
        assert found is not None, reason
        return found.vector_flops

    n = 2 * 5 * 8
    x = "f32[2,5,8]"
    assert vector(f"LayerNormalization({x}, f32[8], f32[8]) -> {x}") == 7 * n
    assert vector(f"SkipLayerNormalization({x}, {x}, f32[8], f32[8]) -> {x}") == 8 * n
    assert vector(f"SkipLayerNormalization({x}, {x}, f32[8], f32[8], f32[8]) -> {x}") == 9 * n
    ids = "i32[2,5]"
    tables = "f32[100,8], f32[32,8], f32[2,8]"
    # two additions of three rows, and the norm
    assert (
        vector(f"EmbedLayerNormalization({ids}, {ids}, {tables}, f32[8], f32[8]) -> ({x}, i32[2])")
        == 9 * n
    )
    assert vector(f"BiasGelu({x}, f32[8]) -> {x}") == 6 * n
