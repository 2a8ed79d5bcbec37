"""opscope: where the time of a neural network goes, and why."""

__version__ = "0.1.0"
