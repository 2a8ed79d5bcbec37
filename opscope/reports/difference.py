"""The difference of two runs as tables for the terminal, as JSON, and as Markdown for a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.analysis.diff.about import other_devices, runs
from opscope.core.analysis.diff.gate import Held
from opscope.core.analysis.diff.judged import FASTER, SAME, SLOWER, UNCLEAR
from opscope.core.analysis.diff.question import QUESTION
from opscope.core.analysis.diff.rankwise import CHANGES
from opscope.core.analysis.diff.reasons import reason, unchanged
from opscope.core.analysis.diff.tables import Difference
from opscope.core.analysis.diff.waited import COMMUNICATION, Waited
from opscope.core.question import units
from opscope.core.question.layout import Column, Table
from opscope.core.question.names import kernel
from opscope.core.question.tables import totals

from .files import fitting, schema
from .markdown import code, escape

if TYPE_CHECKING:
    from collections.abc import Callable

#: The tables, by the word that ``--table`` and ``by`` of ``profile.diff`` take, with their titles.
TITLES: Final = {
    "run": "What differs between the runs",
    "part": "What explains the difference of {one}",
    "op_sum": "Ops that changed, all shapes and layers of each together",
    "cause": "Where in the {unit}: parts by op",
    "op": "Ops that changed, by shape and layer",
    "kernel": "Ops for which other kernels work, on the same inputs",
    "rank": "Ranks: what became of a step of each, and why",
    "rank_step": "Each step of each rank",
    "op_total": "Ops, all that was recorded",
    "kernel_total": "Kernels, all that was recorded",
}
#: Tables with a row for each step of each rank: shown only on request.
_ASKED: Final = ("rank_step",)
#: Rows of a table that are written as JSON at a time.
_JSON_ROWS: Final = 50_000
#: The columns that the terminal shows.
SHOWN: Final = {
    "run": ("property", "value_a", "value_b"),
    "part": ("part", "a", "b", "change", "share", "noise", "verdict"),
    "cause": ("change", "verdict", "part", "op", "direction", "layer", "inputs", "a", "b", "noise", "share",
              "reason"),
    "op_sum": ("change", "share", "ratio", "verdict", "op", "direction", "a", "b", "calls_a", "calls_b",
               "noise", "shapes_a", "shapes_b", "flop_rate_a", "flop_rate_b", "byte_rate_a", "byte_rate_b",
               "reason"),
    "op": ("change", "ratio", "verdict", "work", "op", "direction", "layer", "inputs", "op_b", "layer_b",
           "inputs_b", "a", "b", "noise", "calls_a", "calls_b", "reason"),
    "kernel": ("change", "op", "direction", "layer", "inputs", "kernels_a", "kernels_b"),
    "rank": ("rank", "a", "b", "change", "work_change", "verdict", "cause", *CHANGES, "noise",
             "reason"),
    "rank_step": ("rank", "step_a", "step_b", "a", "b", "change", "work_change", "cause", *CHANGES,
                  "reason"),
    "op_total": ("change", "ratio", "op", "direction", "a", "b", "total_calls_a", "total_calls_b", "reason"),
    "kernel_total": ("change", "ratio", "name", "a", "b", "total_calls_a", "total_calls_b"),
}  # fmt: skip
_FRAMES: Final = {frame.call: frame for frame in QUESTION.frames}


def signed(write: Callable[[object], str]) -> Callable[[object], str]:
    """Return ``write`` with a plus sign before positive values."""

    def written(value: object) -> str:
        above = isinstance(value, (int, float)) and value > 0
        return f"+{write(value)}" if above else write(value)

    return written


_time, _share = signed(units.time), signed(units.share)


def _kernels(value: object) -> str:
    return "; ".join(kernel(name) for name in units.text(value).split("; "))


#: Text columns that only some rows fill; a narrow screen drops them first.
_FORMS: Final = (
    Column("a", "A", units.time),
    Column("b", "B", units.time),
    Column("value_a", "A", flexible=True),
    Column("value_b", "B", flexible=True),
    Column("change", "change", _time, rank=-1),
    Column("ratio", "by", _share),
    Column("share", "of change", units.share),
    Column("noise", "noise", units.time, rank=3),
    Column("verdict", ""),
    Column("work", "work", rank=4),
    Column("work_change", "own work", _time, rank=1),
    *(
        Column(name, name.removesuffix("_change").replace("_", " "), _time, rank=5)
        for name in CHANGES
    ),
    Column("total_calls_a", "calls A", units.count, rank=8),
    Column("total_calls_b", "calls B", units.count, rank=8),
    Column("step_a", "step in A"),
    Column("step_b", "step in B"),
    Column("name", "kernel", kernel, flexible=True, least=40, parts="words"),
    Column("calls_a", "calls A", units.ratio, rank=8),
    Column("calls_b", "calls B", units.ratio, rank=8),
    Column("shapes_a", "shapes A", units.count, rank=6),
    Column("shapes_b", "shapes B", units.count, rank=6),
    Column("flop_rate_a", "FLOP/s A", units.flop_rate, rank=7),
    Column("flop_rate_b", "FLOP/s B", units.flop_rate, rank=7),
    Column("byte_rate_a", "bytes/s A", units.bandwidth, rank=10),
    Column("byte_rate_b", "bytes/s B", units.bandwidth, rank=10),
    Column("op_b", "op in B", flexible=True, rank=9),
    Column("layer_b", "layer in B", flexible=True, cut="start", rank=9),
    Column("inputs_b", "inputs in B", flexible=True, parts="arguments", rank=7),
    Column("kernels_a", "kernels in A", _kernels, flexible=True, least=20),
    Column("kernels_b", "kernels in B", _kernels, flexible=True, least=20),
)


def frame(difference: Difference, by: str) -> pl.DataFrame:
    """Return a table of ``TITLES`` as a frame."""
    frame_by: pl.DataFrame
    if by == "run":
        return runs(difference.a.about, difference.b.about)
    frame_by = getattr(difference, f"{by}s")
    return frame_by


def headline(difference: Difference) -> str:
    """Return the change of the step time and its main cause; before that, whether the devices differ."""
    sides = other_devices(difference.a.about, difference.b.about)
    return f"{sides}. {_became(difference)}" if sides else _became(difference)


def _became(difference: Difference) -> str:
    row = difference.step.row(0, named=True)
    unit = row["unit"]
    if row["change"] is None:
        return f"The length of {units.with_article(unit)} is not known: {row['reason']}"
    if row["change"] == 0:
        said = f"{units.with_article(unit).capitalize()} takes {units.time(row['a'])} in both"
        changed = difference.ops.filter(~pl.col("verdict").is_in([SAME, UNCLEAR]).fill_null(False))
        if difference.lacks:
            return f"{said}; what changed in it is not known ({'; '.join(difference.lacks)})"
        return said + ("; nothing changed" if changed.is_empty() else "")
    by = "" if row["ratio"] is None else f" ({_share(row['ratio'])})"
    named = units.with_article(unit).capitalize()
    became = f"{named} took {units.time(row['a'])} and takes {units.time(row['b'])}"
    said = f"{became}: {_time(row['change'])}{by}"
    if row["noise"] is None:
        said += f"; {row['reason']}"
    elif row["verdict"] in (SAME, UNCLEAR):
        return said + f", which is within the noise of {units.time(row['noise'])}"
    if difference.lacks:
        return f"{said}. What explains it is not known ({'; '.join(difference.lacks)})"
    first = difference.parts.row(0, named=True)
    if first["a"] is None or first["b"] is None:
        return f"{said}. What explains it is not known ({first['part']}: {first['reason']})"
    said += f". Most of it: {first['part']}, {_time(first['change'])}"
    if first["part"] == COMMUNICATION and difference.waited is not None:
        return said + _waited(difference.waited)
    causes = difference.causes.filter(
        pl.col("part") == first["part"], pl.col("change") * first["change"] > 0
    )
    causes = causes.group_by("op", maintain_order=True).agg(pl.col("change").sum())
    most = causes.sort(pl.col("change").abs(), descending=True, maintain_order=True).head(1)
    explained = reason(difference)
    if explained is not None:
        part = f"{_time(explained.change)}, {units.share(explained.share)} of the difference"
        return f"{said}. Why: {explained.words}: {part}"
    if len(most) and most["op"][0] is not None:
        said += f" ({most['op'][0]}: {_time(most['change'][0])})"
    return said


def _waited(waited: Waited) -> str:
    """Return what ranks wait for, as the end of a sentence."""
    said = f", of which {_time(waited.change)} is waiting in collectives"
    if waited.rank is None:
        return f"{said} for other ranks"
    said += f" for rank {waited.rank}"
    if waited.part is None or waited.longer is None:
        return said
    than = "more" if waited.longer > 0 else "less"
    return f"{said}, whose own steps have {units.time(abs(waited.longer))} {than} of {waited.part}"


def tables(difference: Difference, names: tuple[str, str], top: int | None) -> list[Table]:
    """Return the tables for the terminal; ``names``: of the two profiles."""
    a, b = names
    head = Table(
        headline(difference), (Column("a", ""),), (), (f"A: {a}", f"B: {b}", *notes(difference))
    )
    tables_made = [head]
    for by in TITLES:
        if by in _ASKED:
            continue
        rows_shown = shown(difference, by)
        if by == "run" or len(rows_shown):
            tables_made.append(table(difference, by, rows_shown, top))
    return tables_made


def table(difference: Difference, by: str, table: pl.DataFrame, top: int | None) -> Table:
    """Return the rows of ``table`` as they are shown."""
    unit = difference.step["unit"][0]
    title = TITLES[by].format(unit=unit, one=units.with_article(unit))
    call = "diff(other)" if by == "part" else f'diff(other, "{by}")'
    keys = [key for key in SHOWN[by] if by == "run" or table[key].null_count() < len(table)]
    empty = "nothing that the profiles tell" if by == "run" else "nothing"
    top = None if by in ("run", "part") else top  # these tables are short, and their parts add up
    table_made = totals(title, table, keys or SHOWN[by], top, empty, _FRAMES[call].columns, _FORMS)
    rest = len(frame(difference, by)) - len(table)
    if by in ("op", "op_sum", "cause") and rest and difference.lacks:
        table_made = replace(
            table_made, footnotes=[*table_made.footnotes, f"{units.count(rest)} smaller changes"]
        )
    elif by in ("op", "op_sum", "cause") and rest:
        table_made = replace(
            table_made,
            footnotes=[
                *table_made.footnotes,
                f"{rest:,} other{'s' if rest > 1 else ''} did not change by more than the noise"
                + _too_few(frame(difference, by), table),
            ],
        )
    return table_made


def _too_few(every: pl.DataFrame, found: pl.DataFrame) -> str:
    """Return how many hidden rows have an unknown noise."""
    many = every["verdict"].null_count() - found["verdict"].null_count()
    if not many:
        return ""
    return f"; of {many:,} the noise is not known (too few steps), the change below 1 % of a step"


def shown(difference: Difference, by: str) -> pl.DataFrame:
    """Return the rows of a table that show a difference."""
    rows = frame(difference, by)
    if by == "run":
        return rows.filter(~pl.col("same").fill_null(False))
    if by == "part":
        there = (pl.col("a").fill_null(0) + pl.col("b").fill_null(0)) > 0
        return rows.filter(there) if (rows["change"] != 0).any() else rows.clear()
    if by in ("rank", "rank_step", "op_total", "kernel_total"):
        return rows if by.startswith("rank") else rows.filter(pl.col("change") != 0)
    if by == "kernel" or (by == "cause" and rows["op"].null_count() == len(rows)):
        return rows if by == "kernel" else rows.clear()  # without ops, this is the table of parts
    verdict = pl.col("verdict")
    step = difference.step["a"][0] or 0
    small = pl.col("change").abs() * 100 < (0 if difference.whole else step)
    return rows.filter(
        (verdict.is_null() & ~small) | ~verdict.is_in([SAME, UNCLEAR]).fill_null(True)
    )


def notes(difference: Difference) -> list[str]:
    """Return the notes on the comparison."""
    row = difference.step.row(0, named=True)
    said = [f"{lacks}: no verdict on parts and ops" for lacks in difference.lacks]
    if row["a"] is not None:
        said.append(
            f"means over {row['steps_a']:,} and {row['steps_b']:,} {row['unit']}s"
            if row["unit"] != "run"
            else f"whole runs, of {row['steps_a']:,} and {row['steps_b']:,} processes"
        )
    said += [
        f"{name}: {side.window}"
        for name, side in (("A", difference.a), ("B", difference.b))
        if side.window is not None
    ]
    same = None if difference.lacks else unchanged(difference)
    said += [] if same is None else [same]
    if difference.told is not None:
        said.append(difference.told)
    both = difference.parts.filter(pl.col("a").is_null() & pl.col("b").is_null())["part"].to_list()
    if both:
        said.append(f"not recorded in either: {', '.join(both)}")
    unknown = pl.col("a").is_null() | pl.col("b").is_null()
    one = difference.parts.filter(unknown & ~pl.col("part").is_in(both))
    said += [f"{part}: {reason}" for part, reason in one.select("part", "reason").iter_rows()]
    if difference.waited is not None:
        said.append(f"communication: {_waited(difference.waited).removeprefix(', ')}")
    said += _of_ranks(difference)
    merged = [name for name, side in (("A", difference.a), ("B", difference.b)) if side.merged]
    if merged:
        said.append(
            f"{' and '.join(merged)} {'are merged jobs' if len(merged) > 1 else 'is a merged job'}: which ops"
            " a step's parts are of is not known; the totals of ops and kernels are of all that was recorded"
        )
    return said


def _of_ranks(difference: Difference) -> list[str]:
    """Return how many ranks became slower, and which slowed down most."""
    rows = difference.ranks
    both = rows.filter(pl.col("change").is_not_null())
    if both.is_empty():
        return []
    judged = both.filter(pl.col("verdict").is_not_null())
    counts = ", ".join(
        f"{len(judged.filter(pl.col('verdict') == word)):,} {word}" for word in (SLOWER, FASTER)
    )
    of = "own work" if both["work_change"].is_not_null().any() else "steps"
    said = [f"ranks by their {of}: {counts}, of {len(both):,} that both have"]
    slower = judged.filter(pl.col("verdict") == SLOWER).head(1)
    if len(slower) and slower["rank"][0] is not None:
        row = slower.row(0, named=True)
        more = row["change"] if row["work_change"] is None else row["work_change"]
        cause = row["cause"].replace("_", " ")
        said.append(f"rank {row['rank']} became slower most: {_time(more)} a step, mostly {cause}")
    lone = rows.filter(pl.col("change").is_null())
    if len(lone):
        is_are = "is" if len(lone) == 1 else "are"
        said.append(f"{units.counted(len(lone), 'rank')} {is_are} in one of the runs alone")
    return said


def small_json(
    difference: Difference, names: tuple[str, str], verdicts: Sequence[Held], top: int | None
) -> str:
    """Return ``as_json`` in at most ``files.SMALL`` bytes: the first rows of each table, and which tables
    were cut."""
    return fitting(lambda rows: "".join(as_json(difference, names, verdicts, rows)), top)


def as_json(
    difference: Difference,
    names: tuple[str, str],
    verdicts: Sequence[Held],
    top: int | None = None,
) -> Iterator[str]:
    """Yield everything as JSON, in pieces: times in ns, unknown values null, one line per row of a table.

    It comes in pieces because the ops of a million distinct calls take 0.4 GB. ``top``: rows of each table;
    ``cut`` gives the number of rows of tables that have more.
    """
    tables = {by: frame(difference, by) for by in TITLES}
    cut = {
        f"{by}s": len(rows) for by, rows in tables.items() if top is not None and len(rows) > top
    }
    about = {
        **schema("diff"),
        "a": names[0],
        "b": names[1],
        "headline": headline(difference),
        "step": difference.step.row(0, named=True),
        "notes": notes(difference),
        "limits": [_limit(verdict) for verdict in verdicts],
        **({} if top is None else {"cut": cut}),
    }
    yield json.dumps(about, ensure_ascii=False, allow_nan=False, indent=2).removesuffix("\n}")
    for by in TITLES:
        between = f',\n  "{by}s": [\n'
        rows = tables.pop(by)
        for piece in (rows if top is None else rows.head(top)).iter_slices(_JSON_ROWS):
            yield between + piece.write_ndjson().rstrip("\n").replace("\n", ",\n")
            between = ",\n"
        yield "\n  ]" if between == ",\n" else f"{between}  ]"
    yield "\n}\n"


def _limit(verdict: Held) -> dict[str, object]:
    return {
        "limit": verdict.limit,
        "exceeded": verdict.failed,
        "judged": verdict.judged,
        "change": verdict.change,
        "said": verdict.said,
    }


def markdown(
    difference: Difference, names: tuple[str, str], verdicts: Sequence[Held], top: int | None
) -> str:
    """Return the difference for a pull request: a small table, and the details folded below it."""
    lines = [f"**{escape(headline(difference))}**", ""]
    lines += [f"- {_outcome(verdict)}: {escape(verdict.said)}" for verdict in verdicts]
    lines += [""] if verdicts else []
    parts = shown(difference, "part")
    if len(parts):
        lines += _rows(table(difference, "part", parts, None))
    for by in ("run", "op_sum", "cause", "op", "kernel", "rank", "op_total", "kernel_total"):
        rows = shown(difference, by)
        if len(rows):
            table_made = table(difference, by, rows, top)
            lines += [
                "",
                f"<details><summary>{table_made.title}</summary>",
                "",
                *_rows(table_made),
                "",
            ]
            lines += [*(f"{escape(note)}  " for note in table_made.footnotes), "", "</details>"]
    footer = [f"A: {names[0]}", f"B: {names[1]}", *notes(difference)]
    lines += ["", f"<sub>{escape('; '.join(footer))}</sub>"]
    return "\n".join(lines)


def _outcome(verdict: Held) -> str:
    return "**exceeded**" if verdict.failed else "kept" if verdict.judged else "**cannot tell**"


def _rows(table: Table) -> list[str]:
    """Return the lines of a Markdown table; texts from the profile are formatted as code."""
    heads = " | ".join(column.title for column in table.columns)
    right = " | ".join("---" if _is_text(column) else "---:" for column in table.columns)
    lines = [f"| {heads} |", f"| {right} |"]
    for row in table.rows:
        cells = []
        for column in table.columns:
            value = row.get(column.key)
            written = column.show(value)
            plain = value is None or column.key in _OWN or not isinstance(value, str)
            cells.append(escape(written) if plain else code(written))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


#: Columns that contain only opscope's own words.
_OWN: Final = frozenset({"part", "verdict", "work", "direction", "property", "matched", "cause"})


def _is_text(column: Column) -> bool:
    return column.flexible or column.show is units.text
