"""The error of an engine that reads many ranks: it is missing, was lost, or has an unsuitable worker."""

from __future__ import annotations


class EngineError(RuntimeError):
    """A job of many ranks could not be read to its end; the message says why and what to do."""
