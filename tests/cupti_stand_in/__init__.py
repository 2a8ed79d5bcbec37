"""A stand-in for NVIDIA's CUPTI library, built from C source, and what tests play on it."""
