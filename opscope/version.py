"""The version, where everything below the public API can read it."""

__version__ = "0.1.0"
