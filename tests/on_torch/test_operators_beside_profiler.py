"""The operators of a trace of torch.profiler are those that its own key_averages() lists."""

from __future__ import annotations

import polars as pl
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import opscope

STEPS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A training under torch.profiler: what it says of itself, and opscope of its trace."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    path = tmp_path_factory.mktemp("profiler") / "trace.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(STEPS):
            loss = net(torch.randn(4, 3, 8, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    profiler.export_chrome_trace(str(path))
    return profiler, opscope.load(path)


def theirs(averages) -> dict[tuple, tuple]:
    return {
        (one.key, *map(str, one.input_shapes)): (
            one.count,
            one.self_cpu_time_total * 1000,
            one.cpu_time_total * 1000,
        )
        for one in averages
    }


def nested_in_their_like(profile) -> set[str]:
    """The ops of which one is inside another of its name: key_averages merges the two if nothing else is
    inside, and else counts the inner one's time again."""
    ops = profile.ops()
    around = ops.select(parent_id="op_id", outer="op")
    pairs = ops.join(around, on="parent_id")
    return set(pairs.filter(pl.col("op") == pl.col("outer"))["op"])


def test_calls_self_and_total_times_are_those_of_key_averages(both):
    profiler, profile = both
    expected = {key[0]: row for key, row in theirs(profiler.key_averages()).items()}
    found = profile.operators().filter(pl.col("op").is_not_null())
    other = nested_in_their_like(profile)
    compared = 0
    for row in found.filter(~pl.col("op").is_in(other)).to_dicts():
        calls, alone, whole = expected[row["op"]]
        assert row["calls"] == calls, row["op"]
        # a microsecond's thousandths are in the trace
        assert row["host_self"] == pytest.approx(alone, abs=1 + calls), row["op"]
        assert row["host_total"] == pytest.approx(whole, abs=1 + calls), row["op"]
        compared += 1
    assert compared > 40
    assert len(other) < compared / 4
    listed = {name for name in expected if name.startswith("aten::")}
    assert listed == {op for op in found["op"] if op.startswith("aten::")}


def test_self_times_add_up_to_the_time_of_the_outermost_ops(both):
    _, profile = both
    roots = profile.ops().filter(pl.col("parent_id").is_null())
    found = profile.operators().filter(pl.col("op").is_not_null())
    assert found["host_self"].sum() == roots["cpu_time"].sum()
    assert found["device_self"].to_list() == found["host_self"].to_list()  # the CPU is the device
    assert profile.operators()["device_self"].sum() == profile.summary()["device_time"].item()


def test_shapes_make_as_many_rows_as_theirs(both):
    """Of matrix products: ``key_averages`` has no dtypes, and lists a list's tensors differently."""
    profiler, profile = both
    expected = theirs(profiler.key_averages(group_by_input_shape=True))
    found = profile.operators("inputs")
    for op in ("aten::addmm", "aten::mm", "aten::convolution", "aten::native_batch_norm"):
        rows = found.filter(pl.col("op") == op)
        same = [row for (key, *_), row in expected.items() if key == op]
        assert sorted(rows["calls"]) == sorted(row[0] for row in same), op
        assert sorted(rows["host_self"]) == pytest.approx(
            sorted(row[1] for row in same), abs=1 + STEPS
        )
