"""cuDNN's benchmark mode: found off only where the trace has recorded it, and where sizes come back."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.cudnn_benchmark import find
from tests import traces
from tests.core.advice.made_products import FILL, HALF, made, one, reason

FPROP = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"


def conv(benchmark, size=56):
    params = "padding=[1, 1], stride=[1, 1], dilation=[1, 1], groups=1"
    if benchmark is not None:
        params += f", benchmark={benchmark}, deterministic=false"
    return f"aten::cudnn_convolution(f16[64,256,{size},{size}], f16[256,256,3,3]) {{{params}}}"


def example():
    rows = [(conv("false"), FPROP, 4_000_000), (conv("false", 28), FPROP, 1_500_000)]
    return made(*rows, *rows, *rows, (None, FILL, 1_000_000))


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: convolutions of two sizes in three steps, benchmark=false recorded", example)


def test_the_bound_is_the_roof_of_an_algorithm_with_a_quarter_of_the_multiplications():
    profile = example()
    found = one(find(profile))
    assert "6 convolutions of 2 sizes" in found.what
    assert found.time == 3 * 5_500_000
    kernels = profile.kernels().filter(profile.kernels()["op_type"] == "conv")
    roof = sum(
        max(flops / 4 / 312e12, moved / 1555e9) * 1e9
        for flops, moved in kernels.select("matrix_flops", "bytes").rows()
    )
    assert found.saving_most == pytest.approx(found.time - roof, abs=3)
    assert (found.saving, found.edit, found.confidence) == (None, None, "low")
    assert "torch.backends.cudnn.benchmark = True" in found.recommendation


def test_without_the_devices_limits_all_of_the_time_is_the_bound():
    found = one(find(made(*[(conv("false"), FPROP, 100)] * 2, device=None)))
    assert found.saving_most == found.time == 200


@pytest.mark.parametrize(
    "rows",
    [
        [(conv("true"), FPROP, 100)] * 3,
        [("aten::mm(f16[64,64], f16[64,64])", HALF, 100)],  # no convolution
        [*[(conv("false"), FPROP, 1)] * 2, (None, FILL, 1000)],
        [(conv("false", 50 + number), FPROP, 100) for number in range(5)],  # sizes do not come back
    ],
)
def test_there_is_nothing_to_change(rows):
    assert find(made(*rows)) == []


def test_what_is_not_known_is_said():
    assert "record_shapes=True" in reason(find(made((conv(None), FPROP, 100))))
    assert "no kernel has an op" in reason(find(made((None, FPROP, 100))))
    hlo = "hlo::convolution:forward(bf16[1,16,32,60], bf16[5120,16,2,2])"
    assert "XLA" in reason(find(made((hlo, FPROP, 100))))
    both = [(conv("false"), FPROP, 2_000_000)] * 2 + [(conv(None), FPROP, 3_000_000)]
    assert "not recorded for 3.0 ms" in one(find(made(*both))).evidence


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # older PyTorch: parameters were not recorded, and implicit GEMM beside Winograd proves no mode
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "record_shapes=True"),
        ("kineto/nccl_meta.json.gz", "record_shapes=True"),
        ("xplane/jax_conv_mi300.xplane.pb", "XLA"),
        # benchmark=false is recorded, but of one convolution with 0.8 % of the time
        ("kineto/timesformer_h100.json.gz", None),
        ("kineto/qwen1.5_0.5b_h100.json.gz", None),
    ],
)
def test_real_traces(shared, name, why):
    answer = find(traces.load(shared / name))
    if why is None:
        assert answer == []
    else:
        assert why in reason(answer)
