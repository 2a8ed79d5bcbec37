"""MindSpore: a range of the steps of ``Model.train`` is captured, in both modes, and nothing is changed by it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import dataset, nn  # noqa: E402
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, RunContext  # noqa: E402
from mindspore.train.callback import _InternalCallbackParam  # noqa: E402

import opscope  # noqa: E402
from opscope.adapters.mindspore import model_train  # noqa: E402
from opscope.callbacks.mindspore import StepRange  # noqa: E402
from opscope.callbacks.steprange import State  # noqa: E402
from opscope.core.capture import session, trainings  # noqa: E402

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


@pytest.fixture(autouse=True)
def each_test(unobserved):
    """The insertion alone is tested: the adapter need not be installed."""

    def failed(what):
        pytest.fail(what)

    model_train.install(session.emitter("mindspore"), failed)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)
    model_train.uninstall()
    assert not trainings.waiting("mindspore")


@pytest.fixture(params=MODES)
def mode(request):
    ms.set_context(mode=MODES[request.param])


def batches(count=6):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4 * count, 4)).astype(np.float32)
    y = rng.integers(0, 3, 4 * count).astype(np.int32)
    return dataset.NumpySlicesDataset((x, y), shuffle=False).batch(4)


def model(**options):
    ms.set_seed(1)
    net = nn.Dense(4, 3, weight_init="ones", bias_init="zeros")
    return Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1), **options)


class Marks(Callback):
    """Opens a user range in each step, and keeps MindSpore's own numbers."""

    def __init__(self, act=lambda number, context: None):
        self.numbers = []
        self.act = act

    def on_train_step_end(self, run_context):
        number = run_context.original_args().cur_step_num
        self.numbers.append(number)
        self.act(number, run_context)


def ranges(path, category):
    found = opscope.load(path).trace["ranges"]
    return found.filter(found["category"].cast(str) == category).sort("start")["text"].to_list()


def steps(path):
    """The steps of the profile that are whole."""
    return ranges(path, "step")


def test_the_steps_asked_for_are_captured_and_no_others(tmp_path, mode):
    path = tmp_path / "some.opscope"
    model().train(2, batches(), callbacks=[StepRange(4, 8, path, backend="recorder")])
    assert steps(path) == ["step 4", "step 5", "step 6", "step 7"]


def test_results_are_the_same_to_the_bit(tmp_path, mode):
    def trained(callbacks):
        one = model()
        one.train(2, batches(), callbacks=callbacks)
        return one.train_network.trainable_params()[0].asnumpy()

    with_range = trained(StepRange(1, 9, tmp_path / "some.opscope", backend="recorder"))
    model_train.uninstall()
    without = trained(None)
    assert with_range.tobytes() == without.tobytes()


def test_a_range_is_added_to_a_training_that_does_not_name_it(tmp_path, mode):
    path = tmp_path / "by_itself.opscope"
    StepRange(2, 4, path, backend="recorder").attach()
    model().train(1, batches())
    assert steps(path) == ["step 2", "step 3"]
    model().train(1, batches())  # and to no later one
    assert steps(path) == ["step 2", "step 3"]


def test_a_range_that_is_attached_and_passed_counts_once(tmp_path, mode):
    path = tmp_path / "both.opscope"
    callback = StepRange(2, 4, path, backend="recorder").attach()
    model().train(1, batches(), callbacks=callback)
    assert steps(path) == ["step 2", "step 3"]


def test_several_ranges_have_profiles_of_their_own(tmp_path, mode):
    callback = StepRange(1, 3, tmp_path / "w.opscope", repeat=3, backend="recorder")
    model().train(2, batches(4), callbacks=[callback])
    assert steps(tmp_path / "w.opscope") == ["step 1", "step 2"]
    assert steps(tmp_path / "w-1.opscope") == ["step 4", "step 5"]
    assert steps(tmp_path / "w-2.opscope") == ["step 7"]  # the training ended


def test_two_ranges_are_captured_in_one_training(tmp_path):
    one = StepRange(0, 2, tmp_path / "a.opscope", backend="recorder")
    two = StepRange(3, 5, tmp_path / "b.opscope", backend="recorder")
    model().train(1, batches(), callbacks=(one, two))
    assert steps(tmp_path / "a.opscope") == ["step 0", "step 1"]
    assert steps(tmp_path / "b.opscope") == ["step 3", "step 4"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_profile_is_complete_when_a_training_fails(tmp_path, mode, error):
    def fails(number, context):
        if number == 4:
            raise error("stop")

    path = tmp_path / "failed.opscope"
    callback = StepRange(1, 100, path, backend="recorder")
    with pytest.raises(error, match="stop"):
        model().train(1, batches(), callbacks=[callback, Marks(fails)])
    assert callback.state is State.DONE
    assert session.capturing() is None
    assert not session.are_steps_held()
    assert steps(path) == ["step 1", "step 2", "step 3"]


def test_a_step_that_fails_is_not_a_step(tmp_path):
    class Fails(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense, self.calls = nn.Dense(4, 3), 0

        def construct(self, x):
            self.calls += 1
            if self.calls == 4:
                raise ValueError("in the net")
            return self.dense(x)

    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, path = Fails(), tmp_path / "failed.opscope"
    one = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    with pytest.raises(ValueError, match="in the net"):
        one.train(1, batches(), callbacks=[StepRange(1, 100, path, backend="recorder")])
    assert opscope.load(path).summary()["steps"].item() == 2


def test_the_profile_is_complete_when_a_training_stops_early(tmp_path, mode):
    def asks(number, context):
        if number == 4:
            context.request_stop()

    path = tmp_path / "stopped.opscope"
    callback = StepRange(2, 100, path, backend="recorder")
    model().train(5, batches(), callbacks=[callback, Marks(asks)])
    assert steps(path) == ["step 2", "step 3"]


def test_an_evaluation_between_epochs_does_not_end_the_range(tmp_path, mode):
    path = tmp_path / "fit.opscope"
    callback = StepRange(4, 8, path, backend="recorder")
    model(metrics={"accuracy"}).fit(2, batches(), batches(2), callbacks=[callback])
    assert steps(path) == ["step 4", "step 5", "step 6", "step 7"]
    assert ranges(path, "phase").count("evaluate") == 1


def test_epochs_are_phases(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        model_train.install(session.emitter("mindspore"), pytest.fail)
        model().train(2, batches(2))
    phases = ranges(tmp_path / "run.opscope", "phase")
    assert [one for one in phases if one.startswith("epoch")] == ["epoch 0", "epoch 1"]
    assert steps(tmp_path / "run.opscope") == ["step 0", "step 1", "step 2", "step 3"]


def test_the_users_own_steps_are_kept(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        model_train.install(session.emitter("mindspore"), pytest.fail)
        own = Marks(lambda number, context: opscope.step(100 + number))
        opscope.step(100)
        model().train(1, batches(3), callbacks=[own])
    assert steps(tmp_path / "run.opscope") == ["step 100", "step 101", "step 102", "step 103"]


def test_the_users_callbacks_stay_as_they_are():
    own = Marks()
    given = [own]
    model().train(1, batches(3), callbacks=given)
    assert given == [own]
    assert own.numbers == [1, 2, 3]


def test_what_is_no_callback_fails_as_without_us():
    def refused():
        with pytest.raises(TypeError) as error:
            model().train(1, batches(2), callbacks=[3])
        return str(error.value)

    ours = refused()
    model_train.uninstall()
    assert ours == refused()


def test_a_capture_that_fails_does_not_stop_the_training(tmp_path, caplog):
    class Fails:
        def warmup(self): ...

        def start(self):
            raise OSError("no space")

        def stop(self): ...

    own = Marks()
    callback = StepRange(1, 3, make=lambda window: Fails())
    model().train(1, batches(4), callbacks=[callback, own])
    assert own.numbers == [1, 2, 3, 4]
    assert "no space" in caplog.text


def test_a_training_that_ends_before_the_range_says_so(tmp_path, caplog):
    callback = StepRange(10, 12, tmp_path / "none.opscope", backend="recorder")
    with caplog.at_level(logging.WARNING):
        model().train(1, batches(3), callbacks=callback)
    assert "ended after 3 steps: steps [10, 12) were not reached" in caplog.text


def test_a_training_that_was_looked_up_before_is_counted(tmp_path, mode):
    # as in model.train(1, data, callbacks=[StepRange(…)]): making the callback observes MindSpore
    model_train.uninstall()
    train = model().train
    model_train.install(session.emitter("mindspore"), pytest.fail)
    train(1, batches(), callbacks=[StepRange(1, 3, tmp_path / "a.opscope", backend="recorder")])
    assert steps(tmp_path / "a.opscope") == ["step 1", "step 2"]


def test_a_checkpoint_is_saved_when_a_training_fails_as_without_us(tmp_path):
    def fails(number, context):
        if number == 2:
            raise RuntimeError("stop")

    # MindSpore's decorators look for this callback among those of the call
    config = CheckpointConfig(save_checkpoint_steps=100, exception_save=True)
    saves = ModelCheckpoint("net", str(tmp_path), config)
    with pytest.raises(RuntimeError, match="stop"):
        model().train(1, batches(4), callbacks=[saves, Marks(fails)])
    assert list(tmp_path.glob("*_breakpoint.ckpt"))


def test_no_other_part_counts_steps_inside(tmp_path):
    held = Marks(lambda number, context: seen.append(session.are_steps_held()))
    seen: list[bool] = []
    model().train(1, batches(2), callbacks=held)
    assert seen == [True, True]
    assert not session.are_steps_held()


def test_what_is_hooked_is_restored():
    ours = Model._train
    model_train.uninstall()
    model_train.uninstall()
    assert Model._train is not ours
    assert ours.__wrapped__ is Model._train


def test_on_the_cpu_mindspore_trains_step_by_step_where_dataset_sink_is_asked_for(tmp_path, mode):
    path, own = tmp_path / "some.opscope", Marks()
    callback = StepRange(2, 4, path, backend="recorder")
    model().train(1, batches(), callbacks=[callback, own], dataset_sink_mode=True)
    assert own.numbers == [1, 2, 3, 4, 5, 6]
    assert steps(path) == ["step 2", "step 3"]
    assert not any("dataset sink" in what for what in opscope.load(path).notes()["what"])


# What ``Model._train_dataset_sink_process`` passes in graph mode: it adds a whole sink to the number before the
# step begins. The CPU has no dataset sink.
def sunk(callbacks, sink, count):
    parameters = _InternalCallbackParam()
    parameters.cur_step_num = 0
    context = RunContext(parameters)
    for one in callbacks:
        one.__enter__()
        one.on_train_begin(context)
    for _ in range(count):
        parameters.cur_step_num += sink
        for one in callbacks:
            one.on_train_step_begin(context)
        for one in callbacks:
            one.on_train_step_end(context)
    for one in callbacks:
        one.on_train_end(context)
        one.__exit__()


@pytest.mark.parametrize(
    ("window", "wanted"),
    [((1, 3), ["step 0"]), ((3, 5), ["step 0", "step 4"]), ((4, 8), ["step 4"]), ((6, 9), ["step 4", "step 8"])],
)  # fmt: skip
def test_with_dataset_sink_every_execution_that_holds_a_step_asked_for_is_captured(
    tmp_path, caplog, window, wanted
):
    path = tmp_path / "sunk.opscope"
    counts = model_train.Steps(session.emitter("mindspore"), pytest.fail, True)
    callback = StepRange(*window, path, backend="recorder")
    with caplog.at_level(logging.WARNING):
        sunk([model_train.Ends(counts), callback, counts], 4, 4)
    assert steps(path) == wanted
    assert "4 steps run at a time (dataset sink)" in caplog.text
    notes = opscope.load(path).trace["notes"]["what"].to_list()
    assert any("4 steps at a time (dataset sink)" in note for note in notes)
