"""Arguments that say a size or an axis are those that TensorFlow's own definitions call so."""

from __future__ import annotations

import pytest
from tensorflow.python.framework import op_def_registry

from opscope.core.perf.shape_arguments import PLACES

#: What TensorFlow's op_def calls an argument that is no data.
SAID = {
    "shape", "input_sizes", "filter_sizes", "axis", "axes", "reduction_indices", "perm", "dims", "dim",
    "begin", "end", "strides", "size", "multiples", "paddings", "split_dim", "size_splits", "depth",
    "orig_input_shape", "dimension", "block_shape", "crops", "concat_dim", "num_segments", "k", "shift",
    "element_shape", "output_shape", "num_samples",
}  # fmt: skip
#: Names that ONNX has for other operators, with other arguments besides.
SHARED = {"Split", "Slice", "Pad", "Squeeze", "TopK"}
DEFINED = {
    name: definition for name in PLACES if (definition := op_def_registry.get(name)) is not None
}


@pytest.mark.parametrize("name", sorted(set(DEFINED) - SHARED))
def test_the_places_are_those_of_the_definition(name):
    arguments = DEFINED[name].input_arg
    for place in PLACES[name]:
        assert arguments[place].name in SAID


def test_the_gradients_of_convolutions_are_among_them():
    assert len(DEFINED) > 100
    assert {"Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInputV2"} <= set(DEFINED)
