"""The model of docs/frameworks.md in TensorFlow, as one ``tf.function``."""

import tensorflow as tf


def train(steps):
    kernel = tf.Variable(tf.random.normal((3, 3, 3, 8), stddev=0.1))
    dense = tf.Variable(tf.random.normal((8 * 14 * 14, 10), stddev=0.1))
    biases = [tf.Variable(tf.zeros(8)), tf.Variable(tf.zeros(10))]
    images, targets = tf.ones((8, 16, 16, 3)), tf.ones((8, 10))

    @tf.function
    def step():
        with tf.GradientTape() as tape, tf.name_scope("net"):
            with tf.name_scope("conv"):
                x = tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "VALID"), biases[0])  # conv
            with tf.name_scope("act"):
                x = tf.nn.relu(x)  # act
            x = tf.reshape(x, (8, -1))
            with tf.name_scope("fc"):
                x = tf.nn.bias_add(tf.matmul(x, dense), biases[1])  # fc
            loss = tf.reduce_mean((x - targets) ** 2)
        variables = [kernel, dense, *biases]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)

    for _ in range(steps):
        step()
