"""The ops, kernels and copies of a trace, their costs, and what they add up to."""
