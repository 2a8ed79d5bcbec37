"""The questions that a page can ask of a profile: one per module, found by their names and listed
nowhere else."""
