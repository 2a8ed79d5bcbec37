"""Measure the cost of the MindSpore adapter: ms per training step, beside MindSpore's own profiler.

    python benchmarks/mindspore_adapter.py [rounds]

All variants run in one process, in turns, and the best turn counts. Read the ratios; times depend on the
machine. ``synchronous`` is MindSpore with ``pynative_synchronize``, which a recording on the CPU sets.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms
from mindspore import nn

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.on_mindspore import models

STEPS = 10


def training(kind):
    net, (x, y) = models.made(kind), models.data(kind)
    loss, update = nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.001, 0.9)

    def forward(x, y):
        out = net(x)
        return loss(out.reshape((-1, out.shape[-1])), y)

    step = ms.value_and_grad(forward, None, update.parameters)

    def run():
        for _ in range(STEPS):
            value, gradients = step(x, y)
            update(gradients)
        return value.asnumpy()

    return run


def timed(run):
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) / STEPS * 1e3


def plain(run, _):
    return timed(run)


def synchronous(run, _):
    ms.set_context(pynative_synchronize=True)
    try:
        return timed(run)
    finally:
        ms.set_context(pynative_synchronize=False)


def recorded(run, folder):
    capture = RecorderCapture(folder / "recording")
    session.start(capture)
    try:
        return timed(run)
    finally:
        session.stop()


def own(run, folder):
    from mindspore.profiler import ProfilerActivity, ProfilerLevel, profile

    with profile(
        activities=[ProfilerActivity.CPU],
        profiler_level=ProfilerLevel.Level0,
        on_trace_ready=ms.profiler.tensorboard_trace_handler(str(folder / "own")),
    ) as profiler:
        took = timed(run)
        profiler.step()
    return took


def main(rounds):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    opscope.init()
    variants = [plain, synchronous, recorded, own]
    for kind in (models.LeNet, models.Transformer):
        run = training(kind)
        run()
        best = {}
        for _ in range(rounds):
            for variant in variants:
                folder = Path(tempfile.mkdtemp())
                took = variant(run, folder)
                shutil.rmtree(folder, ignore_errors=True)
                best[variant.__name__] = min(took, best.get(variant.__name__, took))
        print(kind.__name__, "ms a step: ", end="")
        print(", ".join(f"{name} {took:.1f}" for name, took in best.items()))


if __name__ == "__main__":
    ms.set_context(pynative_synchronize="--synchronous" in sys.argv)
    main(int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdecimal() else 3)
