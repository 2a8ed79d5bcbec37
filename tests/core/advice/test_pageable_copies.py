"""Copies from and to pageable memory: where they are found, what bounds their saving, and where nobody can tell."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests import traces

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a ResNet-50 on a GPU whose data loader has no workers",
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
)


def copy(start, end, size, memory="pageable", kind="HtoD", correlation=1):
    place = {"src_kind": memory, "dst_kind": "device"}
    if kind == "DtoH":
        place = {"src_kind": "device", "dst_kind": memory}
    return {
        "process": 0, "device": 0, "context": 1, "stream": 7, "start": start, "end": end,
        "kind": kind, "bytes": size, "correlation": correlation, **place,
    }  # fmt: skip


def profile(copies, kernels=(), calls=()):
    tables = {"memops": pl.DataFrame(list(copies))}
    if kernels:
        place = {"process": 0, "device": 0, "context": 1, "stream": 8, "name": "k"}
        tables["kernels"] = pl.DataFrame([{**place, "start": s, "end": e} for s, e in kernels])
    if calls:
        place = {"process": 0, "thread": 1, "name": "cudaMemcpyAsync"}
        rows = [{**place, "start": s, "end": e, "correlation": n} for s, e, n in calls]
        tables["calls"] = pl.DataFrame(rows)
    return Profile(Trace.of(tables, {}))


def pageable(found):
    return found.filter(pl.col("detector") == "pageable_copies").rows(named=True)


def test_the_saving_is_bounded_by_copies_that_nothing_hid_and_calls_that_the_host_waited_in():
    copies = [copy(1000, 3000, 1 << 20), copy(5000, 9000, 1 << 20, correlation=2)]
    made = profile(copies, kernels=[(2000, 6000)], calls=[(500, 1500, 1), (4000, 4700, 2)])
    (row,) = pageable(made.advice(["pageable_copies"]))
    assert row["outcome"] == "found"
    assert row["time"] == 2000 + 4000
    assert (row["saving_least"], row["saving_most"]) == (0, 1000 + 3000 + 1000 + 700)
    assert "2 copies to the GPU" in row["finding"]
    assert "outside any op (2 copies" in row["evidence"]


def test_without_the_calls_nothing_bounds_the_saving():
    (row,) = pageable(profile([copy(0, 1000, 1 << 20)]).advice(["pageable_copies"]))
    assert row["saving_most"] is None
    assert "lacks the calls" in row["reasoning"]


def test_copies_of_which_too_little_is_known_are_named_beside_a_finding():
    (row,) = pageable(
        profile([copy(0, 10, 1 << 20), copy(20, 30, 1 << 20, None)]).advice(["pageable_copies"])
    )
    assert "copies without a kind of memory or a size: 1" in row["evidence"]


def test_both_directions_are_findings_of_their_own():
    rows = pageable(
        profile([copy(0, 10, 1 << 20), copy(20, 30, 1 << 20, kind="DtoH")]).advice(
            ["pageable_copies"]
        )
    )
    assert ["to the GPU" in row["finding"] for row in rows].count(True) == 1
    assert ["from the GPU" in row["finding"] for row in rows].count(True) == 1


@pytest.mark.parametrize("copies", [
    [copy(0, 1000, 1 << 20, "pinned")], [copy(0, 1000, 64 << 10)], [copy(0, 9, 1 << 20, "managed")],
])  # fmt: skip
def test_pinned_memory_and_small_copies_are_nothing_to_change(copies):
    (row,) = pageable(profile(copies).advice(["pageable_copies"]))
    assert (row["outcome"], row["reason"]) == ("nothing found", None)


@pytest.mark.parametrize("copies", [
    [copy(0, 1000, 1 << 20, None)], [copy(0, 9, 1 << 20, "unknown"), copy(0, 9, 5, "pinned")],
    [copy(0, 1000, 1 << 20, kind="DtoD")], [copy(0, 1000, None), copy(0, 9, 1 << 20, "pinned")],
])  # fmt: skip
def test_nothing_is_said_of_memory_that_nobody_recorded(copies):
    (row,) = pageable(profile(copies).advice(["pageable_copies"]))
    assert row["outcome"] == "cannot tell"
    assert row["reason"]


@pytest.mark.parametrize(
    ("name", "outcome", "where"),
    [
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "found", "resnet50_profiler_api.py:44"),
        ("kineto/alexnet_cuda_sync_a100.json.gz", "found", "aten::copy_"),
        ("kineto/vision_transformer_rank0.json.gz", "nothing found", None),
        ("xplane/jax_conv_mi300.xplane.pb", "cannot tell", None),
    ],
)
def test_real_traces(shared, name, outcome, where):
    loaded = traces.load(shared / name)
    rows = pageable(loaded.advice(["pageable_copies"]))
    assert {row["outcome"] for row in rows} == {outcome}
    if outcome == "found":
        copies = loaded.memops().filter(pl.col("src_kind") == "pageable", pl.col("bytes") > 65536)
        assert rows[0]["time"] == copies["duration"].sum()
        assert where in rows[0]["evidence"]
        assert "pin_memory=True" in rows[0]["recommendation"]


def torch_copies(*copies, steps=0):
    """Copies that ``aten::copy_`` launched, one a step of 100 ns for the first ``steps``."""
    place = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    ranges, calls = [], []
    for number in range(steps):
        span = {"start": 100 * number, "end": 100 * number + 99}
        ranges.append({**place, **span, "text": f"step {number}", "category": "step",
                       "domain": "opscope.step"})  # fmt: skip
    for number, _ in enumerate(copies):
        start = 100 * number + 1
        ranges.append({**place, "start": start, "end": start + 20, "category": "forward",
                       "text": "aten::copy_(f32[8], f32[8]) -> f32[8] on cuda:0"})  # fmt: skip
        calls.append({"process": 0, "thread": 1, "name": "cudaMemcpyAsync", "start": start + 1,
                      "end": start + 9, "correlation": number + 1})  # fmt: skip
    rows = [{**one, "correlation": n + 1, "start": 100 * n + 5, "end": 100 * n + 15}
            for n, one in enumerate(copies)]  # fmt: skip
    made = {
        "memops": pl.DataFrame(rows),
        "calls": pl.DataFrame(calls),
        "ranges": pl.DataFrame(ranges),
    }
    return Profile(Trace.of(made, {}))


def test_the_finding_names_the_copies_that_count_and_the_least_that_does():
    made = profile([copy(0, 10, 1 << 20), *[copy(20, 30, 1 << 10)] * 2])
    (row,) = pageable(made.advice(["pageable_copies"]))
    assert "1 of 3 copies to the GPU with pageable memory are of more than 64 KB" in row["finding"]
    assert "threshold: one copy of more than 64 KB" in row["finding"]


def test_copies_from_the_gpu_are_not_told_to_pin_the_loader():
    (row,) = pageable(torch_copies(copy(0, 10, 1 << 20, kind="DtoH")).advice(["pageable_copies"]))
    assert "DataLoader" not in row["recommendation"]
    assert "torch.empty(shape, pin_memory=True)" in row["recommendation"]


def test_only_copies_of_several_steps_are_told_to_pin_the_loader_first():
    (row,) = pageable(
        torch_copies(*[copy(0, 10, 1 << 20)] * 3, steps=3).advice(["pageable_copies"])
    )
    assert row["recommendation"].startswith("Load with DataLoader(…, pin_memory=True)")
    (row,) = pageable(torch_copies(copy(0, 10, 1 << 20)).advice(["pageable_copies"]))
    assert "What is copied once, as weights are, costs once" in row["recommendation"]
