"""The adapter that is there to be copied, run against its framework: Abacus, which is made up."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import sys
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import adapters

FRAMEWORK = Path(__file__).parent / "made_framework"


@pytest.fixture
def opscope_abacus(tmp_path, monkeypatch):
    """The template is an installed adapter, known by its entry point alone; Abacus is not imported yet."""
    opscope.shutdown()  # another test's capture looked for adapters, which is done once
    information = tmp_path / "opscope_abacus-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: opscope-abacus\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[opscope.adapters]\nabacus = opscope.adapters.template:AbacusAdapter\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(FRAMEWORK)
    # wrapt fires once for a name in a process; here a name is imported anew in each test
    monkeypatch.setattr(adapters, "_hooked", adapters._hooked - {"abacus"})
    importlib.import_module("wrapt.importer")._post_import_hooks.pop("abacus", None)
    yield
    opscope.shutdown()
    for name in list(sys.modules):
        if name.split(".")[0] == "abacus" or name.startswith("opscope.adapters.template"):
            del sys.modules[name]


@pytest.fixture
def abacus(opscope_abacus):
    return importlib.import_module("abacus")


def network(abacus):
    """A layer within a layer: each adds its input to itself, the outer one multiplies the result by it."""

    class Hidden(abacus.Layer):
        def forward(self, x):
            return abacus.add(x, x, scale=2)

    class Net(abacus.Layer):
        def __init__(self, name):
            super().__init__(name)
            self.hidden = Hidden("hidden")

        def forward(self, x):
            return abacus.multiply(self.hidden(x), x)

    return Net("net")


def train(abacus, steps=3):
    """What the program computes: the weights after some steps."""
    net, weights = network(abacus), abacus.Array([0.0, 0.0])
    optimizer = abacus.Optimizer(weights)
    for number in range(steps):
        optimizer.step(net(abacus.Array([1.0, number])))
    return optimizer.weights.values


def hooks(abacus):
    engine, training = sys.modules["abacus.engine"], sys.modules["abacus.training"]
    return (
        engine.run,
        inspect.getattr_static(training.Layer, "__call__"),
        inspect.getattr_static(training.Optimizer, "step"),
    )


def test_ops_layers_and_steps_are_recorded(abacus, tmp_path):
    expected = train(abacus)
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert train(abacus) == expected
    profile = opscope.load(tmp_path / "run.opscope")
    ops = profile.ops().sort("start")
    assert ops["op"].to_list() == ["add", "multiply", "add"] * 3
    assert ops["layer"].to_list() == ["net/hidden", "net", None] * 3
    assert ops["direction"].to_list() == ["forward", "forward", "optimizer"] * 3
    first = ops.row(0, named=True)
    assert (first["inputs"], first["outputs"]) == ("f64[2], f64[2]", "f64[2]")
    assert first["params"] == "scale=2"
    assert first["device"] == "cpu"
    numbers = ops.filter(pl.col("direction") == "optimizer")["step"].drop_nulls().to_list()
    assert numbers == sorted(set(numbers))
    assert (
        len(numbers) >= 2
    )  # the first capture of a program may begin before anything tells step 0


def test_an_op_has_the_line_of_the_program_that_called_it(abacus, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("def run(abacus, x):\n    return abacus.engine.run('add', x, x)\n")
    scope = {}
    exec(compile(program.read_text(), str(program), "exec"), scope)
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        scope["run"](abacus, abacus.Array([1.0]))
    (source,) = opscope.load(tmp_path / "run.opscope").ops()["source"].to_list()
    assert source.split(" < ")[0].endswith("program.py:2")


def test_the_adapter_is_loaded_when_its_framework_is_imported(opscope_abacus, tmp_path):
    opscope.init("abacus")
    assert "opscope.adapters.template" not in sys.modules
    abacus = importlib.import_module("abacus")
    assert adapters.installed() == ("abacus",)
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        abacus.add(abacus.Array([1.0]), abacus.Array([2.0]))
    assert opscope.load(tmp_path / "run.opscope").ops().height == 1


def test_while_nothing_listens_only_steps_are_hooked_and_shutdown_restores_all(abacus, tmp_path):
    before = hooks(abacus)
    opscope.init("abacus")
    run, called, step = hooks(abacus)
    assert (run, called) == before[:2]
    assert step is not before[2]
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        assert all(one is not two for one, two in zip(hooks(abacus), before, strict=True))
    assert hooks(abacus)[:2] == before[:2]
    opscope.shutdown()
    assert hooks(abacus) == before
    opscope.shutdown()


@pytest.mark.parametrize("function", ["_tensor", "_with_outputs"])
def test_a_fault_of_the_adapter_never_reaches_the_program(
    abacus, tmp_path, monkeypatch, caplog, function
):
    expected, before = train(abacus), hooks(abacus)
    opscope.init("abacus")
    module = importlib.import_module("opscope.adapters.template.ops")
    monkeypatch.setattr(module, function, lambda *_: 1 / 0)
    with capturing(tmp_path, caplog):
        assert train(abacus) == expected
    assert_withdrawn(abacus, before, caplog)


def test_what_an_object_of_the_program_raises_when_asked_never_reaches_it(abacus, tmp_path, caplog):
    before = hooks(abacus)

    class Nameless(abacus.Layer):
        def __init__(self):
            pass

        @property
        def name(self):
            raise RuntimeError("no name")

        def forward(self, x):
            return x

    with capturing(tmp_path, caplog):
        assert Nameless()(7) == 7
    assert_withdrawn(abacus, before, caplog)


@contextlib.contextmanager
def capturing(folder, caplog):
    run = opscope.capture(folder / "run.opscope", backend="recorder")
    with caplog.at_level(logging.ERROR, "opscope"), run:
        yield


def assert_withdrawn(abacus, before, caplog):
    """It was said once, and no hook is left."""
    said = [one for one in caplog.records if "Abacus is no longer observed" in one.getMessage()]
    assert len(said) == 1
    assert hooks(abacus) == before


def test_an_error_of_the_program_is_the_program_s_and_ends_its_range(abacus, tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        with pytest.raises(ValueError, match="sizes differ"):
            abacus.add(abacus.Array([1.0]), abacus.Array([1.0, 2.0]))
        abacus.add(abacus.Array([1.0]), abacus.Array([1.0]))
    ops = opscope.load(tmp_path / "run.opscope").ops()
    assert ops["depth"].to_list() == [0, 0]
    assert ops.sort("start")["outputs"].to_list() == [None, "f64[1]"]


def test_of_an_unsupported_version_a_request_raises_and_a_choice_of_our_own_is_logged(
    abacus, monkeypatch, caplog
):
    monkeypatch.setattr(abacus, "__version__", "1.9")
    before = hooks(abacus)
    with pytest.raises(
        adapters.AdapterError, match=r"abacus 1\.9 is not supported \(needs >=2\.0\)"
    ):
        opscope.init("abacus")
    with caplog.at_level(logging.WARNING, "opscope"):
        opscope.init()
    assert "abacus is not observed: abacus 1.9 is not supported" in caplog.text
    assert hooks(abacus) == before
    assert "abacus" not in adapters.installed()
