"""The processor's model and the loaded cuDNN, for the versions of a recording."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from opscope.core.capture import hardware, process

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)  Platinum 8480C\n"
ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (X86 + "\n" + X86.replace("8480C", "other"), "Intel(R) Xeon(R) Platinum 8480C"),
        (ARM.format("0xd4f"), "ARM Neoverse-V2"),
        (ARM.format("0xd0c") + ARM.format("0xd4f"), "ARM Neoverse-N1"),
        (ARM.format("0x123"), "ARM implementer 0x41 part 0x123"),
        (ARM.format("what"), None),
        ("processor\t: 0\nhart\t: 1\nisa\t: rv64\n", None),
        ("", None),
    ],
)
def test_the_processor_is_named_as_the_system_names_it(tmp_path, text, model):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert hardware.cpu_model(path) == model


def test_a_system_without_the_file_names_none(tmp_path):
    assert hardware.cpu_model(tmp_path / "none") is None
    assert hardware.cudnn_version(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("number", "version"), [(90100, "9.1.0"), (91002, "9.10.2"), (8902, "8.9.2"), (7605, "7.6.5")]
)
def test_the_cudnn_that_is_loaded_tells_its_version(tmp_path, number, version):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path / "libcudnn.so.9"
    source = f"#include <stddef.h>\nsize_t cudnnGetVersion(void) {{ return {number}; }}\n"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-xc", "-", "-o", library], input=source.encode(), check=True
    )
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 08:01 1    {library}\n")
    assert hardware.cudnn_version(maps) is None  # mapped by nobody: it is not loaded for this
    loaded = ctypes.CDLL(str(library))
    assert loaded
    assert hardware.cudnn_version(maps) == version


def test_a_recording_has_the_processor():
    versions = process.versions()
    expected = hardware.cpu_model(Path("/proc/cpuinfo"))
    assert versions.get("cpu") == expected
