"""TensorFlow under the real Nsight Systems, where that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nsight_programs as programs
from tests import nsight_tool as tool

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("nsys", tool.skip_without())]


def test_every_op_is_told_as_the_recorder_tells_it(nsys: str, tmp_path: Path) -> None:
    ran, recorded = tool.run(nsys, programs.TENSORFLOW, tmp_path)
    # no number is told of an op of a graph: it is the place of its run among the trace's ranges
    found = tool.compare(ran.sqlite, recorded, without=("seq",))
    assert found.ops[1] > 90
    assert not found.differences, found.table()
    assert found.steps[0] == found.steps[1]
