"""Read what an ONNX model states about its nodes: calls, layers, weights, and which nodes ONNX Runtime
fused."""
