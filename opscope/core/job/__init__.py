"""Combine the ranks of one job: align their clocks, and match the collectives that they took part in."""
