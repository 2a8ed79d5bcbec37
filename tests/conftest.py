"""Fixtures that every test may use."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tests.draws  # noqa: F401  the profile of property tests
from tests.full_run import COLLECTED, Collected, gone, left_out, parts

pytest.register_assert_rewrite("tests.keras_runs")
# workers of xdist have the width of the terminal here, which commands take for that of a pipe
os.environ.pop("COLUMNS", None)

ROOT = Path(__file__).resolve().parents[1]
TRACES = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"


def group_of(item: pytest.Item) -> str:
    """What keeps tests in one worker: the real trace that the test is given by name, else its file."""
    given = getattr(item, "callspec", None)
    for value in () if given is None else given.params.values():
        if isinstance(value, str) and "/" in value and os.path.exists(TRACES / value):
            return value
    return item.nodeid.split("::")[0]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """Let a worker have all tests of a trace, or of a file (``--dist loadgroup``); leave out the full run's."""
    # who chooses tests (FILE::TEST, -k, --lf) has those run
    chosen = config.option.keyword or getattr(config.option, "lf", False)
    if os.environ.get("OPSCOPE_TESTS") != "full" and not chosen:
        named = tuple(
            os.path.relpath(config.invocation_params.dir / argument, config.rootpath)
            for argument in config.args
            if "::" in argument
        )
        nodes = [item.nodeid for item in items]
        rare = {node for node in left_out(nodes, parts()) if not node.startswith(named)}
        config.stash[COLLECTED] = Collected(len(nodes), len(rare), gone(nodes, parts()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in rare])
        items[:] = [item for item in items if item.nodeid not in rare]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces; skips if it is absent (the project may not ship them)."""
    if not TRACES.is_dir():
        pytest.skip(f"no real traces at {TRACES} (set OPSCOPE_SHARED)")
    return TRACES


@pytest.fixture(scope="session", autouse=True)
def _shared_profiles_stay_as_they_are():
    """No test changes a profile that others are given (``tests.traces.load``)."""
    yield
    from tests import traces

    traces.SHELF.check()


@pytest.fixture(autouse=True)
def _no_test_leaves_steps_to_the_user():
    """A test that calls ``opscope.step`` does not stop adapters from counting steps in the tests after it."""
    from opscope.core.capture import session

    before = session.steps_by_user
    yield
    session.steps_by_user = before


@pytest.fixture
def fresh_steps(monkeypatch):
    """Step numbers begin at 0; the first part that counts steps becomes the one that does."""
    from opscope.core.capture import session

    monkeypatch.setattr(session, "_steps", session._Steps())
    monkeypatch.setattr(session, "steps_by_user", False)


@pytest.fixture
def unobserved(fresh_steps):
    """Step numbers begin at 0; after the test, opscope is shut down."""
    import opscope

    yield
    opscope.shutdown()


@pytest.fixture
def bound_by_modes():
    """A ``preexec_fn`` that makes a child process obey the modes of folders, even as root.

    Root may write everywhere; the child drops that right (CAP_DAC_OVERRIDE), and stays root otherwise.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("prctl exists on Linux only")
    drop, override = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    libc = ctypes.CDLL(None, use_errno=True)

    def give_up():
        if os.geteuid() == 0 and libc.prctl(drop, override, 0, 0, 0):
            os._exit(77)

    if subprocess.run(["true"], preexec_fn=give_up, check=False).returncode == 77:
        pytest.skip("root may write everywhere here, and cannot drop that right")
    return give_up


@pytest.fixture(scope="session")
def trace_of():
    """A function that makes a trace of lists of rows: ``trace_of(ranges=[{...}], kernels=[{...}])``."""
    import polars as pl

    from opscope.core.tables.trace import Trace, table_schema

    def build(origin: dict | None = None, **tables: list[dict]) -> Trace:
        frames = {}
        for name, rows in tables.items():
            schema = table_schema(name)
            columns = {key: schema[key] for row in rows for key in row}
            filled = [{key: row.get(key) for key in columns} for row in rows]
            frames[name] = pl.DataFrame(filled, schema=columns or schema)
        if "ranges" in frames and "id" not in frames["ranges"].columns:
            ids = pl.Series("id", range(len(frames["ranges"])), dtype=pl.Int64)
            frames["ranges"] = frames["ranges"].with_columns(ids)
        return Trace.of(frames, origin)

    return build


@pytest.fixture
def gpus(monkeypatch):
    """PyTorch with two simulated GPUs and CUDA not initialised, so that its lazy initialisation runs."""
    torch = pytest.importorskip("torch")
    from tests.lazy_cuda.cuda_driver import Driver

    driver = Driver()
    driver.install(torch, lambda *what: monkeypatch.setattr(*what, raising=False))
    return driver
