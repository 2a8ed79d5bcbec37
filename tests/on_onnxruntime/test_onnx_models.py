"""Models as onnx makes them: scopes of subgraphs, functions, metadata, and those of strangers."""

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from opscope.core.onnx import dtypes, protos  # noqa: E402
from opscope.core.onnx.model import ModelError, nodes_of, read  # noqa: E402
from opscope.core.schema import SameAs, TensorSpec  # noqa: E402

from . import models  # noqa: E402


def value(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), functions=(), opsets=(("", 17),)):
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    sets = [helper.make_opsetid(*one) for one in opsets]
    return helper.make_model(graph, opset_imports=sets, ir_version=8, functions=list(functions))


def nodes(proto):
    return nodes_of(proto.SerializeToString())


def test_nodes_have_inferred_shapes_attributes_and_weights():
    each = {node.key: node for node in nodes(models.cnn().proto)}
    conv = each["/net/conv2/Conv"]
    assert conv.call.inputs == (TensorSpec("f32", ("N", 8, 8, 8)), TensorSpec("f32", (16, 8, 3, 3)))
    assert conv.call.outputs == (TensorSpec("f32", ("N", 16, 3, 3)),)
    assert conv.call.param("strides") == (2, 2)
    assert (conv.weights, conv.layer, conv.index, conv.graph) == ((1,), "net/conv2", 3, "")


def test_nodes_of_bodies_see_the_tensors_around_them():
    each = {node.key: node for node in nodes(models.loop().proto)}
    inner = each["/cell/MatMul"]
    assert (inner.graph, inner.holder) == ("/rnn/Loop.body", "/rnn/Loop")
    assert inner.call.inputs[1] == TensorSpec("f32", (models.WIDTH, models.WIDTH))
    assert inner.weights == (1,)
    branch = each["/cell/then_branch/Add"]
    assert branch.graph == "/rnn/Loop.body//cell/If.then_branch"
    assert branch.call.inputs[1] == TensorSpec("f32", (models.WIDTH,))


def test_constant_nodes_are_weights_and_are_not_numbered():
    made = model(
        [
            helper.make_node("Constant", [], ["two"], value_floats=[2.0, 2.0]),
            helper.make_node("Mul", ["x", "two"], ["m"]),
            helper.make_node("Mul", ["m", "m"], ["y"]),
        ],
        [value("x", 3, 2)],
        [value("y", 3, 2)],
    )
    first, second = nodes(made)
    assert (first.key, second.key) == ("Mul_0", "Mul_1")
    assert first.weights == (1,)
    assert first.call.inputs[1] == TensorSpec("f32", (2,))
    assert second.call.inputs == (TensorSpec("f32", (3, 2)), SameAs(0))


def test_a_node_of_an_unknown_domain_leaves_the_others_their_shapes():
    made = model(
        [
            helper.make_node("Mystery", ["x"], ["m"], domain="com.microsoft", alpha=0.5),
            helper.make_node("Relu", ["x"], ["y"]),
        ],
        [value("x", 3)],
        [value("y", None)],
        opsets=(("", 17), ("com.microsoft", 1)),
    )
    mystery, relu = nodes(made)
    assert mystery.call.outputs == (None,)
    assert (mystery.call.param("domain"), mystery.call.param("alpha")) == ("com.microsoft", 0.5)
    assert relu.call.outputs == (TensorSpec("f32", (3,)),)


def test_nodes_of_functions_are_listed():
    inner = [helper.make_node("Relu", ["a"], ["b"], name="inner")]
    function = helper.make_function("mine", "F", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    made = model(
        [helper.make_node("F", ["x"], ["y"], domain="mine")], [value("x", 2)], [value("y", 2)],
        functions=[function], opsets=(("", 17), ("mine", 1)),
    )  # fmt: skip
    assert [(node.graph, node.op) for node in nodes(made)] == [
        ("", "F"),
        ("function mine::F", "Relu"),
    ]


def test_what_the_exporter_wrote_gives_layer_and_source():
    made = model(
        [helper.make_node("Relu", ["x"], ["y"], name="node_relu")], [value("x", 2)], [value("y", 2)]
    )
    node = made.graph.node[0]
    if not hasattr(node, "metadata_props"):
        pytest.skip("this onnx has no metadata of nodes")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'act', 'relu']")
    node.metadata_props.add(
        key="pkg.torch.onnx.stack_trace", value='File "/me/net.py", line 5, in forward'
    )
    (found,) = nodes(made)
    assert found.layer == "act"
    assert [line for _, line in found.call.frames] == [5]


def test_the_numbers_of_element_types_are_onnxs():
    for name, number in TensorProto.DataType.items():
        if name in ("UNDEFINED",):
            continue
        assert dtypes.of_number(number) != "?", name


# ------------------------------------------------------------------------------------- strangers


def test_values_of_large_weights_are_dropped_before_shapes_are_inferred(monkeypatch):
    seen = []
    whole = protos._inferred
    monkeypatch.setattr(protos, "_inferred", lambda o, m: seen.append(m.ByteSize()) or whole(o, m))
    random = models.np.zeros((1024, 1024), models.np.float32)
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", 2, 1024)], [value("y", 2, 1024)],
        [numpy_helper.from_array(random, "w")],
    )  # fmt: skip
    (node,) = nodes(made)
    assert node.call.inputs[1] == TensorSpec("f32", (1024, 1024))
    assert seen[0] < 1 << 16


def test_external_weights_are_never_opened(tmp_path, monkeypatch):
    made = models.cnn().proto
    for tensor in made.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../../../etc/passwd")
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    opened = []
    real = open

    def spy(file, *args, **kwargs):
        opened.append(str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr("builtins.open", spy)
    found = read(path)
    assert found.weights["w1"] == TensorSpec("f32", (8, 3, 3, 3))
    assert not [one for one in opened if "passwd" in one]


def test_functions_that_call_themselves_are_refused():
    def function(name, calls):
        body = [helper.make_node(calls, ["a"], ["b"], domain="mine")]
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        return helper.make_function("mine", name, ["a"], ["b"], body, sets)

    made = model(
        [helper.make_node("F", ["x"], ["y"], domain="mine")], [value("x", 2)], [value("y", 2)],
        functions=[function("F", "G"), function("G", "F")], opsets=(("", 17), ("mine", 1)),
    )  # fmt: skip
    with pytest.raises(ModelError, match="calls itself"):
        nodes(made)


def test_graphs_that_nest_too_deep_are_refused(monkeypatch):
    monkeypatch.setattr(protos, "MAX_DEPTH", 1)  # the loop holds a branch
    with pytest.raises(ModelError, match="nested more than 1 deep"):
        nodes(models.loop().proto)


def test_models_with_too_many_nodes_are_refused(monkeypatch):
    monkeypatch.setattr(protos, "MAX_NODES", 5)
    with pytest.raises(ModelError, match="over 5 nodes"):
        nodes(models.cnn().proto)


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"", "no graph"), (b"hello, world", "not an ONNX model"), (b"\x18\x00\x00\x00ORTM" + bytes(40), r"\.ort"),
     (b"\x08\x08", "no graph")],
)  # fmt: skip
def test_what_is_no_model_is_refused_in_one_line(data, why):
    with pytest.raises(ModelError, match=why) as caught:
        nodes_of(data)
    assert "\n" not in str(caught.value)


def test_a_truncated_model_is_refused(tmp_path):
    whole = models.cnn().proto.SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="truncated"):
        read(path)
    with pytest.raises(ModelError, match="no such file"):
        read(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="not a file"):
        read(tmp_path)


def test_the_layer_of_a_fused_product_is_that_of_the_product():
    made = model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="/scan/MatMul/MatMulAddFusion/")],
        [value("x", 2, 3), value("w", 3, 4), value("b", 4)],
        [value("y", 2, 4)],
    )
    assert nodes(made)[0].layer == "scan"
