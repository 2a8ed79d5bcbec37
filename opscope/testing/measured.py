"""What a block did: its counts as attributes, and checks that the counts are as stored or the block is
faster than another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import polars as pl
import pytest

from opscope import profile as profiles
from opscope.core.advice.counts import UNITS, dtypes_of_ops
from opscope.core.analysis.diff.calls import Called, called
from opscope.core.analysis.diff.faster import Faster, faster
from opscope.core.question import units

from .expected import check
from .figures import NAMES, Count, Names, Unknown, names_of

if TYPE_CHECKING:
    from .gauge import Gauge

_NOT_OVER: Final = "the block that is measured is not over: ask after it"
_NOTHING: Final = (
    "nothing was recorded here: what runs the tests (opscope run, Nsight Systems) records, or the disk"
    " is full"
)


class Measured:
    """A measured block.

    Each count of ``profile.counts()`` is an attribute: ``m.ops``, ``m.flops``, ``m.bytes``, ``m.kernels``,
    ``m.reads`` and so on; ``m.dtypes`` is a set of names. If a count cannot be known here, comparing it fails
    or skips the test, with the reason. ``m.profile`` answers every other question.
    """

    def __init__(self, path: Path, refuse: Callable[[str], NoReturn], gauge: Gauge) -> None:
        self.path, self.over = path, False
        self.refuse, self._gauge = refuse, gauge

    @cached_property
    def profile(self) -> profiles.Profile:
        """The block's profile. Raises RuntimeError while it runs; ends the test if nothing recorded it."""
        if not self.over:
            raise RuntimeError(_NOT_OVER)
        if not self.path.exists():
            self.refuse(_NOTHING)
        return profiles.load(self.path)

    @cached_property
    def counts(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows of ``profile.counts()`` by name: ``value``, ``unit``, ``detail``, ``reason``."""
        return {row["count"]: row for row in self.profile.counts().iter_rows(named=True)}

    @cached_property
    def calls(self) -> Mapping[str, Called]:
        """How often each op was called, by op, direction and layer."""
        return called(self.profile.op_totals())

    def __getattr__(self, name: str) -> Count | Names | Unknown:
        if name.startswith("_") or name not in UNITS:
            names = ", ".join(sorted(UNITS))
            raise AttributeError(f"a measurement has no {name!r}; it has {names}")
        return self._figure(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *UNITS})

    def _figure(self, name: str) -> Count | Names | Unknown:
        row = self.counts[name]
        if row["value"] is None:
            return Unknown(name, row["reason"], self.refuse)
        if name in NAMES:
            return Names(names_of(row), self.where)
        return Count(row["value"], name, row["detail"], self._most)

    def is_known(self, name: str) -> bool:
        """Whether the count can be known here. Raises KeyError for another name."""
        return self.counts[name]["value"] is not None

    def check(self, name: str | None = None, *, ignore: Iterable[str] = ()) -> None:
        """Compare all counts with those stored in ``NAME.opscope.toml`` beside the test, and fail if any
        differs by more than its tolerance; with ``--opscope-update`` write them.

        ``name``: by default the name of the test. ``ignore``: counts that are neither written nor compared.
        """
        check(self, self._gauge, name, frozenset(ignore))

    def faster_than(self, other: Measured, by: float = 1.0) -> Faster:
        """Fail the test unless a step here is more than ``by`` times as fast as a step of ``other``, beyond
        the noise of both; return the ratio. Measure both in the same run.

        Both must have several steps: measure with ``opscope.repeat(step)``, or mark steps. Raises ValueError
        for ``by`` of 0 or less.
        """
        if not by > 0:
            raise ValueError(f"by must be more than 0, not {by}")
        ends = [side.profile._reducing() for side in (other, self)]
        verdict = faster(ends[0](), ends[1](), by)
        if verdict.proven is None:
            self.refuse(f"whether it is faster cannot be known here: {verdict.said}")
        shares = [side.profile.summary()["own_steps_share"][0] for side in (other, self)]
        own = " and ".join(units.share(share) for share in shares)
        properties = self._gauge.test.user_properties
        properties.append(("opscope.faster_than", verdict.said))
        if not verdict:
            pytest.fail(f"{verdict.said}; opscope itself took {own} of the steps", pytrace=False)
        return verdict

    def _most(self) -> list[str]:
        """Return a line for each op that is called most, with its layers and lines."""
        order = sorted(self.calls.items(), key=lambda pair: (-pair[1].calls, pair[0]))
        return [
            f"{units.counted(op.calls, 'call')} of {key}"
            + (f" ({op.lines[0]})" if op.lines else "")
            for key, op in order
        ]

    def heaviest(self) -> list[str]:
        """Return a line on the op with the most FLOPs, its inputs and source line; none if unknown."""
        totals = self.profile.op_totals().filter(pl.col("flops") > 0)
        for op, inputs, layer, source in (
            totals.sort("flops", descending=True)
            .select("op", "inputs", "layer", "source")
            .head(1)
            .rows()
        ):
            place = ", ".join(
                filter(None, (layer, None if source is None else source.split(" < ")[0]))
            )
            said = "no op is called otherwise; which has other inputs is not stored, most FLOPs has"
            return [f"{said} {op}({inputs}) ({place})"]
        return []

    def where(self, names: Iterable[str]) -> list[str]:
        """Return a line for each dtype, which says which op has it first, and where."""
        totals = self.profile.op_totals()
        lines = []
        for name in names:
            mine = totals.filter(dtypes_of_ops().list.contains(name))
            for op, layer, source in mine.select("op", "layer", "source").head(1).rows():
                line = None if source is None else source.split(" < ")[0]
                lines.append(f"{name}: {', '.join(filter(None, (op, layer, line)))}")
        return lines
