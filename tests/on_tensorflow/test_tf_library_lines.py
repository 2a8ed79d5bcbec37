"""Source lines of a model that a library holds, in TensorFlow: its innermost line, then the user's."""

from __future__ import annotations

import pytest

from tests.made_library import install, line

tf = pytest.importorskip("tensorflow")

HERE = __file__.rpartition("/")[2]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_op_of_a_library_s_model_has_its_line_and_the_user_s(
    compiled, recorded, tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch)
    from modelzoo.tfnet import block

    x, w = tf.ones((4, 3)), tf.Variable(tf.ones((3, 5)))

    def step(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(block(x, w))
        return y, tape.gradient(y, w)

    run = tf.function(step) if compiled else step
    ops = recorded(lambda: [run(x) for _ in range(2)]).ops()
    found = ops.select("op", "source").drop_nulls().rows()
    lines = {source for op, source in found if op in ("MatMul", "Relu")}
    assert lines
    place = f"modelzoo/tfnet.py:{line('modelzoo/tfnet.py', 'tf.matmul')} < "
    for source in lines:
        assert source.startswith(place)
        assert HERE in source.split(" < ")[1]
    sums = {source for op, source in found if op == "Sum"}
    assert sums
    assert not any("modelzoo" in source for source in sums)
