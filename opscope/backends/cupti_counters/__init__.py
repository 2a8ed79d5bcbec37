"""Hardware counters by CUPTI's own calls: of each kernel (range profiling), of a device by time (sampling).

Both are in ``libcupti`` since CUDA 12.6; CUDA 13 has no other way. They need no framework, only a context or
a device's number, and the names of counters. ``ways.py`` chooses between them for ``opscope run --counters``;
``launches.py`` records the launches of the kernels.
"""

from __future__ import annotations

from .calls import CountersRefused, Library
from .pm_sampling import PmSampler
from .range_profiling import RangeProfiler

__all__ = ["CountersRefused", "Library", "PmSampler", "RangeProfiler"]
