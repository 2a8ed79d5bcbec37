"""The main job on JAX: a CNN and a perceptron trained for real, recorded, correlated, counted."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.profile import Profile

jax = pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[2]


def cnn_flops() -> dict[tuple[str, str], int]:
    """Multiply-adds of a step, twice, by hand: (layer, direction) → FLOP."""
    found, batch = {}, 32
    for name, side, taps, into, out in (("conv1", 28, 25, 1, 8), ("conv2", 14, 25, 8, 16)):
        found[f"cnn/{name}", "forward"] = 2 * batch * side * side * out * taps * into
        # the images need no gradient, so conv1 has that of its weights alone
        found[f"cnn/{name}", "backward"] = found[f"cnn/{name}", "forward"] * (1 + (into > 1))
    for name, into, out in (("fc1", 784, 120), ("fc2", 120, 10)):
        found[f"cnn/{name}", "forward"] = 2 * batch * into * out
        found[f"cnn/{name}", "backward"] = 2 * found[f"cnn/{name}", "forward"]
    return found


def mlp_flops() -> dict[tuple[str, str], int]:
    """The same of the perceptron: each product, and its two gradients."""
    sizes = {"embed": (64, 96), "head": (96, 10)}
    for block in "01":
        sizes |= {f"blocks/{block}/wide": (96, 384), f"blocks/{block}/back": (384, 96)}
    found = {}
    for name, (into, out) in sizes.items():
        found[f"MLP/{name}", "forward"] = 2 * 128 * into * out
        # the points need no gradient
        found[f"MLP/{name}", "backward"] = 2 * 128 * into * out * (1 + (name != "embed"))
    return found


@dataclass(frozen=True)
class Example:
    """A script, and what is known of it without running it."""

    name: str
    flops: dict[tuple[str, str], int]
    products: int
    #: What the source line of a product of these ops has in it.
    op_type: str
    line: str

    @property
    def path(self) -> Path:
        return ROOT / "examples" / f"{self.name}.py"


EXAMPLES = [
    Example("jax_cnn", cnn_flops(), 3 + 4, "conv", "conv_general_dilated"),
    Example("jax_mlp", mlp_flops(), 2 * 6 - 1, "gemm", "self."),
]
STEPS = 8


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda one: one.name)
def example(request) -> Example:
    if request.param.name == "jax_mlp":
        nnx = pytest.importorskip("flax.nnx")
        if not hasattr(nnx, "List"):
            pytest.skip("the example is written for Flax 0.12 and later")
    return request.param


@pytest.fixture(scope="module")
def profile(example, tmp_path_factory) -> Profile:
    path = tmp_path_factory.mktemp(example.name) / "run.opscope"
    opscope.init()
    try:
        with opscope.capture(path, backend="xplane"):
            runpy.run_path(str(example.path), run_name="__main__")
    finally:
        opscope.shutdown()
    return opscope.load(path)


@pytest.fixture(scope="module")
def model(profile) -> pl.DataFrame:
    """The executed operations of the training step."""
    ops = profile.ops()
    assert len(ops) > 0
    return ops.filter(
        pl.col("params").cast(pl.String).str.contains("jit(train_step)", literal=True)
    )


def test_executed_op_time_carries_shapes_and_dtypes(profile):
    ops = profile.ops()
    described = ops.filter(pl.col("outputs").is_not_null() & pl.col("dtypes").is_not_null())
    assert described["self_time"].sum() >= 0.99 * ops["self_time"].sum()


def test_model_ops_have_layers_sources_and_steps(example, model):
    layered = model.filter(pl.col("layer").is_not_null())
    assert layered["self_time"].sum() >= 0.95 * model["self_time"].sum()
    assert {layer for layer, _ in example.flops} <= set(layered["layer"].cast(pl.String))
    named = model.filter(pl.col("source").cast(pl.String).str.contains(f"{example.path.name}:"))
    assert named["self_time"].sum() >= 0.95 * model["self_time"].sum()
    lines = example.path.read_text().splitlines()
    products = model.filter(pl.col("op_type").cast(pl.String) == example.op_type)
    for source in products["source"].cast(pl.String).unique():
        assert example.line in lines[int(source.split(" < ")[0].rsplit(":", 1)[1]) - 1]
    assert set(model["step"].drop_nulls()) == set(range(STEPS))


def test_the_optimizers_work_is_told_from_the_models(model):
    ways = dict(model.group_by(pl.col("direction").cast(pl.String)).len().rows())
    assert {"forward", "backward", "optimizer"} == set(ways) - {None}, "no pass prepares a batch"
    weights = model.filter(pl.col("direction").cast(pl.String) == "optimizer")
    assert set(weights["layer"].cast(pl.String)) <= {"sgd", "optimizer"}
    assert set(weights["step"]) == set(range(STEPS))


def test_matrix_flops_are_those_of_the_layers(example, model):
    """To the last digit, by layer and direction, and the sum of all."""
    rows = model.group_by(pl.col("layer").cast(pl.String), pl.col("direction").cast(pl.String)).agg(
        pl.col("matrix_flops").sum()
    )
    ours = {(layer, way): flops for layer, way, flops in rows.rows() if flops}
    assert ours == {key: STEPS * flops for key, flops in example.flops.items()}


def test_backward_ops_are_linked_to_the_op_that_they_differentiate(example, profile, model):
    backward = model.filter(pl.col("direction").cast(pl.String) == "backward")
    linked = backward.filter(pl.col("forward_op_id").is_not_null())
    assert linked["self_time"].sum() >= 0.95 * backward["self_time"].sum()
    by_id = {row["op_id"]: row for row in profile.ops().to_dicts()}
    matrix = linked.filter(pl.col("op_type").cast(pl.String).is_in(["conv", "gemm"]))
    assert len(matrix) == STEPS * example.products
    for row in matrix.to_dicts():
        forward = by_id[row["forward_op_id"]]
        assert (forward["layer"], forward["op_type"]) == (row["layer"], row["op_type"])
        assert forward["direction"] == "forward"
        assert forward["start"] < row["start"]
        assert forward["step"] == row["step"]


def test_summary_adds_up(profile):
    row = profile.summary().row(0, named=True)
    assert row["attributed_time"] + row["unattributed_time"] == row["kernel_time"]
    assert row["steps"] == STEPS
    assert row["flops_share"] >= 0.99
    assert row["kernels"] is None


def test_calls_steps_and_compilations_are_ranges(profile):
    ranges = profile.trace["ranges"].with_columns(
        pl.col("domain", "category", "text").cast(pl.String)
    )
    calls = ranges.filter((pl.col("domain") == "opscope.jax") & (pl.col("category") == "graph"))
    assert calls.filter(pl.col("text") == "jit_train_step").height == STEPS
    steps = ranges.filter(pl.col("category") == "step").sort("start")
    assert steps["text"].to_list() == [f"step {n}" for n in range(STEPS)]
    assert ranges.filter(pl.col("text") == "compile").height > 0
    # the operations lie within the steps that ran them, on one clock
    ops = profile.ops()
    train = ops.filter(
        pl.col("params").cast(pl.String).str.contains("jit(train_step)", literal=True)
    )
    assert train["start"].min() >= steps["start"].min()
    assert train["end"].max() <= steps["end"].max()
    assert profile.trace["clocks"].filter(pl.col("kind") == "xplane")["error_ns"].item() < 50_000


def test_run_profiles_an_unchanged_script(example, tmp_path):
    """``opscope run``: operations from when JAX starts, no line changed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    target = tmp_path / "run.opscope"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "--whole",  # a busy machine may take longer than a window
            "-o",
            str(target),
            "--",
            sys.executable,
            str(example.path),
        ],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "Where the time went: " in done.stderr
    told = subprocess.run(
        [sys.executable, "-m", "opscope", "report", str(target), "--json"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(told.stdout)["summary"]
    ops = opscope.load(target).ops()
    # the report's few rows have it unless a busy machine makes others longer
    assert {"conv": "hlo::convolution", "gemm": "hlo::fusion:dot"}[example.op_type] in set(
        ops["op"]
    )
    assert ops["matrix_flops"].sum() == STEPS * sum(example.flops.values())
