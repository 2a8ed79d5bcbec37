"""Which op launched each kernel, and the layer, step and direction that the op is in: one rule a file."""
