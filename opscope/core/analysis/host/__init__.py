"""What the host did: input, processors, energy, and what light mode measured."""
