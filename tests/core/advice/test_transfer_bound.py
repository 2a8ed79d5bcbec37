"""Runs bound by transfers: which copies, at what rate of the link, how much a kernel hides, and when none is."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.core.advice.test_pageable_copies import copy

MS = 1_000_000


def profile(copies, kernels=((0, MS),), name: str | None = "NVIDIA A100-SXM4-40GB", calls=()):
    place = {"process": 0, "device": 0, "context": 1, "stream": 8, "name": "k"}
    tables = {
        "memops": pl.DataFrame(list(copies)),
        "kernels": pl.DataFrame([{**place, "start": s, "end": e} for s, e in kernels]),
    }
    if name is not None:
        tables["devices"] = pl.DataFrame(
            {"process": [0], "device": [0], "name": [name], "cc": ["8.0"]}
        )
    return Profile(Trace.of(tables, {}))


def example() -> Profile:
    """40 batches of 100 MB from pinned memory, each for 4 ms beside no kernel, then a kernel of 1 ms."""
    starts = range(0, 200 * MS, 5 * MS)
    copies = [copy(s, s + 4 * MS, 100 * 10**6, "pinned", correlation=s) for s in starts]
    return profile(copies, [(s + 4 * MS, s + 5 * MS) for s in starts])


#: What docs/advice.md shows.
EXAMPLE = ("made rows: 40 copies from pinned memory of 4 ms, between kernels of 1 ms", example)


def answer(made: Profile, *thresholds: str) -> list[dict]:
    name = ":".join(("transfer_bound", *thresholds))
    return made.advice([name]).rows(named=True)


def test_pinned_copies_that_fill_the_window_are_named_with_their_rate_and_the_link_s():
    (row,) = answer(example())
    assert row["outcome"] == "found"
    assert "for 160.0 ms of the 200.0 ms" in row["finding"]
    assert "80.0 %" in row["finding"]
    assert (
        "40 copies to the device from pinned memory, 4.00 GB in 160.0 ms, 25.0 GB/s"
        in row["finding"]
    )
    assert "of the 31.5 GB/s that PCIe 4.0 x16" in row["finding"]
    assert "threshold: more than 10 %" in row["finding"]
    assert (row["time"], row["saving_least"], row["saving_most"]) == (160 * MS, 0, 160 * MS)
    assert "pin_memory" not in row["recommendation"]
    assert row["confidence"] == "high"


def test_what_kernels_hide_does_not_count():
    copies = [copy(0, 10 * MS, 10**8, "pinned")]
    (row,) = answer(profile(copies, [(2 * MS, 20 * MS)]))
    assert row["outcome"] == "nothing found"  # 2 of 20 ms are not above 10 %
    (row,) = answer(profile(copies, [(3 * MS, 20 * MS)]))
    assert row["time"] == 3 * MS
    assert "kernels hide 7.0 ms of the 10.0 ms of copies" in row["evidence"]


@pytest.mark.parametrize(
    ("kind", "memory", "way", "change"),
    [
        ("HtoD", "pageable", "to the device from pageable memory", "Pin the host's memory first."),
        ("DtoH", "pinned", "from the device to pinned memory", "read back less"),
        ("DtoH", None, "from the device to unknown memory", "read back less"),
        ("PtoP", None, "between devices", "both devices compute"),
    ],
)
def test_the_change_is_of_the_direction_and_the_memory(kind, memory, way, change):
    (row,) = answer(profile([copy(MS, 20 * MS, 10**8, memory, kind)]))
    assert way in row["finding"]
    assert change in row["recommendation"]
    assert "DataLoader" not in row["recommendation"]


@pytest.mark.parametrize(
    ("size", "name", "said"),
    [
        (10**8, None, "what the link could is not known"),
        (10**8, "NVIDIA GH200 480GB", "what the link could is not known"),
        (10**10, "NVIDIA A100-SXM4-40GB", "what the link could is not known"),  # faster than PCIe
        (None, "NVIDIA A100-SXM4-40GB", "how many bytes not recorded"),
    ],
)
def test_a_rate_or_a_link_that_is_not_known_is_said_to_be(size, name, said):
    (row,) = answer(profile([copy(MS, 20 * MS, size, "pinned")], name=name))
    assert said in row["finding"]
    assert "PCIe" not in row["finding"]


def test_copies_within_a_device_and_sets_are_no_transfers():
    for kind in ("DtoD", "memset"):
        (row,) = answer(profile([copy(MS, 20 * MS, 10**8, None, kind)]))
        assert row["outcome"] == "nothing found"


def test_nobody_can_tell_without_kernels_or_without_copies():
    made = Profile(Trace.of({"memops": pl.DataFrame([copy(0, MS, 10**8, "pinned")])}, {}))
    (row,) = answer(made)
    assert row["outcome"] == "cannot tell"
    assert "no kernels" in row["reason"]


@pytest.mark.parametrize("kernels", [((0, MS),), ((7, 7), (7, 7))])
def test_nor_where_no_record_took_time(kernels):
    made = profile([copy(7, 7, 10**8, "pinned"), copy(7, 7, 10**8, None, "DtoD")], kernels)
    (row,) = answer(made)
    assert (row["outcome"], "no copy has a time" in row["reason"]) == ("cannot tell", True)
    assert not [row for row in made.advice().rows(named=True) if "failed" in (row["reason"] or "")]


def test_a_raised_threshold_that_finds_nothing_says_the_threshold():
    (row,) = answer(example(), "least=90%")
    assert row["outcome"] == "nothing found"
    assert "90 %" in row["threshold"]
