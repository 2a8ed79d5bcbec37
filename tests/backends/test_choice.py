"""Which backend `auto` takes on made machines, and what each says of itself there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from opscope import backends
from opscope.backends import Auto, Machine

VERSION = """
from typing import Optional
__version__ = '2.13.0'
debug = False
cuda: Optional[str] = {cuda}
git_version = 'cf30153'
hip: Optional[str] = {hip}
"""


@pytest.fixture
def machine(tmp_path: Path):
    """``machine(files=…, torch=…, …)``: device files below a root, PyTorch built as said, packages."""

    def make(*files, torch=None, packages=(), environ=None, **more):
        root = tmp_path / "root"
        for name in ("dev", *files):
            place = root / name
            place.mkdir(parents=True, exist_ok=True) if name == "dev" else place.touch()
        have: dict[str, Path | None] = {"nvtx": None, **dict.fromkeys(packages)}
        if torch is not None:
            folder = tmp_path / "torch"
            folder.mkdir(exist_ok=True)
            cuda, hip = (repr(torch) if torch.startswith(one) else "None" for one in ("1", "rocm"))
            (folder / "version.py").write_text(VERSION.format(cuda=cuda, hip=hip))
            have["torch"] = folder
        path = {"PATH": str(tmp_path)}
        return Machine({**path, **(environ or {})}, root, modules={}, packages=have, **more)

    return make


def said(machine: Machine) -> dict[str, backends.Availability]:
    return {name: found for name, _, found in backends.ranked(machine)}


NVIDIA = ("dev/nvidia0", "dev/nvidiactl")


def test_without_a_gpu_the_recorder_is_taken_and_each_other_says_why_it_is_not(machine):
    choice = backends.choose(machine=machine(torch="13.0"))
    assert choice.name == "recorder"
    assert choice.reason == "no GPU is visible, so there are no kernels to record"
    assert dict(choice.better) == {
        "emit": "no NVTX tool is attached to this process",
        "nsys": "nsys is not on PATH",
        "kineto": "no GPU is visible",
        "xplane": "JAX is not installed",
        "mindspore": "MindSpore is not installed",
        "cupti": "no GPU is visible",
    }


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_a_hidden_gpu_is_told_from_none(machine, value):
    here = machine(*NVIDIA, torch="13.0", environ={"CUDA_VISIBLE_DEVICES": value})
    choice = backends.choose(machine=here)
    assert choice.name == "recorder"
    assert "the GPU is hidden by CUDA_VISIBLE_DEVICES" in choice.reason
    assert said(here)["kineto"].why == "the GPU is hidden by CUDA_VISIBLE_DEVICES"


def test_a_gpu_with_pytorch_is_kineto_s(machine):
    choice = backends.choose(machine=machine(*NVIDIA, torch="13.0"))
    assert choice.name == "kineto"


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("cpu", "kineto: this PyTorch is built without CUDA and ROCm"),
        (None, "kineto: PyTorch is not installed, whose profiler records kernels"),
    ],
)
def test_a_gpu_that_nothing_records_is_said_with_every_reason(machine, torch, why):
    """A build of PyTorch for the CPU is known before the program imports it."""
    choice = backends.choose(machine=machine(*NVIDIA, torch=torch))
    assert choice.name == "recorder"
    assert choice.reason.startswith("a GPU is visible, but its kernels cannot be recorded: ")
    assert why in choice.reason
    assert "nsys: nsys is not on PATH" in choice.reason


@pytest.mark.parametrize(("torch", "name"), [("rocm7.1", "kineto"), ("13.0", "recorder")])
def test_an_amd_gpu_needs_a_build_for_rocm(machine, torch, name):
    here = machine("dev/kfd", torch=torch)
    choice = backends.choose(machine=here)
    assert choice.name == name
    if name == "recorder":
        assert "built for CUDA, not for ROCm" in choice.reason


def test_a_pytorch_whose_version_does_not_say_what_it_is_for_is_tried(machine, tmp_path):
    here = machine(*NVIDIA, torch="13.0")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '3.0'\n")
    assert backends.choose(machine=here).name == "kineto"
    (tmp_path / "torch" / "version.py").unlink()
    assert backends.choose(machine=here).name == "kineto"


def test_a_loaded_pytorch_is_asked_itself(machine):
    torch = SimpleNamespace(version=SimpleNamespace(cuda=None, hip=None))
    here = Machine({}, modules={"torch": torch}, packages=(), gpu="nvidia")
    assert not said(here)["kineto"].works


UNDER = {"NSYS_PROFILING_SESSION_ID": "1"}


@pytest.fixture
def tool(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "nsight-systems" / "libToolsInjection64.so"
    path.parent.mkdir()
    path.touch()
    return {**UNDER, "NVTX_INJECTION64_PATH": str(path)}


def test_under_nsight_systems_it_records_the_ranges(machine, tool):
    choice = backends.choose(machine=machine(*NVIDIA, torch="13.0", environ=tool))
    assert choice.name == "emit"
    assert not said(machine(environ=tool))["nsys"].works


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"NVTX_INJECTION64_PATH": ""}, "without -t nvtx"),
        ({"NVTX_INJECTION64_PATH": "/gone/nsight.so"}, "/gone/nsight.so does not exist"),
        ({"NVTX_DISABLE": "1"}, "NVTX_DISABLE is set"),
    ],
)
def test_under_an_nsight_systems_that_hears_no_ranges_the_recorder_is_taken(
    machine, tool, change, why
):
    here = machine(*NVIDIA, torch="13.0", environ={**tool, **change})
    assert backends.choose(machine=here).name == "recorder"
    assert why in said(here)["emit"].why
    # asked for by name it is tried: an `nsys profile -t osrt` leaves kernels to others
    assert said(here)["kineto"].works
    assert said(here)["kineto"].auto is Auto.NEVER


def test_without_the_package_nvtx_no_tool_can_be_sent_ranges(machine, tool):
    here = Machine(tool, modules={}, packages=(), gpu=None)
    assert said(here)["emit"].why == "the package nvtx is not installed"
    assert backends.choose(machine=here).name == "recorder"


def test_nsys_is_for_programs_that_have_not_begun_and_for_nvidia_s_gpus(machine, tmp_path):
    (tmp_path / "nsys").write_text("#!/bin/sh\n")
    (tmp_path / "nsys").chmod(0o755)
    assert backends.choose(machine=machine(*NVIDIA, in_process=False)).name == "nsys"
    late = backends.choose(machine=machine(*NVIDIA, torch="13.0"))
    assert late.name == "kineto"
    assert "the program runs already" in dict(late.better)["nsys"]


def test_what_may_begin_later_is_offered_and_nothing_that_a_tool_records(machine):
    def offered(**more):
        return [
            one.name
            for one in backends.offered(backends.ranked(machine(*NVIDIA, torch="13.0", **more)))
        ]

    assert offered(packages=("jax", "mindspore")) == ["kineto", "xplane", "mindspore"]
    assert offered() == ["kineto"]
    without = machine(packages=("jax", "mindspore"), simple=True, gpu=None)
    assert backends.offered(backends.ranked(without)) == []


def test_a_framework_s_profiler_is_taken_where_it_is_used_alone(machine):
    def choose(*loaded):
        modules = {name: SimpleNamespace(nn=1, version=SimpleNamespace()) for name in loaded}
        return backends.choose(machine=Machine({}, modules=modules, packages=(), gpu=None)).name

    assert choose("jax") == "xplane"
    assert choose("mindspore") == "mindspore"
    assert choose("jax", "torch") == choose("mindspore", "torch") == choose() == "recorder"
