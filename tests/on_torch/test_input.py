"""Waits for PyTorch's DataLoader: a planted slow one is found and no other, and the program does not notice."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import polars as pl  # noqa: E402

import opscope  # noqa: E402
from opscope.core.schema import INPUT_QUEUE  # noqa: E402
from tests import planted  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")


class Images(torch.utils.data.Dataset):
    def __init__(self, batches: int, seconds: float = 0.0) -> None:
        self.batches, self.seconds = batches, seconds

    def __len__(self) -> int:
        return 2 * self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds and index % 2:
            planted.slowly(self.seconds)
        return torch.full((4,), float(index))


class SlowImages(Images):
    pass


def train(loader, model, optimizer, work=lambda: None) -> list[float]:
    losses = []
    for batch in loader:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        work()
    return losses


def loaders(workers: int = 0):
    load = torch.utils.data.DataLoader
    more = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    slow = load(SlowImages(planted.BATCHES, planted.SLOW_S), batch_size=2, **more)
    return slow, load(Images(planted.FAST_BATCHES), batch_size=2)


def trained(workers: int = 0) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    slow, fast = loaders(workers)
    return train(slow, model, optimizer) + train(fast, model, optimizer, planted.work)


def test_a_planted_slow_loader_is_found_and_no_other_and_results_are_the_same(tmp_path):
    alone = trained()
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        observed = trained()
    assert observed == alone
    profile = opscope.load(tmp_path / "run.opscope")
    planted.check(profile, "of SlowImages", "of Images", "test_input.py")
    found = profile.data_preparation()
    assert found["workers"].to_list() == [0, 0]
    assert found["batch"].to_list() == [2, 2]
    assert found["queue_depth"].null_count() == 2


def test_workers_and_the_batches_that_were_ready_are_known(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        slow, _ = loaders(workers=1)
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        train(slow, model, optimizer)
        ready = torch.utils.data.DataLoader(
            Images(planted.FAST_BATCHES),
            batch_size=2,
            num_workers=1,
            multiprocessing_context="fork",
        )
        train(ready, model, optimizer, planted.work)
    profile = opscope.load(tmp_path / "run.opscope")
    slow, fast = (
        profile.data_preparation()
        .filter(pl.col("loader") == f"DataLoader of {name}")
        .row(0, named=True)
        for name in ("SlowImages", "Images")
    )
    assert slow["verdict"] == "input-bound"
    assert (slow["workers"], slow["prefetch"]) == (1, 2)
    assert slow["empty"] >= planted.BATCHES - 2
    assert fast["queue_depth"] > 0
    depths = profile.trace["samples"].filter(pl.col("name").cast(pl.String) == INPUT_QUEUE)
    waits = profile.trace["ranges"].filter(pl.col("domain").cast(pl.String) == "opscope.input")
    assert len(depths) == len(waits) == planted.BATCHES + planted.FAST_BATCHES + 2
    assert depths["value"].min() == 0


def test_an_error_of_the_dataset_is_the_programs_own(tmp_path):
    class Broken(Images):
        def __getitem__(self, index):
            raise KeyError("the user's own")

    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        with pytest.raises(KeyError, match="the user's own"):
            next(iter(torch.utils.data.DataLoader(Broken(2))))
        torch.ones(2).sum()
    ranges = opscope.load(tmp_path / "run.opscope").trace["ranges"]
    waits = ranges.filter(pl.col("domain").cast(pl.String) == "opscope.input")
    sums = ranges.filter(pl.col("text").cast(pl.String).str.starts_with("aten::sum"))
    assert len(waits) == 1
    assert (sums["start"] >= waits["end"][0]).all()


def test_a_fault_of_ours_does_not_reach_the_program(tmp_path, monkeypatch, caplog):
    from opscope.adapters.shared import loaders as shared

    def broken(*args):
        raise RuntimeError("ours")

    monkeypatch.setattr(shared.Waits, "_describe", broken)
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert len(list(torch.utils.data.DataLoader(Images(2)))) == 4
    assert caplog.text.count("a wait for input could not be recorded") == 1


def test_the_hooks_are_gone_after_the_capture(tmp_path):
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    before = iterator.__next__
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert iterator.__next__ is not before
    assert iterator.__next__ is before
