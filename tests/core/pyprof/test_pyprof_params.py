"""PyProf's parameter strings, family by family, of Python calls and of PyTorch's ops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.dialects import markers
from opscope.core.pyprof.params import NONE, Use, text
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall


def tensor(*shape, dtype="float32", name=""):
    return {"name": name, "type": "tensor", "shape": shape, "dtype": dtype}


def number(value, name=""):
    return {"name": name, "type": type(value).__name__, "value": value}


def marker(mod, op, *args, **how):
    reading = markers.read("", str({"mod": mod, "op": op, "args": list(args)}))
    assert reading is not None
    assert reading.call is not None
    return text(Use(reading.call, **how))


def aten(call, **how):
    return text(Use(parse(call), marker=False, **how))


F = "torch.nn.functional"
X = tensor(32, 3, 28, 30)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        # a linear layer: M outputs, N rows, K inputs
        (marker(F, "linear", tensor(8, 16), tensor(32, 16), tensor(32)), "M=32,N=8,K=16,fp32,"),
        (marker(F, "linear", tensor(8, 4, 16, dtype="float16"), tensor(32, 16, dtype="float16")),
         "M=32,N=(8,4),K=16,fp16,"),
        (marker(F, "linear", tensor(8, 16), tensor(32, 16), backward=True), "M=16,N=8,K=32,fp32,"),
        (marker(F, "linear", tensor(8, 16), tensor(32, 16), backward=True, sub=1), "M=16,N=32,K=8,fp32,"),
        (marker(F, "linear", tensor(8, 16), tensor(32, 16), backward=True, sub=2),
         "X=(8,16),W=(32,16),fp32,"),
        (marker(F, "linear", tensor(8, 16), tensor(32, 16), tensor(32), product=False), "M=32,N=8,fp32,"),
        # products: PyProf's M is the number of columns
        (marker("torch", "mm", tensor(8, 16), tensor(16, 32)), "M=32,N=8,K=16,fp32,"),
        (marker("torch", "addmm", tensor(32), tensor(8, 16), tensor(16, 32)), "M=32,N=8,K=16,fp32,"),
        (marker("torch", "bmm", tensor(5, 8, 16), tensor(5, 16, 32)), "B=5,M=32,N=8,K=16,fp32,"),
        (marker("Tensor", "__matmul__", tensor(5, 8, 16), tensor(16, 32)),
         "A=(5,8,16),B=(16,32),fp32,"),
        (aten("aten::addmm(bf16[32], bf16[8,16], bf16[16,32])"), "M=32,N=8,K=16,bf16,"),
        (aten("aten::baddbmm(f32[5,8,32], f32[5,8,16], f32[5,16,32])"), "B=5,M=32,N=8,K=16,fp32,"),
        # convolutions: by position, by name, and PyTorch's op
        (marker(F, "conv2d", X, tensor(64, 3, 3, 5), number(None), number((2, 1)), number((1, 2)),
                number((1, 1)), number(1)),
         "N=32,C=3,H=28,W=30,K=64,P=14,Q=30,R=3,S=5,ph=1,pw=2,U=2,V=1,dh=1,dw=1,g=1,fp32,"),
        (marker(F, "conv2d", X, tensor(6, 1, 3, 3), number(2, "stride"), number(3, "groups")),
         "N=32,C=3,H=28,W=30,K=6,P=13,Q=14,R=3,S=3,ph=0,pw=0,U=2,V=2,dh=1,dw=1,g=3,fp32,"),
        (marker(F, "conv1d", tensor(4, 8, 100), tensor(16, 8, 5), number(None), number((2,)), number((1,)),
                number((3,))),
         "N=4,C=8,H=1,W=100,K=16,P=1,Q=45,R=1,S=5,ph=0,pw=1,U=1,V=2,dh=1,dw=3,g=1,fp32,"),
        (aten("aten::convolution(f16[2,3,8,8], f16[4,3,3,3]) {stride=[1, 1], padding=[1, 1],"
              " dilation=[1, 1], transposed=false, groups=1}"),
         "N=2,C=3,H=8,W=8,K=4,P=8,Q=8,R=3,S=3,ph=1,pw=1,U=1,V=1,dh=1,dw=1,g=1,fp16,"),
        # what does not fit the form has all its tensors
        (aten("aten::convolution(f32[2,3,4,8,8], f32[4,3,1,3,3])"),
         "T=[(2,3,4,8,8),(4,3,1,3,3)],['float32','float32']"),
        (marker(F, "conv2d", X, tensor(6, 3, 3, 3), number("same", "padding")),
         "T=[(32,3,28,30),(6,3,3,3)],['float32','float32']"),
        # elementwise
        (marker("Tensor", "__mul__", tensor(8, 16), number(2.0)), "[8,16]fp32;[]fp32"),
        (marker("torch", "add", tensor(8, 16), tensor(16, dtype="int64")), "[8,16]fp32;[16]int64"),
        (marker("Tensor", "add_", tensor(8), number(3)), "[8]fp32;[]int32"),
        (aten("aten::mul(f32[8,16], f32[16])"), "[8,16]fp32;[16]fp32"),
        (marker("torch", "tanh", tensor(8, 16)), "[8,16]fp32"),
        # one tensor
        (marker(F, "relu", tensor(8, 16)), "T=(8,16),fp32,"),
        (marker(F, "softmax", tensor(8, 16), number(-1)), "T=(8,16),fp32,"),
        (marker(F, "dropout", tensor(8, 16), number(0.2, "p")), "T=(8,16),fp32,"),
        (marker("torch", "sum", tensor(8, 16)), "T=(8,16),fp32,"),
        (marker(F, "batch_norm", tensor(8, 16, 4, 4), tensor(16), tensor(16)), "T=(8,16,4,4),fp32,"),
        (marker("Tensor", "contiguous", tensor(7)), "T=(7,),fp32,"),
        # the others that PyProf models
        (marker(F, "embedding", tensor(35, 20, dtype="int64"), tensor(100, 64)),
         "I=(35,20),int64,E=(100,64),fp32,"),
        (aten("aten::embedding(f32[100,64], i64[35,20])"), "I=(35,20),int64,E=(100,64),fp32,"),
        (marker("torch", "cat", tensor(2, 3), tensor(2, 5), number(-1, "dim")), "T=[2,3]fp32;[2,5]fp32,A=1"),
        (marker("torch", "cat", tensor(2, 3), tensor(2, 5), number(1)), "T=[2,3]fp32;[2,5]fp32,A=1"),
        (aten("aten::cat([f32[2,3], f32[2,5]]) {dim=1}"), "T=[2,3]fp32;[2,5]fp32,A=1"),
        (marker("Tensor", "half", tensor(8, 16)), "[8,16]fp32"),
        (marker("Tensor", "copy_", tensor(8, 16, dtype="float16"), tensor(8, 16)), "T=(8,16),fp32,fp16,"),
        (marker("torch", "index_select", tensor(8, 16), number(1), tensor(3, dtype="int64")),
         "T=(8,16),D=1,I=3,fp32,"),
        (marker("Tensor", "masked_select", tensor(8, 16), tensor(8, 16, dtype="bool")),
         "T=(8,16),M=(8,16),fp32,"),
        (marker(F, "mse_loss", tensor(8), tensor(8), number("sum")), "T=(8,),fp32,red=sum,"),
        (aten("aten::mse_loss(f32[8], f32[8]) {reduction=2}"), "T=(8,),fp32,red=sum,"),
        (aten("aten::mse_loss(f32[8], f32[8])"), "T=(8,),fp32,red=mean,"),
        (marker("apex", "adam", tensor(9), tensor(9, dtype="float16"), tensor(9), tensor(9),
                tensor(9, dtype="float16")), "T=(9,),fp32,fp16,"),
        (marker("torch", "randperm", number(10)), "N=10,"),
        # recurrent cells: two products, then the rest
        (marker("LSTMCell", "forward", tensor(4, 10), tensor(4, 20)), "gemm=layer,M=80,N=4,K=10,fp32,"),
        (marker("LSTMCell", "forward", tensor(4, 10), tensor(4, 20), sub=1),
         "gemm=recur,M=80,N=4,K=20,fp32,"),
        (marker("GRUCell", "forward", tensor(4, 10), tensor(4, 20), sub=2), "cell=GRUCell,X=10,H=20,B=4,fp32,"),
        (marker("GRUCell", "forward", tensor(4, 10), tensor(4, 20), backward=True),
         "cell=GRUCell,X=10,H=20,B=4,fp32,"),
        # no model
        (marker(F, "layer_norm", tensor(8, 16), tensor(16)), "T=[(8,16),(16,)],['float32','float32']"),
        (marker("Tensor", "backward", number(1.0)), "T=[],[]"),
        (aten("aten::einsum([f32[8,16], f32[16,4]])"), "T=[(8,16),(16,4)],['float32','float32']"),
        (aten("MatMul(f32[?,16], f32[16,4])"), "T=[(?,16),(16,4)],['float32','float32']"),
        (text(Use(OpCall("aten::mm"), marker=False)), NONE),
    ],
)  # fmt: skip
def test_a_call_is_written_as_pyprof_writes_it(made, text):
    assert made == text


FORMS = (
    "linear conv2d conv1d mm addmm bmm matmul embedding cat add relu copy_ index_select masked_select"
    " mse_loss adam randperm half sum"
)
OPS = st.sampled_from(FORMS.split())
DIMS = st.lists(st.one_of(st.integers(0, 9), st.just("?")), max_size=5).map(tuple)


@given(OPS, st.lists(DIMS, max_size=6), st.booleans(), st.integers(0, 4), st.booleans())
def test_a_call_that_does_not_fit_its_op_is_written_all_the_same(op, shapes, back, sub, product):
    """Whatever the sizes are: a stranger's trace must not end the listing."""
    args = [tensor(*shape) for shape in shapes]
    made = marker(F, op, *args, backward=back, sub=sub, product=product)
    assert made
    assert made.split() == [made]
