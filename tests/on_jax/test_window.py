"""A long JAX program has operations of a window, by XLA's real profiler on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("jax")
import opscope

PROGRAM = """
import jax, jax.numpy as jnp, opscope
from opscope.backends import window

window.SPREAD = 1e9  # a busy machine's steps are not alike

@jax.jit
def update(w, x):
    return w - 1e-3 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

w, x = jnp.ones((32, 32)), jnp.ones((8, 32))
for _ in range({steps}):
    opscope.step()
    w = update(w, x)
    w.block_until_ready()
"""
ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path: Path, steps: int, *options: str) -> tuple[opscope.Profile, str]:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(steps=steps))
    command = [sys.executable, "-m", "opscope", "run", "--backend", "xplane", *options]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "a"), "--", sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return opscope.load(tmp_path / "a.opscope"), done.stderr


def test_a_long_run_has_operations_of_twenty_steps_and_says_so(tmp_path: Path) -> None:
    profile, said = run(tmp_path, 200)
    assert said.count("operations were captured only for steps 5 to 24 (after 20 steps)") == 1
    assert "ops of steps 5 to 24 only, after 20 steps" in said
    dots = profile.ops().filter(pl.col("op").cast(pl.String).str.contains("dot"))
    inside = dots.filter(pl.col("device_time").is_not_null())
    assert inside["step"].unique().sort().to_list() == list(range(5, 25))
    assert (inside["device_time"] > 0).all()
    outside = dots.filter(pl.col("device_time").is_null())
    assert set(outside["step"].to_list()) <= set(range(5))
    assert outside["reason"].unique().to_list() == ["kernels not captured in this window"]
    row = profile.summary().row(0, named=True)
    assert (row["steps"], row["window_steps"]) == (200, 20)
    assert row["kernel_time"] <= row["window_time"] * 4  # of its threads, not of the run


def test_all_of_it_where_it_is_asked_for(tmp_path: Path) -> None:
    profile, said = run(tmp_path, 60, "--whole")
    assert "only" not in said
    dots = profile.ops().filter(pl.col("op").cast(pl.String).str.contains("dot"))
    assert set(range(59)) <= set(dots["step"].drop_nulls().to_list())
    assert profile.trace["windows"].is_empty()


def test_after_a_full_disk_jaxs_profiler_can_begin_again(
    tmp_path: Path,
) -> None:
    import jax

    state = jax._src.profiler._profile_state
    name = "session" if hasattr(state, "session") else "profile_session"  # since JAX 0.12
    with opscope.capture(tmp_path / "a.opscope", backend="xplane"):
        real = getattr(state, name)

        class Session:
            def stop(self, _folder: str = "") -> None:
                real.stop()  # what it has is collected, then cannot be written
                raise RuntimeError("RESOURCE_EXHAUSTED: no space left on device")

            stop_and_export = stop  # before JAX 0.12

        setattr(state, name, Session())
    assert getattr(state, name) is None
    notes = opscope.load(tmp_path / "a.opscope").notes()["what"].to_list()
    assert any("no space left" in what for what in notes)
    with opscope.capture(tmp_path / "b.opscope", backend="xplane"):
        jax.numpy.ones(3).block_until_ready()
    assert not any(
        "not captured" in what for what in opscope.load(tmp_path / "b.opscope").notes()["what"]
    )
