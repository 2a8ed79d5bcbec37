"""``opscope ops``: list the ops, one row per distinct call or one row per execution."""

from __future__ import annotations

from typing import Annotated

import typer

from . import common

_SHOWN = (
    "share,device_time,self_time,calls,op,direction,inputs,outputs,params,layer,flops,bytes,source"
)
Search = Annotated[
    str | None,
    typer.Option(
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


def ops(
    file: common.Files,
    sort: common.Sort = "device_time",
    top: common.Top = None,
    each: common.Each = False,
    search: Search = None,
    columns: common.Chosen = None,
    csv: common.Csv = False,
    json: common.Json = False,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    key: common.KeyNode = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """List the ops by time, the longest first.

    The time is the time on the device; in a profile without a GPU, the op's self time.
    """
    common.one_form(csv, json)
    profile = common.load(file, gpu, strict, model=model)
    profile = common.select(profile, iter_start, iter_stop, device, rank, layer, range_, key)
    frame = profile.ops(categories=True) if each else profile.op_totals()
    title, shown = ("Ops", _EACH) if each else ("Distinct ops", _SHOWN)
    empty = "no ops in this profile"
    if search is not None:
        from opscope.core.analysis.ops.operator_statistics import having  # loads Polars

        frame, empty = having(frame, search), f"no op, family, layer or node has {search!r}"
    listing = common.Listing(title, shown, empty)
    listing.write(frame, sort, top, columns, csv, json, width)
