"""Trains a small CNN in plain JAX on images made here: an ordinary script, its steps marked for any profiler."""

from functools import partial

import jax
import jax.numpy as jnp


def init(key, classes=10):
    keys = jax.random.split(key, 4)

    def weights(key, *shape):
        fan_in = 1
        for size in shape[:-1]:
            fan_in *= size
        return jax.random.normal(key, shape) * (2 / fan_in) ** 0.5

    return {
        "conv1": {"w": weights(keys[0], 5, 5, 1, 8), "b": jnp.zeros(8)},
        "conv2": {"w": weights(keys[1], 5, 5, 8, 16), "b": jnp.zeros(16)},
        "fc1": {"w": weights(keys[2], 7 * 7 * 16, 120), "b": jnp.zeros(120)},
        "fc2": {"w": weights(keys[3], 120, classes), "b": jnp.zeros(classes)},
    }


def conv(name, params, x):
    with jax.named_scope(name):
        y = jax.lax.conv_general_dilated(
            x, params["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + params["b"]


def dense(name, params, x):
    with jax.named_scope(name):
        return x @ params["w"] + params["b"]


def pool(name, x):
    with jax.named_scope(name):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def model(params, images):
    with jax.named_scope("cnn"):
        x = pool("pool1", jax.nn.relu(conv("conv1", params["conv1"], images)))
        x = pool("pool2", jax.nn.relu(conv("conv2", params["conv2"], x)))
        x = x.reshape(x.shape[0], -1)
        x = jax.nn.relu(dense("fc1", params["fc1"], x))
        return dense("fc2", params["fc2"], x)


def cross_entropy(params, images, labels):
    logits = model(params, images)
    with jax.named_scope("loss"):
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen.mean()


@partial(jax.jit, donate_argnums=0)
def train_step(params, images, labels):
    loss, gradients = jax.value_and_grad(cross_entropy)(params, images, labels)
    with jax.named_scope("sgd"):
        params = jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients)
    return params, loss


def batches(count, size):
    """Noise around a bright spot whose place is the label."""
    key = jax.random.key(0)
    for number in range(count):
        key, noise, which = jax.random.split(key, 3)
        labels = jax.random.randint(which, (size,), 0, 10)
        images = jax.random.normal(noise, (size, 28, 28, 1))
        row, column = labels // 5, labels % 5
        rows, columns = jnp.arange(28)[None, :, None], jnp.arange(28)[None, None, :]
        spot = (rows // 14 == row[:, None, None]) & (columns // 6 == column[:, None, None])
        yield number, images + 3.0 * spot[..., None], labels


def main(steps=8, batch=32):
    params = init(jax.random.key(1))
    losses = []
    for number, images, labels in batches(steps, batch):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = train_step(params, images, labels)
            losses.append(float(loss))
    print(f"CNN on {jax.default_backend()}: {steps} steps of {batch} images")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
