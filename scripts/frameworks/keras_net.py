"""The model of docs/frameworks.md in Keras, on the backend that ``KERAS_BACKEND`` names."""

import keras
import numpy as np


def train(steps):
    net = keras.Sequential(
        [
            keras.layers.Conv2D(8, 3, name="conv"),
            keras.layers.ReLU(name="act"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dense(10, name="fc"),
        ],
        name="net",
    )
    net.compile(keras.optimizers.SGD(0.01), "mse")
    images, targets = (
        np.ones((8 * steps, 16, 16, 3), "float32"),
        np.ones((8 * steps, 10), "float32"),
    )
    net.fit(images, targets, batch_size=8, verbose=0)  # conv act fc
