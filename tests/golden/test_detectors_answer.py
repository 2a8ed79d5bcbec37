"""No detector fails on a trace of the cases: two took rows of one trace for those of another."""

from __future__ import annotations

import pytest

from opscope.readers.errors import BadInput
from tests import traces

#: A detector that raised has this in its reason.
FAILED = "the detector failed"


@pytest.mark.parametrize(
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
def test_no_detector_fails(shared, case):
    path = shared.parent / "cases" / case if shared.name == "data" else shared / "cases" / case
    if not path.exists():
        pytest.skip(f"{path} is not there")
    try:
        profile = traces.load(path)
    except BadInput as error:
        pytest.skip(str(error))
    reasons = profile.advice()["reason"].drop_nulls().to_list()
    assert not [reason for reason in reasons if reason.startswith(FAILED)]
