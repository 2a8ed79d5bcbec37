"""Lightning trains for real, and its steps, layers and actions are in the profile."""

from __future__ import annotations

from importlib.metadata import entry_points

import polars as pl
import pytest

import opscope
from opscope.core.capture import session

pytest.importorskip("torch")
pytest.importorskip("lightning")

import lightning
import torch

from opscope.callbacks.lightning import OpscopeCallback, OpscopeProfiler, callbacks

pytestmark = pytest.mark.usefixtures("unobserved")


class Model(lightning.LightningModule):
    def __init__(self, fails_at=None):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)
        self.fails_at = fails_at

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise RuntimeError("the user's own error")
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(*added, batches=6, profiler=None, model=None):
    data = torch.utils.data.TensorDataset(torch.randn(2 * batches, 4))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(added),
        profiler=profiler,
    )
    trainer.fit(model or Model(), torch.utils.data.DataLoader(data, 2))
    return trainer


def steps(path):
    ranges = opscope.load(path).trace["ranges"].with_columns(pl.col("category").cast(pl.String))
    return ranges.filter(pl.col("category") == "step")["text"].cast(pl.String).to_list()


def test_the_steps_asked_for_are_in_the_profile_with_layers(tmp_path):
    path = tmp_path / "run.opscope"
    train(OpscopeCallback(path, start=2, stop=5, backend="recorder"))
    assert steps(path) == ["step 2", "step 3", "step 4"]
    ops = opscope.load(path).ops()
    linear = ops.filter(pl.col("op").cast(pl.String) == "aten::addmm")
    assert len(linear) == 3
    assert linear["layer"].cast(pl.String).unique().to_list() == ["Model.net"]
    assert [one.name for one in tmp_path.iterdir()] == ["run.opscope"]


def test_windows_repeat_each_into_its_own_profile(tmp_path):
    train(OpscopeCallback(tmp_path / "run.opscope", 1, 3, repeat=2, backend="recorder"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run-0.opscope", "run-1.opscope"]
    assert steps(tmp_path / "run-1.opscope") == ["step 4", "step 5"]


def test_what_was_captured_before_an_error_is_kept(tmp_path):
    path = tmp_path / "run.opscope"
    with pytest.raises(RuntimeError, match="own error"):
        train(OpscopeCallback(path, 0, None, backend="recorder"), model=Model(fails_at=3))
    assert steps(path)[:3] == ["step 0", "step 1", "step 2"]
    assert session.capturing() is None


def test_a_capture_that_cannot_start_does_not_stop_the_training(tmp_path, caplog):
    path = tmp_path / "run.opscope"
    path.write_text("the user's own file")
    trainer = train(OpscopeCallback(path, 1, 3, backend="recorder"))
    assert trainer.global_step == 6
    assert caplog.text.count("are not captured further") == 1
    assert path.read_text() == "the user's own file"
    assert session.capturing() is None


def test_its_actions_are_ranges(tmp_path):
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        train(profiler=OpscopeProfiler())
    domain = pl.col("domain").cast(pl.String)
    actions = opscope.load(path).trace["ranges"].filter(domain == "opscope.lightning")
    texts = actions["text"].cast(pl.String)
    assert texts.str.contains("optimizer_step").any()
    assert (texts == "run_training_batch").sum() == 6


def test_where_we_observe_lightning_is_given_a_callback(tmp_path):
    assert callbacks() == []
    opscope.init()
    (automatic,) = callbacks()
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        train(automatic)
    assert steps(path) == [f"step {number}" for number in range(6)]


def test_lightning_finds_it_by_its_entry_point(tmp_path):
    group = "lightning.pytorch.callbacks_factory"
    if not entry_points(group=group, name="opscope"):
        pytest.skip("opscope is not installed here, only on the path")
    assert not any(isinstance(one, OpscopeCallback) for one in train().callbacks)
    opscope.init()
    path = tmp_path / "run.opscope"
    with opscope.capture(path, backend="recorder"):
        train()
    assert steps(path) == [f"step {number}" for number in range(6)]
    layers = opscope.load(path).ops()["layer"].cast(pl.String).drop_nulls().unique().to_list()
    assert "Model.net" in layers


def test_the_automatic_one_gives_way_to_the_users(tmp_path):
    opscope.init()
    path = tmp_path / "run.opscope"
    train(*callbacks(), OpscopeCallback(path, 1, 3, backend="recorder"))
    assert steps(path) == ["step 1", "step 2"]
