"""Modules of cost models are loaded when a first op of theirs is priced, in whatever order that happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMED = "opscope.core.perf.{}"
FOLDERS = tuple(NAMED.format(folder) + "." for folder in ("ops", "hlo", "nodes"))
EVERY = """
import sys
from importlib import import_module
from opscope.core import perf
from opscope.core.perf import places
modules = places.modules()
for module in reversed(modules) if "reversed" in sys.argv else modules:
    import_module(f"opscope.core.perf.{module}")
for name, entry in sorted(perf.entries().items()):
    print(name, entry.family, entry.source, sorted(entry.variants), entry.model.__module__, entry.view)
"""


def ran(code: str, *args: str) -> list[str]:
    """The lines that the code prints in a new Python."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def loaded_for(*names: str) -> set[str]:
    """The modules of models, without ``opscope.core.perf``, that are loaded once these ops are looked up."""
    code = (
        "import sys; from opscope.core import perf\n"
        "for name in sys.argv[1:]: perf.entry_of(name), perf.wants_forward(name)\n"
        "print(*sys.modules)"
    )
    (line,) = ran(code, *names)
    return {
        name.removeprefix(NAMED.format("")) for name in line.split() if name.startswith(FOLDERS)
    }


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        ((), set()),
        (("mylib::unknown", "cudaLaunchKernel", "ProfilerStep#3", "Net.layers.0"), set()),
        (("aten::mm", "aten::mm.out", "torch.mm", "Tensor.__matmul__", "mm"), {"ops.gemm"}),
        (("nccl:all_reduce", "c10d::allreduce_"), {"ops.communication"}),
        (("trt::Convolution",), {"nodes.tensorrt"}),
    ],
)
def test_an_op_loads_the_module_of_its_family_alone(names, modules):
    assert loaded_for(*names) == modules


@pytest.mark.parametrize(
    ("name", "module"),
    [("BesselI0", "nodes.tensorflow"), ("Celu", "nodes.onnx"), ("CopyExt", "nodes.mindspore"),
     ("hlo::custom-call", "hlo.transformer_engine")],
)  # fmt: skip
def test_a_framework_s_names_load_its_module(name, module):
    assert module in loaded_for(name)


def test_the_order_in_which_modules_are_loaded_decides_nothing():
    once = ran(EVERY)
    assert len(once) > 4000
    assert once == ran(EVERY, "reversed")


def test_another_package_cannot_take_the_name_of_a_model_that_is_not_loaded():
    code = (
        "from opscope.core import perf\n"
        "for register in (perf.op('aten::fft_fft', family='fft'), perf.backward_of('aten::addmm')):\n"
        "    try: register(lambda call: perf.Cost())\n"
        "    except ValueError as error: print(error)"
    )
    assert ran(code) == [
        "aten::fft_fft already has a cost model",
        "aten::addmm already has a backward model",
    ]
