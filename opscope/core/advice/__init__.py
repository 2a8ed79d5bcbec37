"""Detectors that say what to change and what it would save, one a file."""
