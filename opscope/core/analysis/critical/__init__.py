"""The critical path of a trace: the chain of work that determined how long the run took."""
