"""``opscope ops``: list the ops, one row per distinct call or one row per execution."""

from __future__ import annotations

from typing import Annotated

from . import common, declared, options

_SHOWN = (
    "share,device_time,self_time,calls,op,direction,inputs,outputs,params,layer,flops,bytes,source"
)
Search = Annotated[
    str | None,
    declared.Option(
        "--search",
        help="List only the ops that have this text in their name, family, layer, node or parameters, in any"
        " case.",
        metavar="TEXT",
        show_default=False,
    ),
]
_EACH = (
    "start,device_time,self_time,op,direction,inputs,outputs,params,layer,step,flops,bytes,source"
)


@options.spread
def ops(
    file: options.Files,
    sort: options.Sort = "device_time",
    top: options.Top = None,
    each: options.Each = False,
    search: Search = None,
    columns: options.Chosen = None,
    csv: options.Csv = False,
    json: options.Json = False,
    *,
    where: options.Where,
    reading: options.Reading,
    width: options.Width = None,
) -> None:
    """List the ops by time, the longest first.

    The time is the time on the device; in a profile without a GPU, the op's self time.
    """
    common.one_form(csv, json)
    profile = where.select(reading.load(file))
    frame = profile.ops(categories=True) if each else profile.op_totals()
    title, shown = ("Ops", _EACH) if each else ("Distinct ops", _SHOWN)
    empty = "no ops in this profile"
    if search is not None:
        from opscope.core.analysis.ops.operator_statistics import having  # loads Polars

        frame, empty = having(frame, search), f"no op, family, layer or node has {search!r}"
    listing = common.Listing(title, shown, empty)
    listing.write(frame, sort, top, columns, csv, json, width)
