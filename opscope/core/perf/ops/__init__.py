"""Cost models of ops, one family per file."""
