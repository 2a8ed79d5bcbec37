#!/usr/bin/env bash
# One would guess: in a training step forward, backward and the optimizer's step follow each other, so a range around
# `Optimizer.step` is the optimizer's time.
# What happens: with automatic optimization Lightning hands the forward and the backward pass to `Optimizer.step` as
# its closure: both run between the optimizer's own pre and post hooks.
# Seen with: lightning 2.6.6, torch 2.13.0 (CPU)
# Why it matters to a profiler: phases by hooks of the optimizer give 100 % of the step to the optimizer and nothing
# to forward; they have to follow what runs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0' 'lightning==2.6.6' numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import warnings

warnings.simplefilter("ignore")
import lightning
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

logging.disable(logging.WARNING)
order = []
register_optimizer_step_pre_hook(lambda *_: order.append("optimizer begins"))
register_optimizer_step_post_hook(lambda *_: order.append("optimizer ends"))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        order.append("forward")
        return self.layer(batch).sum()

    def on_after_backward(self):
        order.append("backward is over")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = lightning.Trainer(
    max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
print("lightning", lightning.__version__, " torch", torch.__version__)
print(", ".join(order))
assert order == ["optimizer begins", "forward", "backward is over", "optimizer ends"]
PYTHON
