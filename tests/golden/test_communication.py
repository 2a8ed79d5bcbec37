"""On every shared trace, all that tells communication from other work says the same of each kernel and op."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from opscope.core.advice.communicated import communicates
from opscope.core.analysis.critical import work as critical
from opscope.core.analysis.device import device_work as overlapping
from opscope.core.analysis.ops.ops import op_index
from opscope.core.job.exchanges import communicating, exchanges
from opscope.core.perf import kinds
from opscope.core.perf.devices.kernel_names import uses_tensor_cores
from opscope.profile import Profile, load
from opscope.readers.errors import BadInput
from opscope.viewer.timeline.lane import CATEGORY
from opscope.viewer.timeline.op_kinds import all_kinds
from tests.script import ROOT, module_at

TALKS = kinds.COMMUNICATION
SCRIPT = "scripts/communication_agreement.py"


def traces(folder: Path) -> Iterator[tuple[str, Profile]]:
    """Yield the name and the profile of each file that opens and in which a kernel or an op ran."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".md", ".py", ".sh", ".txt"):
            continue
        try:
            profile = load(path)
        except BadInput:
            continue  # what is no trace: test_every_file.py
        if len(profile.trace["kernels"]) or len(profile.trace["ranges"]):
            yield path.name, profile


@pytest.mark.parametrize("folder", ["data", "cases"])
def test_all_places_agree_on_every_trace(shared, folder):
    here = shared.parent / folder
    if not here.is_dir():
        pytest.skip(f"no traces at {here}")
    if not (ROOT / SCRIPT).is_file():
        pytest.skip("the source distribution has no scripts")
    # what three reports and the kernels say: the table of docs/reports.md is made of it
    figures = module_at(SCRIPT).figures
    kernels = ops = 0
    for name, profile in traces(here):
        talks = communicating(profile.attribution)
        kernels += int(talks.sum())
        _same_of_kernels(profile, talks, name)
        if len(profile.trace["kernels"]):
            found = figures(profile)
            assert found.agree, f"{name}: by_kind, overlap and communication: {found}"
        ops += _same_of_ops(profile, name)
    assert kernels > 10, "no trace with a collective's kernel was found"
    assert ops > 10, "no trace with a collective's op was found"


def _same_of_kernels(profile: Profile, talks: np.ndarray, name: str) -> None:
    table = profile.trace["kernels"]
    if table.is_empty():
        return
    frame = profile.kernels(categories=True)
    said = np.zeros(len(table), bool)
    work = overlapping.device_work(profile.of(op_index))
    said[work.row[work.kind == overlapping.COMMUNICATION]] = True
    assert (said == talks).all(), f"{name}: overlap"
    said[:] = False
    along = critical.device_work(profile.attribution)
    said[along.row[along.what == critical.COMMUNICATION]] = True
    assert (said == talks).all(), f"{name}: critical path"
    assert (communicates(profile, frame) == talks).all(), f"{name}: advice"
    lengths = (table["end"] - table["start"]).to_numpy()
    by_kind = profile.totals_by("kind").filter(pl.col("kind") == TALKS)
    assert by_kind["device_time"].sum() == lengths[talks].sum(), f"{name}: by_kind"
    shown = all_kinds(profile)
    by_name = kinds.communicates(table["name"])
    if shown is not None:
        lane = by_name | (shown == CATEGORY[TALKS])
        assert (lane == talks).all(), f"{name}: the viewer's lanes"
    for kernel in table["name"].filter(pl.Series(by_name)).cast(pl.String).unique():
        assert uses_tensor_cores(kernel) is False, kernel
    listed = exchanges(profile.attribution)
    assert bool(by_name.any()) <= bool(len(listed)), f"{name}: collectives"


def _same_of_ops(profile: Profile, name: str) -> int:
    """Compare the ops by family with those by direction; return how many communicate."""
    readings = profile.attribution.meaning.readings
    types = profile.of(op_index).readings["op_type"].cast(pl.String).to_list()
    count = 0
    for reading, family in zip(readings, types, strict=True):
        if reading.role != "op" or reading.call is None:
            continue
        by_direction = reading.direction == TALKS
        assert family != TALKS or by_direction, f"{name}: {reading.call.name}"
        if by_direction:
            kind = kinds.of_op(reading.call.name, family, reading.direction, None)
            assert kind == TALKS, f"{name}: {reading.call.name}"
        count += by_direction
    return count
