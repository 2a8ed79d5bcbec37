"""``opscope kernels``: list the GPU kernels and the ops that launched them."""

from __future__ import annotations

from typing import Annotated

from . import common, declared, options

_SHOWN = "share,total,calls,mean,min,max,name,op,tensor_core,flops,bytes"
_EACH = "start,duration,device,stream,name,op,direction,layer,flops,bytes,reason,inputs,source"
_EMPTY = "no kernels in this profile: no GPU was used, or kernels were not captured"
_STYLES = ("opscope", "pyprof")
Files = Annotated[
    list[str] | None,
    declared.Argument(
        metavar="FILE",
        help="A profile or a trace of any supported format; several files are the parts of one job; - is a"
        " trace from stdin.",
        show_default=False,
    ),
]
Style = Annotated[
    str,
    declared.Option(
        "--style",
        help="opscope, or pyprof: one row per execution in PyProf's columns, separated by spaces, as CSV"
        " (--csv), or in columns of a width (-w).",
        metavar="STYLE",
        show_default=False,
    ),
]
Dictionaries = Annotated[
    bool,
    declared.Option(
        "--dict",
        help="With --style pyprof: what PyProf's parse writes, a dictionary of Python a kernel.",
    ),
]


@options.spread
def kernels(
    file: Files = None,
    style: Style = "opscope",
    sort: options.Sort = "",
    top: options.Top = None,
    each: options.Each = False,
    columns: options.Chosen = None,
    csv: options.Csv = False,
    json: options.Json = False,
    dictionaries: Dictionaries = False,
    *,
    where: options.Where,
    reading: options.Reading,
    width: options.Width = None,
) -> None:
    """List the GPU kernels by time, the longest first.

    With --each every execution is a row, with the op that launched it.
    """
    from . import pyprof_kernels
    from .spooled import spooled

    common.one_form(csv, json)
    if style not in _STYLES:
        from opscope.core.question.suggest import unknown

        common.fail(unknown("style", style, _STYLES))
    as_pyprof = style == "pyprof"
    if not file:
        if not as_pyprof:
            raise declared.Misuse("Missing argument 'FILE'.")
        file = pyprof_kernels.standard_input()
    if dictionaries and (not as_pyprof or csv or json or width or columns or sort or top):
        common.fail(
            "--dict is for --style pyprof alone, and has all kernels and keys, as PyProf wrote them"
        )
    with spooled(file) as files:
        profile = where.select(reading.load(files))
        if dictionaries:
            pyprof_kernels.write_dictionaries(profile)
            return
        if as_pyprof:
            pyprof_kernels.write(profile, columns, sort, top, csv, json, width, _EMPTY)
            return
        frame = profile.kernels(categories=True) if each else profile.kernel_totals()
    sort = sort or ("duration" if each else "total")
    listing = common.Listing("Kernels", _EACH if each else _SHOWN, _EMPTY)
    listing.write(frame, sort, top, columns, csv, json, width)
