"""Read the output of MindSpore's profiler."""
