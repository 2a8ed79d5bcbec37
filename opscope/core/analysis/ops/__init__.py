"""The ops, kernels and copies of a trace, their costs and their totals."""
