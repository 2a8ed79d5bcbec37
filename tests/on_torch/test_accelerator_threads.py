"""On an accelerator a backward pass runs in a thread of PyTorch's own: what is seen must be as on a CPU.

The device is our own (``accelerator.cpp``), on the CPU's memory: to PyTorch's engine it is one like CUDA.
"""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from packaging.version import Version

torch = pytest.importorskip("torch")

import opscope
from tests.on_torch.accelerated import CASES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.skipif(
        Version(torch.__version__.split("+")[0]) < Version("2.10"),
        reason="the device is written for later headers",
    ),
]
#: What moves tensors between devices, of which a CPU has none.
MOVES = ("aten::_copy_from", "aten::_to_copy", "aten::copy_")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    output, home = tmp_path_factory.mktemp("device") / "accelerator.so", Path(torch.__file__).parent
    subprocess.run(
        [COMPILER, "-O0", "-w", "-std=c++20", "-fPIC", "-shared", f"-I{home / 'include'}",
         f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
         str(HERE / "accelerator.cpp"), "-o", str(output), f"-L{home / 'lib'}",
         f"-Wl,-rpath,{home / 'lib'}", "-lc10", "-ltorch_cpu"],
        check=True,
    )  # fmt: skip
    return output


@pytest.fixture(scope="module", params=["native", "dispatch"])
def both(request, library, tmp_path_factory):
    """(how it was observed, profiles on the CPU, profiles on the accelerator), each by case."""
    found = []
    for arguments, expected in (((), "here"), ((library,), "elsewhere")):
        folder = tmp_path_factory.mktemp("profiles")
        done = subprocess.run(
            [sys.executable, str(HERE / "accelerated.py"), str(folder), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPSCOPE_TORCH_OPS": request.param},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # else the device is none for which PyTorch has a thread
        assert done.stdout.splitlines() == [f"{case} {expected}" for case in CASES]
        found.append({case: opscope.load(folder / f"{case}.opscope") for case in CASES})
    return request.param, *found


def seen(profile):
    """How often each op was seen, with what is known of it."""
    ops = profile.ops().with_columns(pl.col("op", "layer", "direction", "source").cast(pl.String))
    line = pl.col("source").str.split(" < ").list.first()
    known = (pl.col("forward_op_id").is_not_null().alias("has_forward"), "canonical")
    rows = ops.filter(pl.col("step").is_not_null() & ~pl.col("op").is_in(MOVES))
    return Counter(rows.select("op", "direction", "layer", "step", line, *known).rows())


def ranges(profile, *categories):
    text = profile.trace["ranges"].select(pl.col("text", "category").cast(pl.String))
    return Counter(text.filter(pl.col("category").is_in(categories)).rows())


@pytest.mark.parametrize("case", CASES)
def test_ops_have_the_layer_line_and_forward_op_that_they_have_on_a_cpu(both, case):
    how, here, there = both
    if (how, case) == ("dispatch", "gradient penalty"):
        pytest.skip("Python cannot ask a node which thread made it: docs/gpu-assumptions.md")
    assert seen(there[case]) == seen(here[case])


@pytest.mark.parametrize("case", CASES)
def test_no_step_and_no_phase_begins_in_the_thread_of_the_backward_pass(both, case):
    _, here, there = both
    kinds = ("step", "phase", "layer")
    assert ranges(there[case], *kinds) == ranges(here[case], *kinds)


def test_backward_ops_of_an_accelerator_ran_in_a_thread_of_their_own(both):
    _, _, there = both
    ops = there["plain"].ops().with_columns(pl.col("direction").cast(pl.String))
    ops = ops.filter(pl.col("op") != "aten::ones_like")  # made before the engine runs
    threads = {
        one: set(ops.filter(pl.col("direction") == one)["thread"])
        for one in ("forward", "backward")
    }
    assert threads["backward"].isdisjoint(threads["forward"])


@pytest.mark.parametrize(("device", "told"), [("cpu", "2.0"), ("toy", "?"), ("meta", None)])
def test_a_number_that_lies_on_another_device_is_not_read(library, tmp_path, device, told):
    """Its memory is not the CPU's; to read it there would end the program."""
    program = (
        "import torch, opscope\n"
        "from tests.on_torch.accelerated import device_of\n"
        f"device_of({str(library)!r})\n"
        "opscope.init(['torch'])\n"
        f"with opscope.capture({str(tmp_path / 'run.opscope')!r}, backend='recorder'):\n"
        f"    y = torch.ops.toy.twice(torch.ones(3).to({device!r}))\n"
        "print(y.shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPSCOPE_TORCH_OPS": "native"},
        capture_output=True,
        text=True,
        check=False,
    )
    if told is None:  # PyTorch may refuse it, as it does without us
        assert done.returncode >= 0
        return
    assert (done.returncode, done.stdout) == (0, "torch.Size([3])\n"), done.stderr
    ops = (
        opscope.load(tmp_path / "run.opscope").ops().select(pl.col("op", "params").cast(pl.String))
    )
    (params,) = ops.filter(pl.col("op") == "aten::mul.Tensor")["params"].unique()
    assert told in params
