"""Readers of the range texts that other tools write, each into the same OpCall."""
