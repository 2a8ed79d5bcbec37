"""Light mode of trainings that Lightning and Transformers run: steps, phases, waits, memory, slow spells."""

from __future__ import annotations

import pytest

from tests.light_runs import STEPS, assert_phases, assert_planted, watched

torch = pytest.importorskip("torch")

DATA = """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2 * STEPS
        def __getitem__(self, index):
            if index % 2:
                fetched()
            return {"x": torch.full((4,), index / 100)}
"""
LIGHTNING = (
    DATA
    + """
    import warnings
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 2)
        def training_step(self, batch, index):
            between(index)
            return self.net(batch["x"]).square().mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    warnings.simplefilter("ignore")
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(Data(), 2))
    print(trainer.global_step, model.net.weight.tolist())
"""
)
TRANSFORMERS = (
    DATA
    + """
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 2)
            self.count = 0
        def forward(self, x):
            between(self.count)
            self.count += 1
            return {"loss": self.net(x).square().mean()}

    arguments = transformers.TrainingArguments(
        output_dir="trained", num_train_epochs=1, per_device_train_batch_size=2, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )
    model = Model()
    trainer = transformers.Trainer(model, arguments, train_dataset=Data())
    trainer.train()
    print(trainer.state.global_step, model.net.weight.tolist())
"""
)
SEEN = {"input", "forward", "backward", "optimizer"}
#: Trainer, program, and the steps of 60 that are measured. Lightning tells when a step begins; elsewhere the one
#: before the first that ends is not measured.
PROGRAMS = [("lightning", LIGHTNING, 60), ("transformers", TRANSFORMERS, 59)]
each = pytest.mark.parametrize(
    ("trainer", "program", "steps"), PROGRAMS, ids=[one[0] for one in PROGRAMS]
)


@each
def test_each_step_of_a_trainer_has_its_phases_and_the_training_is_the_same(
    trainer, program, steps, tmp_path
):
    pytest.importorskip(trainer)
    assert_phases(watched(tmp_path, program, planted=False), steps, SEEN)


@each
def test_what_is_wrong_with_a_trainers_run_is_found(trainer, program, steps, tmp_path):
    pytest.importorskip(trainer)
    assert_planted(watched(tmp_path, program, planted=True, steps=STEPS))
