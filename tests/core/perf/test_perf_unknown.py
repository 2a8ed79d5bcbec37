"""What is not known is null with a reason: never 0, never a crash, whatever a trace holds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.registry import in_place
from opscope.core.rangetext import parse
from opscope.core.schema import DTYPE_BITS, OpCall, SameAs, TensorSpec

DIMS = st.one_of(st.integers(-1, 8), st.just("?"), st.just("s0"), st.just(2**40))
TENSORS = st.builds(
    TensorSpec,
    st.sampled_from(["f32", "bf16", "i64", "bool", "?", "c64", "f4e2m1", "strange"]),
    st.lists(DIMS, max_size=5).map(tuple),
)
ARGS = st.one_of(
    TENSORS,
    st.none(),
    st.builds(SameAs, st.integers(0, 5)),
    st.lists(TENSORS, max_size=3).map(tuple),
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=True), st.text(max_size=6),
    st.lists(st.integers(-2, 5), max_size=4).map(tuple),
)  # fmt: skip
KEYS = st.sampled_from(
    ["dim", "stride", "padding", "dilation", "groups", "transposed", "kernel_size", "output_size", "output_mask", "size", "equation", "k", "data_format", "is_causal", "num_groups", "lhs_contracting_dims", "mode", "hidden_size", "n_fft"]
)  # fmt: skip


NAMES = sorted(perf.entries())


#: What a strange trace may hold of a call; each is put to many names.
SHAPES = st.tuples(
    st.lists(ARGS, max_size=7).map(tuple),
    st.one_of(st.none(), st.lists(ARGS, max_size=3).map(tuple)),
    st.dictionaries(KEYS, VALUES, max_size=5).map(lambda given: tuple(given.items())),
)


@given(shape=SHAPES, others=st.lists(ARGS, max_size=4).map(tuple), part=st.integers(0, 149))
def test_no_call_breaks_a_model(shape, others, part):
    """Each drawn call is put to one in 150 of all names, so that most names meet a few."""
    for name in NAMES[part::150]:
        assert_sound(OpCall(name, *shape), OpCall(name, others))
    perf.columns([OpCall(name, *shape) for name in NAMES[part::150]])


#: Calls that say nothing, little, or what cannot be: each to every name.
POOR = [
    ((), None, ()),
    ((None, None, None), None, ()),
    ((TensorSpec("f32", ("?", "?")),) * 4, None, ()),
    ((TensorSpec("f32", (2, "s0", 3)),) * 4, (TensorSpec("f32", ("s0",)),), ()),
    ((TensorSpec("?", (4, 4)),) * 5, None, ()),
    ((TensorSpec("strange", (4, 4)),) * 5, (TensorSpec("strange", (4, 4)),), ()),
    ((TensorSpec("f32", ()),) * 6, None, ()),
    ((TensorSpec("f32", (0,)),) * 6, (TensorSpec("f32", (0,)),), ()),
    ((TensorSpec("f32", (3,) * 9),) * 6, None, (("dim", 12), ("kernel_size", (0, 0)))),
    ((TensorSpec("f32", (2**40, 2**40)),) * 5, None, ()),
    ((TensorSpec("i64", (-3, 4)),) * 5, None, ()),
    (((), (), ()), None, ()),
    (((TensorSpec("f32", (2, 2)), None),) * 4, None, (("weight_decay", "no"), ("N", "x"))),
]


@pytest.mark.parametrize("poor", POOR)
def test_every_model_stands_a_poor_call(poor):
    for name in NAMES:
        assert_sound(OpCall(name, *poor), None)
    perf.columns([OpCall(name, *poor) for name in NAMES])


def assert_sound(call, other):
    """A cost or a reason, figures that fit one another, and nothing raised."""
    for forward in (None, other) if other is not None else (None,):
        cost, why = perf.cost(call, forward=forward)
        assert (cost is None) == (why is not None)
        if cost is not None:
            assert cost.matrix_flops >= 0
            assert cost.vector_flops >= 0
            assert cost.masked_flops <= cost.matrix_flops
            assert sum(cost.by_dtype.values()) == cost.flops
            for side in (cost.bytes_read, cost.bytes_written):
                assert side is None or side >= 0
            assert cost.bytes is not None or cost.bytes_reason
    for gradient in (perf.input_grad, perf.weight_grad, perf.backward_costs):
        cost, why = gradient(call)
        assert (cost is None) == (why is not None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("my::op(f32[2,3])", "no cost model for my::op"),
        ("CompiledFunctionBackward(f32[2,3])", "a compiled region"),
        ('"Torch-Compiled Region: 0/0"()', "a compiled region"),
        ('"Optimizer.step#FusedAdam.step"()', "no shapes of its parameters"),
        ("aten::mm()", "no shapes"),
        ("aten::mm(f32[2,3])", "no shape for the second matrix"),
        ("aten::mm(f32[s0,3], f32[3,4])", "a dimension of a tensor is not known"),
        ("aten::mm(f32[?,3], f32[3,4])", "a dimension of a tensor is not known"),
        ("aten::mm(f32[2,3], f32[4,5])", "inner dimensions differ"),
        ("aten::add(f32[2], f32[3])", "do not broadcast"),
        ("aten::cudnn_convolution(f32[32,3,224,224], f32[64,3,7,7])", "stride and padding"),
        ("aten::cudnn_convolution_backward_weight(f32[2,8,5,5], f32[2,4,5,5])", "size of the weight"),
        ("aten::max_pool2d_with_indices(f32[2,8,5,5])", "size of the window"),
        ("aten::sum(f32[1024,100])", "which dimensions"),
        ("aten::topk(f32[4,100])", "record k"),
        ("aten::where(bool[4,4])", "how many elements are true"),
        ("aten::mm(f32[1099511627776,1099511627776], f32[1099511627776,2])", "too large"),
        ("aten::mm(f32[4611686018427387904,4], f32[4,2])", "dimension of a tensor is not known"),
        ("vllm::unified_attention(bf16[8,4,64], bf16[8,4,64], bf16[8,4,64])", "lengths"),
    ],
)  # fmt: skip
def test_reasons(text, reason):
    cost, why = perf.cost(parse(text))
    assert cost is None
    assert reason in why


def test_sizes_without_dtypes_give_flops_without_bytes():
    cost, why = perf.cost(parse("aten::addmm(?[4096], ?[64,1024], ?[1024,4096])"))
    assert why is None
    assert cost.matrix_flops == 2 * 64 * 1024 * 4096
    assert cost.bytes is None
    assert "without element types" in cost.bytes_reason
    # the empty sizes that stand for scalars in such texts are no operands
    cost, _ = perf.cost(parse("aten::addmm(?[4096], ?[64,1024], ?[1024,4096], ?[], ?[])"))
    assert cost.matrix_flops == 2 * 64 * 1024 * 4096


def test_moves_without_shapes_are_known_to_have_no_flops():
    for name in (
        "aten::copy_",
        "aten::cat",
        "aten::index",
        "aten::clone",
        "nccl:all_to_all",
        "aten::zero_",
    ):
        cost, why = perf.cost(OpCall(name))
        assert why is None, name
        assert cost.flops == 0
        assert cost.bytes is None
        assert cost.bytes_reason


def test_views_are_free_not_unknown():
    for name in ("aten::view", "aten::t", "aten::expand", "Tensor.view", "aten::detach_", "Reshape",
                 "hlo::bitcast", "aten::empty.memory_format"):  # fmt: skip
        cost, why = perf.cost(OpCall(name))
        assert why is None, name
        assert (cost.flops, cost.bytes) == (0, 0)
        assert perf.is_view(name)
    assert not perf.is_view("aten::copy_")
    assert not perf.is_view("nothing::such")


def test_defaults_that_were_taken_are_noted():
    bare, _ = perf.cost(parse("aten::_softmax(f32[4,5])"))
    told, _ = perf.cost(parse("aten::_softmax(f32[4,5]) {dim=-1}"))
    assert "defaults" in bare.note
    assert not told.note


def test_the_other_side_completes_a_call():
    forward = parse("aten::cudnn_convolution(f16[8,4,9,9], f16[16,4,3,3])")
    call = parse("aten::cudnn_convolution_backward_weight(f16[8,16,7,7], f16[8,4,9,9])")
    assert perf.wants_forward(call.name)
    cost, why = perf.cost(call, forward=forward)
    assert why is None
    assert cost.matrix_flops == 2 * 8 * 49 * 16 * 4 * 9
    assert cost.bytes_written == 2 * 16 * 4 * 9
    # an autograd node stands for both gradients of the forward that it differentiates
    node, _ = perf.cost(
        OpCall("AddmmBackward0"), forward=parse("aten::addmm(f32[5], f32[2,3], f32[3,5])")
    )
    assert node.matrix_flops == 2 * (2 * 2 * 3 * 5)
    assert perf.cost(OpCall("StrangeBackward0"), forward=OpCall("my::op"))[0] is None


def test_columns():
    calls = [parse("aten::mm(f16[8,8], f16[8,8])"), parse("my::op()"), parse("aten::view(f32[2])")]
    frame = perf.columns(calls)
    assert frame["matrix_flops"].to_list() == [1024, None, 0]
    assert frame["family"].to_list() == ["gemm", None, "view"]
    assert frame["reason"].to_list() == [None, "no cost model for my::op", None]
    assert frame["tc_eligible"].to_list() == [True, False, False]
    assert frame["dtype"].to_list() == ["f16", None, "f32"]
    assert frame["flops_by_dtype"].to_list()[0] == '{"f16": 1024}'
    assert perf.columns([]).schema == frame.schema


#: Operands that fit most ops: one, two or three matrices, batches of images and their filters.
FITTING = [
    (TensorSpec("f32", (4, 4)),),
    (TensorSpec("f32", (4, 4)),) * 3,
    (TensorSpec("f32", (2, 4, 8, 8)), TensorSpec("f32", (4, 4, 3, 3))),
]


@pytest.mark.parametrize("operands", FITTING)
def test_an_op_costs_the_same_by_the_name_that_the_api_has_for_it(operands):
    """Annotations of the API (``torch.linalg.svd``, ``Tensor.det``) are priced as the ATen op is."""
    compared = 0
    for name, entry in perf.entries().items():
        space, _, word = name.partition("::")
        if space != "aten" or word.startswith("_"):
            continue
        spellings = [f"torch.{word}", f"Tensor.{word}", f"torch.nn.functional.{word}"]
        if word.startswith(("linalg_", "fft_", "special_")):
            spellings.append(f"torch.{word.replace('_', '.', 1)}")
        # torch.nn.functional.embedding_bag takes the mean by default, ATen's op the sum
        params = (("dim", 0), ("mode", "sum")) if word == "embedding_bag" else (("dim", 0),)
        expected, _ = perf.cost(OpCall(name, operands, None, params))
        for spelling in spellings:
            if perf.entry_of(spelling) is entry:  # some are another op there
                found, _ = perf.cost(OpCall(spelling, operands, None, params))
                assert found == expected, spelling
                compared += 1
    assert compared > 1000


def test_every_spelling():
    for name in ("aten::add", "aten::add.Tensor", "aten::add_.Scalar", "aten::add_", "torch.add",
                 "Tensor.add_", "Tensor.__iadd__", "torch.Tensor.add"):  # fmt: skip
        assert perf.entry_of(name).name == "aten::add", name
    assert perf.entry_of("torch.nn.functional.linear").name == "aten::linear"
    assert perf.entry_of("torch.nn.functional.cross_entropy").name == "aten::cross_entropy_loss"
    assert perf.entry_of("aten::__and__.Tensor").name == "aten::__and__"
    assert perf.entry_of("aten::copy_").name == "aten::copy_"
    assert perf.entry_of("mm").name == perf.entry_of("aten::mm").name  # PyTorch 1.0's names
    assert perf.entry_of("ncclSend+ncclRecv").family == "communication"
    assert perf.entry_of("") is None
    assert in_place("aten::relu_")
    assert in_place("Tensor.__imul__")
    assert not in_place("Tensor.__invert__")
    assert not in_place("aten::__and__")


def test_in_place_reads_and_writes_itself():
    cost, _ = perf.cost(parse("aten::add_(f32[4,5], f32[5])"))
    assert (cost.bytes_read, cost.bytes_written) == (4 * 25, 4 * 20)
    cost, _ = perf.cost(parse("aten::mul_(bf16[4,5], f64[])"))
    assert cost.bytes_written == 2 * 20


def test_a_tensor_given_twice_is_read_once():
    cost, _ = perf.cost(parse("aten::mul(f32[4,5], =0)"))
    assert (cost.bytes_read, cost.vector_flops) == (80, 20)
    cost, _ = perf.cost(parse("aten::mul(f32[4,5], f32[4,5])"))
    assert cost.bytes_read == 160


def test_gathers_read_what_they_touch():
    cost, _ = perf.cost(parse("aten::embedding(f32[50000,64], i64[8,16])"))
    assert cost.bytes_read == 4 * 8 * 16 * 64 + 8 * 8 * 16
    assert cost.bytes_written == 4 * 8 * 16 * 64
    cost, _ = perf.cost(parse("aten::index_select(f32[50000,64], i64[10]) {dim=0}"))
    assert cost.bytes_read == 4 * 10 * 64 + 80


def test_the_registry_is_wide_and_says_where_formulas_are_from():
    known = perf.entries()
    assert len(known) > 300
    assert all(entry.source and entry.family for entry in known.values())
    families = {entry.family for entry in known.values()}
    assert {"gemm", "conv", "attention", "norm", "activation", "softmax", "elementwise", "reduction",
            "pooling", "embedding", "loss", "optimizer", "recurrent", "random", "copy", "view", "index",
            "sort", "fft", "linalg", "communication", "interpolation"} <= families  # fmt: skip
    assert set(DTYPE_BITS) >= {"f8e4m3fn", "f4e2m1"}


def test_a_name_cannot_be_taken_twice():
    with pytest.raises(ValueError, match="already has a cost model"):
        perf.op("aten::mm", family="gemm")(lambda call: perf.Cost())


def test_the_page_of_ops_is_up_to_date():
    script = Path(__file__).parents[3] / "scripts" / "make_ops_doc.py"
    if not script.is_file():
        pytest.skip("the source distribution has no scripts")
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


LONG = ("aten::_foreach_add_.List", "aten::cat", "aten::mm", "aten::copy_", "c10d::allreduce_")


@pytest.mark.parametrize("name", LONG)
def test_a_call_whose_text_was_cut_has_no_cost(name):
    two = TensorSpec("f32", (8, 8))
    call = OpCall(name, ((two, two), two), (two,))
    if name == "aten::mm":
        call = OpCall(name, (two, two), (two,))
    known, _ = perf.cost(call)
    assert known is not None
    cut, reason = perf.cost(replace(call, truncated=True))
    assert (None if cut is None else cut.bytes) is None
    assert "cut" in (reason or (cut and cut.bytes_reason) or "")


def test_a_view_whose_text_was_cut_still_moves_nothing():
    call = OpCall("aten::split.Tensor", (TensorSpec("f32", (8,)),), None, truncated=True)
    found, _ = perf.cost(call)
    assert (found.flops, found.bytes) == (0, 0)


def test_a_gradient_of_a_call_whose_text_was_cut_has_no_cost():
    two = TensorSpec("f32", (8, 8))
    forward = OpCall("aten::mm", (two, two), (two,))
    node = OpCall("MmBackward0")
    assert perf.cost(node, forward=forward)[0] is not None
    found, _ = perf.cost(node, forward=replace(forward, truncated=True))
    assert found is None


#: Parts of messages of Python's and NumPy's own, which say nothing to a reader of a report.
_PYTHONS = (
    "index out of",
    "unpack",
    "invalid literal",
    "empty",
    "not subscriptable",
    "math domain",
    "division",
)


@pytest.mark.parametrize("inputs", [(), (TensorSpec("f32", ()),), (TensorSpec("f32", (3,)),) * 9])
def test_no_reason_is_a_message_of_python(inputs):
    for name in NAMES:
        for call in (OpCall(name, inputs, None), OpCall(name, inputs, (TensorSpec("f32", (2,)),))):
            reason = perf.cost(call)[1] or ""
            assert not any(part in reason for part in _PYTHONS), f"{call}: {reason}"


def test_a_call_without_shapes_says_so():
    for name in (
        "MaxPoolGradWithArgmax",
        "Conv2DBackpropFilterD",
        "Conv2DBackpropInputD",
        "FusedMulApplyMomentum",
    ):
        assert perf.cost(OpCall(name))[0] is None
    assert perf.cost(OpCall("MaxPoolGradWithArgmax"))[1] == "the trace has no shapes for this call"


def test_what_serves_an_ascend_device_computes_nothing():
    for name in ("GetNext", "InitData", "EndOfSequence", "MemSet", "AtomicAddrClean"):
        found, _ = perf.cost(OpCall(name))
        assert found is not None
        assert (found.flops, found.bytes) == (0, None), name


def test_a_scaled_momentum_counts_the_scaling():
    text = "FusedMulApplyMomentum(f32[10], f32[10], f32[], f32[10], f32[], f32[]) -> f32[10]"
    found, _ = perf.cost(parse(text))
    plain, _ = perf.cost(parse("ApplyMomentum(f32[10], f32[10], f32[], f32[10], f32[]) -> f32[10]"))
    assert found is not None
    assert plain is not None
    assert found.vector_flops == plain.vector_flops + 10
    assert dict(found.by_dtype) == {"f32": 50}
