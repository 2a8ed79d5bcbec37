"""Flax modules, Linen's and NNX's, are layers; Optax's work is the optimizer's; what ``auto`` chooses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import adapters

jax = pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[2]


def test_flax_modules_are_layers(tmp_path):
    nn = pytest.importorskip("flax.linen")
    import jax.numpy as jnp

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.relu(nn.Dense(32, name="inner")(x))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(4, name="head")(Block(name="block")(x))

    net, x = Net(), jnp.ones((8, 16))
    params = net.init(jax.random.key(0), x)
    step = jax.jit(jax.value_and_grad(lambda p: net.apply(p, x).sum()))
    with opscope.capture(tmp_path / "net.opscope", backend="xplane"):
        jax.block_until_ready(step(params))
    opscope.shutdown()
    ops = opscope.load(tmp_path / "net.opscope").ops()
    products = ops.filter(pl.col("matrix_flops") > 0).with_columns(
        pl.col("layer", "direction").cast(pl.String)
    )
    flops = products.group_by("layer", "direction").agg(pl.col("matrix_flops").sum()).rows()
    inner, head = 2 * 8 * 16 * 32, 2 * 8 * 32 * 4
    found = {(layer, way): count for layer, way, count in flops}
    assert found[("Net/block/inner", "forward")] == inner
    assert found[("Net/block/inner", "backward")] == inner  # of its weights alone
    assert found[("Net/head", "backward")] == 2 * head
    # the head's result enters only a sum, whose gradient does not need it, and is computed all the same
    assert found[("Net/head", "forward")] == head


@pytest.fixture
def observed():
    """opscope installed, and taken out again."""
    pytest.importorskip("flax.nnx")
    pytest.importorskip("optax")
    opscope.init()
    yield
    opscope.shutdown()


def paths(function, *args) -> set[str]:
    """The paths of the operations of a compiled program."""
    from opscope.core.hlo.calls import calls
    from opscope.core.hlo.module import Module

    (hlo,) = function.lower(*args).compile().runtime_executable().hlo_modules()
    module = Module.of_module(hlo.as_serialized_hlo_module_proto())
    return {str(call.param("op_name")) for _, call in calls(module)}


def test_nnx_modules_go_by_the_attributes_that_hold_them(observed):
    from flax import nnx

    # Flax before 0.12 takes plain ones
    together, named = getattr(nnx, "List", list), getattr(nnx, "Dict", dict)

    class Inner(nnx.Module):
        def __init__(self, rngs):
            self.table = named({"left": nnx.Linear(8, 8, rngs=rngs)})

        def __call__(self, x):
            return self.table["left"](x)

    class Above(nnx.Module):
        def __init__(self, rngs):
            self.many = together([Inner(rngs), Inner(rngs)])

        def __call__(self, x):
            for one in self.many:
                x = one(x)
            return x

    class Net(Above):
        def __call__(self, x):
            return super().__call__(x) * 2

    import jax.numpy as jnp

    net = Net(nnx.Rngs(0))
    graph, state = nnx.split(net)
    step = jax.jit(jax.value_and_grad(lambda s, x: (nnx.merge(graph, s)(x) ** 2).sum()))
    found = paths(step, state, jnp.ones((4, 8)))
    for number in "01":
        assert any(f"/jvp(Net)/many/{number}/table/left/dot_general" in path for path in found)
        assert any(f"/transpose(jvp(Net))/many/{number}/table/left/" in path for path in found)


def test_a_jitted_method_and_one_called_eagerly_are_layers_too(observed, tmp_path):
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.body = nnx.Linear(8, 8, rngs=rngs)

        @nnx.jit
        def __call__(self, x):
            return self.body(x)

    class Plain(nnx.Module):
        def __init__(self, rngs):
            self.body = nnx.Linear(8, 8, rngs=rngs)

        def __call__(self, x):
            return self.body(x)

    import jax.numpy as jnp

    x = jnp.ones((4, 8))
    with opscope.capture(tmp_path / "a.opscope", backend="recorder"):
        Net(nnx.Rngs(0))(x)
        plain = Plain(nnx.Rngs(0))
        plain(x)
        with pytest.raises(TypeError):
            plain(x, x)
        plain(x)
    ranges = opscope.load(tmp_path / "a.opscope").trace["ranges"].sort("start")
    layers = ranges.filter(pl.col("category").cast(pl.String) == "layer")["text"].cast(pl.String)
    assert layers.to_list() == [
        "Net", "Plain", "Plain/body", "Plain", "Plain", "Plain/body"
    ]  # fmt: skip


def test_what_optax_computes_is_the_optimizers(observed):
    import jax.numpy as jnp
    import optax

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))

    @jax.jit
    def step(w, state, x):
        gradient = jax.grad(lambda w: (x @ w).sum())(w)
        updates, state = optimizer.update(gradient, state, w)
        return optax.apply_updates(w, updates), state

    w = jnp.ones((8, 8))
    found = paths(step, w, optimizer.init(w), jnp.ones((4, 8)))
    scoped = [path for path in found if "/optimizer/" in path]
    assert scoped
    assert not any("optimizer/optimizer" in path for path in scoped)
    # it works as before, outside of a program too
    updates, _ = optimizer.update(w, optimizer.init(w), w)
    assert optax.apply_updates(w, updates).shape == w.shape


def test_optax_that_cannot_tell_whether_it_is_traced_goes_on_unobserved(
    observed, monkeypatch, caplog
):
    import jax.numpy as jnp
    import optax

    adapter = adapters._installed["optax"]
    monkeypatch.setattr(adapter, "_runs", lambda: 1 / 0)
    weights = jnp.ones(3)
    assert optax.apply_updates(weights, weights).tolist() == [2, 2, 2]
    assert optax.apply_updates(weights, weights).tolist() == [2, 2, 2]
    assert caplog.text.count("Optax is no longer observed") == 1


def test_turning_off_restores_flax_and_optax():
    nnx = pytest.importorskip("flax.nnx")
    optax = pytest.importorskip("optax")

    class Mine(nnx.Module):
        def __call__(self, x):
            return x

    def methods():
        kind = optax.GradientTransformation
        return [
            vars(nnx.Linear)["__call__"],
            vars(Mine)["__call__"],
            vars(nnx.Module).get("__init_subclass__"),
            vars(kind)["__new__"],
            optax.apply_updates,
        ]

    before = methods()
    opscope.init()
    assert all(now is not was for now, was in zip(methods(), before, strict=True))

    class Later(nnx.Module):
        def __call__(self, x):
            return x

    during = vars(Later)["__call__"]
    assert optax.sgd(0.1).update is not None
    opscope.shutdown()
    assert methods() == before
    assert vars(Later)["__call__"] is during.__wrapped__


def test_auto_is_the_profiler_for_a_program_that_has_loaded_jax_alone():
    code = """
import json, opscope.backends as backends
before = backends.choose(environ={}).name
import jax
print(json.dumps([before, backends.choose(environ={}).name]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout)[1] == "xplane"
    assert json.loads(done.stdout)[0] != "xplane"
