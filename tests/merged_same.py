"""Compare a profile that was merged from partials with ``load`` of the same files, frame by frame, exactly."""

from __future__ import annotations

from collections.abc import Iterable

from polars.testing import assert_frame_equal

import opscope

#: What a merged profile has, as the methods of a Profile that return it.
FRAMES = (
    "summary", "op_totals", "kernel_totals", "kernel_lengths", "unattributed", "kinds", "gaps", "range_totals",
    "missing_costs", "communication", "collectives", "steps", "step_summary", "step_phases", "stragglers",
    "collective_waits", "step_imbalance", "groups", "meshes", "clocks", "notes", "own_costs", "idle",
    "idle_steps", "overlap", "device_use", "utilization", "memory", "compiled", "light",
    "late_causes", "slowest_ranks", "collective_faults", "last_collectives", "collective_bandwidth",
    "rank_outliers", "rank_pairs", "rank_loads", "collective_ends", "wall_time",
)  # fmt: skip


def assert_same(
    merged: opscope.profile.Profile,
    files: Iterable[object],
    without: Iterable[str] = (),
    unrelated: bool = False,
):
    """Fail where a frame of ``merged`` differs from that of ``load`` of the files, in any bit or row order."""
    loaded = opscope.load([str(one) for one in files], unrelated=unrelated)
    for name in FRAMES:
        if name not in without:
            found, wanted = getattr(merged, name)(), getattr(loaded, name)()
            try:
                assert_frame_equal(found, wanted, check_exact=True)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
    for by in ("kind", "op", "layer", "source", "dtype"):
        assert_frame_equal(merged.totals_by(by), loaded.totals_by(by), check_exact=True)
    return loaded
