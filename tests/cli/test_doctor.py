"""``opscope doctor`` on machines where something is odd: what it is there for."""

from __future__ import annotations

import sys

import pytest

from opscope.adapters import known
from opscope.cli import doctor


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """``framework(code)``: ``odd`` is installed, by a distribution of another name; its adapter is that."""
    information = tmp_path / "odd_cpu-3.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-cpu\nVersion: 3.1\n")
    (information / "top_level.txt").write_text("odd\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(known, "available", lambda: {"odd": "odd_adapter:Adapter"})
    doctor._distributions.cache_clear()

    def make(code):
        (tmp_path / "odd_adapter.py").write_text(code)
        (check,) = (one for one in doctor.checks() if one.what == "odd")
        return check

    yield make
    sys.modules.pop("odd_adapter", None)
    doctor._distributions.cache_clear()


def test_a_framework_whose_distribution_has_another_name(framework):
    check = framework("class Adapter:\n    requires = '>=3'\n")
    assert (check.works, check.found) == (True, "3.1")


def test_a_framework_that_cannot_be_imported_is_told_with_the_rest(framework):
    check = framework("raise ImportError('libodd.so.1:\\n no such file')\n")
    assert (check.works, check.found) == (False, "3.1")
    assert check.advice == "it cannot be imported: libodd.so.1: no such file"


class Driver:
    """A driver's library: its first call succeeds, its second counts devices."""

    def __init__(self, names, devices):
        begin, count = names
        setattr(self, begin, lambda _: 0)

        def counted(where):
            where._obj.value = devices
            return 0

        setattr(self, count, counted)


@pytest.mark.parametrize(
    ("cuda", "hip", "works", "found"),
    [
        (2, None, True, "2 CUDA devices"),
        (None, 1, True, "1 HIP device"),
        (0, 8, True, "8 HIP devices"),
        (0, None, False, "CUDA driver present, no device (error 0)"),
        (None, None, False, "no CUDA or HIP driver"),
    ],
)
def test_a_gpu_of_either_platform_is_found(cuda, hip, works, found, monkeypatch):
    drivers = {
        "libcuda.so.1": cuda is not None and Driver(("cuInit", "cuDeviceGetCount"), cuda),
        "libamdhip64.so": hip is not None and Driver(("hipInit", "hipGetDeviceCount"), hip),
    }

    def load(name):
        if not drivers.get(name):
            raise OSError(name)
        return drivers[name]

    monkeypatch.setattr("ctypes.CDLL", load)
    monkeypatch.setattr("opscope.backends.gpu_vendor", lambda: None)
    check = doctor._gpu()
    assert (check.works, check.found) == (works, found)
