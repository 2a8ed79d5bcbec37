"""Detectors that propose a change and estimate the time it saves, one per file."""
