"""Baselines: runs kept small, by name, in a folder; compared with a new run and with each other."""
