"""Trains a multilayer perceptron with Flax NNX and Optax on points made here: an ordinary script."""

import jax
import optax
from flax import nnx


class Block(nnx.Module):
    """Two layers and a way around them."""

    def __init__(self, width, rngs):
        self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
        self.back = nnx.Linear(4 * width, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, x):
        return x + self.back(nnx.gelu(self.wide(self.norm(x))))


class MLP(nnx.Module):
    def __init__(self, features, width, classes, rngs):
        self.embed = nnx.Linear(features, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(2)])
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def cross_entropy(model, points, labels):
    logits = model(points)
    with jax.named_scope("loss"):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@nnx.jit
def train_step(model, optimizer, points, labels):
    loss, gradients = nnx.value_and_grad(cross_entropy)(model, points, labels)
    optimizer.update(model, gradients)
    return loss


def batches(count, size, features):
    """Points around the centres of their classes."""
    key = jax.random.key(0)
    key, place = jax.random.split(key)
    centres = 0.5 * jax.random.normal(place, (10, features))
    for number in range(count):
        key, noise, which = jax.random.split(key, 3)
        labels = jax.random.randint(which, (size,), 0, 10)
        yield number, centres[labels] + jax.random.normal(noise, (size, features)), labels


def main(steps=8, batch=128, features=64, width=96):
    model = MLP(features, width, 10, nnx.Rngs(1))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    losses = []
    for number, points, labels in batches(steps, batch, features):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            loss = train_step(model, optimizer, points, labels)
            losses.append(float(loss))
    print(f"MLP on {jax.default_backend()}: {steps} steps of {batch} points")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
