"""Light mode of MindSpore: steps, phases, waits for batches, memory, slow spells, in each way to train."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.light_runs import STEPS, assert_phases, assert_planted, watched

if find_spec("mindspore") is None:
    pytest.skip("MindSpore is not installed", allow_module_level=True)

MODEL = """
    import sys
    import mindspore as ms
    import numpy as np
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset

    ms.set_seed(0)

    def samples():
        for index in range(STEPS):
            fetched()
            yield np.full((4,), index / 100, "float32"), np.ones((1,), "float32")

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4, 1, weight_init="ones")
        def construct(self, x):
            return self.dense(x)

    data = GeneratorDataset(
        samples, ["x", "y"], shuffle=False, python_multiprocessing=False, num_parallel_workers=1
    ).batch(1)
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.01)
"""
LOOP = (
    MODEL
    + """
    ms.set_context(mode=ms.PYNATIVE_MODE)
    loss = nn.MSELoss()
    gradients = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
    for step, (x, y) in enumerate(data.create_tuple_iterator(num_epochs=1)):
        between(step)
        value, found = gradients(x, y)
        optimizer(found)
    print(float(value.asnumpy()), net.dense.weight.asnumpy().tolist())
"""
)
MODEL_TRAIN = (
    MODEL
    + """
    from mindspore.train import Callback, Model

    class Between(Callback):
        def on_train_step_begin(self, run_context):
            between(int(run_context.original_args().cur_step_num) - 1)

    ms.set_context(mode=getattr(ms, os.environ["MODE"]))
    model = Model(net, nn.MSELoss(), optimizer)
    model.train(1, data, callbacks=[Between()], dataset_sink_mode=False)
    print(net.dense.weight.asnumpy().tolist())
"""
)
PHASES = {"input", "forward", "backward", "optimizer"}
#: How it trains, the program, steps of 60 that are measured, phases, settings.
WAYS = [
    ("loop", LOOP, 59, PHASES, {}),
    ("train-pynative", MODEL_TRAIN, 60, PHASES, {"MODE": "PYNATIVE_MODE"}),
    ("train-graph", MODEL_TRAIN, 60, {"input"}, {"MODE": "GRAPH_MODE"}),
]
each = pytest.mark.parametrize(
    ("way", "program", "steps", "seen", "settings"), WAYS, ids=[one[0] for one in WAYS]
)


@each
def test_each_step_has_its_phases_and_the_training_is_the_same(
    way, program, steps, seen, settings, tmp_path
):
    profile = watched(tmp_path, program, planted=False, GLOG_v="3", **settings)
    assert_phases(profile, steps, seen)


@each
def test_what_is_wrong_with_a_training_is_found(way, program, steps, seen, settings, tmp_path):
    profile = watched(tmp_path, program, planted=True, steps=STEPS, GLOG_v="3", **settings)
    assert_planted(profile, ahead=True)
