"""The adapter and the recorder together: what a recording of PyTorch holds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polars as pl  # noqa: E402

import opscope  # noqa: E402
from opscope.backends.recorder import RecorderCapture  # noqa: E402
from opscope.core.capture import session  # noqa: E402
from opscope.core.rangetext import parse  # noqa: E402
from opscope.readers.recording.reader import collect  # noqa: E402

F, nn = torch.nn.functional, torch.nn


def record(folder, run):
    opscope.init(["torch"])
    session.start(RecorderCapture(folder))
    try:
        run()
    finally:
        session.stop()
        opscope.shutdown()
    return collect(folder)


class Doubled(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((3,), float(index)) * 2


def test_forked_loader_workers_record_their_input_ops(tmp_path):
    def run():
        loader = torch.utils.data.DataLoader(
            Doubled(), batch_size=2, num_workers=1, multiprocessing_context="fork"
        )
        for batch in loader:
            batch.sum()

    trace = record(tmp_path / "run", run)
    ops = trace["ranges"].filter(pl.col("text").cast(pl.String).str.starts_with("aten::mul"))
    assert trace["processes"].height == 2
    assert ops.height == 4
    assert ops["process"].n_unique() == 1
    sums = trace["ranges"].filter(pl.col("text").cast(pl.String).str.starts_with("aten::sum"))
    assert set(sums["process"]).isdisjoint(ops["process"])
    assert set(ops["category"].cast(pl.String)) == {"input"}
    assert set(sums["category"].cast(pl.String)) == {"forward"}


def test_steps_phases_layers_and_ops_nest_in_time(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    ranges = record(tmp_path / "run", run)["ranges"].sort("start").to_dicts()
    by_category = {}
    for one in ranges:
        by_category.setdefault(one["category"], []).append(one)
    steps = [one["text"] for one in by_category["step"]]
    assert steps == ["step 0", "step 1", "step 2", "step 3"]
    # the last was begun by the optimizer and never ended
    assert [one["attrs"] is not None for one in by_category["step"]] == [False, False, False, True]
    phases = [one["text"] for one in by_category["phase"]]
    assert phases == ["forward", "backward", "optimizer"] * 3
    backward = [one for one in by_category["phase"] if one["text"] == "backward"]
    first = [op for op in by_category["backward"] if op["text"].startswith("aten::ones_like(")]
    assert len(first) == 3  # what a pass begins with is made before autograd is called
    for op in by_category["backward"]:
        if op in first:
            assert any(one["start"] >= op["end"] for one in backward)
            continue
        assert any(one["start"] <= op["start"] <= op["end"] <= one["end"] for one in backward)
    layer = {one["text"] for one in by_category["layer"]}
    assert layer == {"Sequential", "Sequential.0", "Sequential.1"}
    addmm = [one for one in by_category["forward"] if one["text"].startswith("aten::addmm(")]
    assert len({one["text"] for one in addmm}) == 1
    assert parse(addmm[0]["text"]).outputs is not None
    assert len({one["seq"] for one in addmm}) == 3
