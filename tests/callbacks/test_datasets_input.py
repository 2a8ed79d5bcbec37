"""Waits for Hugging Face's datasets in a loop, and for the loader of its Trainer."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")

import polars as pl  # noqa: E402

import opscope  # noqa: E402
from tests import planted  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")


def rows(many: int):
    return datasets.Dataset.from_dict({"x": [[float(n)] * 4 for n in range(many)]})


def slowly(row):
    planted.slowly()
    return row


def train(examples, work=lambda: None) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    losses = []
    for one in examples:
        loss = model(torch.tensor(one["x"])).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        work()
    return losses


def trained() -> list[float]:
    slow = rows(planted.BATCHES).to_iterable_dataset().map(slowly)
    return train(slow) + train(rows(planted.FAST_BATCHES).iter(batch_size=1), planted.work)


def test_a_slow_dataset_is_found_and_no_other_and_results_are_the_same(tmp_path):
    alone = trained()
    opscope.init(["torch", "datasets"])
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        observed = trained()
    assert observed == alone
    profile = opscope.load(tmp_path / "run.opscope")
    planted.check(profile, "datasets of IterableDataset", "datasets of Dataset")


def test_a_dataset_inside_a_loader_is_a_part_of_its_waits(tmp_path):
    opscope.init(["torch", "datasets"])
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        slow = rows(planted.BATCHES).to_iterable_dataset().map(slowly)
        train(torch.utils.data.DataLoader(slow.with_format("torch"), batch_size=None))
    found = opscope.load(tmp_path / "run.opscope").data_preparation()
    assert found["loader"].str.starts_with("DataLoader of ").to_list() == [True]


def test_a_trainers_slow_loader_is_found(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return planted.BATCHES

        def __getitem__(self, index):
            planted.slowly()
            return {"x": torch.ones(4)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x):
            return {"loss": self.linear(x).square().mean()}

    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=1, num_train_epochs=1, report_to=[],
        use_cpu=True, save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        transformers.Trainer(Model(), arguments, train_dataset=Slow()).train()
    profile = opscope.load(tmp_path / "run.opscope")
    found = profile.data_preparation().filter(pl.col("loader") == "DataLoader of Slow")
    assert found["verdict"].to_list() == ["input-bound"]
    assert profile.input_waits()["input_bound"].sum() >= planted.BATCHES - 2
