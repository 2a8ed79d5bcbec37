"""The Trainer of Transformers, and Accelerate, train for real; their steps are in the profile."""

from __future__ import annotations

import polars as pl
import pytest

import opscope

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
import transformers
from accelerate import Accelerator

from opscope.callbacks.transformers import OpscopeCallback
from opscope.core.capture import session

pytestmark = pytest.mark.usefixtures("unobserved")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


def steps(path):
    ranges = opscope.load(path).trace["ranges"].with_columns(pl.col("category").cast(pl.String))
    return ranges.filter(pl.col("category") == "step")["text"].cast(pl.String).to_list()


def train(folder, callback):
    """Return the number of steps that the Trainer ran."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=5,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    data = [{"x": torch.randn(4)} for _ in range(40)]
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    return trainer.state.global_step


def test_a_step_is_the_trainers_with_all_that_it_accumulates(tmp_path):
    path = tmp_path / "run.opscope"
    train(tmp_path, OpscopeCallback(path, start=1, stop=3, backend="recorder"))
    assert steps(path) == ["step 1", "step 2"]
    ops = opscope.load(path).ops().with_columns(pl.col("op", "layer").cast(pl.String))
    linear = ops.filter(pl.col("op") == "aten::addmm")
    assert len(linear) == 4
    assert linear["layer"].unique().to_list() == ["Model.net"]


def test_a_capture_that_cannot_start_does_not_stop_the_training(tmp_path, caplog):
    path = tmp_path / "run.opscope"
    path.write_text("the user's own file")
    callback = OpscopeCallback(path, 1, 3, backend="recorder")
    assert train(tmp_path, callback) == 5
    assert caplog.text.count("are not captured further") == 1
    assert path.read_text() == "the user's own file"
    assert session.capturing() is None


def test_accelerates_optimizer_tells_the_steps(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        for _ in range(3):
            optimizer.zero_grad()
            accelerator.backward(model(torch.randn(2, 4)).square().mean())
            optimizer.step()
    assert steps(path)[:3] == ["step 0", "step 1", "step 2"]
