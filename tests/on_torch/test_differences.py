"""``opscope diff`` of live trainings: PyTorch and Keras on it, light mode, several ranks; the cause is planted.

Every planted time is far longer than what a step takes beside it, so that a busy machine changes no answer.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.differing import ONE_NET, difference, matched_layers, part, recorded

pytest.importorskip("torch")

#: How long a planted cause takes of each step.
SECONDS = 0.3
LEAST = SECONDS * 0.9e9
RANKS = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    if dist.get_rank() == 1:
        time.sleep(float(sys.argv[1]))
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("differences")


@pytest.fixture(scope="module")
def in_torch(folder) -> Path:
    return recorded(folder, "torch", ONE_NET, "torch")


def test_of_pytorch_and_keras_the_layers_match_and_a_slow_loader_is_named(folder, in_torch):
    if find_spec("keras") is None:  # not imported: its backend may be another one here
        pytest.skip("keras is not installed")
    keras = recorded(folder, "keras", ONE_NET, "keras", SECONDS, KERAS_BACKEND="torch")
    found = difference(in_torch, keras)
    assert "Most of it: data loader" in found["headline"]
    first = found["parts"][0]
    assert (first["part"], first["verdict"]) == ("data loader", "slower")
    # Keras asks for a batch before it says that the step begins
    assert first["b"] > LEAST
    loader = [row for row in found["causes"] if row["op"] == "DataLoader"]
    assert len(loader) == 1, "another line and another dataset are the same loader"
    assert loader[0]["a"] > 0
    assert loader[0]["b"] > LEAST
    layers = matched_layers(found, ("conv", "mm"))
    assert {("Net.conv", "net/conv"), ("Net.fc1", "net/fc1"), ("Net.fc2", "net/fc2")} <= layers
    for one, other in layers:
        assert one.split(".")[-1] == other.split("/")[-1], "no layer is another one"
    told = {row["property"]: (row["value_a"], row["value_b"]) for row in found["runs"]}
    assert told["version of keras"][0] is None
    assert told["data loader"] == ("DataLoader of Slow", "DataLoader of Slow")


def test_of_two_light_runs_the_phase_is_named_and_of_one_only_what_both_know(folder, in_torch):
    runs = [
        recorded(folder, f"light{seconds}", ONE_NET, "torch", seconds, options=("--light",))
        for seconds in (0, SECONDS)
    ]
    found = difference(*runs)
    assert "Most of it: input" in found["headline"]
    first = found["parts"][0]
    assert (first["part"], first["verdict"]) == ("input", "slower")
    assert first["b"] > LEAST
    # the other run waits for its input too, the longer the busier the machine
    assert first["change"] > LEAST / 3
    assert {row["part"] for row in found["parts"]} == {
        "input", "forward", "backward", "optimizer", "collective", "other",
    }  # fmt: skip
    assert found["ops"] == []
    mixed = difference(in_torch, runs[1])
    assert any("B is of light mode" in note for note in mixed["notes"])
    assert part(mixed, "data loader")["verdict"] == "slower"
    assert part(mixed, "CPU ops")["b"] is None
    assert mixed["ops"] == [], "what was not recorded is not gone"
    assert {row["b"] for row in mixed["causes"] if row["part"] == "CPU ops"} == {None}


def test_of_several_ranks_the_one_that_the_others_wait_for_is_named(folder):
    pytest.importorskip("torch.distributed")
    (folder / "ranks.py").write_text(RANKS)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py")
    runs = [recorded(folder, f"ranks{s}", *torchrun, s) for s in (0, SECONDS)]
    found = difference(*runs)
    headline = found["headline"]
    if found["parts"][0]["part"] == "communication":
        assert "waiting in collectives for rank 1" in headline
        assert headline.endswith("more of other")
    else:  # its own time outside of ops and the others' wait are about the same
        assert "Most of it: other" in headline
        assert any("for rank 1" in note for note in found["notes"])
    # one rank's step is half communication, the other's half sleep: that is no noise
    for name in ("communication", "other"):
        assert part(found, name)["verdict"] == "slower"
        assert part(found, name)["change"] > LEAST / 3
