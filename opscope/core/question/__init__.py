"""What a question about a trace is: its parameters, its answer's columns, and how the answer is shown."""
