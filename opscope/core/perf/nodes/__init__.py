"""Cost models of the nodes of prepared graphs: the names of TensorFlow, ONNX, MindSpore, TensorRT."""
