"""Hardware counters by CUPTI's own calls: of each kernel (range profiling), of a device by time (sampling).

Both are in ``libcupti`` since CUDA 12.6, and are all that CUDA 13 has. They need no framework: a context, or
a device's number, and the names of counters. ``ways.py`` says when ``opscope run --counters`` takes which;
``launches.py`` notes the launches that the kernels are of.
"""

from __future__ import annotations

from .calls import CountersRefused, Library
from .pm_sampling import PmSampler
from .range_profiling import RangeProfiler

__all__ = ["CountersRefused", "Library", "PmSampler", "RangeProfiler"]
