"""Hardware counters by torch.profiler: the request to Kineto, and the reasons why it may return none.

Kineto measures counters with CUPTI's range profiler, one range a kernel, and records no kernels meanwhile:
the profiler runs each kernel alone and many times over. It is asked through ``profiler_metrics`` of
``torch.profiler``'s ``experimental_config``. Kineto has it for CUDA up to 12: built for CUDA 13, it takes the
request and returns nothing. PyTorch 2.15 has no such option; its profiler samples a device instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from opscope.core.counter_permission import REMEDY, forbidden

#: The environment variable with the counters that ``opscope run --counters`` asks for.
WANTED: Final = "OPSCOPE_COUNTERS"
_SASS: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
#: Words that each stand for several counters.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "flops": tuple(
            _SASS.format(precision + kind) for precision in "dfh" for kind in ("add", "mul", "fma")
        ),
        "tensor": (
            "sm__inst_executed_pipe_tensor.sum",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__ops_path_tensor_src_*.sum",
        ),
        "dram": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    }
)
#: Pattern of names: in a name that ends with ``.sum`` or the like, the part before the first dot may contain
#: ``*``.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_*]*(?:\.[A-Za-z0-9_]+)*\Z")
#: The first CUDA for which Kineto has no range profiler.
_FIRST_WITHOUT: Final = 13
_NCU: Final = (
    "measure them with Nsight Compute (ncu --csv --page raw -o … ) and join them: opscope report FILE"
    " --counters ncu.csv"
)


def parse(text: str) -> tuple[str, ...]:
    """Return the counters that ``text`` names, comma-separated; ``flops`` and the like are groups.

    A ``*`` in a name stands for any letters: all counters of that name that the GPU has. Raises ValueError
    for what is no counter's name.
    """
    counters: list[str] = []
    for word in filter(None, map(str.strip, text.split(","))):
        if word in GROUPS:
            counters += GROUPS[word]
        elif _NAME.match(word):
            counters.append(word)
        else:
            groups = ", ".join(GROUPS)
            raise ValueError(f"{word!r} is no counter's name; groups of counters are {groups}")
    if not counters:
        raise ValueError(f"no counter is named; groups of counters are {', '.join(GROUPS)}")
    return tuple(dict.fromkeys(counters))


def wanted(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the counters that this process must measure; usually none."""
    text = environ.get(WANTED, "")
    return parse(text) if text else ()


def refusal(torch: Any) -> str | None:
    """Return why this PyTorch cannot measure counters here; None if it may."""
    version = getattr(torch, "version", None)
    if getattr(version, "hip", None):
        return "torch.profiler measures counters on NVIDIA's GPUs only: use rocprofv3 here"
    cuda = str(getattr(version, "cuda", None) or "")
    major = cuda.partition(".")[0]
    if not major.isdigit():
        return "this PyTorch is not built for CUDA"
    if int(major) >= _FIRST_WITHOUT:
        return (
            f"this PyTorch is built for CUDA {cuda}, for which Kineto has no range profiler and returns no"
            f" counters; {_NCU}"
        )
    if _experimental(torch) is None:
        return (
            "this PyTorch's profiler takes no profiler_metrics, as none does from 2.15 on: CUPTI measures"
            f" without it (--counters-by ranges or sampling); {_NCU}"
        )
    return REMEDY if forbidden() else None


def arguments(torch: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments of ``torch.profiler.profile`` by which it measures ``names`` of each kernel.

    PyTorch cannot list the counters of a GPU, so names with ``*`` are left out.
    """
    make = _experimental(torch)
    assert make is not None
    plain = [name for name in names if "*" not in name]
    return {"experimental_config": make(profiler_metrics=plain, profiler_measure_per_kernel=True)}


def _experimental(torch: Any) -> Any:
    """Return the class of the profiler's options, if it takes counters: in PyTorch 2.15 the class exists,
    but it takes none."""
    module = getattr(getattr(torch, "_C", None), "_profiler", None)
    options: Any = getattr(module, "_ExperimentalConfig", None)
    try:
        options(profiler_metrics=[], profiler_measure_per_kernel=True)
    except TypeError:  # no such class, or no such options
        return None
    return options


def why_none() -> str:
    """Return why a run with requested counters may have none, as far as this machine shows."""
    if forbidden():
        return REMEDY
    return (
        "PyTorch measured none: no kernel ran on an NVIDIA GPU, the GPU has no counter of that name, another"
        f" profiler holds CUPTI, or PyTorch is built for CUDA {_FIRST_WITHOUT}; {_NCU}"
    )
