"""Flax modules are layers of themselves; what ``auto`` chooses for a JAX program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opscope

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
