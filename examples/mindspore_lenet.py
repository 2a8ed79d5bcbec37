"""Trains LeNet-5 in PyNative mode, then in graph mode, records steps 2 to 5 of each, and prints the reports."""

import subprocess
import sys
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

import opscope
from opscope.callbacks.mindspore import StepRange


class LeNet(nn.Cell):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 4 * 4, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, classes)

    def construct(self, images):
        x = self.pool(self.relu(self.conv1(images)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc3(self.relu(self.fc2(x)))


def samples(count):
    """Noise around a bright spot whose place is the label."""
    numbers = np.random.default_rng(0)
    for label in numbers.integers(0, 10, count).astype(np.int32):
        image = numbers.standard_normal((1, 28, 28)).astype(np.float32)
        row, column = divmod(int(label), 5)
        image[0, 4 + 12 * row : 12 + 12 * row, 5 * column : 5 * column + 6] += 3.0
        yield image, label


class Losses(Callback):
    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_step_end(self, run_context):
        self.values.append(float(run_context.original_args().net_outputs.asnumpy()))


def train(mode, name, target, steps=8, batch=32):
    ms.set_context(mode=mode)
    ms.set_seed(0)
    net, losses = LeNet(), Losses()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = ms.train.Model(net, nn.CrossEntropyLoss(), optimizer)
    data = GeneratorDataset(list(samples(steps * batch)), ["image", "label"], shuffle=False)
    recorded = StepRange(2, 6, target)
    model.train(1, data.batch(batch), callbacks=[recorded, losses], dataset_sink_mode=False)
    print(f"LeNet in {name} mode: {steps} steps of {batch} images")
    print(f"loss {losses.values[0]:.3f} -> {losses.values[-1]:.3f}", flush=True)
    if target.exists():  # under `opscope run` the run's profile has it all
        command = [sys.executable, "-m", "opscope", "report", str(target), "--width", "120"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    opscope.init()
    train(ms.PYNATIVE_MODE, "PyNative", folder / "pynative.opscope")
    train(ms.GRAPH_MODE, "graph", folder / "graph.opscope")
