"""``Model.eval`` and ``Model.predict`` are phases of their own, and no steps of a training."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from mindspore import dataset, nn
from mindspore.train import Callback, Model

import opscope
from opscope.backends.mindspore_capture import MindSporeCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}
BATCHES = 3


@pytest.fixture(params=MODES)
def mode(request):
    ms.set_context(mode=MODES[request.param])
    return request.param


def batches(count=BATCHES):
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((4 * count, 4)).astype(np.float32)
    y = numbers.integers(0, 3, 4 * count).astype(np.int32)
    return dataset.NumpySlicesDataset((x, y), shuffle=False).batch(4)


def model():
    net = nn.SequentialCell(nn.Dense(4, 6, weight_init="ones"), nn.ReLU(), nn.Dense(6, 3))
    for place, one in enumerate(net.get_parameters()):
        numbers = np.random.default_rng(place).standard_normal(one.shape)
        one.set_data(ms.Tensor(numbers.astype(np.float32)))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    return Model(net, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy", "loss"})


def images():
    return ms.Tensor(np.ones((4, 4), np.float32))


def whole(one):
    """Train, evaluate and predict; return the results."""
    one.train(1, batches())
    found = one.eval(batches(2))
    return found, one.predict(images()).asnumpy().tobytes()


def phases(profile):
    ranges = profile.trace["ranges"].with_columns(pl.col("category", "text").cast(pl.String))
    found = ranges.filter(pl.col("category") == "phase").sort("start")
    return found.filter(pl.col("text").is_in(["evaluate", "predict"]))


def within(ops, phase):
    start, end = phase.select("start", "end").row(0)
    return ops.filter((pl.col("start") >= start) & (pl.col("end") <= end))


def test_evaluation_and_prediction_are_phases_and_in_no_step(recorded, mode):
    profile = recorded(lambda: whole(model()))
    found = phases(profile)
    assert found["text"].to_list() == ["evaluate", "predict"]
    assert profile.summary()["steps"].item() == BATCHES
    ranges = profile.trace["ranges"].with_columns(pl.col("category").cast(pl.String))
    steps = ranges.filter(pl.col("category") == "step")
    for start, end in found.select("start", "end").rows():
        assert not len(steps.filter((pl.col("start") < end) & (pl.col("end") > start)))
    if mode == "pynative":
        ops = profile.ops().with_columns(pl.col("direction", "op", "layer").cast(pl.String))
        for row in range(2):
            mine = within(ops, found[row])
            assert mine["step"].null_count() == len(mine)
            products = mine.filter(pl.col("op").str.contains("MatMul|Dense"))
            assert len(products) == 2 * (2, 1)[row]
            assert set(products["direction"]) == {"forward"}
            assert set(products["layer"]) == {"SequentialCell.0", "SequentialCell.2"}
            assert "backward" not in set(mine["direction"])


def test_operators_of_an_evaluations_graph_are_described(tmp_path):
    ms.set_context(mode=ms.GRAPH_MODE)
    one = model()
    opscope.init()
    session.start(MindSporeCapture(tmp_path))
    whole(one)
    session.stop()
    opscope.shutdown()
    profile = Profile(collect(tmp_path))
    ops = profile.ops().with_columns(pl.col("direction", "op", "layer", "inputs").cast(pl.String))
    for row in range(2):
        products = within(ops, phases(profile)[row]).filter(pl.col("op") == "MatMul")
        assert len(products) == 2 * (2, 1)[row]
        assert set(products["inputs"]) == {"f32[4,4], f32[6,4]", "f32[4,6], f32[3,6]"}
        assert set(products["direction"]) == {"forward"}


def test_results_are_those_without_opscope(recorded, mode):
    with_it = []
    recorded(lambda: with_it.append(whole(model())))
    assert with_it == [whole(model())]


def test_an_evaluation_that_a_callback_makes_is_in_no_step(recorded, mode):
    class Evaluates(Callback):
        def on_train_step_end(self, run_context):
            one.eval(batches(1))

    one = model()
    profile = recorded(lambda: one.train(1, batches(), callbacks=[Evaluates()]))
    assert phases(profile)["text"].to_list() == ["evaluate"] * BATCHES
    assert profile.summary()["steps"].item() == BATCHES


def test_a_loop_that_evaluates_between_its_steps_keeps_their_numbers(recorded):
    one = model()
    net, optimizer = one.predict_network, nn.SGD(one.predict_network.trainable_params(), 0.1)
    loss = nn.CrossEntropyLoss()
    target = ms.Tensor(np.zeros(4, np.int32))
    step = ms.value_and_grad(lambda x: loss(net(x), target), None, optimizer.parameters)

    def loop():
        for _ in range(3):
            net.set_train()
            optimizer(step(images())[1])
            one.eval(batches(1))

    profile = recorded(loop)
    ops = profile.ops().with_columns(pl.col("op", "direction").cast(pl.String))
    for row in range(3):
        assert within(ops, phases(profile)[row])["step"].null_count() > 0
    assert profile.summary()["steps"].item() == 3
    # in 2.7 the gradient of a product is one range
    is_gradient = (pl.col("direction") == "backward") & pl.col("op").str.contains("MatMul")
    found = ops.filter(is_gradient).group_by("step").len().sort("step")
    assert found["step"].to_list() == [0, 1, 2]
    assert found["len"].n_unique() == 1


def test_an_error_in_an_evaluation_reaches_the_program_and_ends_its_phase(recorded):
    def fails():
        with pytest.raises(ValueError, match="metrics"):
            Model(nn.Dense(4, 3)).eval(batches(1))
        assert not session.are_steps_held()
        model().predict(images())

    found = phases(recorded(fails))
    assert found["text"].to_list() == ["evaluate", "predict"]
    assert found["end"][0] <= found["start"][1]


def test_nothing_is_left_of_the_hooks():
    opscope.init()
    assert hasattr(Model.eval, "__wrapped__")
    assert hasattr(Model.predict, "__wrapped__")
    hooked = Model.eval, Model.predict
    opscope.shutdown()
    assert (Model.eval, Model.predict) != hooked
