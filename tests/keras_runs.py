"""What the tests of Keras share, whatever its backend: the example recorded, a small model, ranges."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.capture import session

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "keras_cnn.py"
#: Of the example.
STEPS, BATCH = 16, 64
X, Y = np.ones((24, 4), "float32"), np.ones((24, 1), "float32")


def example(folder: Path, backend: str):
    """The profile of the example, recorded into ``folder``; nothing is observed afterwards."""
    import keras

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_steps", session._Steps())
        patch.setattr(session, "steps_by_user", False)
        keras.backend.clear_session()  # names of layers are numbered from here
        with opscope.capture(folder / "cnn.opscope", backend=backend):
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        opscope.shutdown()
    return opscope.load(folder / "cnn.opscope")


def small(**options):
    """A compiled model of one layer, called ``only``."""
    import keras

    one = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, name="only")])
    one.compile("sgd", "mse", **options)
    return one


def ranges(profile, category: str) -> pl.DataFrame:
    """The ranges of a category in time's order."""
    frame = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == category)
    return frame.sort("start").with_columns(pl.col("text", "domain").cast(pl.String))


def captured_range(path: Path, backend: str):
    """The profile of steps 2, 3 and 4 of a training, captured by the callback."""
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
    """``steps_per_execution``: what runs together is one step, and that is told."""
    from opscope.callbacks.keras import StepRange

    callback = StepRange(2, 4, path, backend="recorder")
    one = small(steps_per_execution=2)
    one.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[callback])
    assert "steps_per_execution" in caplog.text
    profile = opscope.load(path)
    assert ranges(profile, "step")["text"].to_list() == ["step 2"]
    assert any("2 steps at a time" in what for what in profile.notes()["what"])


def saved_and_loaded(path: Path) -> None:
    """A model that was trained while observed says the same after saving and loading."""
    import keras

    opscope.init()
    one = small()
    one.fit(X, Y, batch_size=8, verbose=0)
    one.save(path)
    again = keras.models.load_model(path)
    assert np.array_equal(again.predict(X, verbose=0), one.predict(X, verbose=0))
