"""Inference servers: the engine's steps by kind, tokens, batches, host time between steps, graphs."""
