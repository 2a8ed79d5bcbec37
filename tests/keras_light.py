"""A training of Keras under light mode, for the tests of each backend."""

from __future__ import annotations

PROGRAM = """
    import numpy as np
    import keras

    keras.utils.set_random_seed(0)

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return STEPS
        def __getitem__(self, index):
            fetched()
            return np.full((2, 4), index / 100, "float32"), np.ones((2, 1), "float32")

    class Spell(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            between(batch)

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    told = model.fit(Data(), epochs=1, verbose=0, shuffle=False, callbacks=[Spell()])
    print(told.history, [one.tolist() for one in model.get_weights()])
"""
