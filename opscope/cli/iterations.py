"""``opscope iterations``: list the iterations, and recommend which to analyse."""

from __future__ import annotations

from . import common, options


@options.spread
def iterations(
    file: options.Files,
    key: options.KeyNode = None,
    top: options.Top = None,
    columns: options.Chosen = None,
    csv: options.Csv = False,
    json: options.Json = False,
    iter_start: options.IterStart = None,
    iter_stop: options.IterStop = None,
    device: options.DeviceNumber = None,
    rank: options.Rank = None,
    *,
    reading: options.Reading,
    width: options.Width = None,
) -> None:
    """List the iterations in order: when each ran, what was in it, whether it was warm-up. Iterations are the
    steps that the program marks; else they end at a key node (--key-node); else they are detected by
    repetition, with a confidence. The stable range and the reason stand below the table."""
    from opscope.core.question.record import View
    from opscope.core.question.registry import reports
    from opscope.core.question.tables import totals
    from opscope.reports.tables import table

    common.one_form(csv, json)
    where = options.Where(iter_start, iter_stop, key, device, rank)
    profile = where.select(reading.load(file))
    report = reports()["iterations"]
    frame = profile.iterations()
    keys = common.arrange(frame, "iteration", columns)[1] if columns else frame.columns
    rows = common.rows(top)
    if csv or json:
        common.raw(frame.select(keys), csv, top)
    elif columns:
        documented = report.holds.columns
        common.show([totals(report.title, frame, keys, rows, report.no_rows, documented)], width)
    else:
        common.show([table(report, profile, View(rows))], width)
