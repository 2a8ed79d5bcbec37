"""The range text: every call comes back as it was; a cut text comes back as a prefix."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import rangetext
from opscope.core.rangetext import CUT, RangeTextError, format_call, parse
from opscope.core.schema import LAYOUTS, OpCall, SameAs, TensorSpec

ANY_NAME = st.text(max_size=12) | st.sampled_from(
    [
        "aten::add.Tensor",
        'a "b" c',
        "x -> y",
        "{}",
        "a, b",
        "[1]",
        "ünï",
        "<cut>",
        "\n",
        "_",
        "=1",
        "\ud800",
    ]
)
DIM = (
    st.integers(0, 2**40)
    | st.just("?")
    | st.sampled_from(["s0", "batch", "2*s0", "", "-", "é", "a,b", "]"])
)
DTYPE = st.sampled_from(["f32", "bf16", "f8e4m3fn", "i64", "bool", "?", "quint4x2"])


@st.composite
def tensors(draw) -> TensorSpec:
    shape = tuple(draw(st.lists(DIM, max_size=4)))
    layout = draw(st.sampled_from(["row", "order", "strides", "named"]))
    order = tuple(draw(st.permutations(range(len(shape))))) if layout == "order" else None
    strides = (
        tuple(draw(st.lists(DIM, min_size=len(shape), max_size=len(shape))))
        if layout == "strides"
        else None
    )
    name = draw(st.sampled_from(LAYOUTS)) if layout == "named" else None
    stored = draw(st.none() | st.integers(0, 2**62)) if layout == "named" else None
    return TensorSpec(draw(DTYPE), shape, order, strides, name, stored)


ARGS = st.recursive(
    tensors() | st.none() | st.builds(SameAs, st.integers(0, 9)),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.tuples(inner, st.integers(0, 5)).map(lambda pair: (pair[0],) * pair[1])
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | ANY_NAME,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
CALLS = st.builds(
    OpCall,
    name=ANY_NAME,
    inputs=st.lists(ARGS, max_size=5).map(tuple),
    outputs=st.none() | st.lists(ARGS, max_size=3).map(tuple),
    params=st.lists(st.tuples(ANY_NAME, VALUES), max_size=4).map(tuple),
    device=st.none() | ANY_NAME | st.sampled_from(["cuda:0", "cpu"]),
    frames=st.lists(
        st.tuples(ANY_NAME | st.just("C:/a b/x.py"), st.integers(0, 10**9)), max_size=3
    ).map(tuple),
)


def values_equal(left, right):
    """Equality under which NaN equals itself and ``1`` is not ``True``."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(values_equal, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


def same(left: OpCall, right: OpCall) -> bool:
    """Equality under which NaN parameters are equal and 1, 1.0 and True are not."""
    keys = [key for key, _ in left.params] == [key for key, _ in right.params]
    values = values_equal(tuple(v for _, v in left.params), tuple(v for _, v in right.params))
    rest = (left.name, left.inputs, left.outputs, left.device, left.frames, left.truncated) == (
        right.name, right.inputs, right.outputs, right.device, right.frames, right.truncated
    )  # fmt: skip
    return keys and values and rest


@given(CALLS)
def test_round_trip(call):
    text = format_call(call, None)
    assert "\n" not in text
    assert same(parse(text), call)


@given(CALLS, st.integers(40, 300))
def test_a_cut_text_is_short_and_parses_to_a_prefix(call, limit):
    text = format_call(call, limit)
    whole = format_call(call, None)
    if len(whole.encode("utf-8", "surrogatepass")) <= limit:
        assert text == whole
        return
    assert len(text.encode()) <= limit
    prefix = parse(text)
    assert prefix.truncated
    place = "".join(rangetext._place(call))
    if len(place.encode("utf-8", "surrogatepass")) <= limit // 2:
        assert (prefix.device, prefix.frames) == (call.device, call.frames)
        assert text.endswith(CUT + place)
    assert prefix.frames == call.frames[: len(prefix.frames)]
    assert same(parse(format_call(prefix, None)), prefix)
    assert call.name.startswith(prefix.name)
    if prefix.params:
        assert [k for k, _ in prefix.params] == [k for k, _ in call.params][: len(prefix.params)]
    assert len(prefix.inputs) <= len(call.inputs)
    # every argument but the last, which may be a list cut in its middle, is whole
    assert prefix.inputs[:-1] == call.inputs[: len(prefix.inputs)][:-1]


@given(CALLS)
def test_a_result_mark_carries_the_outputs_and_the_device(call):
    if call.outputs is not None:
        told = rangetext.parse_result(rangetext.format_result(call.outputs, call.device))
        assert same(told, OpCall("_", (), call.outputs, device=call.device))


def test_a_cut_text_keeps_its_device_and_source():
    inputs = (tuple(TensorSpec("f32", (n, 7)) for n in range(400)),)
    call = OpCall(
        "aten::_foreach_add_",
        inputs,
        (),
        (("alpha", 1),),
        "cuda:1",
        (("train.py", 42), ("a b.py", 7)),
    )
    text = format_call(call)
    assert 4000 < len(text) <= 4096
    assert text.endswith('],<cut> on cuda:1 @train.py:42 < "a b.py":7')
    assert (parse(text).device, parse(text).frames) == (call.device, call.frames)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("f(f32[1],<cut>", OpCall("f", (TensorSpec("f32", (1,)),), truncated=True)),
        ("f(<cut>", OpCall("f", truncated=True)),
        ("f() -><cut>", OpCall("f", truncated=True)),
        ("f() {a=1,<cut>", OpCall("f", (), None, (("a", 1),), truncated=True)),
        ("f() on cpu<cut>", OpCall("f", device="cpu", truncated=True)),
        ("f() on cpu @a.py:1<cut>", OpCall("f", (), None, (), "cpu", (("a.py", 1),), True)),
    ],
)
def test_a_text_cut_from_its_end_as_once_is_read(text, call):
    assert parse(text) == call


def test_the_mark_of_the_cut_within_a_string_is_text():
    call = OpCall("f", (), None, (("a", "<cut> on cpu"),), "<cut>", (("<cut>.py", 1),))
    assert parse(format_call(call)) == call
    assert not parse(format_call(call)).truncated


@given(st.text() | CALLS.map(lambda call: format_call(call, None)).flatmap(
    lambda text: st.integers(0, len(text)).map(lambda at: text[:at] + CUT) | st.just(text[1:])
))  # fmt: skip
def test_any_text_parses_or_raises_its_own_error(text):
    with contextlib.suppress(RangeTextError):
        parse(text)


def test_the_text_of_the_design():
    text = (
        "aten::addmm(f16[4096], f16[64,1024], f16[1024,4096]{0,1}) -> f16[64,4096]"
        " {beta=1, alpha=1} on cuda:0 @train.py:42 < model.py:17"
    )
    call = parse(text)
    assert format_call(call) == text
    assert call.name == "aten::addmm"
    assert call.tensor(2) == TensorSpec("f16", (1024, 4096), (0, 1))
    assert call.outputs == (TensorSpec("f16", (64, 4096)),)
    assert call.param("beta") == 1
    assert call.frames == (("train.py", 42), ("model.py", 17))


def test_back_references_count_the_leaves_of_the_inputs():
    call = parse("f([f32[1], f32[2]], _, =1) -> (=0, =3)")
    two = TensorSpec("f32", (2,))
    assert call.input_leaves() == (TensorSpec("f32", (1,)), two, None, two)
    assert call.output_leaves() == (TensorSpec("f32", (1,)), two)
    assert call.arg(2) == two


@pytest.mark.parametrize(
    "hostile",
    [
        "f(" + "[" * 5000,
        "f([[[f32[1]]*99999]*99999]*99999)",
        "f(" + "f32[" + "9" * 50 + "])",
        "f() {a=" + "[" * 100_000 + "}",
        "f(f32[1]{x})",
        "f(f32[1]{csr:})",
        "f(f32[1]{csr:-1})",
        "f(f32[1]{csr:" + "9" * 50 + "})",
        "f(f32[1]{csr,0})",
        "f([f32[1]]*-1)",
        'f() {a={"b": 1}}',
    ],
)
def test_hostile_texts_are_refused_quickly(hostile):
    with pytest.raises(RangeTextError):
        parse(hostile)


@pytest.mark.parametrize(
    ("text", "layout", "stored"),
    [("f32[8,4]{csr:12}", "csr", 12), ("f32[8,4]{coo}", "coo", None), ("f32[8]{mkldnn}", "mkldnn", None)],
)  # fmt: skip
def test_a_layout_without_strides_has_a_name(text, layout, stored):
    (tensor,) = parse(f"f({text})").inputs
    assert (tensor.layout, tensor.stored, tensor.strides) == (layout, stored, None)
    assert rangetext.format_tensor(tensor) == text


def test_a_symbol_may_have_a_layouts_name():
    assert parse("f(f32[csr,4]{s:csr,1})").inputs == (
        TensorSpec("f32", ("csr", 4), strides=("csr", 1)),
    )


def test_the_bytes_of_a_sparse_tensor_are_not_its_sizes():
    assert TensorSpec("f32", (8, 4), layout="csr", stored=3).nbytes is None
    assert TensorSpec("f32", (8, 4), layout="mkldnn").nbytes == 128


def test_numel_and_bytes_are_unknown_where_the_shape_is():
    assert TensorSpec("f32", (2, "?")).nbytes is None
    assert TensorSpec("?", (2, 3)).nbytes is None
    assert TensorSpec("f4e2m1", (3,)).nbytes == 2
    assert TensorSpec("f64", ()).nbytes == 8
