"""Inference servers: the engine's steps by kind, tokens, batches, the host between steps, graphs."""
