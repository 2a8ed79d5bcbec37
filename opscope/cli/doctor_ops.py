"""``opscope doctor --ops``: the ops whose cost opscope computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opscope.core.perf.registry import entries
from opscope.core.question.forms import columns
from opscope.core.question.layout import Table


def models() -> list[dict[str, object]]:
    """Return a row for each op."""
    return [
        {"name": entry.name, "family": entry.family, "source": " ".join(entry.source.split())}
        for entry in sorted(entries().values(), key=lambda e: (e.family, e.name))
    ]


def table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Return the table of the rows."""
    modelled = sum(not str(row["source"]).startswith("null: ") for row in rows)
    title = f"{modelled} ops with a cost model"
    if modelled < len(rows):
        title += f", {len(rows) - modelled} whose cost cannot be computed from a call"
    return Table(title, columns(["name", "family", "source"]), rows)
