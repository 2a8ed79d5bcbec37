"""``opscope counters``: list hardware counters by kernel and op, or of each kernel execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

_TOTALS = "name,op,counter,counted_kernels,counted,mean_count,least_count,most_count"
_EACH = "start,duration,device,stream,name,op_stack,layer,step"
#: The counters in a table of executions: those with the greatest sums.
_SHOWN = 3
Roofline = Annotated[
    bool,
    declared.Option("--roofline", help="The measured roofline beside the model's, by op."),
]
Hta = Annotated[
    bool,
    declared.Option(
        "--hta", help="With --each: the columns of Holistic Trace Analysis, and its times in µs."
    ),
]
Search = Annotated[
    str | None,
    declared.Option(
        "--search",
        help="Only counters that have this text in their name, in any case.",
        metavar="TEXT",
        show_default=False,
    ),
]


@options.spread
def counters(
    file: options.Files,
    ncu: options.CountersFile = None,
    sort: options.Sort = "",
    top: options.Top = None,
    each: options.Each = False,
    roofline: Roofline = False,
    hta: Hta = False,
    search: Search = None,
    columns: options.Chosen = None,
    csv: options.Csv = False,
    json: options.Json = False,
    *,
    where: options.Where,
    reading: options.Reading,
    width: options.Width = None,
) -> None:
    """List hardware counters by kernel and op, in the order of the first launch.

    With --each every kernel execution is a row, with the ops around its launch and a column per counter.
    """
    common.one_form(csv, json)
    if hta and not each:
        common.fail("--hta needs --each: Holistic Trace Analysis has one row per kernel execution")
    if roofline and (each or search):
        common.fail("--roofline cannot be combined with --each or --search")
    profile = where.select(reading.load(file, counters=ncu))
    if roofline and not (csv or json or columns or sort):
        from opscope.reports import console

        rows = common.rows(top)
        common.show(console.tables(profile, ["counter_roofline"], rows), width)
        return
    frame, shown, title = _frame(profile, each, roofline, hta, search)
    _write(profile, frame, shown, title, sort, top, columns, csv, json, width)


def _frame(
    profile: Profile, each: bool, roofline: bool, hta: bool, search: str | None
) -> tuple[pl.DataFrame, list[str], str]:
    """Return the frame, the columns to show of it, and the table's title."""
    if roofline:
        frame = profile.counter_roofline()
        return frame, frame.columns, "Roofline measured and modelled"
    if not each:
        totals = profile.counter_totals()
        if search is not None:
            named = totals["counter"].str.to_lowercase().str.contains(search.lower(), literal=True)
            totals = totals.filter(named)
        return totals, _TOTALS.split(","), "Hardware counters"
    from opscope.core.analysis.roofline.counters import COLUMNS  # loads Polars

    frame = profile.counters(names="hta" if hta else "opscope")
    listed = {*COLUMNS, "cat", "pid", "ts", "dur", "top_level_op", "bottom_level_op"}
    measured = [name for name in frame.columns if name not in listed]
    if search is not None:
        wanted = [name for name in measured if search.lower() in name.lower()]
        frame = frame.drop([name for name in measured if name not in wanted])
        measured = wanted
    most = sorted(measured, key=lambda name: -float(frame[name].fill_null(0).sum()))[:_SHOWN]
    about = ["ts", "dur", "pid", "name", "op_stack"] if hta else _EACH.split(",")
    return frame, [*about, *most], "Kernels with hardware counters"


def _write(
    profile: Profile,
    frame: pl.DataFrame,
    shown: list[str],
    title: str,
    sort: str,
    top: int | None,
    columns: str | None,
    csv: bool,
    json: bool,
    width: int | None,
) -> None:
    import polars as pl

    from opscope.core.analysis.roofline.counter_table import EMPTY, FORMS, value
    from opscope.core.question.layout import Column
    from opscope.core.question.tables import totals
    from opscope.reports import vendor_words

    keys = common.split(columns) if columns else (frame.columns if csv or json else shown)
    for key in (*([sort] if sort else []), *keys):
        if key not in frame.columns:
            from opscope.core.question.suggest import unknown

            common.fail(unknown("column", key, frame.columns))
    if sort:
        frame, _ = common.arrange(frame, sort, None)
    if csv or json:
        listed = [name for name in keys if frame.schema[name] == pl.List(pl.String)]
        flat = frame.with_columns(pl.col(listed).list.join(" | ")) if csv and listed else frame
        common.raw(flat.select(keys), csv, top)
        return
    formed = {form.key for form in FORMS}
    forms = [*FORMS, *(Column(key, key.removesuffix(".sum"), value) for key in keys
             if key not in formed and frame.schema[key] == pl.Float64)]  # fmt: skip
    rows = common.rows(top)
    table = totals(title, frame, keys, rows, EMPTY, forms=forms)
    common.show([vendor_words.told(table, vendor_words.vendor(profile))], width)
