"""Whether the driver allows hardware counters, how each tool reports a refusal, and what to do about it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

#: Refusals as NVIDIA's tools and libraries print them: ncu, CUPTI's name of the result, Kineto's log.
_SAID: Final = re.compile(
    r"ERR_NVGPUCTRPERM|CUPTI_ERROR_INSUFFICIENT_PRIVILEGES|does not have permission to access NVIDIA GPU"
    r" Performance Counters|insufficient privileges? to access",
    re.IGNORECASE,
)
#: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in cupti_result.h, of every version since CUDA 10.1.
CUPTI_CODE: Final = 35
REMEDY: Final = (
    "the driver does not allow hardware counters to this user (ERR_NVGPUCTRPERM): run as root or with"
    " CAP_SYS_ADMIN (a container needs --cap-add=SYS_ADMIN), or let an administrator set the module option"
    " NVreg_RestrictProfilingToAdminUsers=0 (options nvidia NVreg_RestrictProfilingToAdminUsers=0 in"
    " /etc/modprobe.d, then a new initramfs and a reboot)"
)
#: The file with the settings of NVIDIA's loaded driver for Linux, and its line on counters.
PARAMETERS: Final = Path("/proc/driver/nvidia/params")
_RESTRICTED: Final = re.compile(r"^RmProfilingAdminOnly:\s*(\d+)", re.MULTILINE)
_CAPABILITIES: Final = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)", re.MULTILINE)
_SYS_ADMIN: Final = 21
#: Since Linux 5.8 a separate capability (CAP_PERFMON) allows it as well, if the driver accepts that.
_PERFMON: Final = 38


def denied(text: str) -> bool:
    """Return whether a tool's message says that the driver forbids counters."""
    return bool(_SAID.search(text))


def forbidden(
    parameters: Path = PARAMETERS, status: Path = Path("/proc/self/status")
) -> bool | None:
    """Return whether the driver forbids counters to this process; None if the machine does not show it. The
    driver's parameters say whether only administrators may use them; an administrator has CAP_SYS_ADMIN."""
    try:
        match = _RESTRICTED.search(parameters.read_text("utf-8", "replace"))
    except OSError:
        return None
    if match is None:
        return None
    if match.group(1) == "0":
        return False
    try:
        capabilities = _CAPABILITIES.search(status.read_text("utf-8", "replace"))
    except OSError:
        capabilities = None
    if capabilities is None:
        return None if not hasattr(os, "geteuid") else os.geteuid() != 0
    bits = int(capabilities.group(1), 16)
    return not bits & (1 << _SYS_ADMIN | 1 << _PERFMON)
