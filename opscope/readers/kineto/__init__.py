"""Kineto: the JSON traces of torch.profiler."""
