"""The kernels of a real Nsight trace, played on the stand-in for CUPTI under a live training on the CPU."""

from __future__ import annotations

import sys
import time
from collections import deque

import polars as pl
import pytest

import opscope
from opscope.backends.cupti.capture import CuptiCapture
from opscope.core.capture import session
from tests.cupti_stand_in.library import Driver, build
from tests.cupti_stand_in.traced import SAME, taken

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CUPTI's helper is built on Linux only"
)
#: The ops of the block below that the trace has kernels of.
OPS = (
    "aten::add", "aten::mul", "aten::addmm", "aten::pow", "aten::mean", "aten::rsqrt", "aten::cat",
    "aten::native_layer_norm", "aten::mm",
)  # fmt: skip


class Launches(TorchDispatchMode):
    """Within each op, the kernels that the trace's next op of that name launched, at the trace's times."""

    def __init__(self, driver, traced, base):
        super().__init__()
        self.driver, self.base, self.traced = driver, base, traced
        self.waiting: dict[str, deque[list[int]]] = {name: deque() for name in OPS}
        kernels = traced.kernels.with_row_index()
        for (op, _), rows in kernels.group_by("op", "op_id", maintain_order=True):
            if op in self.waiting:
                self.waiting[op].append(rows["index"].to_list())
        self.played: list[int] = []

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        queue = self.waiting.get(function._schema.name)
        if queue:
            for row in queue.popleft():
                self.driver.launch(self.traced.calls[row], self.traced.numbers[row], self.base)
                self.played.append(row)
        return function(*arguments, **(more or {}))


class Block(torch.nn.Module):
    """A block of a transformer: a norm by hand, one of PyTorch's, and two linear layers."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x + self.down(torch.cat([self.up(self.norm(x)).relu()[:, :16], x], 1))


def test_a_played_trace_has_the_kernels_times_and_ops_that_it_says(shared, tmp_path, unobserved):
    traced = taken(shared / "nsys" / "fsdp_h100x2_2026.sqlite", 400)
    library = build(tmp_path / "lib")
    driver = Driver(library, traced.activity.write(tmp_path / "play"))
    opscope.init()
    model = torch.nn.Sequential(Block(), Block())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session.start(CuptiCapture(tmp_path / "out", path=library))
    base = driver.now()
    with Launches(driver, traced, base) as played:
        for _ in range(12):
            opscope.step()
            optimizer.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
    ends = base + traced.kernels["end"].max()
    while driver.now() < ends:  # the trace's kernels end later than its launches
        time.sleep(0.05)
    session.stop()

    profile = profile_of(tmp_path)
    # the trace's texts have no overloads
    op = pl.col("op").str.split(".").list.first()
    kernels = profile.kernels().sort("start").with_columns(op)
    said = traced.kernels[sorted(played.played)].sort("start")
    assert len(said) > 150
    assert set(said["op"]) >= {"aten::add", "aten::mul", "aten::addmm", "aten::native_layer_norm"}
    assert kernels.select(SAME).rows() == said.select(SAME).rows()
    assert (kernels["start"] - base).to_list() == said["start"].to_list()
    assert kernels["reason"].null_count() == len(kernels)  # each has its op
    assert kernels["step"].null_count() < len(kernels)
    summary = profile.summary().row(0, named=True)
    assert summary["kernel_time"] == said["duration"].sum()
    assert summary["unattributed_time"] == 0


def test_a_librarys_trace_comes_back_without_a_framework(shared, tmp_path, unobserved):
    traced = taken(shared / "nsys" / "cudf_2020.sqlite", 268)
    library = build(tmp_path / "lib")
    driver = Driver(library, traced.activity.write(tmp_path / "play"))
    session.start(CuptiCapture(tmp_path / "out", path=library))
    base = driver.now()
    for row, op in enumerate(traced.kernels["op"]):
        with opscope.annotate(op):
            driver.launch(traced.calls[row], traced.numbers[row], base)
    # its kernels lie seconds apart: what has not ended is not complete
    while driver.now() < base + traced.kernels["end"].max():
        time.sleep(0.05)
    session.stop()
    kernels = profile_of(tmp_path).kernels().sort("start")
    said = traced.kernels.sort("start")
    assert kernels.select(SAME).rows() == said.select(SAME).rows()
    assert (kernels["start"] - base).to_list() == said["start"].to_list()


def profile_of(tmp_path):
    from opscope.backends import recording_folder

    recording_folder.to_profile(tmp_path / "out", tmp_path / "p.opscope", True)
    return opscope.load(tmp_path / "p.opscope")
