"""Causes planted in trainings on the CPU: a slow loader, one that decodes, ``.item()`` in each step; and none."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import opscope  # noqa: E402
from opscope.core.advice.detectors import cpu_decoding, data_loader, sync_calls  # noqa: E402
from opscope.core.advice.finding import CannotTell  # noqa: E402
from tests import planted  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")


class Numbers(torch.utils.data.Dataset):
    def __init__(self, batches, slow=False):
        self.batches, self.slow = batches, slow

    def __len__(self):
        return 2 * self.batches

    def __getitem__(self, index):
        if self.slow and index % 2:
            with opscope.annotate("decode"):
                planted.slowly()
        return torch.full((4,), float(index))


def profile_of(tmp_path, data, read=False, work=lambda: None):
    """Return the profile of a training, and the losses' sum if they were read."""
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for batch in torch.utils.data.DataLoader(data, batch_size=2):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            if read:
                loss.item()
            work()
    return opscope.load(tmp_path / "run.opscope")


def test_a_slow_loader_and_what_it_does(tmp_path):
    profile = profile_of(tmp_path, Numbers(planted.BATCHES, slow=True))
    (found,) = data_loader.DETECTOR.find(profile)
    # other programs may keep the processors busy
    assert (
        "num_workers=" in found.recommendation or "more workers would not" in found.recommendation
    )
    assert "test_advice_host.py" in found.evidence
    # the last step's wait may belong to no step, as nothing says that one follows
    assert found.time == profile.input_waits()["input_wait"].sum()
    (row,) = profile.advice().filter(detector="data_loader").rows(named=True)
    assert 0 < row["saving"] <= row["saving_most"]
    (decoding,) = cpu_decoding.DETECTOR.find(profile)
    assert decoding.rows["op"][0] == "decode"
    assert decoding.time <= profile.data_preparation()["total"].sum()


def test_a_loader_that_keeps_up(tmp_path):
    profile = profile_of(tmp_path, Numbers(planted.FAST_BATCHES), work=planted.work)
    assert list(data_loader.DETECTOR.find(profile)) == []
    assert list(cpu_decoding.DETECTOR.find(profile)) == []


def test_values_read_in_each_step_are_named_as_what_a_gpu_would_wait_for(tmp_path):
    read = sync_calls.DETECTOR.find(profile_of(tmp_path, Numbers(5), read=True))
    assert isinstance(read, CannotTell)
    # what .item() calls, which is all that PyTorch's dispatcher sees of it
    assert "aten::_local_scalar_dense at" in read.reason
    assert "test_advice_host.py" in read.reason
