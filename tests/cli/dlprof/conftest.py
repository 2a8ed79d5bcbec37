"""A folder with a program, and a stand-in for nsys that hears NVTX."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dlprof_bench import Bench
from tests.nvtx_tool import build


@pytest.fixture(scope="session")
def injection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("injection"), "-DOPSCOPE_REFUSE")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The bench without nsys."""
    return Bench(tmp_path)


@pytest.fixture
def nsys(tmp_path: Path, injection: Path) -> Bench:
    """The bench with a stand-in for nsys 2023.4 on PATH."""
    return Bench(tmp_path, injection).nsys()
