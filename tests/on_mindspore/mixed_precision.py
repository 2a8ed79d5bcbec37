"""LeNet trained in the ways that MindSpore has for mixed precision and for accumulated gradients."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import amp, dataset, nn, ops
from mindspore.train import Model

from tests.on_mindspore.models import LeNet, data, made

STEPS = 4
SCALE = 128.0
#: Training steps after which the gradients that were added up are applied.
EVERY = 2


def _by_hand(net, step):
    """Train by ``step(x, y)``, which returns the loss; return losses and weights as bytes."""
    x, y = data(LeNet)
    losses = [float(step(x, y).asnumpy()) for _ in range(STEPS)]
    return losses, _weights(net)


def _weights(net):
    weights = ((one.name, one.astype(ms.float32)) for one in net.get_parameters())
    return {name: one.asnumpy().tobytes() for name, one in weights}


def _scaled(net, loss, scaler):
    """A step whose loss is scaled against underflow; gradients that overflow are not applied."""
    update = nn.Momentum(net.trainable_params(), 0.05, 0.9)

    def forward(x, y):
        value = loss(net(x), y)
        return value if scaler is None else scaler.scale(value)

    gradient = ms.value_and_grad(forward, None, update.parameters)

    def step(x, y):
        value, gradients = gradient(x, y)
        if scaler is None:
            update(gradients)
            return value
        gradients = scaler.unscale(gradients)
        finite = amp.all_finite(gradients)
        if finite:
            update(gradients)
        scaler.adjust(finite)
        return scaler.unscale(value)

    return step


def automatic(level="O2", scaler=None):
    """``amp.auto_mixed_precision`` with ``value_and_grad``."""
    net = amp.auto_mixed_precision(made(LeNet), level)
    return _by_hand(net, _scaled(net, nn.CrossEntropyLoss(), scaler))


def static():
    return automatic(scaler=amp.StaticLossScaler(SCALE))


def dynamic():
    return automatic(scaler=amp.DynamicLossScaler(SCALE, 2, 2))


def auto():
    return automatic("auto")


def lists():
    return automatic("O1")


def batches(count=STEPS):
    x, y = data(LeNet)
    pairs = (np.tile(x.asnumpy(), (count, 1, 1, 1)), np.tile(y.asnumpy(), count))
    return dataset.NumpySlicesDataset(pairs, shuffle=False).batch(4)


def by_model(level="O2", **options):
    """``Model(amp_level=…)``. On the CPU it takes a fixed loss scale alone, and drops no updates."""
    net = made(LeNet)
    manager = amp.FixedLossScaleManager(SCALE, drop_overflow_update=False)
    update = nn.Momentum(net.trainable_params(), 0.05, 0.9, loss_scale=SCALE)
    options = {"amp_level": level, "loss_scale_manager": manager, **options}
    Model(net, nn.CrossEntropyLoss(), update, **options).train(1, batches())
    return None, _weights(net)


def by_model_in_halves():
    return by_model("O3", keep_batchnorm_fp32=False, loss_scale_manager=None)


def accumulated():
    """Gradients of several steps added up in parameters, and applied together."""
    net = made(LeNet)
    update = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    loss = nn.CrossEntropyLoss()
    sums = update.parameters.clone("sum", "zeros")
    count = 0
    add, reset = ops.HyperMap(), ops.HyperMap()
    gradient = ms.value_and_grad(lambda x, y: loss(net(x), y) / EVERY, None, update.parameters)

    def step(x, y):
        nonlocal count
        value, gradients = gradient(x, y)
        add(ops.assign_add, sums, gradients)
        count += 1
        if count % EVERY == 0:
            update(sums)
            reset(ops.partial(ops.assign), sums, [ops.zeros_like(one) for one in sums])
        return value

    return _by_hand(net, step)


#: Ways in PyNative mode, and those that graph mode has too.
WAYS = {
    one.__name__: one
    for one in (automatic, static, dynamic, auto, lists, by_model, by_model_in_halves, accumulated)
}  # fmt: skip
IN_GRAPHS = ("by_model", "by_model_in_halves")
