"""The trend of baselines as one page that loads nothing: a curve of the step, its changes, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

import polars as pl

from opscope.core.question import units

from .trend import Change

_WIDTH, _HEIGHT, _EDGE = 900, 260, 40
_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em }
table { border-collapse: collapse; width: 100% }
th, td { padding: .3em .6em; text-align: right; border-bottom: 1px solid #8885 }
th:first-child, td:first-child, td.text { text-align: left }
svg { width: 100%; height: auto }
text { font-size: 12px; fill: currentColor }
.line { fill: none; stroke: #3572c6; stroke-width: 2 }
.dot { fill: #3572c6 }
.change { stroke: #c2453d; stroke-width: 1.5; stroke-dasharray: 5 4 }
"""
_HEADS: Final = (
    "baseline", "commit", "saved", "runs", "steps", "step", "change", "ops a step", "FLOPs a step", "ranks",
    "spread", "late rank", "",
)  # fmt: skip


def page(rows: pl.DataFrame, changes: Sequence[Change], unit: str) -> str:
    """Return the HTML of ``trend``'s rows and changes; ``unit``: what the times are means over, such as a
    step."""
    names = rows["baseline"].to_list()
    said = [
        f"<li><strong>{escape(names[change.first])}</strong>: {escape(in_words(change, unit))}</li>"
        for change in changes
    ]
    words = (
        f"<ul>{''.join(said)}</ul>" if said else "<p>No change beyond the noise of the runs.</p>"
    )
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    body = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in rows.iter_rows(named=True))
    title = f"{units.with_article(unit).capitalize()} of {len(names):,} baselines"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>opscope: trend</title><style>{_STYLE}</style><h1>{escape(title)}</h1>"
        f"{words}{_curve(rows, changes)}{table}</html>\n"
    )


def in_words(change: Change, unit: str) -> str:
    """Return a change as a sentence."""
    before, after = (units.time(round(time)) for time in (change.before, change.after))
    ratio = f" ({change.after / change.before - 1:+.1%})" if change.before else ""
    became = f"{units.with_article(unit)} took {before} before and takes {after}{ratio}"
    sure = f"beyond the noise of its {unit}s"
    if change.chance is not None:
        sure = f"which runs without a change show in {units.share(change.chance)} of sequences"
    return f"{became}, {sure}. Against the baseline before it alone: {change.why}"


def _cells(row: dict[str, Any]) -> Iterator[str]:
    for name in ("baseline", "commit", "saved"):
        yield f'<td class="text">{escape(row[name] or "–")}</td>'
    ratio = "–" if row["ratio"] is None else f"{row['ratio']:+.1%}"
    flops = "–" if row["flops"] is None else f"{row['flops']:,.4g}"
    ops = "–" if row["ops"] is None else f"{row['ops']:,.4g}"
    for text in (
        f"{row['runs']:,}",
        f"{row['steps']:,}",
        units.time(row["step"]),
        ratio,
        ops,
        flops,
        units.count(row["ranks"]),
        units.time(row["spread"]),
        units.count(row["late"]),
    ):
        yield f"<td>{escape(text)}</td>"
    yield f'<td class="text">{escape(row["change"] or "")}</td>'


def _curve(rows: pl.DataFrame, changes: Sequence[Change]) -> str:
    steps, names = rows["step"].to_list(), rows["baseline"].to_list()
    most = max(steps, default=0) or 1
    width = (_WIDTH - 2 * _EDGE) / max(len(steps) - 1, 1)

    def at(number: float, step: float) -> str:
        return f"{_EDGE + number * width:.1f},{_HEIGHT - _EDGE - step / most * (_HEIGHT - 2 * _EDGE):.1f}"

    line = " ".join(at(number, step) for number, step in enumerate(steps))
    dots = ""
    for number, step in enumerate(steps):
        x, y = at(number, step).split(",")
        label = escape(f"{names[number]}: {units.time(step)}")
        dots += f'<circle class="dot" r="4" cx="{x}" cy="{y}"><title>{label}</title></circle>'
    marks = ""
    for change in changes:
        x = at(change.first - 0.5, 0).split(",")[0]
        label = f"{change.after / change.before - 1:+.1%}" if change.before else ""
        marks += f'<line class="change" x1="{x}" x2="{x}" y1="{_EDGE / 2}" y2="{_HEIGHT - _EDGE}"/>'
        marks += f'<text x="{x}" y="14" text-anchor="middle">{escape(label)}</text>'
    scale = f'<text x="4" y="{_EDGE - 6}">{escape(units.time(most))}</text>'
    scale += f'<text x="4" y="{_HEIGHT - _EDGE}">0</text>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="mean step of each baseline">{marks}'
        f'<polyline class="line" points="{line}"/>{dots}{scale}</svg>'
    )
