"""HLO's convolutions over dilated inputs: each weight for each element, or the weights of a group."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.schema import OpCall, TensorSpec


def flops(x, w, out, **params):
    rank = len(x) - 2
    letters = "".join(str(place) for place in range(rank))
    labels = f"b{letters}f_{letters}io->b{letters}f"
    call = OpCall(
        "hlo::convolution",
        (TensorSpec("f32", x), TensorSpec("f32", w)),
        (TensorSpec("f32", out),),
        (("dim_labels", labels), *params.items()),
    )
    found, why = perf.cost(call)
    assert found is not None, why
    return found.flops


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(2, 4)), min_size=1, max_size=2),
       st.integers(0, 2))  # fmt: skip
def test_a_transposed_convolution_has_each_weight_for_each_input_element(dims, crop):
    """Counted as torch.nn.ConvTranspose scatters: the taps that are cropped are counted, too."""
    dims = [one for one in dims if len(set(one)) > 1] or [(5, 3, 2)]
    n, k, base = zip(*dims, strict=True)
    out = [max((a - 1) * c + b - crop, 1) for a, b, c in dims]
    x, w = (2, *n, 3), (*k, 3, 5)
    pads = tuple((window - 1, window - 1 - crop) for window in k)
    found = flops(x, w, (2, *out, 5), base_dilation=base, pad=pads)
    assert found == 2 * 2 * 3 * 5 * prod(n) * prod(k)


def test_the_padding_of_a_convolution_counts_as_torch_counts_it():
    assert flops((2, 16, 16, 3), (3, 3, 3, 8), (2, 16, 16, 8), pad=((1, 1), (1, 1))) == 221_184
    assert flops((2, 16, 16, 3), (3, 3, 3, 8), (2, 14, 14, 8)) == 169_344
    # the transposed one of stride 2, cropped to 32 x 32
    cropped = flops(
        (2, 16, 16, 3), (3, 3, 3, 8), (2, 32, 32, 8), base_dilation=(2, 2), pad=((2, 1), (2, 1))
    )
    assert cropped == 221_184


def test_a_dimension_of_groups_has_the_weights_of_one_group_for_each_result():
    """XLA writes a convolution of two groups of the batch with one more dimension, of base dilation 2."""
    found = flops((2, 16, 16, 2, 3), (3, 3, 2, 3, 4), (2, 14, 14, 2, 4), base_dilation=(1, 1, 2))
    assert found == 2 * (2 * 14 * 14 * 8) * 27
