"""The fixture ``opscope``: it measures blocks of the program, and keeps their profiles."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pytest

import opscope as package
from opscope import adapters
from opscope.callbacks.stepping import Stepping

from . import CURRENT
from .figures import file_name, refusal
from .measured import Measured

if TYPE_CHECKING:
    from typing_extensions import Self

    from .expected import Expected


class Gauge:
    """Measures blocks, ``with opscope.measure() as m``, or many steps, ``opscope.repeat(step)``.

    From the first use on every framework that is imported is observed (``opscope.init(memory=True)``), unless
    the program has called ``opscope.init`` itself; at the end of the session all hooks are removed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._refuse = refusal(config.getini("opscope_unknown"))
        self._folder = Path(tempfile.mkdtemp(prefix="opscope-"))
        self._ours = not adapters.chosen()
        self._measures = 0
        #: The facts that this session wrote, by file and section: two tests must not write different ones.
        self._updates: dict[tuple[Path, str], Expected] = {}

    def __enter__(self) -> Self:
        if self._ours:
            frameworks = self._config.getini("opscope_frameworks") or None
            package.init(frameworks, memory=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._ours:
            package.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def measure(self, *, backend: str = "auto") -> Iterator[Measured]:
        """Measure the block; the result is known when the block has ended.

        ``backend``: as for ``opscope.capture``. Raises opscope.errors.SessionError inside another
        measurement, or while anything else records.
        """
        self._measures += 1
        path = self._place() / f"{self._name()}-{self._measures}.opscope"
        measured = Measured(path, self._refuse, self)
        with package.capture(path, backend=backend, force=True):
            yield measured
        measured.over = True

    def repeat(
        self,
        step: Callable[[], object],
        times: int = 20,
        warm: int = 3,
        *,
        backend: str = "auto",
    ) -> Measured:
        """Call ``step`` ``warm`` times, then ``times`` times measured, each call a step.

        Counts are of all ``times`` calls. Raises ValueError for ``times`` below 1.
        """
        if times < 1:
            raise ValueError(f"times must be 1 or more, not {times}")
        for _ in range(warm):
            step()
        with self.measure(backend=backend) as measured:
            steps = Stepping()
            steps.begin()
            try:
                for _ in range(times):
                    steps.step_begins()
                    step()
            finally:
                steps.end()
        return measured

    @property
    def test(self) -> pytest.Item:
        """The test that runs now. Raises RuntimeError between tests."""
        item = self._config.stash[CURRENT]
        if item is None:
            raise RuntimeError("no test runs")
        return item

    @property
    def updates(self) -> bool:
        """Whether stored expectations are to be written from what is measured."""
        return bool(self._config.getoption("--opscope-update"))

    def claim(self, path: Path, section: str, facts: Expected) -> None:
        """Fail the test if another of this session wrote other facts into this section of the file."""
        other = self._updates.setdefault((path, section), facts)
        if other != facts:
            pytest.fail(
                f"{path.name}: another test wrote other facts as [{section}]: give each its own name"
                " (a parametrised test: m.check() without a name, which is then the test's)",
                pytrace=False,
            )

    def _place(self) -> Path:
        keep = self._config.getoption("--opscope-keep")
        if keep is None:
            return self._folder
        return Path(self._config.invocation_params.dir, keep)

    def _name(self) -> str:
        item = self._config.stash[CURRENT]
        return "session" if item is None else file_name(item.name)
