"""Imports every family of graph nodes: their other names are registered after them."""

# what they register is wanted, not their names
from . import (  # noqa: F401
    graph_conv,
    graph_images,
    graph_layers,
    graph_names,
    graph_norms,
    graph_ops,
    graph_products,
)
