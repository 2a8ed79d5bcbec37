"""torch.profiler's memory timelines: what was in use after each change, and the kinds at the peak, of both forms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of

FORMAT = "PyTorch's memory timelines"
T = 1_764_450_000_000_000_000
#: Time (ns), action (1: was there before, 2: created, 3: changed its kind, 4: destroyed), bytes, kind (0: parameters,
#: 3: temporaries, 4: activations, 7: unknown).
CHANGES = [
    (-1, 1, 400, 0),
    (T, 2, 100, 7),
    (T + 5_000, 3, -100, 7),
    (T + 5_000, 3, 100, 4),
    (T + 7_000, 2, 50, 3),
    (T + 9_000, 4, -50, 3),
    (T + 9_500, 4, -100, 4),
]
SUMS = [
    [T // 1000, T // 1000 + 5, T // 1000 + 7, T // 1000 + 9],
    [
        [0, 400, 0, 0, 0, 0, 0, 0, 100],
        [0, 400, 0, 0, 0, 100, 0, 0, 0],
        [0, 400, 0, 0, 50, 100, 0, 0, 0],
        [0, 400, 0, 0, 0, 0, 0, 0, 0],
    ],
]


def seeds(folder: Path) -> list[Path]:
    """Write a timeline of single changes and one of sums."""
    single, summed = folder / "a.raw.json.gz", folder / "b.json"
    single.write_bytes(gzip.compress(json.dumps(CHANGES).encode()))
    summed.write_text(json.dumps(SUMS))
    return [single, summed]


def test_each_change_has_what_was_in_use_after_it(tmp_path):
    single, summed = seeds(tmp_path)
    assert format_of(single) == format_of(summed) == "memory_snapshot"
    assert opscope.load(single).trace["allocations"].select("time", "bytes", "total").rows() == [
        (T, 400, 400),
        (T, 100, 500),
        (T + 7_000, 50, 550),
        (T + 9_000, -50, 500),
        (T + 9_500, -100, 400),
    ]
    assert opscope.load(summed).trace["allocations"].select("time", "bytes", "total").rows() == [
        (T, 500, 500),
        (T + 7_000, 50, 550),
        (T + 9_000, -150, 400),
    ]


def test_the_peak_is_parted_by_what_torch_profiler_took_it_for(tmp_path):
    for path in seeds(tmp_path):
        profile = opscope.load(path)
        assert profile.memory()["peak_memory"].to_list() == [550]
        notes = " ".join(profile.trace["notes"]["what"])
        assert "at the peak of 550" in notes
        assert "400 parameters, 100 activations, 50 temporaries" in notes


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [[0, 1], [0, 2]]],
        [[1], [[0] * 9, [0] * 9]],
        [[T, 2, 1, 8]],
        [[T, 2, 1 << 60, 0]],
        [[1 << 63, 2, 1, 0]],
        [[T, 2, 0, 0]],
        [[1, 2]],
    ],
)
def test_other_numbers_in_lists_are_no_timeline(tmp_path, value):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadInput, match="timeline"):
        opscope.load(path)
