"""What holds of every trace: no detector fails, no share is above 1, no time, size or number is below 0."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.question.registry import reports
from opscope.profile import Profile
from opscope.readers.errors import BadInput
from tests import traces

#: A detector that raised has this in its reason.
FAILED = "the detector failed"
#: Columns that may be below 0: the CPU's number, and what grows or shrinks.
SIGNED = {"device", "thread", "increase", "self_increase", "growth", "z_score"}
every_case = pytest.mark.parametrize(
    "case",
    [
        "pytorch/P1.json.gz",  # its steps are inferred, and its loader has workers
        "pytorch/P2.json.gz",
        "pytorch/F3.json",
        "pytorch/tp_trace0.json.gz",
        "communication_kernels/trace.json",
        "gloo_on_other_threads/trace.json",
        "steps_without_kernels/trace.json",
        "unfinished_events/trace.json",
        "corrupt_duration_same_stream/trace.json",
        "frameworks/jax_shard4.xplane.pb",
    ],
)
every_trace = pytest.mark.parametrize(
    "trace",
    [
        "kineto/alexnet_cuda_sync_a100.json.gz",
        "kineto/vllm_decode_cudagraph.json.gz",
        "kineto/qwen1.5_0.5b_h100.json.gz",
        "nsys_more/fuser_h200_test_matmul.sqlite",
        "nvprof/language_model.sqlite",
        "rocm/rocprofv3_gfx1151",
        "rocm/rocprofv1_mi250_laplacian",
        "xplane/jax_conv_mi300.xplane.pb",
        "onnxruntime/resnet_inference_gemmini.json",
        "tensorrt/cookbook_trt10.16",
        "mindspore/mindinsight_run2_ascend910",
    ],
)


def opened(path) -> Profile:
    if not path.exists():
        pytest.skip(f"{path} is not there")
    try:
        return traces.load(path)
    except BadInput as error:
        pytest.skip(str(error))


def hold_bounds(profile: Profile) -> None:
    """Each number of each report: shares are from 0 to 1, and only ``SIGNED`` columns fall below 0."""
    seen = 0
    for name, report in reports().items():
        frame = report.frame(profile)
        for column, kind in frame.schema.items():
            values = frame[column].drop_nulls()
            if kind.is_numeric() and len(values):
                seen += 1
                assert column in SIGNED or values.min() >= 0, f"{name}: {column}"
                if column == "share" or column.endswith("_share"):
                    assert values.max() <= 1 + 1e-9, f"{name}: {column}"
                assert values.cast(pl.Float64).is_finite().all(), f"{name}: {column}"
    assert seen


@every_case
def test_no_detector_fails_and_each_number_can_be(shared, case):
    profile = opened((shared.parent if shared.name == "data" else shared) / "cases" / case)
    reasons = profile.advice()["reason"].drop_nulls().to_list()
    assert not [reason for reason in reasons if reason.startswith(FAILED)]
    hold_bounds(profile)


@every_trace
def test_each_number_can_be(shared, trace):
    hold_bounds(opened(shared / trace))
