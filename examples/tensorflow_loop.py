"""Trains a small CNN in a loop of its own with tf.function: an ordinary script, with no profiler in it."""

import tensorflow as tf


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        initial = tf.random_normal_initializer(0.0, 0.1, seed=0)
        self.kernel1 = tf.Variable(initial((3, 3, 1, 8)))
        self.kernel2 = tf.Variable(initial((3, 3, 8, 16)))
        self.weight1 = tf.Variable(initial((7 * 7 * 16, 32)))
        self.bias1 = tf.Variable(tf.zeros(32))
        self.weight2 = tf.Variable(initial((32, 10)))
        self.bias2 = tf.Variable(tf.zeros(10))

    def __call__(self, images):
        with tf.name_scope("conv1"):
            x = tf.nn.relu(tf.nn.conv2d(images, self.kernel1, 1, "SAME"))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        with tf.name_scope("conv2"):
            x = tf.nn.relu(tf.nn.conv2d(x, self.kernel2, 1, "SAME"))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        with tf.name_scope("dense1"):
            x = tf.reshape(x, (-1, 7 * 7 * 16))
            x = tf.nn.relu(tf.matmul(x, self.weight1) + self.bias1)
        with tf.name_scope("dense2"):
            return tf.matmul(x, self.weight2) + self.bias2


def batches(count, size):
    """Noise around a bright spot whose place is the label."""
    generator = tf.random.Generator.from_seed(0)
    spots = tf.one_hot(tf.range(10) * 78, 784)
    for _ in range(count):
        labels = generator.uniform((size,), 0, 10, tf.int32)
        noise = generator.normal((size, 784))
        yield tf.reshape(noise + 5 * tf.gather(spots, labels), (size, 28, 28, 1)), labels


def main(steps=8, batch=32):
    net = Net()
    rate = tf.constant(0.05)

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
            loss = tf.reduce_mean(losses)
        with tf.name_scope("sgd"):
            variables = net.trainable_variables
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(rate * gradient)
        return loss

    losses = [train(images, labels) for images, labels in batches(steps, batch)]
    print(f"CNN: {steps} steps of {batch} images")
    print(f"loss {losses[0].numpy():.3f} -> {losses[-1].numpy():.3f}")


if __name__ == "__main__":
    main()
