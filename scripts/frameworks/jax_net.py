"""The model of docs/frameworks.md in JAX: scopes, one compiled function, Optax."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import lax

order = ("NHWC", "HWIO", "NHWC")
convolved = functools.partial(lax.conv_general_dilated, dimension_numbers=order)


def net(weights, x):
    with jax.named_scope("net"):
        with jax.named_scope("conv"):
            x = convolved(x, weights["kernel"], (1, 1), "VALID")  # conv
            x = x + weights["bias"]
        with jax.named_scope("act"):
            x = jax.nn.relu(x)  # act
        with jax.named_scope("fc"):
            return x.reshape(8, -1) @ weights["dense"] + weights["offset"]  # fc


def train(steps):
    optimizer = optax.sgd(0.01)
    shapes = {"kernel": (3, 3, 3, 8), "bias": (8,), "dense": (8 * 14 * 14, 10), "offset": (10,)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    weights = {
        name: 0.1 * jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    images, targets = jnp.ones((8, 16, 16, 3)), jnp.ones((8, 10))

    @jax.jit
    def step(weights, state):
        def loss(weights):
            return jnp.mean((net(weights, images) - targets) ** 2)

        gradients = jax.grad(loss)(weights)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state

    state = optimizer.init(weights)
    for _ in range(steps):
        weights, state = step(weights, state)
    jax.block_until_ready(weights)
