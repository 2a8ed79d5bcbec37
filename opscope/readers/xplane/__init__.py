"""XPlane files of jax.profiler, TensorFlow and PyTorch/XLA, and the trace viewer's JSON beside them."""
