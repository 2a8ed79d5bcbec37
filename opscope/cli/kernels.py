"""``opscope kernels``: list the GPU kernels and the ops that launched them."""

from __future__ import annotations

from . import common

_SHOWN = "share,total,calls,mean,min,max,name,op,tensor_core,flops,bytes"
_EACH = "start,duration,device,stream,name,op,direction,layer,flops,bytes,reason,inputs,source"


def kernels(
    file: common.Files,
    sort: common.Sort = "",
    top: common.Top = None,
    each: common.Each = False,
    columns: common.Chosen = None,
    csv: common.Csv = False,
    json: common.Json = False,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """List the GPU kernels by time, the longest first.

    With --each every execution is a row, with the op that launched it.
    """
    common.one_form(csv, json)
    profile = common.load(file, gpu, strict, model=model)
    profile = common.select(profile, iter_start, iter_stop, device, rank, layer, range_)
    frame = profile.kernels(categories=True) if each else profile.kernel_totals()
    sort = sort or ("duration" if each else "total")
    empty = "no kernels in this profile: no GPU was used, or kernels were not captured"
    listing = common.Listing("Kernels", _EACH if each else _SHOWN, empty)
    listing.write(frame, sort, top, columns, csv, json, width)
