"""What the tests of engines share: a job of unlike ranks, and its profile without an engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import opscope
from tests.scale import jobs

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    # workers import the tests' writers by name; at the end, so that an installed opscope stays the one that runs
    sys.path.append(str(ROOT))


@pytest.fixture(scope="session")
def real() -> Path | None:
    """The folder of real traces; None where there are none."""
    folder = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def job(tmp_path_factory, real) -> list[Path]:
    return jobs.ranks(tmp_path_factory.mktemp("job"), 9, real)


@pytest.fixture(scope="session")
def serial(job, tmp_path_factory):
    """The job's profile, of partials that were made one after the other in this process."""
    return opscope.load(job, parts=tmp_path_factory.mktemp("serial") / "parts", unrelated=True)


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """Make a piece of each partial, as the rows of many ranks come in pieces."""
    monkeypatch.setattr("opscope.scale.joined.BATCH", 1)
    for user in (
        "core.tables.narrow",
        "core.tables.gathered",
        "core.analysis.ranks.collective_faults",
    ):
        monkeypatch.setattr(f"opscope.{user}.MOST", 1)
