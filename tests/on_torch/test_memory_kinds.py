"""Kinds of memory in a live training, against the model's own parameters, gradients and optimizer state."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import gc
import json

import polars as pl
import pytest

torch = pytest.importorskip("torch")

import opscope
from opscope.adapters.torch.native.binary import MEMORY, BuildError, build, plan
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect

nn = torch.nn
STEPS = 4


class Training:
    """A small training with buffers of a parameter's size; ``truth`` has what it holds at its end."""

    def __init__(self, optimizer, keep_gradients=False):
        self.optimizer, self.keep = optimizer, keep_gradients
        self.truth: dict[int, tuple[str, int]] = {}

    def run(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 8)
        )
        self.steps = self.optimizer(self.model.parameters())
        for _ in range(STEPS):
            self.step()
        gc.collect()

    def step(self):
        data, wanted = torch.randn(32, 64), torch.randint(0, 8, (32,))
        self.steps.zero_grad(set_to_none=not self.keep)
        self.loss = nn.functional.cross_entropy(self.model(data), wanted)
        self.loss.backward()
        self.steps.step()

    def held(self):
        """Address, kind and size of what the model and the optimizer hold."""
        for kind, tensors in {
            "parameter": list(self.model.parameters()),
            "gradient": [one.grad for one in self.model.parameters()],
            "optimizer state": [
                one
                for state in self.steps.state.values()
                for one in state.values()
                if torch.is_tensor(one)
            ],
            "unknown": list(self.model.buffers()),  # no fact tells a buffer from other data
        }.items():
            for one in tensors:
                storage = one.untyped_storage()
                yield storage.data_ptr(), (kind, storage.nbytes())


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


TRAININGS = pytest.mark.parametrize(
    ("optimizer", "keep"), [(adam, False), (momentum, False), (momentum, True)]
)


@pytest.fixture
def recorded(tmp_path):
    """Record a function by opscope, memory included; its profile."""
    try:
        build(plan(MEMORY))
    except BuildError as error:
        pytest.skip(str(error))

    def record(run):
        folder = tmp_path / "recording"
        opscope.init(["torch"], memory=True)
        session.start(RecorderCapture(folder))
        try:
            run()
        finally:
            session.stop()
            opscope.shutdown()
        return Profile(collect(folder))

    return record


def profiled(run, path):
    """Record a function by PyTorch's profiler; the profiler, and the profile of its file."""
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True
    ) as found:
        run()
    found.export_chrome_trace(str(path))
    return found, opscope.load(path)


def alive(profile):
    """Address, kind and size of the blocks that nothing released."""
    blocks = profile.memory_events().filter(pl.col("released_at").is_null())
    return {a: (k, s) for a, k, s in blocks.select("address", "kind", "bytes").iter_rows()}


def check_laws(profile):
    (peak,) = profile.memory().to_dicts()
    assert profile.memory_kinds()["at_peak"].sum() == peak["peak_memory"]
    assert profile.memory_curve()["in_use"].max() == peak["peak_memory"]
    assert profile.memory_ops()["self_allocated"].sum() == peak["allocated"]
    assert profile.memory_steps()["growth"].to_list()[1:] == [0] * (STEPS - 1)


@TRAININGS
def test_a_recorded_training_has_its_own_kinds(recorded, optimizer, keep):
    training = Training(optimizer, keep)
    profile = recorded(training.run)
    found, truth = alive(profile), dict(training.held())
    assert {address: found[address] for address in truth} == truth
    others = {kind for address, (kind, _) in found.items() if address not in truth}
    assert others <= {"unknown"}  # the last loss: nothing shows for how long it would be held
    check_laws(profile)


@TRAININGS
def test_a_training_in_pytorchs_own_profiler_has_its_kinds(tmp_path, optimizer, keep):
    training = Training(optimizer, keep)
    _, profile = profiled(training.run, tmp_path / "trace.json")
    found, truth = alive(profile), dict(training.held())
    assert {address: found[address] for address in truth} == truth
    check_laws(profile)


def test_at_the_peak_kinds_have_the_sizes_of_the_models_own(recorded):
    training = Training(adam)
    profile = recorded(training.run)
    held: dict[str, int] = {}
    for kind, size in dict(training.held()).values():
        held[kind] = held.get(kind, 0) + size
    by_kind = dict(profile.memory_kinds().group_by("kind").agg(pl.col("at_peak").sum()).rows())
    # Adam's step is the peak: all of these, and two results of its own of the largest parameter's size
    assert {kind: by_kind[kind] for kind in ("parameter", "gradient", "optimizer state")} == {
        kind: held[kind] for kind in ("parameter", "gradient", "optimizer state")
    }
    assert 2 * 4 * 64 * 256 <= by_kind["temporary"] <= 2 * 4 * 64 * 256 + 64
    gradients = profile.memory_kinds().filter(pl.col("kind") == "gradient")
    assert set(gradients["layer"]) == {"Sequential.0", "Sequential.1", "Sequential.3"}


#: What PyTorch's classification (torch.profiler._memory_profiler) may call a block of each of ours, and the
#: reason where the two differ.
AGREED = {
    "parameter": {"PARAMETER"},
    "gradient": {"GRADIENT"},
    "optimizer state": {"OPTIMIZER_STATE"},
    # it calls every result in a forward pass so; None: a number that became a tensor in Python
    "activation": {"ACTIVATION", None},
    # AUTOGRAD_DETAIL: what a backward pass makes and releases. The others are results of Adam's step, which
    # it takes for parameters, activations and inputs, as it sees values and not when they are released
    "temporary": {"TEMPORARY", "AUTOGRAD_DETAIL", "PARAMETER", "ACTIVATION", "INPUT", None},
    # ours are proven by the trace alone, so inputs, buffers and the last loss are not
    "unknown": {"INPUT", "ACTIVATION", None},
}


def test_kinds_agree_with_pytorchs_own_classification(tmp_path):
    classification = pytest.importorskip("torch.profiler._memory_profiler")
    Action, TensorKey = classification.Action, classification.TensorKey
    found, profile = profiled(Training(adam).run, tmp_path / "trace.json")
    memory = found._memory_profile()
    theirs = {
        (key.storage.ptr, when): memory._categories.get(key, version)
        for when, action, (key, version), _ in memory.timeline
        if isinstance(key, TensorKey) and action is Action.CREATE
    }
    pairs = set()
    many = 0
    base = json.loads((tmp_path / "trace.json").read_text()).get("baseTimeNanoseconds", 0)
    for address, when, kind in (
        profile.memory_events().select("address", "allocated_at", "kind").iter_rows()
    ):
        for moment in (when, when + base):
            if (address, moment) in theirs:
                category = theirs[address, moment]
                pairs.add((kind, category.name if category is not None else None))
                many += 1
    assert many > 200
    assert {(kind, other) for kind, other in pairs if other not in AGREED[kind]} == set()
    ours = {kind for kind, _ in pairs}
    assert ours == set(AGREED)
    for kind, other in (("PARAMETER", "parameter"), ("GRADIENT", "gradient")):
        assert (other, kind) in pairs
