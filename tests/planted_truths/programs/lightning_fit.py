"""A training by Lightning, whose forward and backward pass run in the optimizer's closure: STEPS."""

import sys
import time
import warnings

import lightning
import torch
from clock import clocked
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, _):
        x, y = batch
        with clocked("forward"):
            loss = nn.functional.cross_entropy(self.net(x), y)
            time.sleep(0.15)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    steps = int(sys.argv[1])
    data = TensorDataset(torch.randn(32 * steps, 64), torch.randint(0, 10, (32 * steps,)))
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(Net(), DataLoader(data, batch_size=32))


if __name__ == "__main__":
    main()
