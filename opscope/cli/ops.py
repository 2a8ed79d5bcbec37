"""``opscope ops``: the operators, each distinct call a row, or each single call."""

from __future__ import annotations

from . import common

_SHOWN = (
    "share,device_time,self_time,calls,op,direction,inputs,outputs,params,layer,flops,bytes,source"
)
_EACH = (
    "start,device_time,self_time,op,direction,inputs,outputs,params,layer,step,flops,bytes,source"
)


def ops(
    file: common.Files,
    sort: common.Sort = "device_time",
    top: common.Top = None,
    each: common.Each = False,
    columns: common.Chosen = None,
    csv: common.Csv = False,
    json: common.Json = False,
    gpu: common.Gpu = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """List the operators by the time they took.

    That is the time on the device; on a CPU-only profile, the operator's self time.
    """
    common.one_form(csv, json)
    profile = common.load(file, gpu, strict)
    frame = profile.ops(categories=True) if each else profile.op_totals()
    title, shown = ("Ops", _EACH) if each else ("Distinct ops", _SHOWN)
    listing = common.Listing(title, shown, "no ops in this profile")
    listing.write(frame, sort, top, columns, csv, json, width)
