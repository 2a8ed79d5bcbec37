"""Shared parts of the Keras tests for any backend: the recorded example, a small model, ranges."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.capture import session

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "keras_cnn.py"
#: The number of steps and the batch size of the example.
STEPS, BATCH = 16, 64
X, Y = np.ones((24, 4), "float32"), np.ones((24, 1), "float32")


def example(folder: Path, backend: str):
    """Record the example into ``folder`` and return its profile; opscope is shut down afterwards."""
    import keras

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_steps", session._Steps())
        patch.setattr(session, "steps_by_user", False)
        keras.backend.clear_session()  # restarts the numbers in the names of layers
        with opscope.capture(folder / "cnn.opscope", backend=backend):
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        opscope.shutdown()
    return opscope.load(folder / "cnn.opscope")


def small(**options):
    """Return a compiled model with one layer, named ``only``."""
    import keras

    one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, name="only")])
    one.compile("sgd", "mse", **options)
    return one


def ranges(profile, category: str) -> pl.DataFrame:
    """Return the ranges of a category in order of time."""
    frame = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == category)
    return frame.sort("start").with_columns(pl.col("text", "domain").cast(pl.String))


def captured_range(path: Path, backend: str):
    """Capture steps 2, 3 and 4 of a training with the callback; check and return the profile."""
    from opscope.callbacks.keras import StepRange
    from opscope.callbacks.steprange import State

    callback = StepRange(2, 5, path, backend=backend)
    small().fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=[callback])
    assert callback.state is State.DONE
    profile = opscope.load(path)
    assert ranges(profile, "step")["text"].to_list() == ["step 2", "step 3", "step 4"]
    assert profile.summary()["steps"].item() == 3
    return profile


def several_at_a_time(path: Path, caplog) -> None:
    """Check ``steps_per_execution``: steps that run together are one step; a note and a warning say so."""
    from opscope.callbacks.keras import StepRange

    callback = StepRange(2, 4, path, backend="recorder")
    one = small(steps_per_execution=2)
    one.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[callback])
    assert "steps_per_execution" in caplog.text
    profile = opscope.load(path)
    assert ranges(profile, "step")["text"].to_list() == ["step 2"]
    assert any("2 steps at a time" in what for what in profile.notes()["what"])


def a_range_inside_an_execution(folder: Path) -> None:
    """Check that each execution that holds a step of the range is captured, and no other."""
    from opscope.callbacks.keras import StepRange

    # 12 steps, 5 at a time: executions of steps 0 to 4, 5 to 9, 10 and 11
    for window, wanted in (
        ((1, 3), ["step 0"]), ((6, 8), ["step 5"]), ((4, 6), ["step 0", "step 5"]),
        ((11, 12), ["step 10"]), ((5, 10), ["step 5"]), ((7, 11), ["step 5", "step 10"]),
    ):  # fmt: skip
        path = folder / f"{window[0]}.opscope"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "_steps", session._Steps())
            small(steps_per_execution=5).fit(
                X,
                Y,
                batch_size=2,
                verbose=0,
                callbacks=[StepRange(*window, path, backend="recorder")],
            )
        assert ranges(opscope.load(path), "step")["text"].to_list() == wanted, window


def a_capture_that_fails(caplog) -> None:
    """Check that a training goes on when its capture cannot begin."""
    from opscope.callbacks.keras import StepRange

    class Fails:
        def warmup(self): ...

        def start(self):
            raise OSError("no space")

        def stop(self): ...

    callback = StepRange(1, 3, make=lambda window: Fails())
    history = small().fit(X, Y, batch_size=8, verbose=0, callbacks=[callback])
    assert len(history.history["loss"]) == 1
    assert "no space" in caplog.text


def saved_and_loaded(path: Path) -> None:
    """Check that a model trained under observation predicts the same after saving and loading."""
    import keras

    opscope.init()
    one = small()
    one.fit(X, Y, batch_size=8, verbose=0)
    one.save(path)
    again = keras.models.load_model(path)
    assert np.array_equal(again.predict(X, verbose=0), one.predict(X, verbose=0))


def callbacks_elsewhere(path: Path) -> None:
    """Check that callbacks are called on the thread on which Keras alone calls them, and that steps are whole.

    Where no callback needs the end of a batch, Keras has a thread for them on PyTorch and JAX.
    """
    import keras

    seen: set[int] = set()

    class Watches(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, batch, logs=None):
            seen.add(threading.get_ident())

    small().fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[Watches()])
    assert seen
    alone = threading.get_ident() in seen
    assert alone == (keras.backend.backend() == "tensorflow")
    seen.clear()
    with opscope.capture(path, backend="recorder"):
        small().fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[Watches()])
    opscope.shutdown()
    assert seen
    assert (threading.get_ident() in seen) == alone
    texts = ranges(opscope.load(path), "step")["text"].to_list()
    assert texts == [f"step {number}" for number in range(6)]
