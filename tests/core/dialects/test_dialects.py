"""The dialects: what the range texts of PyTorch, PyProf, DLProf, NCCL, TensorFlow and XLA mean."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.dialects import Reading, hlo, markers, nccl, tensorrt, torch_nvtx, tsl
from opscope.core.schema import TensorSpec

ALL = (torch_nvtx, markers, nccl, tsl, tensorrt)
DOMAINS = ("", "NCCL", "TSL", "TensorRT", "other")


def stripped(text: str) -> tuple[str, int | None, int | None]:
    return torch_nvtx.strip(pl.Series([text])).row(0)


def torch_reading(text: str) -> Reading | None:
    return torch_nvtx.read("", stripped(text)[0])


@pytest.mark.parametrize(
    ("text", "left", "seq", "op_id"),
    [
        ("aten::mm, seq = 13, op_id = 2, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (1,0)]",
         "aten::mm, seq = *, sizes = [[2, 3], [3, 4]]", 13, 2),
        ("aten::mm, seq = 13, op_id = 2, sizes = [[2, 3], [3, 4]]",
         "aten::mm, seq = *, sizes = [[2, 3], [3, 4]]", 13, 2),
        ("aten::empty, op_id = 990346", "aten::empty, seq = *", None, 990346),
        ("embedding, seq = 115", "embedding, seq = *", 115, None),
        ("add, seq = 1, sizes = [[], [2]]", "add, seq = *, sizes = [[], [2]]", 1, None),
        ("torch::autograd::AccumulateGrad, seq = 18446744073709551615",
         "torch::autograd::AccumulateGrad, seq = *", None, None),
        ("a user's, range = 3", "a user's, range = 3", None, None),
        ("", "", None, None),
    ],
)  # fmt: skip
def test_what_differs_from_call_to_call_is_taken_out(text, left, seq, op_id):
    assert stripped(text) == (left, seq, op_id)


def test_strip_is_row_for_row():
    texts = pl.Series(["aten::add, seq = 3", None, "mine", "aten::add, seq = 4"])
    frame = torch_nvtx.strip(texts)
    assert frame["text"].to_list() == ["aten::add, seq = *", None, "mine", "aten::add, seq = *"]
    assert frame["seq"].to_list() == [3, None, None, 4]
    assert frame["op_id"].to_list() == [None] * 4
    assert frame.schema == {"text": pl.String, "seq": pl.Int64, "op_id": pl.Int64}
    assert torch_nvtx.strip(texts.clear()).shape == (0, 3)
    assert torch_nvtx.strip(pl.Series(["mine"])).rows() == [("mine", None, None)]


def test_torch_ops_with_sizes():
    reading = torch_reading(
        "aten::conv2d, seq = 13, op_id = 2, sizes = [[2, 3, 16, 16], [16, 3, 3, 3], [16], [], []], "
        "input_op_ids = [(0,-1), (1,0), (2,0)]"
    )
    assert reading.role == "op"
    assert reading.call.name == "aten::conv2d"
    assert reading.call.inputs == (
        TensorSpec("?", (2, 3, 16, 16)), TensorSpec("?", (16, 3, 3, 3)), TensorSpec("?", (16,)),
        None, None,
    )  # fmt: skip
    assert not reading.call.truncated
    cut = torch_reading("aten::conv2d, seq = 13, op_id = 2, sizes = [[2, 3, 16")
    assert (cut.call.name, cut.call.inputs, cut.call.truncated) == ("aten::conv2d", (), True)
    lists = torch_reading("aten::cat, seq = 1, op_id = 2, sizes = [[[2, 3], [4, 3]], []]")
    assert lists.call.inputs == ((TensorSpec("?", (2, 3)), TensorSpec("?", (4, 3))), None)


@pytest.mark.parametrize(
    ("text", "direction", "forward"),
    [
        ("ConvolutionBackward0, seq = 1, op_id = 2", "backward", "aten::convolution"),
        ("NativeLayerNormBackward0, seq = 1", "backward", "aten::native_layer_norm"),
        ("MaxPool2DWithIndicesBackward0, seq = 1", "backward", "aten::max_pool2d_with_indices"),
        (
            "autograd::engine::evaluate_function: AddmmBackward0, op_id = 2",
            "backward",
            "aten::addmm",
        ),
        ("EmbeddingBackward, seq = 115", "backward", "Embedding"),
        ("torch::autograd::AccumulateGrad", "backward", None),
        ("nccl:all_reduce, op_id = 9", "communication", None),
        ("c10d::allreduce_, seq = 4, op_id = 9", "communication", None),
        ("aten::add", None, None),
        ("detach_, op_id = 990725", None, None),
        ("AllToAll4D, seq = 45440, op_id = 990760", None, None),
        ("flash_attn::_flash_attn_forward, op_id = 3", None, None),
    ],
)
def test_torch_ops_and_their_directions(text, direction, forward):
    reading = torch_reading(text)
    assert reading.role == "op"
    assert reading.call.name == stripped(text)[0].partition(", ")[0]
    assert (reading.direction, reading.forward_name) == (direction, forward)


def test_torch_labels_that_are_no_ops():
    assert torch_reading("ProfilerStep#12, op_id = 5") == Reading("step", step=12)
    optimizer = torch_reading("Optimizer.step#SGD.step, seq = 4, op_id = 7")
    assert (optimizer.role, optimizer.direction) == ("phase", "optimizer")
    assert torch_reading("## forward ##, op_id = 5") == Reading("user")
    region = torch_reading("Torch-Compiled Region: 0/0, op_id = 5")
    assert (region.role, region.layer) == ("layer", "Torch-Compiled Region: 0/0")
    for mine in ("detach_", "step 3", "my::range of mine", "libcudf::join", "Backward pass"):
        assert torch_reading(mine) is None
    assert torch_nvtx.read("libcudf", "aten::add, seq = *") is None


def test_pyprof_and_dlprof_calls():
    text = (
        "{'mod': 'torch.nn.functional', 'op': 'embedding', 'args': [{'name': '', 'type': 'tensor', "
        "'shape': (35, 20), 'dtype': 'int64'}, {'name': 'weight', 'type': 'tensor', 'shape': (9, 2), "
        "'dtype': 'float16'}, {'name': '', 'type': 'NoneType', 'value': None}, {'name': '', 'type': "
        "'float', 'value': 2.0}, {'name': 'sparse', 'type': 'bool', 'value': False}, {'name': "
        "'normalized_shape', 'type': 'tuple', 'value': (200,)}]}"
    )
    call = markers.read("", text).call
    assert call.name == "torch.nn.functional.embedding"
    assert call.inputs == (TensorSpec("i64", (35, 20)), TensorSpec("f16", (9, 2)))
    assert call.params == (("arg3", 2.0), ("sparse", False), ("normalized_shape", (200,)))
    magic = markers.read("", "{'mod': 'Tensor', 'op': '__mul__', 'args': []}")
    assert magic.call.name == "Tensor.__mul__"
    assert markers.read("", '{"model_config": {"emit_nvtx": true}}') == Reading("user")


def test_trace_markers_give_the_users_frames_and_the_layer():
    text = (
        "{'traceMarker': ['train.py:42', '/x/lib/python3.6/site-packages/torch/nn/modules/module.py:9',"
        " 'net.py:26', '/x/lib/python3.6/site-packages/torch/nn/modules/conv.py:446'], 'funcStack': "
        "'/<module>/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/Conv2d::forward/conv2d'}"
    )
    reading = markers.read("", text)
    assert reading.role == "source"
    assert reading.frames == (("net.py", 26), ("train.py", 42))
    assert reading.layer == "Net.Conv2d(2)"
    only = markers.read("", "{'traceMarker': ['/a/site-packages/torch/b.py:7']}")
    assert only.frames == (("/a/site-packages/torch/b.py", 7),)
    assert only.layer is None


def test_trace_markers_give_the_innermost_line_of_a_library_s_model_before_the_users():
    text = (
        "{'traceMarker': ['train.py:42', '/a/site-packages/zoo/trainer.py:1', '/a/site-packages/zoo/net.py:26',"
        " '/a/site-packages/torch/nn/modules/conv.py:446'], 'funcStack': '/<module>'}"
    )
    assert markers.read("", text).frames == (("zoo/net.py", 26), ("train.py", 42))


def test_markers_are_never_evaluated(tmp_path):
    witness = tmp_path / "ran"
    for text in (
        f"{{'mod': open({str(witness)!r}, 'w'), 'op': 'x', 'args': []}}",
        f"{{'mod': 'a', 'op': __import__('os').system('touch {witness}')}}",
        "{'mod': 'a', 'op': " + "[" * 5000 + "]" * 5000 + "}",
        "{'mod': 'a', 'op': 'b', 'args': [" + "0," * 40_000 + "]}",
        "{'mod': 'a', 'op': 'b', 'args': " + "-" * 3000 + "1}",
        "{'mod': 'a', 'op': 'b', 'args': '" + "x" * 70_000 + "'}",
    ):
        assert markers.read("", text) is None
    assert not witness.exists()


def test_nccl_calls_and_their_payload():
    reading = nccl.read("NCCL", "ncclAllReduce")
    assert (reading.role, reading.call.name) == ("op", "ncclAllReduce")
    assert reading.direction == "communication"
    assert nccl.read("", "ncclAllReduce") is None
    assert nccl.read("NCCL", "my range") is None
    attrs = {"NCCL communicator ID": 5, "Message size [bytes]": 4096, "Peer rank": 1, "x": [2]}
    got = nccl.parameters(attrs)
    assert got == (("communicator", 5), ("bytes", 4096), ("peer", 1))
    assert nccl.parameters({"x": 1}) == nccl.parameters({"Bytes": [1]}) == ()


def test_tensorflow_nodes():
    node = "StatefulPartitionedCall/gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter"
    reading = tsl.read("TSL", f"{node}:_MklNativeConv2DBackpropFilterWithBias")
    assert reading.call.name == "_MklNativeConv2DBackpropFilterWithBias"
    assert reading.call.params == (("node", node),)
    assert (reading.direction, reading.layer) == ("backward", "net/conv/Conv2D")
    forward = tsl.read("TSL", "net/dense/MatMul:MatMul")
    assert (forward.direction, forward.layer) == (None, "net/dense")
    assert (
        tsl.read("TSL", "Adam/Adam/AssignAddVariableOp:AssignAddVariableOp").direction
        == "optimizer"
    )
    assert tsl.read("", "net/dense/MatMul:MatMul") is None
    assert tsl.read("TSL", "no colon") is None


def test_xla_operations():
    reading = tsl.read(
        "TSL",
        "Thunk:#name=jit(step)/jit(main)/transpose(jvp(net))/layer1/dot_general,hlo_op=custom-call.3,"
        "hlo_module=jit_step,program_id=2#",
    )
    assert reading.call.name == "dot_general"
    assert reading.call.params == (("hlo_op", "custom-call.3"), ("hlo_module", "jit_step"))
    assert (reading.direction, reading.layer) == ("backward", "net/layer1")
    plain = tsl.read("TSL", "Thunk:#hlo_op=fusion.12,hlo_module=jit_f#")
    assert (plain.call.name, plain.direction, plain.layer) == ("fusion", None, None)
    assert tsl.read("TSL", "XlaModule:#hlo_module=jit_f,program_id=1#").role == "graph"


@pytest.mark.parametrize(
    ("path", "direction", "layer"),
    [
        ("jit(f)/jvp(LM)/while/body/closed_call/blocks/attn/qkv/dot_general", "forward",
         "LM/blocks/attn/qkv"),
        ("jit(f)/transpose(jvp(LM))/while/body/closed_call/checkpoint/rematted_computation/blocks/add",
         "backward", "LM/blocks"),
        # an einsum makes a scope of its formula
        ("jit(f)/jvp(net)/attn/bthd,bshd->bhts/dot_general", "forward", "net/attn"),
        ("jit(f)/jvp(net)/attn/...i,ij->...j/dot_general", "forward", "net/attn"),
        ("jit(f)/optimizer/mul", "optimizer", "optimizer"),
        ("jit(f)/jit(relu)/max", None, None),
        ("jit(f)/net/a->b_c/mul", None, "net"),
        # collectives that XLA made one
        ("jit(f)/(transpose(jvp(net))/a/dot_general:jvp(net)/b/reduce_sum)", "backward", "net"),
        ("jit(f)/transpose(jvp(net))/(conv1/mul:conv2/add)", "backward", "net"),
        ("jit(f)/(sgd/mul:sgd/add)", "optimizer", "sgd"),
        ("jit(f)/(a/mul:b/add)", None, None),
    ],
)  # fmt: skip
def test_jax_paths_alike_in_programs_and_in_ranges(path, direction, layer):
    assert hlo.place(path) == (direction, layer)
    told = tsl.read("TSL", f"Thunk:#name={path},hlo_op=dot.1,hlo_module=jit_f#")
    assert (told.direction, told.layer) == (direction, layer)


def test_tensorrt_layers():
    reading = tensorrt.read("TensorRT", "conv1 + relu1")
    assert (reading.call.name, reading.layer) == ("conv1 + relu1", "conv1 + relu1")
    assert tensorrt.read("TensorRT", "ExecutionContext::enqueue") == Reading("user")
    assert tensorrt.read("", "conv1 + relu1") is None


words = st.sampled_from(
    ["aten::", "{'mod': ", "'op': ", "'args': ", "[", "]", "{", "}", "(", ")", "'", '"', ", seq = ",
     ", op_id = ", ", sizes = ", ", input_op_ids = ", "9" * 30, "-1", "1", ",", "#", "=", "/", ":",
     "hlo_op=", "Backward0", "{'traceMarker': ", "'shape': ", "'dtype': ", "nccl", "gradient_tape/",
     "\x00", "\ud7ff", "None", "..."]
)  # fmt: skip
any_text = st.one_of(st.text(max_size=80), st.lists(words, max_size=14).map("".join))


@given(any_text, st.sampled_from(DOMAINS))
def test_no_text_is_too_strange(text, domain):
    text = stripped(text)[0]
    for dialect in ALL:
        reading = dialect.read(domain, text)
        assert reading is None or isinstance(reading, Reading)
        if reading is not None:
            assert (reading.call is not None) == (reading.role == "op")


@given(st.lists(any_text, max_size=8))
def test_strip_keeps_every_row(texts):
    frame = torch_nvtx.strip(pl.Series(texts, dtype=pl.String))
    assert len(frame) == len(texts)
    for text, (left, seq, op_id) in zip(texts, frame.iter_rows(), strict=True):
        if seq is None and op_id is None and ", seq = *" not in left:
            assert left == text or ", input_op_ids" in text
        assert torch_nvtx.strip(pl.Series([left])).row(0) == (left, None, None)
