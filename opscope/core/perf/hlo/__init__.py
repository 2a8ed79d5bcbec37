"""Cost models of XLA's HLO instructions and of the library calls in XLA programs."""
