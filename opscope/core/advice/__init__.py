"""Advice: detectors that say what to change in the program and what that would save, one a file."""
