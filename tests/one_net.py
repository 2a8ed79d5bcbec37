"""Train one small CNN: ``python one_net.py torch|keras|flax [SECONDS]``; each batch takes that long to get."""

import sys
import time

import numpy as np

STEPS, BATCH, FILTERS = 10, 16, 8
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
NUMBERS = np.random.default_rng(0)
X = NUMBERS.normal(size=(STEPS * BATCH, 12, 12, 1)).astype("float32")
Y = NUMBERS.integers(0, 10, STEPS * BATCH)


def batches(images):
    """Return PyTorch's loader of images and labels."""
    import torch

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return len(Y)

        def __getitem__(self, number):
            if number % BATCH == 0:
                time.sleep(SECONDS)
            return images[number], Y[number]

    return torch.utils.data.DataLoader(Slow(), BATCH)


def by_torch():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, FILTERS, 3)
            self.fc1 = nn.Linear(10 * 10 * FILTERS, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, x):
            x = torch.relu(self.conv(x))
            return self.fc2(torch.relu(self.fc1(x.flatten(1))))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches(X.transpose(0, 3, 1, 2)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


def by_keras():
    import keras

    net = keras.Sequential(
        [
            keras.layers.Input((12, 12, 1)),
            keras.layers.Conv2D(FILTERS, 3, activation="relu", name="conv"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu", name="fc1"),
            keras.layers.Dense(10, name="fc2"),
        ],
        name="net",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(0.01), loss)
    if keras.backend.backend() == "torch":
        net.fit(batches(X), verbose=0)
    else:
        net.fit(X, Y, batch_size=BATCH, verbose=0, shuffle=False)


def by_flax():
    import jax
    import optax
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.Conv(FILTERS, (3, 3), padding="VALID", name="conv")(x))
            x = linen.relu(linen.Dense(32, name="fc1")(x.reshape(len(x), -1)))
            return linen.Dense(10, name="fc2")(x)

    net = Net()
    weights = net.init(jax.random.PRNGKey(0), X[:BATCH])
    sgd = optax.sgd(0.01)
    state = sgd.init(weights)

    @jax.jit
    def step(weights, state, x, y):
        def loss_of(weights):
            logits = net.apply(weights, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, slopes = jax.value_and_grad(loss_of)(weights)
        changes, state = sgd.update(slopes, state)
        return optax.apply_updates(weights, changes), state, loss

    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            time.sleep(SECONDS)
            part = slice(number * BATCH, (number + 1) * BATCH)
            weights, state, loss = step(weights, state, X[part], Y[part])
            loss.block_until_ready()


if __name__ == "__main__":
    {"torch": by_torch, "keras": by_keras, "flax": by_flax}[sys.argv[1]]()
