"""Patterns for the names, in traces, of the CUDA and HIP calls that launch work."""

from __future__ import annotations

from typing import Final

GRAPH_LAUNCH: Final = r"^(cu|cuda|hip)GraphLaunch"
LAUNCH: Final = (
    r"^(__)?(cu|cuda|hip)(Ext)?(Module)?Launch(Cooperative)?Kernel(ExC|Ex|_C|_ptsz|_v\d+)?"
    r"|^hip(HccModule|Drv)LaunchKernel|^hipExtLaunchMultiKernel|^hipLaunchByPtr"
)
#: Key of a trace's origin: the number of device rows whose id belongs to launches of several processes.
SHARED_IDS: Final = "launches_share_ids"
