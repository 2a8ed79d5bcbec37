"""Import every family of graph nodes, before the aliases that refer to them are registered."""

# imported because they register models
from . import (  # noqa: F401
    arithmetic,
    aten_names,
    conv,
    images,
    layers,
    norms,
    onnx_attention,
    products,
)
