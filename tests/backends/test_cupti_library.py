"""Which libcupti is taken, and what is said where none fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.backends import cupti, here
from opscope.backends.cupti import library
from opscope.backends.cupti.library import Found


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def found(root: Path, environ=None, foreign=False):
    every = library.candidates(environ or {}, [str(root / "site-packages")], root, foreign)
    return [(str(one.path.relative_to(root)), one.major) for one in every]


def test_the_packages_come_before_cudas_folder_and_after_it_for_another_program(tmp_path):
    put(
        tmp_path,
        "site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "site-packages/nvidia/cu13/lib/libcupti.so.13",
        "usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.1",
        "opt/cuda/extras/CUPTI/lib64/libcupti.so",
        "elsewhere/libcupti.so.11.8",
    )
    environ = {"CUDA_HOME": str(tmp_path / "opt/cuda"), "LD_LIBRARY_PATH": f"{tmp_path}/elsewhere"}
    packages = [
        ("site-packages/nvidia/cuda_cupti/lib/libcupti.so.12", 12),
        ("site-packages/nvidia/cu13/lib/libcupti.so.13", 13),
    ]
    others = [
        ("opt/cuda/extras/CUPTI/lib64/libcupti.so", None),
        ("elsewhere/libcupti.so.11.8", 11),
        ("usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.1", 12),
    ]
    assert found(tmp_path, environ) == [*packages, *others]
    assert found(tmp_path, environ, foreign=True) == [*others, *packages]


def test_links_to_one_library_are_one(tmp_path):
    put(tmp_path, "site-packages/nvidia/cuda_cupti/lib/libcupti.so.12")
    folder = tmp_path / "site-packages/nvidia/cuda_cupti/lib"
    (folder / "libcupti.so").symlink_to("libcupti.so.12")
    assert found(tmp_path) == [("site-packages/nvidia/cuda_cupti/lib/libcupti.so", 12)]


EVERY = [Found(Path(f"/{major}"), major, "") for major in (13, 12, 11)]


@pytest.mark.parametrize(
    ("major", "driver", "taken"),
    [
        (12, None, 12),
        (11, 13, 11),
        (10, None, None),
        (None, None, 13),
        (None, 12, 12),
        (None, 10, None),
    ],
)
def test_the_library_fits_the_process_else_the_driver(major, driver, taken):
    one = library.choose(major, EVERY, driver)
    assert (None if one is None else one.major) == taken


def test_the_library_that_is_loaded_is_taken(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f-80 r-xp 0 00:1 1   /usr/lib/libc.so.6\n"
        "7f-80 r-xp 0 00:1 1   /a b/nvidia/cuda_cupti/lib/libcupti.so.12\n"
        "7f-80 r-xp 0 00:1 1   /opt/lib/libcudart-d0da41ae.so.11.0\n"
    )
    one = library.loaded(maps)
    assert one == Found(
        Path("/a b/nvidia/cuda_cupti/lib/libcupti.so.12"), 12, "loaded in this process"
    )
    assert library.cuda_major(None, maps) == 11


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n", 12),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n", 13),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed\n", 11),
        ("something else", None),
    ],
)
def test_the_driver_says_which_cuda_it_takes(tmp_path, text, major):
    put(tmp_path, "proc/driver/nvidia/version")
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert library.driver_major(tmp_path) == major
    assert library.driver_major(tmp_path / "proc") is None


@pytest.mark.parametrize(
    ("what", "works", "why"),
    [
        ({"gpu": None}, False, "no GPU is visible"),
        ({"gpu": "amd"}, False, "NVIDIA"),
        ({"gpu": "nvidia"}, True, "CUPTI is at"),
        ({"gpu": "nvidia", "modules": {"torch": object()}}, True, "PyTorch"),
        ({"gpu": "nvidia", "modules": {"jax": object()}}, True, "JAX"),
        ({"gpu": "nvidia", "environ": {"NSYS_PROFILING_SESSION_ID": "1"}}, True, "Nsight Systems"),
    ],
)
def test_the_backend_says_whether_it_works(monkeypatch, tmp_path, what, works, why):
    one = Found(tmp_path / "libcupti.so.12", 12, "")
    monkeypatch.setattr(library, "here", lambda *_, **__: (one, ""))
    monkeypatch.setattr("opscope.backends.cupti.helper.can_load", lambda: True)
    said = cupti.CUPTI.available(here(**{"environ": {}, "modules": {}, **what}))
    assert said.works is works
    assert why in said.why


@pytest.mark.parametrize(
    ("library_found", "helper", "advice"),
    [(False, True, "CUDA_HOME"), (True, False, "opscope build cupti")],
)
def test_what_is_missing_is_said_with_what_to_do(
    monkeypatch, tmp_path, library_found, helper, advice
):
    one = Found(tmp_path / "libcupti.so.12", 12, "") if library_found else None
    why = "" if library_found else "no libcupti.so was found; set CUDA_HOME"
    monkeypatch.setattr(library, "here", lambda *_, **__: (one, why))
    monkeypatch.setattr("opscope.backends.cupti.helper.can_load", lambda: helper)
    said = cupti.CUPTI.available(here(environ={}, gpu="nvidia", modules={}))
    assert not said.works
    assert advice in said.advice
