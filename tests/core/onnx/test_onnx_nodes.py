"""What needs no onnx: a node's call with a run's tensors, origins of fused nodes, layers from names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.dialects import own
from opscope.core.onnx.actual import call_of_run
from opscope.core.onnx.dtypes import OF_NUMBER, of_number, of_word
from opscope.core.onnx.model import Node
from opscope.core.onnx.origins import origins, stem
from opscope.core.onnx.places import common_layer, frames_of, layer_of
from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall, SameAs, TensorSpec


def made(op, inputs, outputs, name="", specs=None, results=None, weights=(), domain=""):
    """A node; ``specs``, ``results``: its tensors as the model knows them."""
    specs = tuple(specs or (None,) * len(inputs))
    results = tuple(results or (None,) * len(outputs))
    call = OpCall(op, specs, results, (("node", name),))
    return Node(
        "",
        name,
        name or op,
        0,
        op,
        domain,
        call,
        None,
        tuple(inputs),
        tuple(outputs),
        tuple(weights),
    )


def f32(*shape):
    return TensorSpec("f32", shape)


# ------------------------------------------------------------------------------------- shapes


def test_a_packed_weight_keeps_the_models_shape():
    gemm = made("Gemm", ["x", "w", "b"], ["y"], specs=[f32("N", 16), f32(10, 16), f32(10)],
                results=[f32("N", 10)], weights=(1, 2))  # fmt: skip
    call = call_of_run(gemm, [f32(2, 16), f32(10)], [f32(2, 10)])
    assert call.inputs == (f32(2, 16), f32(10, 16), f32(10))
    assert call.outputs == (f32(2, 10),)


def test_an_absent_input_stays_absent():
    conv = made("Clip", ["x", "", "max"], ["y"], specs=[f32("N"), None, f32()], weights=(2,))
    assert call_of_run(conv, [f32(3), f32()], [f32(3)]).inputs == (f32(3), None, f32())


def test_the_size_of_a_symbol_is_that_of_the_run_everywhere():
    node = made(
        "MatMul",
        ["x", "w"],
        ["y"],
        specs=[f32("N", 4), f32(4, 5)],
        results=[f32("N", 5)],
        weights=(1,),
    )
    assert call_of_run(node, [f32(7, 4)], None).outputs == (f32(7, 5),)


def test_an_operand_that_is_used_twice_is_still_one_tensor():
    node = made("Mul", ["x", "x"], ["y"], specs=[f32("N"), SameAs(0)], results=[f32("N")])
    call = call_of_run(node, [f32(3), f32(3)], [f32(3)])
    assert call.inputs == (f32(3), SameAs(0))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([f32(2, 16)], [f32(2, 10)]),  # a result of another node is never packed away
        ([f32(2, 16), f32(2, 17)], [f32(2, 10)]),
        ([TensorSpec("f16", (2, 16)), f32(2, 16)], [f32(2, 10)]),
        ([f32(2, 16), f32(2, 16)], [f32(2, 11)]),
        ([f32(2, 16)] * 3, [f32(2, 10)]),
        ([f32(2, 16), f32(2, 16)], [f32(2, 10)] * 2),
    ],
)
def test_tensors_that_cannot_be_the_nodes_are_refused(inputs, outputs):
    node = made("Op", ["x", "y"], ["z"], specs=[f32("N", 16), f32("N", 16)], results=[f32("N", 10)])
    assert call_of_run(node, inputs, outputs) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8))
def test_whichever_weights_are_packed_each_tensor_finds_its_place(each):
    # sizes differ, so that only one choice fits
    truth = [f32(place + 1, 3) for place in range(len(each))]
    names = [f"t{place}" for place in range(len(each))]
    specs = [spec if weight else f32("N", 3) for spec, (weight, _) in zip(truth, each, strict=True)]
    weights = [place for place, (weight, _) in enumerate(each) if weight]
    shown = [
        spec for spec, (weight, packed) in zip(truth, each, strict=True) if not (weight and packed)
    ]
    call = call_of_run(made("Op", names, ["y"], specs=specs, weights=weights), shown, None)
    assert call is not None
    found = [one for one in call.inputs if one is not None]
    # a weight's place may also hold a tensor whose size the model does not know; sizes tell here
    assert [one.shape[1] for one in found] == [3] * len(truth)
    for place, (weight, _) in enumerate(each):
        if weight:
            assert call.inputs[place] == truth[place]
    assert [call.inputs[p] for p in range(len(each)) if not each[p][0]] == [
        truth[p] for p in range(len(each)) if not each[p][0]
    ]


# ------------------------------------------------------------------------------------- origins


CONV = [
    made("Conv", ["x", "w"], ["c"], "/net/conv/Conv", weights=(1,)),
    made("Relu", ["c"], ["r"], "/net/act/Relu"),
    made("Flatten", ["r"], ["y"], "/net/Flatten"),
]


def names_of(optimised, original, weights=()):
    return [
        tuple(node.name for node in one) for one in origins(optimised, original, frozenset(weights))
    ]


def test_a_fused_node_stands_for_what_leads_to_its_tensor():
    fused = [
        made("FusedConv", ["x", "w"], ["r"], "anything"),
        made("Flatten", ["r"], ["y"], "/net/Flatten"),
    ]
    assert names_of(fused, CONV, ["w"]) == [("/net/conv/Conv", "/net/act/Relu"), ("/net/Flatten",)]


def test_a_change_of_layout_stands_for_nothing_and_hides_nothing():
    blocked = [
        made(
            "Conv", ["x", "reorder"], ["reorder_token_0"], "r_nchwc", domain="com.microsoft.nchwc"
        ),
        made("ReorderOutput", ["reorder_token_0"], ["r"], "ReorderOutput"),
        made("Flatten", ["r"], ["y"], "/net/Flatten"),
    ]
    assert names_of(blocked, CONV, ["reorder"]) == [
        ("/net/conv/Conv", "/net/act/Relu"),
        (),
        ("/net/Flatten",),
    ]


def test_casts_that_the_optimiser_inserts_are_seen_through():
    cast = "InsertedPrecisionFreeCast_"
    half = [
        made("Cast", ["x"], [f"{cast}x"], f"{cast}x"),
        made("Conv", [f"{cast}x", "w"], ["reorder_token_3"], f"{cast}r_nchwc"),
        made("ReorderOutput", ["reorder_token_3"], [f"{cast}r"], "ReorderOutput"),
        made("Flatten", [f"{cast}r"], [f"{cast}y"], "/net/Flatten"),
        made("Cast", [f"{cast}y"], ["y"], f"{cast}y"),
    ]
    assert names_of(half, CONV, ["w"]) == [
        (), ("/net/conv/Conv", "/net/act/Relu"), (), ("/net/Flatten",), ()
    ]  # fmt: skip


def test_a_transpose_of_the_models_own_is_kept():
    own = [
        made("Transpose", ["x"], ["t"], "/net/Transpose"),
        made("Relu", ["t"], ["y"], "/net/Relu"),
    ]
    assert names_of(own, own) == [("/net/Transpose",), ("/net/Relu",)]


def test_what_was_folded_into_a_constant_is_no_origin():
    original = [
        made("Shape", ["x"], ["s"], "/Shape"),
        made("Reshape", ["x", "s"], ["y"], "/Reshape"),
    ]
    folded = [made("Reshape", ["x", "s"], ["y"], "/Reshape")]
    assert names_of(folded, original, ["s"]) == [("/Reshape",)]


def test_a_cycle_in_a_hostile_graph_ends():
    loop = [made("A", ["b"], ["a"], "A"), made("B", ["a"], ["b"], "B")]
    assert names_of([made("C", [], ["a"], "C")], loop) == [("A", "B")]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("r1_nchwc", "r1"), ("/a/Conv_token_12", "/a/Conv"), ("fused /a/Conv", "/a/Conv"),
     ("/fc/MatMul/MatMulAddFusion/", "/fc/MatMul"), ("InsertedCast_y", "y"), ("plain", "plain")],
)  # fmt: skip
def test_names_lose_what_the_optimiser_adds(name, plain):
    assert stem(name) == plain


# ------------------------------------------------------------------------------------- places


def test_layers_are_in_the_path_or_in_what_the_exporter_wrote():
    assert layer_of("/features/conv1/Conv", {}) == "features/conv1"
    assert layer_of("Conv_3", {}) is None
    scopes = {"pkg.torch.onnx.name_scopes": "['', 'layer1', 'layer1.0', 'conv2d']"}
    assert layer_of("node_conv2d_4", scopes) == "layer1.0"
    assert layer_of("n", {"pkg.torch.onnx.name_scopes": "['', 'add']"}) is None


def test_source_lines_come_from_the_exporters_stack():
    stack = 'File "/home/me/net.py", line 12, in forward\n    x = self.conv(x)\n'
    outer = 'File "/home/me/train.py", line 3, in <module>\n'
    frames = frames_of({"pkg.torch.onnx.stack_trace": outer + stack})
    assert [line for _, line in frames] == [12, 3]
    assert frames_of({}) == ()


def test_fused_nodes_are_in_the_layer_that_they_share():
    assert common_layer(["net/a", "net/b"]) == "net"
    assert common_layer(["layer1.0.conv", "layer1.0.bn"]) == "layer1.0"
    assert common_layer(["a", "b"]) is None
    assert common_layer(["a", None]) is None


def test_a_call_of_a_session_has_its_layer_as_a_parameter():
    call = OpCall("Conv", (f32(1),), (f32(1),), (("node", "/a/Conv"), ("layer", "a")))
    reading = own.read("opscope.onnxruntime", "forward", format_call(call))
    assert reading.layer == "a"
    assert reading.call.param("layer") is None
    # in other domains it may be an operator's own parameter
    assert own.read("opscope.torch", "forward", format_call(call)).call.param("layer") == "a"


def test_every_element_type_has_one_name():
    assert len(set(OF_NUMBER.values())) == len(OF_NUMBER)
    assert (of_number(1), of_number(999), of_word("Float"), of_word("complex?")) == (
        "f32",
        "?",
        "f32",
        "?",
    )
