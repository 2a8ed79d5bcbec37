"""``opscope doctor --ops``: the ops whose cost opscope computes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

import opscope.core.perf as package
from opscope.core.perf.registry import entries
from opscope.core.question.forms import columns
from opscope.core.question.layout import Table


def models() -> list[dict[str, object]]:
    """Return a row for each op; importing a module of cost models registers them."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [
        {"name": entry.name, "family": entry.family, "source": " ".join(entry.source.split())}
        for entry in sorted(entries().values(), key=lambda e: (e.family, e.name))
    ]


def table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Return the table of the rows."""
    many = sum(not str(row["source"]).startswith("null: ") for row in rows)
    title = f"{many} ops with a cost model"
    if many < len(rows):
        title += f", {len(rows) - many} whose cost cannot be computed from a call"
    return Table(title, columns(["name", "family", "source"]), rows)
