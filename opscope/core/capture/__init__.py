"""The program's side: which capture runs, what is pushed and popped, and the two sinks that hear it."""
