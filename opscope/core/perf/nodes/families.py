"""Imports every family of graph nodes: their other names are registered after them."""

# what they register is wanted, not their names
from . import (  # noqa: F401
    arithmetic,
    aten_names,
    conv,
    images,
    layers,
    norms,
    products,
)
