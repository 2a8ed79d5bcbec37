"""The cost of OpenVINO's nodes: those of ATen's ops that compute the same. It needs no OpenVINO.

A compiled model states sizes and no parameters, so convolutions and pooling have no cost.
"""

from __future__ import annotations

from opscope.core.perf import CannotKnow, Cost, op
from opscope.core.perf.registry import also
from opscope.core.schema import OpCall

# a FullyConnected has its weight as outputs × inputs, as ATen's linear
also("aten::linear", "openvino::FullyConnected")
also("aten::matmul", "openvino::MatMul")
also("aten::softmax", "openvino::Softmax openvino::SoftMax")
also("aten::clone", "openvino::Reorder openvino::Convert openvino::Transpose")


@op("InferRequest.infer", family="session", source="computes nothing beside its nodes, if timed")
def run(call: OpCall) -> Cost:
    """A run of a compiled model: its work is that of its nodes."""
    if call.param("nodes") == "timed":
        return Cost()
    raise CannotKnow(
        "its nodes were not timed: that needs a model that is compiled for the CPU with one stream"
        ' after opscope.init("openvino") or under opscope run, and runs that do not overlap'
    )


@op("InferRequest.wait", "AsyncInferQueue.wait_all", family="session", source="waits")
def wait(call: OpCall) -> Cost:
    """A wait for runs."""
    return Cost()


@op("InferRequest.start_async", "AsyncInferQueue.start_async", family="session", source="unknown")
def start(call: OpCall) -> Cost:
    """The begin of a run, whose nodes are not timed."""
    raise CannotKnow("the nodes of a run in the background were not timed")
