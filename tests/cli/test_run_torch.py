"""`opscope run` on real PyTorch training: one process, torchrun's ranks, DataLoader workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opscope
from tests.gloo import unaborted

pytest.importorskip("torch")

ROOT = Path(opscope.__file__).resolve().parents[1]
LENET = Path(__file__).resolve().parents[2] / "examples" / "torch_lenet.py"


def run(cwd: Path, *args: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

    def once():
        return subprocess.run(
            [sys.executable, "-m", "opscope", *map(str, args)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    done = unaborted(once, cwd)
    assert done.returncode == 0, done.stderr
    return done


def test_lenet_unchanged(tmp_path):
    plain = subprocess.run([sys.executable, LENET], capture_output=True, text=True, check=True)
    done = run(tmp_path, "run", "--", sys.executable, LENET)
    assert done.stdout == plain.stdout
    assert "aten::convolution_backward" in done.stderr
    report = json.loads(run(tmp_path, "report", "torch_lenet.opscope", "--json", "--full").stdout)
    summary = report["summary"]
    if summary["kernels"]:  # on a GPU the golden checks are scripts/gpu_check.sh's
        return
    assert summary["attributed_time"] + summary["unattributed_time"] == summary["kernel_time"]
    assert summary["flops_share"] > 0.95
    whole = sum(row["self_time"] for row in report["detail"])
    described = sum(
        row["self_time"]
        for row in report["detail"]
        if row["dtypes"] and (row["inputs"] or row["outputs"])  # a factory takes no tensor
    )
    assert described >= 0.99 * whole
    convolutions = [row for row in report["detail"] if row["op"] == "aten::convolution"]
    assert {row["layer"] for row in convolutions} == {"LeNet.conv1", "LeNet.conv2"}
    assert {row["calls"] for row in convolutions} == {8}
    assert all("torch_lenet.py" in row["source"] for row in convolutions)
    assert {row["direction"] for row in report["detail"]} >= {"forward", "backward", "optimizer"}


def test_steps_of_a_training(tmp_path):
    run(tmp_path, "run", "--no-report", "-o", "x", "--steps", "3:6", "--", sys.executable, LENET)
    profile = opscope.load(tmp_path / "x.opscope")
    steps = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    assert sorted(steps["text"].cast(pl.String)) == ["step 3", "step 4", "step 5"]
    convolutions = profile.ops().filter(pl.col("op").cast(pl.String) == "aten::convolution")
    assert len(convolutions) == 2 * 3
    assert set(convolutions["step"]) == {3, 4, 5}


@pytest.mark.parametrize("model", ["torch.nn.Linear(4, 4)", "lambda x: x @ weight"])
@pytest.mark.parametrize(("option", "sizes"), [("0:2", [1, 2]), ("2", [3]), ("3:", [4, 5])])
def test_a_window_has_the_steps_that_a_whole_recording_numbers_so(model, option, sizes, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "weight = torch.ones(4, 4, requires_grad=True)\n"
        f"model = {model}\n"
        "parameters = [weight, *getattr(model, 'parameters', list)()]\n"
        "optimizer = torch.optim.SGD(parameters, lr=0.1)\n"
        "for size in range(1, 6):\n"
        "    model(torch.ones(size, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    run(
        tmp_path,
        "run",
        "-o",
        "x",
        "--steps",
        option,
        "--no-report",
        "--",
        sys.executable,
        "train.py",
    )
    ops = opscope.load(tmp_path / "x.opscope").ops()
    name = pl.col("op").cast(pl.String)
    forward = pl.col("direction").cast(pl.String) == "forward"
    products = ops.filter(name.is_in(["aten::addmm", "aten::mm"]) & forward)
    shapes = products["outputs"].cast(pl.String).to_list()
    assert shapes == [f"f32[{size},4]" for size in sizes]


def test_the_ranks_of_torchrun_are_one_profile(tmp_path):
    (tmp_path / "ddp.py").write_text(
        textwrap.dedent("""
        import os
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        model = DistributedDataParallel(torch.nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 8)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
        """)
    )
    module = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ddp.py")
    done = run(tmp_path, "run", "--no-report", "--", sys.executable, *module)
    assert "wrote ddp.opscope" in done.stderr
    profile = opscope.load(tmp_path / "ddp.opscope")
    ranks = profile.trace["processes"].filter(pl.col("rank").is_not_null())
    assert sorted(ranks["rank"]) == [0, 1]
    assert set(ranks["world_size"]) == {2}
    ops = profile.ops().filter(pl.col("op").cast(pl.String) == "aten::addmm")
    assert ops.group_by("process").len()["len"].to_list() == [3, 3]


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_of_a_data_loader_are_in_the_profile(how, tmp_path):
    (tmp_path / "load.py").write_text(
        textwrap.dedent(f"""
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return torch.full((3,), float(index)).square()

        if __name__ == "__main__":
            loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="{how}")
            print(sum(float(batch.sum()) for batch in loader))
        """)
    )
    done = run(tmp_path, "run", "--no-report", "--", sys.executable, "load.py")
    assert done.stdout == "420.0\n"
    profile = opscope.load(tmp_path / "load.opscope")
    ops = profile.ops().with_columns(pl.col("op").cast(pl.String))
    squares = ops.filter(pl.col("op").str.starts_with("aten::pow"))
    assert len(squares) == 8
    assert squares["process"].n_unique() == 2
    assert ops["process"].n_unique() == 3
    assert set(squares["direction"].cast(pl.String)) == {"input"}
    # the program waits for each batch, and for the news that there is no more: as long as it takes
    ranges = profile.trace["ranges"].with_columns(pl.col("text", "category").cast(pl.String))
    waits = ranges.filter((pl.col("category") == "phase") & (pl.col("text") == "input")).sort(
        "start"
    )
    assert waits["process"].n_unique() == 1
    assert len(waits) == 5
    made = [
        part.sort("start")["end"][last]
        for part in squares.partition_by("process")
        for last in range(1, len(part), 2)
    ]
    for number, until in enumerate(waits["end"][:4]):
        assert sum(end <= until for end in made) > number, "a batch was made before it came"
