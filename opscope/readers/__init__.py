"""One file format each, into the trace tables."""
