"""What a gradient tape runs is backward work, also where it differentiates no one op."""

from __future__ import annotations

import polars as pl
import pytest

tf = pytest.importorskip("tensorflow")


@tf.custom_gradient
def halved(x):
    def gradient(upstream):
        return tf.sin(upstream) / 2.0

    return tf.exp(x), gradient


@pytest.fixture
def w():
    return tf.Variable(tf.ones((3, 3)))


def directions(profile, op):
    name = pl.col("op").cast(pl.String)
    found = profile.ops().sort("start").filter(name.str.contains(f"{op}$"))
    return found["direction"].cast(pl.String).to_list()


def run_as(kind, body):
    return body if kind == "eager" else tf.function(body)


@pytest.mark.parametrize("kind", ["eager", "graph"])
def test_sums_of_gradients_and_custom_gradients_are_backward(recorded, w, kind):
    def body(x):
        with tf.GradientTape() as tape:
            y = halved(tf.matmul(x, w)) * x + tf.matmul(x, w)
        return tape.gradient(y, w), y, tf.cos(x), tf.add_n([x, w * x, x])

    step, x = run_as(kind, body), tf.ones((3, 3))
    profile = recorded(lambda: step(x))
    assert directions(profile, "^Sin") == ["backward"]
    assert directions(profile, "^Exp") == ["forward"]
    assert directions(profile, "^Cos") == ["forward"]  # after the tape
    # w's two gradients are summed; x's sum is the program's own
    assert sorted(directions(profile, "^AddN")) == ["backward", "forward"]
    ops = profile.ops().filter(pl.col("op").cast(pl.String) == "Sin")
    assert "test_tf_tapes.py" in ops["source"].item()
    assert ops["forward_op_id"].item() is None  # it differentiates no one op
    assert "direction" not in (ops["params"].cast(pl.String).item() or "")


@pytest.mark.parametrize("kind", ["eager", "graph"])
def test_what_is_computed_again_is_forward_within_backward(recorded, w, kind):
    block = tf.recompute_grad(lambda x: tf.tanh(tf.matmul(x, w)))

    def body(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(block(x) * x * halved(tf.matmul(x, w)))
        return tape.gradient(loss, w)

    step, x = run_as(kind, body), tf.ones((3, 3))
    profile = recorded(lambda: step(x))
    assert directions(profile, "^Tanh") == ["forward"] * 2
    assert directions(profile, "^TanhGrad") == ["backward"]
    assert directions(profile, "^Sin") == ["backward"]  # not of the tape within
    assert directions(profile, "^AddN") == ["backward"]
    ops = {row["op_id"]: row for row in profile.ops().to_dicts()}
    (gradient,) = (row for row in ops.values() if row["op"] == "TanhGrad")
    assert ops[gradient["forward_op_id"]]["op"] == "Tanh"


def test_a_tape_around_a_tape(recorded, w):
    """What the inner tape runs is recorded by the outer; the forward ops after it are forward again."""

    def body():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = halved(w * w) * w
            first = inner.gradient(y, w)
            loss = tf.reduce_sum(tf.square(first))
        return outer.gradient(loss, w)

    profile = recorded(body)
    assert directions(profile, "^Square") == ["forward"]
    assert set(directions(profile, "^Sin")) == {"backward"}  # once for each tape
    assert set(directions(profile, "^Cos")) == {"backward"}
    assert set(directions(profile, "^AddN")) == {"backward"}


def test_a_persistent_tape_within_its_own_context(recorded, w):
    def body():
        with tf.GradientTape(persistent=True) as tape:
            y = halved(w)
            tape.gradient(y, w)
            tf.cosh(w)
        tape.gradient(y, w)

    profile = recorded(body)
    assert directions(profile, "^Sin") == ["backward"] * 2
    assert directions(profile, "^Cosh") == ["forward"]


def test_a_gradient_that_fails_leaves_no_direction_behind(recorded, w):
    @tf.custom_gradient
    def failing(x):
        def gradient(upstream):
            raise KeyError("mine")

        return tf.exp(x), gradient

    def body():
        with tf.GradientTape() as tape:
            y = failing(w)
        with pytest.raises(KeyError, match="mine"):
            tape.gradient(y, w)
        tf.cosh(w)

    assert directions(recorded(body), "^Cosh") == ["forward"]


def test_what_a_function_called_by_a_custom_gradient_does_is_backward_too(recorded, w):
    @tf.function
    def helper(x):
        return tf.sin(x)

    @tf.custom_gradient
    def helped(x):
        return tf.exp(x), lambda upstream: helper(upstream)

    @tf.function
    def body():
        with tf.GradientTape() as tape:
            y = helped(w) * w
        return tape.gradient(y, w)

    profile = recorded(body)
    assert directions(profile, "^Sin") == ["backward"]
    assert directions(profile, "^Exp") == ["forward"]


def test_operations_of_xla_have_it_from_their_nodes(recorded, w):
    @tf.function(jit_compile=True)
    def body(x):
        with tf.GradientTape() as tape:
            y = tf.tanh(halved(tf.matmul(x, w)))
        return tape.gradient(y, w)

    x = tf.ones((64, 3))
    profile = recorded(lambda: [body(x) for _ in range(2)])
    ops = profile.ops().filter(pl.col("op").cast(pl.String).str.starts_with("hlo::"))
    params = pl.col("params").cast(pl.String)
    if ops.is_empty():
        pytest.skip("this TensorFlow's XLA announces no operations")
    sines = ops.filter(params.str.contains("sine"))
    assert not sines.is_empty()
    assert set(sines["direction"].cast(pl.String)) == {"backward"}
