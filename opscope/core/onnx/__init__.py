"""What an ONNX model says of its nodes: their calls, layers, weights, and what ONNX Runtime fused."""
