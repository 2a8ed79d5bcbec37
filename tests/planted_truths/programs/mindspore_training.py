"""A training of MindSpore with a slow data set: STEPS."""

import sys
import time

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset


class Samples:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.02)
        return np.ones(64, np.float32), np.ones(10, np.float32)


def main():
    steps = int(sys.argv[1])
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = nn.SequentialCell(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01)
    )
    data = GeneratorDataset(
        Samples(4 * steps), ["x", "y"], num_parallel_workers=1, python_multiprocessing=False
    )
    for x, y in data.batch(4).create_tuple_iterator():
        step(x, y)


if __name__ == "__main__":
    main()
