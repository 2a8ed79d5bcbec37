"""``opscope iterations``: list the iterations, and recommend which to analyse."""

from __future__ import annotations

from . import common


def iterations(
    file: common.Files,
    key: common.KeyNode = None,
    top: common.Top = None,
    columns: common.Chosen = None,
    csv: common.Csv = False,
    json: common.Json = False,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """List the iterations in order: when each ran, what was in it, whether it was warm-up.

    They are the steps that the program marks; else what a key node ends (--key-node); else what repeats, with
    how sure that is. Below the table stands the range that is stable, and why.
    """
    from opscope.reports import registry
    from opscope.reports.report import View
    from opscope.reports.tables import table, totals

    common.one_form(csv, json)
    profile = common.load(file, gpu, strict, model=model)
    profile = common.select(profile, iter_start, iter_stop, device, rank, None, None, key)
    report = registry.reports()["iterations"]
    frame = profile.iterations()
    keys = common.arrange(frame, "iteration", columns)[1] if columns else frame.columns
    rows = (common.TOP if top is None else top) or None
    if csv or json:
        common.raw(frame.select(keys), csv, top)
    elif columns:
        documented = report.holds.columns
        common.show([totals(report.title, frame, keys, rows, report.empty, documented)], width)
    else:
        common.show([table(report, profile, View(rows))], width)
