"""Source lines of a model that a library holds: its innermost line, then the user's; by both observers."""

from __future__ import annotations

import sys

import polars as pl
import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect
from tests.made_library import install, line

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("binary")

HERE = __file__.rpartition("/")[2]


def sources(folder) -> dict[tuple[str, str], set[str]]:
    """By op and direction the source lines."""
    ops = Profile(collect(folder)).ops()
    found: dict[tuple[str, str], set[str]] = {}
    for op, direction, source in ops.select("op", "direction", "source").rows():
        if source is not None:
            frames = [one.rpartition("/")[2] if HERE in one else one for one in source.split(" < ")]
            frames = [HERE if one.startswith(HERE) else one for one in frames]
            found.setdefault((op, direction), set()).add(" < ".join(dict.fromkeys(frames)))
    return found


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Two steps of a model and a trainer that are installed, with ops of native code or dispatched."""
    install(tmp_path, monkeypatch)

    def run(mode):
        monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
        from modelzoo.bert import Layer
        from transformers.models.gpt import block
        from transformers.trainer import Trainer

        class Mine(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x):
                return block(self.layer(x)).exp()

        torch.manual_seed(0)
        model = Mine()
        trainer = Trainer(model.layer, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False))
        opscope.init(frameworks="torch")
        session.start(RecorderCapture(tmp_path / mode))
        try:
            for _ in range(2):
                trainer.train(torch.ones(2, 4))
                with torch.no_grad():
                    model(torch.ones(2, 4))
        finally:
            session.stop()
            opscope.shutdown()
        return sources(tmp_path / mode)

    return run


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_an_op_of_a_library_s_model_has_its_line_and_the_user_s(recorded, mode):
    found = recorded(mode)
    linear = f"modelzoo/bert.py:{line('modelzoo/bert.py', 'self.linear(x)')} < {HERE}"
    tanh = f"modelzoo/bert.py:{line('modelzoo/bert.py', 'x.tanh()')} < {HERE}"
    assert found["aten::addmm", "forward"] == {linear}
    assert found["aten::tanh", "forward"] == {tanh}
    assert found["aten::tanh_backward", "backward"] == {tanh}  # its forward op's


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_what_a_trainer_or_a_helper_does_has_the_line_around_it(recorded, mode):
    found = recorded(mode)
    # the trainer's own ops, which are of no forward pass: the user's line alone
    assert [each for (op, _), each in found.items() if op == "aten::abs"] == [{HERE}]
    places = [one for each in found.values() for one in each]
    assert all("trainer.py" not in one and "einops" not in one for one in places)
    # a helper within the model: the model's line
    add = line("modelzoo/bert.py", "twice(x)")
    assert found["aten::add.Tensor", "forward"] == {f"modelzoo/bert.py:{add} < {HERE}"}


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_of_transformers_only_models_are_told(recorded, mode):
    found = recorded(mode)
    place = line("transformers/models/gpt.py", "x.sigmoid()")
    (sigmoid,) = found["aten::sigmoid", "forward"]
    assert sigmoid == f"transformers/models/gpt.py:{place} < {HERE}"
    (exp,) = found["aten::exp", "forward"]
    assert exp.startswith(HERE)


def test_native_and_dispatched_ops_have_equal_lines(recorded):
    native, dispatched = recorded("native"), recorded("dispatch")
    assert len(native) > 10
    # what a dispatch mode makes PyTorch do besides
    assert native == {key: value for key, value in dispatched.items() if key[0] != "aten::detach"}


@pytest.mark.skipif(
    not (3, 11) <= sys.version_info[:2] <= (3, 13), reason="its frames are not read as they lie"
)
def test_frames_read_as_they_lie_tell_the_same_library(recorded, monkeypatch, tmp_path):
    from opscope.adapters.torch.native import observer

    read = recorded("native")
    monkeypatch.setattr(observer, "_PYTHON", 0)
    assert recorded("native") == read


def test_a_place_is_worked_out_once_however_often_it_is_called(tmp_path, monkeypatch):
    """The frames in between are no part of what a place is known by."""
    install(tmp_path, monkeypatch)
    from modelzoo.bert import Layer

    from opscope.adapters.shared.source import Sources

    made = Sources()
    seen = []

    class Ask(torch.nn.Module):
        def forward(self, x):
            seen.append(made.find(sys._getframe()))
            return x

    layer = Layer()
    layer.linear = Ask()
    for _ in range(50):
        layer(torch.ones(2, 4))
    assert len(set(map(id, seen))) == 1
    assert len(made._places) == 1


def test_the_report_shows_a_library_s_line_and_the_user_s(recorded, tmp_path):
    recorded("native")
    frame = Profile(collect(tmp_path / "native")).totals_by("source")
    told = frame["source"].drop_nulls().filter(frame["source"].drop_nulls().str.contains("bert.py"))
    from opscope.core.question.names import short_source

    shown = {short_source(one) for one in told}
    assert all(" < test_library_lines.py:" in one for one in shown)
    assert isinstance(frame, pl.DataFrame)
