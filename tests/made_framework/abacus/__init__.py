"""Abacus: a minimal made-up framework, for the adapter ``opscope.adapters.template``."""

from abacus.engine import Array, add, multiply
from abacus.training import Layer, Optimizer

__version__ = "2.1"
__all__ = ["Array", "Layer", "Optimizer", "add", "multiply"]
