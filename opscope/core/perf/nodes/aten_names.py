"""Register nodes of TensorFlow, Keras, ONNX and MindSpore that are an ATen op under another name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.registry import Cost, as_name, lookup, op, words
from opscope.core.schema import OpCall

#: ATen ops by node name; the node has the same operands in the same order.
SAME: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            words("Add AddV2 Plus AddExt TensorAdd BiasAdd AssignAdd AssignAddVariableOp"),
            "aten::add",
        ),
        **dict.fromkeys(words("Sub SubExt AssignSub AssignSubVariableOp"), "aten::sub"),
        **dict.fromkeys(words("Mul Muls"), "aten::mul"),
        **dict.fromkeys(words("Div RealDiv DivNoNan TrueDivide Xdivy"), "aten::div"),
        **dict.fromkeys(words("Maximum"), "aten::maximum"),
        **dict.fromkeys(words("Minimum"), "aten::minimum"),
        **dict.fromkeys(words("Pow"), "aten::pow"),
        **dict.fromkeys(words("FloorDiv"), "aten::floor_divide"),
        **dict.fromkeys(words("Mod FloorMod"), "aten::remainder"),
        **dict.fromkeys(words("Equal NotEqual ApproximateEqual"), "aten::eq"),
        **dict.fromkeys(words("Less LessEqual LessOrEqual"), "aten::lt"),
        **dict.fromkeys(words("Greater GreaterEqual GreaterOrEqual"), "aten::gt"),
        **dict.fromkeys(words("And LogicalAnd Or LogicalOr Xor LogicalXor"), "aten::logical_and"),
        **dict.fromkeys(words("Not LogicalNot"), "aten::logical_not"),
        **dict.fromkeys(words("Neg"), "aten::neg"),
        **dict.fromkeys(
            words("Abs Sign Floor Ceil Round Rint IsNan IsInf IsFinite IsNaN"), "aten::abs"
        ),
        **dict.fromkeys(
            words("Sqrt Rsqrt Reciprocal Inv Square Exp Expm1 Log Log1p"), "aten::sqrt"
        ),
        **dict.fromkeys(
            words("Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Erfc Lgamma Digamma"),
            "aten::sin",
        ),
        **dict.fromkeys(words("Tanh"), "aten::tanh"),
        **dict.fromkeys(words("Select SelectV2 Where"), "aten::where"),
        **dict.fromkeys(words("Clip ClipByValue"), "aten::clamp"),
        **dict.fromkeys(words("Relu ReLU ReluV2"), "aten::relu"),
        **dict.fromkeys(words("Relu6 ReLU6"), "aten::relu6"),
        **dict.fromkeys(words("Elu"), "aten::elu"),
        **dict.fromkeys(words("Selu SeLU"), "aten::selu"),
        **dict.fromkeys(words("LeakyRelu LeakyReLU"), "aten::leaky_relu"),
        **dict.fromkeys(words("PRelu PReLU"), "aten::prelu"),
        **dict.fromkeys(words("Sigmoid"), "aten::sigmoid"),
        **dict.fromkeys(words("HardSigmoid HSigmoid"), "aten::hardsigmoid"),
        **dict.fromkeys(words("HardSwish HSwish"), "aten::hardswish"),
        **dict.fromkeys(words("Softplus"), "aten::softplus"),
        **dict.fromkeys(words("Softsign"), "aten::softsign"),
        **dict.fromkeys(words("Gelu GeLU"), "aten::gelu"),
        **dict.fromkeys(words("SiLU Swish QuickGelu"), "aten::silu"),
        **dict.fromkeys(words("Mish"), "aten::mish"),
        **dict.fromkeys(words("Softmax"), "aten::softmax"),
        **dict.fromkeys(words("LogSoftmax"), "aten::log_softmax"),
        **dict.fromkeys(words("ReluGrad ReLUGrad ReluGradV2"), "aten::threshold_backward"),
        **dict.fromkeys(words("Relu6Grad ReLU6Grad"), "aten::hardtanh_backward"),
        **dict.fromkeys(words("EluGrad"), "aten::elu_backward"),
        **dict.fromkeys(words("LeakyReluGrad"), "aten::leaky_relu_backward"),
        **dict.fromkeys(words("SigmoidGrad"), "aten::sigmoid_backward"),
        **dict.fromkeys(words("TanhGrad"), "aten::tanh_backward"),
        **dict.fromkeys(words("SoftplusGrad"), "aten::softplus_backward"),
        **dict.fromkeys(words("GeluGrad GeLUGrad"), "aten::gelu_backward"),
        **dict.fromkeys(words("Sum ReduceSum"), "aten::sum"),
        **dict.fromkeys(words("Mean ReduceMean"), "aten::mean"),
        **dict.fromkeys(words("Max ReduceMax Min ReduceMin"), "aten::amax"),
        **dict.fromkeys(words("Prod ReduceProd"), "aten::prod"),
        **dict.fromkeys(words("All Any ReduceAll ReduceAny"), "aten::any"),
        **dict.fromkeys(
            words("ArgMax ArgMin Argmax Argmin ArgMaxWithValue ArgMinWithValue"), "aten::argmax"
        ),
        **dict.fromkeys(words("ReduceL2 L2Norm"), "aten::norm"),
        **dict.fromkeys(words("ReduceLogSumExp"), "aten::logsumexp"),
        **dict.fromkeys(words("Cumsum CumSum Cumprod CumProd"), "aten::cumsum"),
        **dict.fromkeys(words("TopK TopKV2"), "aten::topk"),
        **dict.fromkeys(words("Sort"), "aten::sort"),
        **dict.fromkeys(words("Concat ConcatV2 Pack Stack ParallelConcat"), "aten::cat"),
        **dict.fromkeys(
            words(
                "Transpose Cast Copy ReverseV2 ReverseSequence DepthToSpace SpaceToDepth "
                "SpaceToBatchND BatchToSpaceND TransData Contiguous ConjugateTranspose Trilu MatrixBandPart"
            ),
            "aten::clone",
        ),
        **dict.fromkeys(
            words("Tile BroadcastTo Expand Pad PadV2 MirrorPad OneHot Range"), "aten::repeat"
        ),
        **dict.fromkeys(
            words("Gather GatherV2 GatherNd GatherND GatherD GatherElements ResourceGather"),
            "aten::gather",
        ),
        **dict.fromkeys(words("EmbeddingLookup"), "aten::embedding"),
        **dict.fromkeys(
            words("ScatterAdd ScatterNdAdd TensorScatterAdd ResourceScatterAdd UnsortedSegmentSum"),
            "aten::scatter_add_",
        ),
        **dict.fromkeys(
            words("ZerosLike OnesLike Zeros Ones Fill FillV2 ConstantOfShape EyeLike"),
            "aten::zeros_like",
        ),
        **dict.fromkeys(
            words(
                "RandomUniform RandomUniformV2 StatelessRandomUniform StatelessRandomUniformV2 "
                "UniformReal RandomUniformInt"
            ),
            "aten::uniform",
        ),
        **dict.fromkeys(
            words(
                "RandomNormal RandomStandardNormal TruncatedNormal StatelessRandomNormalV2 "
                "StandardNormal RandomNormalLike"
            ),
            "aten::normal",
        ),
        **dict.fromkeys(words("Dropout"), "aten::native_dropout"),
        **dict.fromkeys(words("Cholesky"), "aten::linalg_cholesky"),
        **dict.fromkeys(words("MatrixInverse"), "aten::linalg_inv"),
        **dict.fromkeys(words("Qr"), "aten::linalg_qr"),
        **dict.fromkeys(words("Svd"), "aten::linalg_svd"),
        **dict.fromkeys(words("MatrixSolve"), "aten::linalg_solve"),
        **dict.fromkeys(words("MatrixTriangularSolve"), "aten::linalg_solve_triangular"),
        **dict.fromkeys((), "aten::einsum"),
    }
)
#: Nodes that move and compute nothing.
FREE: Final = words(
    """
    Reshape Squeeze Unsqueeze ExpandDims Flatten FlattenGrad Identity IdentityN StopGradient
    PreventGradient Shape ShapeN Size Rank Const Constant Placeholder PlaceholderWithDefault NoOp
    VarHandleOp ReadVariableOp Snapshot EnsureShape Bitcast Depend Load UpdateState TupleGetItem
    MakeTuple Return partial J _Arg _Retval If While PartitionedCall StatefulPartitionedCall
    XlaCompile XlaLaunch
    InvertPermutation BroadcastGradientArgs Assert CheckNumerics EmptyTensorList TensorListReserve
    TensorListElementShape TensorListLength VariableShape StatelessWhile StatelessIf
    StatelessRandomGetKeyCounter StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg Enter Exit
    Switch Merge NextIteration LoopCond ControlTrigger OptionalHasValue IteratorV2 DestroyResourceOp
    """
)


for _name, _aten in SAME.items():
    _entry = lookup(_aten)
    assert _entry is not None, f"{_aten} has no model"
    op(_name, family=_entry.family, source=f"as {_aten}")(as_name(_aten))


@op(*FREE, family="view", view=True, source="moves no data")
def free(call: OpCall) -> Cost:
    """A name, a shape or a constant."""
    return Cost()
