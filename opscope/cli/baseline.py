"""``opscope baseline``: keep runs small, by name, and compare with them: save, list, compare, trend."""

from __future__ import annotations

import json as json_text
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import common, options
from .progress_bar import with_bar

if TYPE_CHECKING:
    import polars as pl

baseline = typer.Typer(
    help="Keep runs small, by name, in a folder to commit, and compare with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the baseline.", show_default=False)
]


@baseline.command("save")
@with_bar
def save(
    name: Name,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Profiles or traces, each a run of the program; a pattern in quotes is the ranks of one.",
            show_default=False,
        ),
    ],
    baselines: options.Baselines = options.BASELINES,
    commit: Annotated[
        str | None,
        typer.Option(
            "--commit", help="The commit that ran.  [that of this folder]", show_default=False
        ),
    ] = None,
    gpu: options.Gpu = None,
) -> None:
    """Add runs to a baseline. A small file has what a comparison needs of each run.

    From five runs on, the noise of a comparison is how runs differ; with fewer, how their steps differ.
    """
    from opscope.baselines import folder

    made_of = folder.commit_here() if commit is None else commit
    for file in files:
        profile = common.load([file], gpu)
        try:
            kept, new, size = folder.save(baselines, name, profile, common.base_name(file), made_of)
        except ValueError as error:
            common.fail(str(error))
        common.say(f"{'wrote' if new else 'there already:'} {baselines}/{kept} ({size:,} bytes)")


@baseline.command("list")
def list_(
    baselines: options.Baselines = options.BASELINES,
    json: options.Json = False,
    csv: options.Csv = False,
    width: options.Width = None,
) -> None:
    """List the baselines of a folder, the oldest first."""
    from opscope.baselines import folder
    from opscope.baselines.trend import trend

    rows, _ = trend(folder.open_all(baselines))
    _show(rows.drop("ratio", "change"), "Baselines", json, csv, width)


@baseline.command("compare")
def compare(
    name: Name,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", help="Another baseline, or a profile or trace.", show_default=False
        ),
    ],
    baselines: options.Baselines = options.BASELINES,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", metavar="LIMIT", help="As of opscope diff.", show_default=False),
    ] = None,
    top: options.Top = None,
    csv: options.Csv = False,
    json: options.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    width: options.Width = None,
) -> None:
    """Say why a baseline and another one, or a run, differ.

    Exit codes are those of opscope diff.
    """
    from opscope.baselines import folder
    from opscope.core.analysis.diff.tables import Difference
    from opscope.core.analysis.diff.tables import compare as difference

    from . import diff

    asked = diff.Options(
        a=other, against=name, baselines=baselines, fail_on=fail_on, top=top, csv=csv, json=json,
        markdown=markdown, width=width,
    )  # fmt: skip
    if other not in folder.files_of(baselines):
        names = name, common.base_name(other)
        diff.tell(asked, names, lambda: diff.difference_of(asked))
        return

    def compared() -> Difference:
        sides = [folder.open_baseline(baselines, each) for each in (name, other)]
        return difference(*(partial(folder.reducing, side) for side in sides))

    diff.tell(asked, (name, other), compared)


@baseline.command("trend")
def trend(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="Baselines in their order.  [all, the oldest first]",
            show_default=False,
        ),
    ] = None,
    baselines: options.Baselines = options.BASELINES,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with a curve.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
    csv: options.Csv = False,
    width: options.Width = None,
) -> None:
    """Show how the step changed from baseline to baseline. A change is one beyond the noise."""
    from opscope.baselines import folder, page
    from opscope.baselines.trend import trend as made

    series = folder.open_all(baselines, names or ())
    rows, changes = made(series)
    unit = series[0].reduced.unit if series else "step"
    if html is not None:
        try:
            Path(html).write_text(page.page(rows, changes, unit), "utf-8")
        except OSError as error:
            common.fail(f"{html}: {error.strerror or error}")
        common.say(f"wrote {html}")
    said = [f"{rows['baseline'][each.first]}: {page.in_words(each, unit)}" for each in changes]
    _show(rows, f"Means of {unit}s", json, csv, width, said)


def _show(
    rows: pl.DataFrame,
    title: str,
    json: bool,
    csv: bool,
    width: int | None,
    said: list[str] | None = None,
) -> None:
    from opscope.core.question import units
    from opscope.core.question.layout import Column, Table

    common.one_form(csv, json)
    if json:
        document = {"baselines": rows.to_dicts()} | ({} if said is None else {"changes": said})
        common.emit(json_text.dumps(document, ensure_ascii=False, indent=2))
        return
    if csv:
        common.raw(rows, True, None)
        return
    shows = {"runs": units.count, "steps": units.count, "step": units.time, "ratio": units.share,
             "ops": units.ratio, "flops": units.ratio, "ranks": units.count, "spread": units.time,
             "late": units.count}  # fmt: skip
    columns = tuple(
        Column(name, {"ops": "ops a step", "flops": "FLOPs a step", "ratio": "by",
                      "spread": "spread of ranks", "late": "late rank"}.get(name, name),
               shows.get(name, units.text))
        for name in rows.columns
    )  # fmt: skip
    sentences = () if said is None else said or ["no change beyond the noise of the runs"]
    common.show([Table(title, columns, rows.to_dicts(), sentences=sentences)], width)
