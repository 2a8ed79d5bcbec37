"""The activity of the host: input, processors, energy, and the measurements of light mode."""
