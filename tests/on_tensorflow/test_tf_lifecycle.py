"""Installed and undone without a trace; models are saved and loaded, distributed, profiled under us."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")
import keras  # noqa: E402
from keras.src.backend.tensorflow.core import name_scope  # noqa: E402
from keras.src.callbacks.callback_list import CallbackList  # noqa: E402
from keras.src.layers.layer import Layer  # noqa: E402
from keras.src.optimizers.base_optimizer import BaseOptimizer  # noqa: E402
from tensorflow.python import pywrap_tfe  # noqa: E402
from tensorflow.python.client import session as sessions  # noqa: E402
from tensorflow.python.eager import backprop, tape  # noqa: E402
from tensorflow.python.eager.polymorphic_function import (  # noqa: E402
    atomic_function,
    tracing_compilation,
)
from tensorflow.python.profiler import profiler_v2  # noqa: E402

import opscope  # noqa: E402
from opscope import adapters  # noqa: E402
from opscope.adapters.tensorflow.running import GraphRanges  # noqa: E402
from opscope.core.capture import session  # noqa: E402

ROOT = Path(__file__).parents[2]


def patched():
    """Every attribute that is exchanged."""
    return {
        "fast": pywrap_tfe.TFE_Py_FastPathExecute,
        "slow": pywrap_tfe.TFE_Py_Execute,
        "gradient": backprop._gradient_function,
        "back": pywrap_tfe.TFE_Py_TapeGradient,
        "tapes": (tape.push_new_tape, tape.push_tape, tape.pop_tape),
        "built": atomic_function.from_func_graph,
        "called": atomic_function.AtomicFunction.__dict__["call_flat"],
        "traced": tracing_compilation._create_concrete_function,
        "profiler": profiler_v2._pywrap_profiler.ProfilerSession,
        "scopes": name_scope.__dict__["__enter__"],
        "optimizer": BaseOptimizer.__dict__["apply"],
        "session": sessions.BaseSession.__dict__["_call_tf_sessionrun"],
        "callbacks": CallbackList.__dict__["__init__"],
        "layer": Layer.__dict__["__call__"],
        "watchers": list(session._watchers),
        "optimizers": list(session._optimizers),
    }


def model():
    one = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
    )
    one.compile("sgd", "mse")
    return one


X, Y = np.ones((12, 4), "float32"), np.ones((12, 1), "float32")


def test_shutdown_restores_every_attribute_and_every_entry(tmp_path):
    before = patched()
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        during = patched()
        # the profiler's is exchanged only where it stands in for our own ears
        assert {name for name in before if during[name] == before[name]} == {"profiler"}
        ranges = adapters._installed["tensorflow"]._ranges
        assert ranges.hooked >= 3
        model().fit(X, Y, verbose=0)
    assert ranges.hooked == 0
    assert pywrap_tfe.TFE_Py_FastPathExecute is before["fast"]
    opscope.shutdown()
    assert patched() == before
    assert not ranges._generation.value & 1
    # and the next capture works
    with opscope.capture(tmp_path / "again.opscope", backend="recorder"):
        tf.function(lambda: tf.ones(3) * 2.0)()
    assert len(opscope.load(tmp_path / "again.opscope").ops()) > 0


def test_init_without_a_capture_costs_no_op(tmp_path):
    before = patched()
    opscope.init()
    assert pywrap_tfe.TFE_Py_FastPathExecute is before["fast"]
    assert Layer.__dict__["__call__"] is before["layer"]


def test_models_are_saved_and_loaded(recorded, tmp_path):
    result = []

    def program():
        one = model()
        one.fit(X, Y, verbose=0)
        expected = one.predict(X, verbose=0)
        one.save(tmp_path / "model.keras")
        one.export(tmp_path / "saved", verbose=False)
        loaded = keras.models.load_model(tmp_path / "model.keras")
        result.append(np.allclose(loaded.predict(X, verbose=0), expected))
        served = tf.saved_model.load(tmp_path / "saved")
        result.append(np.allclose(served.serve(X), expected))

    profile = recorded(program)
    assert result == [True, True]
    fused = profile.ops().filter(pl.col("op").cast(pl.String).str.contains("MatMul"))
    assert fused["inputs"].null_count() == 0


def test_mirrored_strategy_on_two_virtual_cpus(tmp_path):
    program = f"""
import numpy as np, tensorflow as tf, opscope
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with opscope.capture({str(tmp_path / "run.opscope")!r}, backend="recorder"):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        w = tf.Variable(tf.ones((3, 2)))
    @tf.function
    def step(x):
        def one(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(x, w))
            w.assign_sub(0.1 * tape.gradient(loss, w))
            return loss
        return strategy.run(one, args=(x,))
    for _ in range(3):
        result = step(tf.ones((4, 3)))
    print(w.numpy()[0, 0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3",
             "HOME": str(Path.home())},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no longer observed" not in done.stderr
    ops = opscope.load(tmp_path / "run.opscope").ops()
    forward = ops.filter(
        pl.col("op").cast(pl.String).str.contains("MatMul")
        & (pl.col("direction").cast(pl.String) == "forward")
    )
    assert len(forward) == 6  # two replicas, three steps
    assert forward["matrix_flops"].unique().to_list() == [2 * 4 * 3 * 2]
    assert sorted(forward["device"].cast(pl.String)) == ["cpu"] * 3 + ["cpu:1"] * 3


def test_tensorflows_own_profiler_works_beside_us(tmp_path):
    step = tf.function(lambda x: tf.matmul(x, x), input_signature=[tf.TensorSpec((None, 4))])
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        step(tf.ones((4, 4)))
        tf.profiler.experimental.start(str(tmp_path / "logs"))
        step(tf.ones((4, 4)))
        tf.profiler.experimental.stop()
        step(tf.ones((4, 4)))
    (plane,) = (tmp_path / "logs").rglob("*.xplane.pb")
    assert b"MatMul" in plane.read_bytes()
    found = opscope.load(tmp_path / "run.opscope").ops()
    assert len(found.filter(pl.col("op").cast(pl.String).str.contains("MatMul"))) == 3


def test_a_fault_of_ours_is_not_the_programs(tmp_path, monkeypatch, caplog):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        adapter = adapters._installed["tensorflow"]
        monkeypatch.setattr(adapter._eager, "_entry", lambda *args: 1 / 0)
        assert float(tf.reduce_sum(tf.ones(4)).numpy()) == 4.0
        assert adapter.broken
        assert adapter._ranges.hooked == 0
    assert "TensorFlow is no longer observed" in caplog.text


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    from opscope.adapters.shared import compiled

    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(compiled.BuildError, match="no C compiler"):
        GraphRanges.load(tf)


def test_without_a_compiler_tensorflows_profiler_tells_the_ops_of_graphs(tmp_path, no_compiler):
    step = tf.function(
        lambda x, w: tf.nn.relu(tf.matmul(x, w) + 1.0),
        input_signature=[tf.TensorSpec((2, 3)), tf.TensorSpec((3, 4))],
    )
    compiled = tf.function(lambda x: tf.sin(x) * 2.0, jit_compile=True)
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        for _ in range(3):
            step(tf.ones((2, 3)), tf.ones((3, 4)))
        compiled(tf.ones((2, 3)))
        tf.nn.softmax(tf.ones(3))
    profile = opscope.load(tmp_path / "run.opscope")
    notes = profile.notes()["what"].str.join(" ").item()
    assert "TensorFlow's profiler records the ops inside tf.function" in notes
    assert "no C compiler" in notes
    assert "placed on the recorder's clock" in notes
    ops = profile.ops()
    name = pl.col("op").cast(pl.String)
    product = ops.filter(name.str.contains("MatMul"))
    given = product["inputs"].cast(pl.String).unique().to_list()
    assert len(given) == 1
    assert given[0].startswith("f32[2,3], f32[3,4]")  # and the sum's, where that is fused with it
    assert product["matrix_flops"].to_list() == [2 * 2 * 3 * 4] * 3
    assert all("test_tf_lifecycle.py" in source for source in product["source"])
    assert len(ops.filter(name == "Softmax")) == 1
    assert len(ops.filter(name.str.starts_with("hlo::"))) >= 1
    # within the runs of their graph, which the recorder saw
    runs = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "graph")
    inside = product.sort("start").select("start", "end").rows()
    graphs = runs.sort("start").select("start", "end").rows()[:3]
    assert all(a <= start and end <= b for (start, end), (a, b) in zip(inside, graphs, strict=True))


def test_the_programs_own_profiler_goes_before_ours(tmp_path, no_compiler):
    step = tf.function(lambda x: tf.matmul(x, x))
    before = profiler_v2._pywrap_profiler.ProfilerSession
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        step(tf.ones((4, 4)))
        tf.profiler.experimental.start(str(tmp_path / "logs"))
        step(tf.ones((4, 4)))
        tf.profiler.experimental.stop()
    assert profiler_v2._pywrap_profiler.ProfilerSession is before
    (plane,) = (tmp_path / "logs").rglob("*.xplane.pb")
    assert b"MatMul" in plane.read_bytes()
    profile = opscope.load(tmp_path / "run.opscope")
    assert "program's own profiler" in profile.notes()["what"].str.join(" ").item()
    assert len(profile.ops().filter(pl.col("op").cast(pl.String).str.contains("MatMul"))) == 1


def test_without_a_cpp_compiler_unknown_sizes_stay_unknown_and_that_is_said(tmp_path, monkeypatch):

    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    opscope.shutdown()
    step = tf.function(lambda x: tf.matmul(x, x), input_signature=[tf.TensorSpec((None, 4))])
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        step(tf.ones((4, 4)))
    profile = opscope.load(tmp_path / "run.opscope")
    assert "no C++ compiler" in profile.notes()["what"].str.join(" ").item()
    product = profile.ops().filter(pl.col("op").cast(pl.String).str.contains("MatMul"))
    assert product["inputs"].cast(pl.String).item() == "f32[?,4], f32[?,4]"
    assert product["matrix_flops"].item() is None


def test_the_libraries_can_be_built_ahead_and_doctor_shows_them(capsys, tmp_path, monkeypatch):
    from opscope.cli.build import build
    from opscope.cli.doctor import checks

    whats = ("TensorFlow observer", "TensorFlow size reader")
    build("tensorflow")
    made = [Path(line) for line in capsys.readouterr().out.split()]
    shown = {check.what: check for check in checks()}
    assert shown["tensorflow"].works
    assert [shown[what].works for what in whats] == [True, True]
    # the library that hears reads of buffers serves JAX too, and has no row of its own
    assert [Path(shown[what].found) for what in whats] == made[1:]
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shown = {check.what: check for check in checks()}
    for what in whats:
        assert not shown[what].works
        assert shown[what].found.startswith("not built yet; ")
        assert "opscope build tensorflow" in shown[what].advice
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    shown = {check.what: check for check in checks()}
    assert [shown[what].found for what in whats] == [
        "not built: no C compiler was found",
        "not built: no C++ compiler was found",
    ]
    assert [path.name.partition("-")[0] for path in made] == ["buffers", "annotations", "inputs"]
    assert all(path.is_file() for path in made)


def test_an_adapter_that_is_shut_down_is_gone(tmp_path):
    gone, kept = [], []
    for number in range(3):
        opscope.init("tensorflow")
        with opscope.capture(tmp_path / f"{number}.opscope", backend="recorder"):
            kept.append(tf.function(lambda x: x * 2))
            kept[-1](tf.ones(3))
        gone.append(weakref.ref(adapters._installed["tensorflow"]))
        opscope.shutdown()
    gc.collect()
    assert [one() for one in gone] == [None] * 3
