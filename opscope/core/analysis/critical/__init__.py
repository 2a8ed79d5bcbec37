"""The critical path of a trace: which work, one piece at a time, made the run as long as it was."""
