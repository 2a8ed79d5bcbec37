"""A live training on two ranks, of which one sleeps in each step: advice names it and what it does."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.uneven_ranks import DETECTOR

pytest.importorskip("torch")
from tests.on_torch.test_ranks import run, torchrun

#: Rank 1 waits until rank 0 is about to reduce its gradients, however busy the machine, and then sleeps at least
#: three times as long as the rest of its step takes.
ASLEEP = """
import time
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
store = dist.distributed_c10d._get_default_store()
def reduced(group, bucket):
    store.set(f"step {number}", "reduces")
    return allreduce_hook(group, bucket)
if dist.get_rank() == 0:
    model.register_comm_hook(None, reduced)
took = 0.0
for number in range(8):
    began = time.monotonic()
    loss = model(torch.randn(4, 8)).square().sum()
    if dist.get_rank() == 1:
        store.wait([f"step {number}"])
        time.sleep(min(max(0.2, 3 * took), 2.0))
        began = time.monotonic()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    took = time.monotonic() - began
dist.barrier()
dist.destroy_process_group()
"""


def test_a_rank_that_sleeps_is_named(tmp_path):
    profile = run(tmp_path, "asleep", ASLEEP, *torchrun(2))
    late = profile.stragglers()
    if late.is_empty():
        pytest.skip("without the native observer gloo's times are not known")
    (found,) = DETECTOR.find(profile)
    assert "mostly for rank 1" in found.what
    assert late["rank"][0] == 1
    assert 0 < found.time <= late["lateness"][0]  # of the steps that are no warm-up
    assert 0 <= found.saving_least <= found.saving_most <= found.time
    assert "its program outside any op" in found.what
