"""FLOPs that a mask saves are in no rate: by execution, by op, by kernel."""

from __future__ import annotations

import pytest

from opscope.profile import Profile

ATTENTION = (
    "aten::_scaled_dot_product_flash_attention(f16[1,2,64,8], f16[1,2,64,8], f16[1,2,64,8])"
    " {dropout_p=0.0, is_causal=true}"
)


@pytest.mark.parametrize("by", [("op",), ("direction",), ("kernel",)])
def test_a_group_of_one_causal_call_has_the_call_s_rate(trace_of, by):
    on = {"process": 0, "thread": 1}
    trace = trace_of(
        devices=[{"process": 0, "device": 0, "name": "NVIDIA H100 80GB HBM3"}],
        ranges=[{**on, "kind": "pushpop", "domain": "opscope.torch", "category": "forward",
                 "text": ATTENTION, "start": 0, "end": 50}],
        calls=[{**on, "name": "cudaLaunchKernel", "start": 10, "end": 12, "correlation": 1}],
        kernels=[{"process": 0, "device": 0, "stream": 7, "start": 100, "end": 5100,
                  "name": "flash_fwd_kernel", "correlation": 1}],
    )  # fmt: skip
    profile = Profile(trace)
    (call,) = profile.efficiency().to_dicts()
    (group,) = profile.efficiency(*by).to_dicts()
    assert call["masked_flops"] > 0
    for name in ("attained_flops", "intensity"):
        assert group[name] == pytest.approx(call[name])
