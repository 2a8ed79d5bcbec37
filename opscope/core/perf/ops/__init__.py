"""Cost models of ops, one family per file.

A model's docstring describes the op: what it reads and writes, and how its FLOPs are counted.
"""
