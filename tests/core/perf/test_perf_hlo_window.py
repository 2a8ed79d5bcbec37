"""HLO's convolutions over dilated inputs, counted pair by pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.hlo.instructions import _on_elements
from opscope.core.schema import OpCall, TensorSpec

SMALL = st.integers(1, 4)


@given(
    many=st.integers(0, 12),
    step=SMALL,
    start=st.integers(-9, 20),
    size=st.integers(0, 6),
    base=SMALL,
)
def test_places_on_elements(many, step, start, size, base):
    """Each place looked at: an element stands at every multiple of ``base``, as many as there are."""
    elements = {place * base for place in range(size)}
    counted = sum(start + number * step in elements for number in range(many))
    assert _on_elements(many, step, start, size, base) == counted


@given(st.lists(st.tuples(st.integers(1, 4), SMALL, SMALL, SMALL, SMALL, st.integers(-2, 3)), min_size=1, max_size=2))  # fmt: skip
def test_a_convolution_over_holes(dims):
    """Only windows' positions that hold an element multiply: 2 FLOPs for each, channel by channel."""
    n, k, step, gap, base, low = zip(
        *[(a, b, c, d, e + 1, f) for a, b, c, d, e, f in dims], strict=True
    )
    out = [4] * len(dims)
    letters = "".join(str(place) for place in range(len(dims)))
    batch, inner, outer = 2, 3, 5
    pairs = 1
    for axis in range(len(dims)):
        pairs *= sum(
            place % base[axis] == 0 and 0 <= place < (n[axis] - 1) * base[axis] + 1
            for result in range(out[axis])
            for tap in range(k[axis])
            for place in [result * step[axis] + tap * gap[axis] - low[axis]]
        )
    call = OpCall(
        "hlo::convolution",
        (TensorSpec("f32", (batch, *n, inner)), TensorSpec("f32", (*k, inner, outer))),
        (TensorSpec("f32", (batch, *out, outer)),),
        (("dim_labels", f"b{letters}f_{letters}io->b{letters}f"), ("window", k), ("stride", step),
         ("dilation", gap), ("base_dilation", base), ("pad", tuple((one, 0) for one in low))),
    )  # fmt: skip
    found, why = perf.cost(call)
    assert found is not None, why
    assert found.flops == 2 * batch * inner * outer * pairs


def test_a_window_beyond_any_is_refused():
    call = OpCall(
        "hlo::convolution",
        (TensorSpec("f32", (1, 4, 1)), TensorSpec("f32", (2**40, 1, 1))),
        (TensorSpec("f32", (1, 4, 1)),),
        (("dim_labels", "b0f_0io->b0f"), ("base_dilation", (2,))),
    )
    assert perf.cost(call) == (None, "the window is not valid for a convolution")
