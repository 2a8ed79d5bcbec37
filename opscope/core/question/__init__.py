"""A question about a trace: its parameters, its answer's columns, and how the answer is shown."""
