"""Training on several ranks with gloo: its collectives, groups and meshes are in the profile."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.job import clocks
from opscope.core.job.exchanges import SYNCHRONISING
from opscope.profile import Profile
from tests.gloo import unaborted

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no distributed package", allow_module_level=True)

from opscope.adapters.torch.native.binary import BuildError, build, plan  # noqa: E402

OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
#: FSDP2 of 2.6 needs streams that the CPU does not have there.
needs_fsdp = pytest.mark.skipif(OLD, reason="FSDP2 of this torch does not run on a CPU")
ROOT = Path(opscope.__file__).resolve().parents[1]
STEPS = 3
#: Collectives that both ranks take part in, at least: without FSDP2 there are fewer.
TOGETHER = (2 if OLD else 4) * STEPS

COMMON = f"""
import os, sys
import torch, torch.distributed as dist
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return self.down(self.up(x).relu())

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range({STEPS}):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
"""
EVERY_KIND = f"""
import time
import opscope
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module)
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
with opscope.annotate("ddp"):
    train(DistributedDataParallel(Net()))
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("shard",))
with opscope.annotate("fsdp"):
    if {not OLD}:
        train(fully_shard(Net(), mesh=mesh))
with opscope.annotate("tp"):
    net = Net()
    train(parallelize_module(net, mesh, dict(up=ColwiseParallel(), down=RowwiseParallel())))
with opscope.annotate("plain"):
    dist.barrier()
    dist.all_reduce(torch.ones(5, dtype=torch.int64))
    handle = dist.all_reduce(torch.ones(100), async_op=True)
    handle.wait()
    both = [torch.empty(3), torch.empty(3)]
    dist.all_gather(both, torch.ones(3))
if {OLD}:  # it waits, holding the GIL, for gloo's thread, which may want it to free a tensor
    time.sleep(1)
dist.destroy_process_group()
"""


def run(folder, name, body, *command, **variables):
    (folder / f"{name}.py").write_text(textwrap.dedent(COMMON) + textwrap.dedent(body))
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

    def once():
        return subprocess.run(
            [sys.executable, "-m", "opscope", "run", "--no-report", "-o", name, "--backend", "recorder",
             "--", sys.executable, *command, f"{name}.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )  # fmt: skip

    done = unaborted(once, folder)
    assert done.returncode == 0, done.stderr
    return opscope.load(folder / f"{name}.opscope")


def torchrun(ranks):
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks that train by DDP, FSDP2 and tensor parallelism, one after the other."""
    try:
        build(plan())
    except BuildError as error:
        pytest.skip(str(error))
    return run(tmp_path_factory.mktemp("ranks"), "two", EVERY_KIND, *torchrun(2))


def within(profile, name):
    """The collectives of each rank in the user's range ``name``."""
    ranges = profile.trace["ranges"].with_columns(pl.col("text", "domain").cast(pl.String))
    spans = ranges.filter((pl.col("domain") == "opscope.user") & (pl.col("text") == name))
    found = (
        profile.of(exchanges)
        .join(spans.select("process", low="start", high="end"), on="process")
        .filter((pl.col("called") >= pl.col("low")) & (pl.col("called") < pl.col("high")))
    )
    return found.with_columns(pl.col("kind", "group", "members", "dtype").cast(pl.String))


def test_rank_and_mesh_are_in_the_profile(two):
    assert sorted(two.trace["processes"].select("rank", "world_size").rows()) == [(0, 2), (1, 2)]
    rank = dict(two.trace["processes"].select("process", "rank").rows())
    groups = two.groups().filter(pl.col("group") == "0")
    assert set(groups["ranks"]) == {"0-1"}
    assert set(groups["backend"]) == {"gloo"}
    assert {(row["process"], row["rank"]) for row in groups.to_dicts()} == set(rank.items())
    meshes = two.meshes()
    assert set(meshes.select("dimension", "size", "device").rows()) == {("shard", 2, "cpu")}
    assert {(row["process"], row["coordinate"]) for row in meshes.to_dicts()} == set(rank.items())
    assert set(meshes["group"]) <= set(two.groups()["group"])


def test_ddp_reduces_the_gradients_of_each_step(two):
    gradients = 8 * 16 + 16 + 16 * 8 + 8
    found = within(two, "ddp").filter(pl.col("kind") == "all_reduce")
    found = found.filter(pl.col("bytes") == 4 * gradients)
    assert found.group_by("process").len()["len"].to_list() == [STEPS, STEPS]
    told = found.select("group", "members", "size", "dtype", pl.col("reduction").cast(pl.String))
    assert set(told.rows()) == {("0", "0-1", 2, "f32", "sum")}
    ops = two.ops().filter(pl.col("op").cast(pl.String) == "c10d::allreduce_")
    mine = ops.filter(
        pl.col("inputs").cast(pl.String).str.contains(f"f32[{gradients}]", literal=True)
    )
    # of two ranks each sends its buffer once, and receives as much
    assert set(mine["bytes"]) == {2 * 4 * gradients}


@needs_fsdp
def test_fsdp_gathers_parameters_and_scatters_gradients(two):
    found = within(two, "fsdp").group_by("process", "kind").len().sort("process", "kind")
    kinds = dict(zip(found["kind"], found["len"], strict=True))
    assert kinds["reduce_scatter"] == STEPS
    assert STEPS <= kinds["all_gather"] <= 2 * STEPS


def test_tensor_parallel_s_functional_collectives(two):
    found = within(two, "tp").filter(pl.col("kind") == "all_reduce")
    assert found.group_by("process").len()["len"].to_list() == [STEPS, STEPS]
    assert set(found.select("size", "bytes").rows()) == {(2, 4 * 4 * 8)}
    ops = two.ops().with_columns(pl.col("op", "params").cast(pl.String))
    functional = ops.filter(pl.col("op") == "_c10d_functional::all_reduce")
    assert functional["params"].str.contains("ranks=2").all()


def test_plain_calls_have_group_size_and_dtype(two):
    found = within(two, "plain").filter(pl.col("process") == 0).sort("called")
    assert found.select("kind", "dtype", "bytes", "size").rows()[1:] == [
        ("all_reduce", "i64", 40, 2),
        ("all_reduce", "f32", 400, 2),
        ("all_gather", "f32", 24, 2),
    ]


def test_what_is_matched_is_one_collective(two):
    """No rank leaves one before the other has entered it, and both clocks are one here."""
    found = two.of(exchanges).with_columns(pl.col("kind").cast(pl.String))
    found = found.filter(pl.col("kind").is_in(SYNCHRONISING)).drop_nulls(["number", "end"])
    assert (found["called"] <= found["start"]).all()
    pairs = found.filter(pl.col("process") == 0).join(
        found.filter(pl.col("process") == 1), on=["group", "members", "number"], nulls_equal=True
    )
    assert len(pairs) == len(found) / 2 > TOGETHER
    assert (pairs["end"] >= pairs["start_right"]).all()
    assert (pairs["end_right"] >= pairs["start"]).all()
    assert (pairs["bytes"] == pairs["bytes_right"]).all()


def test_the_report_tells_time_bytes_and_waiting(two):
    table = two.communication().sort("rank")
    assert table["rank"].to_list() == [0, 1]
    found = two.of(exchanges)
    for row in table.to_dicts():
        steps = two.steps().filter(pl.col("process") == row["process"])
        low, high = steps["start"].min(), steps["end"].max()
        mine = found.filter(
            pl.col("process") == row["process"], pl.col("end") >= low, pl.col("start") <= high
        )
        assert 0 < row["collectives"] == len(mine) < len(found) / 2
        assert row["message_bytes"] == mine["bytes"].sum() > 0
        assert 0 < row["communication_time"] <= mine["duration"].sum()
        assert row["waiting_time"] == mine["waiting"].sum() >= 0
        assert row["overlap_time"] <= row["communication_time"]
    # in each collective somebody waits for nobody
    together = found.drop_nulls("waiting").group_by("group", "members", "number")
    assert (together.agg(pl.col("waiting").min())["waiting"] == 0).all()
    kinds = two.collectives().with_columns(pl.col("kind").cast(pl.String))
    assert kinds["time"].sum() == found["duration"].sum()
    assert set(kinds.filter(pl.col("kind") == "all_reduce")["size"]) == {2}


def on_two_hosts(profile, ahead):
    """The same run as if rank 1 had been on another host, its clock ``ahead`` of this one's."""
    trace = profile.trace
    names = trace["clocks"]["clock_domain"].to_list()
    other = trace["processes"].filter(pl.col("rank") == 1)["process"].item()
    late = pl.when(pl.col("process") == other).then(ahead).otherwise(0)
    ranges = trace["ranges"].with_columns(pl.col("start") + late, pl.col("end") + late)
    machines = pl.Series("machine", [f"host {name}" for name in names])
    return other, trace.replace(ranges=ranges, clocks=trace["clocks"].with_columns(machines))


@pytest.mark.parametrize("ahead", [0, 123_456_789_012, -98_765_432_109_876])
def test_clocks_of_two_hosts_are_aligned_to_within_the_error_told(two, ahead):
    other, trace = on_two_hosts(two, ahead)
    profile = Profile(clocks.aligned(trace))
    told = profile.clocks()
    assert told["method"].to_list() == ["reference", "ends of collectives"]
    row = told.row(1, named=True)
    assert row["collectives"] > TOGETHER
    assert 0 < row["error_ns"] < 100_000_000
    moved = profile.trace["ranges"].filter(pl.col("process") == other)["end"].to_numpy()
    truly = two.trace["ranges"].filter(pl.col("process") == other)["end"].to_numpy()
    within_error = np.abs(moved - truly).max() <= row["error_ns"] * 2  # the ends lie outside too
    assert within_error
    if not ahead:
        assert (moved == truly).all(), "an offset within its error is none"


def test_one_host_has_one_clock(two):
    (row,) = two.clocks().to_dicts()
    assert (row["method"], row["processes"], row["offset_ns"]) == ("same clock", 2, None)


def test_processes_of_mp_spawn_have_ranks_from_their_group(tmp_path):
    body = """
    import torch.multiprocessing as mp
    def work(rank, store):
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        train(nn.parallel.DistributedDataParallel(Net()))
        dist.destroy_process_group()
    if __name__ == "__main__":
        mp.spawn(work, (os.path.abspath("store"),), nprocs=2)
    """
    profile = run(tmp_path, "spawned", body, OPSCOPE_TORCH_OPS="dispatch")
    ranks = profile.trace["processes"].filter(pl.col("rank").is_not_null())
    assert sorted(ranks.select("rank", "world_size").rows()) == [(0, 2), (1, 2)]
    # seen from Python, calls have their group and size, but not when gloo ran them
    found = profile.of(exchanges).filter(pl.col("kind").cast(pl.String) == "all_reduce")
    assert set(found["size"]) == {2}
    assert found["end"].null_count() == len(found) >= 2 * STEPS
    assert profile.communication()["communication_time"].to_list() == [None, None]


@needs_fsdp
def test_a_mesh_of_two_dimensions(tmp_path):
    body = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    train(fully_shard(parallelize_module(Net(), mesh["tp"], plan), mesh=mesh["dp"]))
    dist.destroy_process_group()
    """
    profile = run(tmp_path, "mesh", body, *torchrun(4))
    rank = dict(profile.trace["processes"].select("process", "rank").rows())
    places = {
        (rank[row["process"]], row["dimension"]): row["coordinate"]
        for row in profile.meshes().to_dicts()
    }
    assert places == {
        (number, name): place
        for number in range(4)
        for name, place in (("dp", number // 2), ("tp", number % 2))
    }
    members = {
        (rank[row["process"]], row["dimension"]): row["ranks"]
        for row in profile.meshes().join(profile.groups(), on=["process", "group"]).to_dicts()
    }
    assert members[0, "dp"] == members[2, "dp"] == "0-2:2"
    assert members[1, "tp"] == members[0, "tp"] == "0-1"
    table = profile.collectives().with_columns(pl.col("kind", "members").cast(pl.String))
    assert {("all_reduce", "0-1"), ("all_reduce", "2-3"), ("reduce_scatter", "1-3:2")} <= set(
        table.select("kind", "members").rows()
    )


@pytest.fixture
def alone(tmp_path):
    yield f"file://{tmp_path / 'store'}"
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_dispatch_writes_the_group_s_name(watched, alone):
    emitter = watched.install()
    torch.distributed.init_process_group("gloo", init_method=alone, rank=0, world_size=1)
    torch.distributed.all_reduce(torch.ones(3))
    (call,) = emitter.named("c10d::allreduce_")
    assert call.call.param("process_group") == "0"
    assert [spec.partition(" = ")[0] for spec in emitter.specs] == ["process_group/0"]
    assert not watched.broken


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_a_collective_tells_what_it_does_with_the_values(mode, alone, tmp_path, monkeypatch):
    reduce = torch.distributed.ReduceOp
    if mode == "native":
        try:
            build(plan())
        except BuildError as error:
            pytest.skip(str(error))
    elif OLD:
        pytest.skip("PyTorch 2.6 does not tell Python the kind of a reduction")
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    kinds = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    torch.distributed.init_process_group("gloo", init_method=alone, rank=0, world_size=1)
    opscope.init(["torch"])
    try:
        with opscope.capture(tmp_path / "run.opscope"):
            for kind in kinds:
                torch.distributed.all_reduce(
                    torch.ones(3, dtype=torch.int64), getattr(reduce, kind)
                )
            torch.distributed.reduce(torch.ones(2), 0, reduce.MAX)
            torch.distributed.barrier()
    finally:
        opscope.shutdown()
    found = opscope.load(tmp_path / "run.opscope").collectives()
    told = found.select(pl.col("kind", "reduction").cast(pl.String)).rows()
    assert sorted(told, key=str) == sorted(
        [("barrier", None), ("reduce", "max"), *(("all_reduce", one.lower()) for one in kinds)],
        key=str,
    )


def test_groups_made_before_a_capture_are_told_when_it_begins(watched, alone):
    emitter = watched.emitter
    emitter.active = False
    torch.distributed.init_process_group("gloo", init_method=alone, rank=0, world_size=1)
    watched.install()
    mesh = torch.distributed.device_mesh.DeviceMesh(
        device_type="cpu", mesh=[0], mesh_dim_names=("dp",)
    )
    assert emitter.specs == []
    emitter.active = True
    watched.adapter.listen()
    keys = {spec.partition(" = ")[0] for spec in emitter.specs}
    assert keys == {"process_group/0", '"mesh 0"/dp'}
    del mesh
    torch.distributed.destroy_process_group()
    for active in (False, True):  # what is gone is told all the same: its calls were recorded
        emitter.active = active
        watched.adapter.listen()
    assert len(emitter.specs) == 4
    assert not watched.broken


def test_a_group_of_other_ranks_made_before_a_capture_is_passed_over(watched, alone):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=3, store=FakeStore())
    torch.distributed.new_group([1, 2])
    torch.distributed.new_group([0, 2], group_desc="own")
    emitter = watched.install()
    assert 'description="own"' in emitter.specs[-1]
    assert len(emitter.specs) == 2
    assert not watched.broken


def test_a_group_that_is_split_off_its_parent_is_told(watched, alone, monkeypatch):
    """As device meshes make theirs on GPUs: by ncclCommSplit, past the helper that makes all others."""
    from torch.distributed import distributed_c10d

    helper = distributed_c10d._new_process_group_helper

    def split_group(parent_pg=None, split_ranks=None, **kwargs):
        with pytest.MonkeyPatch.context() as past:
            past.setattr(distributed_c10d, "_new_process_group_helper", helper)
            return torch.distributed.new_group(split_ranks[0], group_desc="mesh_dp")

    for owner in (distributed_c10d, torch.distributed.device_mesh, torch.distributed):
        monkeypatch.setattr(owner, "split_group", split_group, raising=False)
    torch.distributed.init_process_group("gloo", init_method=alone, rank=0, world_size=1)
    emitter = watched.install()
    told = len(emitter.specs)
    made = torch.distributed.split_group(split_ranks=[[0]])
    assert [spec.partition(" = ")[0] for spec in emitter.specs[told:]] == [
        f"process_group/{made.group_name}"
    ]
    assert 'description="mesh_dp"' in emitter.specs[-1]
    assert not watched.broken
    torch.distributed.destroy_process_group()


def test_uninstalled_nothing_of_groups_is_patched(watched):
    from torch.distributed import device_mesh, distributed_c10d

    def hooked():
        return (
            distributed_c10d._new_process_group_helper,
            device_mesh.DeviceMesh.__init__,
            *(getattr(one, "split_group", None) for one in (distributed_c10d, torch.distributed)),
        )

    before = hooked()
    watched.install()
    assert hooked() != before
    watched.adapter.uninstall()
    assert hooked() == before
