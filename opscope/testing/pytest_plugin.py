"""The pytest plug-in: the fixture ``opscope``, its options, and what it reports. It imports pytest alone.

Everything else is imported when a test asks for the fixture.
"""

from __future__ import annotations

import pytest

from . import CURRENT, PREFIX

# Imports for type checkers only: a run of pytest that never asks for the fixture pays for none of them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .gauge import Gauge


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add opscope's options."""
    group = parser.getgroup("opscope", "performance as a test (opscope)")
    group.addoption(
        "--opscope-update",
        action="store_true",
        help="write the stored expectations (*.opscope.toml) from what is measured now",
    )
    group.addoption(
        "--opscope-summary",
        metavar="FILE",
        help="append a summary in Markdown to this file, such as $GITHUB_STEP_SUMMARY",
    )
    group.addoption(
        "--opscope-keep",
        metavar="FOLDER",
        help="keep the profile of each measurement in this folder, for opscope diff and opscope view",
    )
    parser.addini(
        "opscope_unknown",
        "what becomes of a test that asks for a count that cannot be known here: fail or skip",
        default="fail",
    )
    parser.addini(
        "opscope_frameworks",
        "the frameworks to observe, where not all that are imported",
        type="args",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin with no test, and no reports."""
    config.stash[CURRENT] = None
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist sends its reports on
        config.pluginmanager.register(Reports(config), "opscope-reports")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the test whose file stored expectations lie beside."""
    item.config.stash[CURRENT] = item


@pytest.fixture(scope="session")  # type: ignore[untyped-decorator]
def opscope(request: pytest.FixtureRequest) -> Iterator[Gauge]:
    """Measure blocks of the program: ``with opscope.measure() as m: step()``, then assert on ``m.ops`` …

    It can be used by fixtures of every scope.
    """
    from .gauge import Gauge  # lazy: most runs of pytest ask for no fixture of ours

    with Gauge(request.config) as gauge:
        yield gauge


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Show what a count consists of where an assertion on it fails."""
    for side in (left, right):
        explain = getattr(type(side), "opscope_explain", None)
        if explain is not None:
            lines: list[str] = explain(side, op, left, right)
            return lines
    return None


class Reports:
    """What tests measured: names, outcomes, properties; under pytest-xdist of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._measured: list[tuple[str, str, list[tuple[str, object]]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test measured."""
        if report.when != "call" and (report.when != "setup" or report.outcome == "passed"):
            return
        mine = [pair for pair in report.user_properties if str(pair[0]).startswith(PREFIX)]
        if mine:
            self._measured.append((report.nodeid, report.outcome, mine))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which expectations were written or missed, and write the summary in Markdown."""
        if not self._measured:
            return
        from .summary import summarise  # lazy: nothing was measured

        summarise(self._measured, terminalreporter, self._config.getoption("--opscope-summary"))
