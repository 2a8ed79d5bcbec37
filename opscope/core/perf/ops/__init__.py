"""Cost models of ops, one family a file."""
