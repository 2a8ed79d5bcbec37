"""A training by Keras on TensorFlow, with a slow tf.data pipeline or a fast one: CAUSE STEPS."""

import sys

import keras
import numpy as np
import tensorflow as tf
from clock import asleep


def main():
    cause, steps = sys.argv[1], int(sys.argv[2])
    width = 64
    net = keras.Sequential(
        [
            keras.layers.Dense(width, "relu"),
            keras.layers.Dense(width, "relu"),
            keras.layers.Dense(10),
        ]
    )
    net.compile(keras.optimizers.SGD(0.01), "mse")

    def batches():
        for _ in range(steps):
            if cause == "sleep":
                asleep("input", 0.15)
            yield np.ones((32, width), "float32"), np.ones((32, 10), "float32")

    types = tf.TensorSpec((32, width)), tf.TensorSpec((32, 10))
    data = tf.data.Dataset.from_generator(batches, output_signature=types)
    net.fit(data, verbose=0)


if __name__ == "__main__":
    main()
