"""Trains a small CNN with Keras on images made here: an ordinary script, with no profiler in it."""

import keras
import numpy as np


def images(count):
    """Noise around a bright spot whose place is the label."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, count)
    pictures = generator.normal(size=(count, 28, 28, 1)).astype("float32")
    for picture, label in zip(pictures, labels, strict=True):
        row, column = divmod(int(label), 5)
        picture[4 + 12 * row : 12 + 12 * row, 5 * column : 5 * column + 6] += 3.0
    return pictures, labels


def build():
    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main(count=512, batch=64):
    keras.utils.set_random_seed(0)
    model = build()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(*images(count), batch_size=batch, epochs=2, verbose=0)
    print(f"CNN on {keras.backend.backend()}: {2 * count // batch} steps of {batch} images")
    print("loss " + " -> ".join(f"{loss:.3f}" for loss in history.history["loss"]))


if __name__ == "__main__":
    main()
