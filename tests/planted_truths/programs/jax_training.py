"""Trainings of JAX with Flax and Optax: CAUSE STEPS."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from clock import asleep


class Net(nn.Module):
    width: int = 1024

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(10)(nn.relu(nn.Dense(self.width)(x)))


def main():
    cause, steps = sys.argv[1], int(sys.argv[2])
    net, optimizer, key = (
        Net(64 if cause == "compiling" else 1024),
        optax.sgd(0.01),
        jax.random.key(0),
    )
    weights = net.init(key, jnp.ones((1, 512)))
    state = optimizer.init(weights)

    @jax.jit
    def train_step(weights, state, x, y):
        def loss(weights):
            return optax.softmax_cross_entropy_with_integer_labels(net.apply(weights, x), y).mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state, value

    for step in range(steps):
        rows = 64 + 8 * step if cause == "recompiling" else 64
        x, y = jnp.ones((rows, 512)), jnp.zeros((rows,), jnp.int32)
        weights, state, loss = train_step(weights, state, x, y)
        jax.block_until_ready(loss)
        if cause == "sleeping":
            asleep("outside", 0.2)


if __name__ == "__main__":
    main()
