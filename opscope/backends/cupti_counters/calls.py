"""CUPTI's calls for counters by ctypes: their structures, and checked calls whose errors are reported by
name.

Every structure begins with its size, up to the end of its last field. From the size, CUPTI knows the version
that the caller was written for; later versions only append fields. So the structures here have only the
fields of the first version. ``scripts/counter_layouts.py`` found these in the headers of ten versions of
CUDA, 12.6 to 13.5.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from opscope.core.counter_permission import CUPTI_CODE, REMEDY

_SIZE, _POINTER, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_U64, _U32, _U16, _U8, _INT = (
    ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_uint8, ctypes.c_int,
)  # fmt: skip
#: CUpti_ProfilerType.
RANGES, SAMPLES = 0, 1
#: CUpti_MetricType: counters, ratios, throughputs.
METRIC_TYPES: Final = (0, 1, 2)
#: CUpti_ProfilerRange and CUpti_ProfilerReplayMode: a range for each kernel, which runs once a pass.
AUTO_RANGE, KERNEL_REPLAY = 1, 2
#: Meaning of CUPTI's results for counters, by number (cupti_result.h).
_MEANT: Final = {
    CUPTI_CODE: REMEDY,
    1: "a counter of these names does not exist on this GPU, or the combination cannot be measured",
    7: "this GPU or driver has no such counters",
    39: "another tool measures counters or records activity in this process",
}


class CountersRefused(RuntimeError):
    """Counters cannot be measured; the message says why. ``code`` is the CUptiResult, None without one."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Params(ctypes.Structure):
    """The arguments of one call: their size, a private pointer, and the fields."""

    #: The name of the call.
    CALL: ClassVar[str] = ""
    _fields_ = (("structSize", _SIZE), ("pPriv", _POINTER))

    @classmethod
    def struct_size(cls) -> int:
        """Return the size that CUPTI expects: up to the end of the last field, without padding behind it."""
        last = cls._fields_[-1][0]
        described = getattr(cls, last)
        return int(described.offset + described.size)


def _params(call: str, *fields: tuple[str, Any]) -> type[Params]:
    return type(call, (Params,), {"_fields_": list(fields), "CALL": call, "__slots__": ()})


_IMAGE: Final = (("pCounterDataImage", _POINTER), ("counterDataImageSize", _SIZE))
INITIALIZE: Final = _params("cuptiProfilerInitialize", ("unused", _U8 * 0))
CHIP_NAME: Final = _params("cuptiDeviceGetChipName", ("deviceIndex", _SIZE), ("pChipName", _TEXT))
AVAILABILITY: Final = _params(
    "cuptiProfilerGetCounterAvailability",
    ("ctx", _POINTER),
    ("counterAvailabilityImageSize", _SIZE),
    ("pCounterAvailabilityImage", _POINTER),
)
HOST_INITIALIZE: Final = _params(
    "cuptiProfilerHostInitialize",
    ("profilerType", _INT),
    ("pChipName", _TEXT),
    ("pCounterAvailabilityImage", _POINTER),
    ("pHostObject", _POINTER),
)
HOST_DEINITIALIZE: Final = _params("cuptiProfilerHostDeinitialize", ("pHostObject", _POINTER))
BASE_METRICS: Final = _params(
    "cuptiProfilerHostGetBaseMetrics",
    ("pHostObject", _POINTER),
    ("metricType", _INT),
    ("ppMetricNames", ctypes.POINTER(_TEXT)),
    ("numMetrics", _SIZE),
)
ADD_METRICS: Final = _params(
    "cuptiProfilerHostConfigAddMetrics",
    ("pHostObject", _POINTER),
    ("ppMetricNames", _POINTER),
    ("numMetrics", _SIZE),
)
CONFIG_SIZE: Final = _params(
    "cuptiProfilerHostGetConfigImageSize", ("pHostObject", _POINTER), ("configImageSize", _SIZE)
)
CONFIG: Final = _params(
    "cuptiProfilerHostGetConfigImage",
    ("pHostObject", _POINTER),
    ("configImageSize", _SIZE),
    ("pConfigImage", _POINTER),
)
PASSES: Final = _params(
    "cuptiProfilerHostGetNumOfPasses",
    ("configImageSize", _SIZE),
    ("pConfigImage", _POINTER),
    ("numOfPasses", _SIZE),
)
EVALUATE: Final = _params(
    "cuptiProfilerHostEvaluateToGpuValues",
    ("pHostObject", _POINTER),
    *_IMAGE,
    ("rangeIndex", _SIZE),
    ("ppMetricNames", _POINTER),
    ("numMetrics", _SIZE),
    ("pMetricValues", _POINTER),
)
RANGE_ENABLE: Final = _params(
    "cuptiRangeProfilerEnable", ("ctx", _POINTER), ("pRangeProfilerObject", _POINTER)
)
RANGE_DISABLE: Final = _params("cuptiRangeProfilerDisable", ("pRangeProfilerObject", _POINTER))
RANGE_DATA_SIZE: Final = _params(
    "cuptiRangeProfilerGetCounterDataSize",
    ("pRangeProfilerObject", _POINTER),
    ("pMetricNames", _POINTER),
    ("numMetrics", _SIZE),
    ("maxNumOfRanges", _SIZE),
    ("maxNumRangeTreeNodes", _U32),
    ("counterDataSize", _SIZE),
)
RANGE_DATA: Final = _params(
    "cuptiRangeProfilerCounterDataImageInitialize",
    ("pRangeProfilerObject", _POINTER),
    ("counterDataSize", _SIZE),
    ("pCounterData", _POINTER),
)
RANGE_CONFIG: Final = _params(
    "cuptiRangeProfilerSetConfig",
    ("pRangeProfilerObject", _POINTER),
    ("configSize", _SIZE),
    ("pConfig", _POINTER),
    ("counterDataImageSize", _SIZE),
    ("pCounterDataImage", _POINTER),
    ("range", _INT),
    ("replayMode", _INT),
    ("maxRangesPerPass", _SIZE),
    ("numNestingLevels", _U16),
    ("minNestingLevel", _U16),
    ("passIndex", _SIZE),
    ("targetNestingLevel", _U16),
)
RANGE_START: Final = _params("cuptiRangeProfilerStart", ("pRangeProfilerObject", _POINTER))
RANGE_STOP: Final = _params(
    "cuptiRangeProfilerStop",
    ("pRangeProfilerObject", _POINTER),
    ("passIndex", _SIZE),
    ("targetNestingLevel", _SIZE),
    ("isAllPassSubmitted", _U8),
)
RANGE_DECODE: Final = _params(
    "cuptiRangeProfilerDecodeData",
    ("pRangeProfilerObject", _POINTER),
    ("numOfRangeDropped", _SIZE),
)
RANGE_COUNT: Final = _params(
    "cuptiRangeProfilerGetCounterDataInfo", *_IMAGE, ("numTotalRanges", _SIZE)
)
RANGE_NAME: Final = _params(
    "cuptiRangeProfilerCounterDataGetRangeInfo",
    *_IMAGE,
    ("rangeIndex", _SIZE),
    ("rangeDelimiter", _TEXT),
    ("rangeName", _TEXT),
)
PM_AVAILABILITY: Final = _params(
    "cuptiPmSamplingGetCounterAvailability",
    ("deviceIndex", _SIZE),
    ("counterAvailabilityImageSize", _SIZE),
    ("pCounterAvailabilityImage", _POINTER),
)
PM_ENABLE: Final = _params(
    "cuptiPmSamplingEnable", ("deviceIndex", _SIZE), ("pPmSamplingObject", _POINTER)
)
PM_DISABLE: Final = _params("cuptiPmSamplingDisable", ("pPmSamplingObject", _POINTER))
PM_CONFIG: Final = _params(
    "cuptiPmSamplingSetConfig",
    ("pPmSamplingObject", _POINTER),
    ("configSize", _SIZE),
    ("pConfig", _POINTER),
    ("hardwareBufferSize", _SIZE),
    ("samplingInterval", _U64),
    ("triggerMode", _INT),
)
PM_DATA_SIZE: Final = _params(
    "cuptiPmSamplingGetCounterDataSize",
    ("pPmSamplingObject", _POINTER),
    ("pMetricNames", _POINTER),
    ("numMetrics", _SIZE),
    ("maxSamples", _U32),
    ("counterDataSize", _SIZE),
)
PM_DATA: Final = _params(
    "cuptiPmSamplingCounterDataImageInitialize",
    ("pPmSamplingObject", _POINTER),
    ("counterDataSize", _SIZE),
    ("pCounterData", _POINTER),
)
PM_START: Final = _params("cuptiPmSamplingStart", ("pPmSamplingObject", _POINTER))
PM_STOP: Final = _params("cuptiPmSamplingStop", ("pPmSamplingObject", _POINTER))
PM_DECODE: Final = _params(
    "cuptiPmSamplingDecodeData",
    ("pPmSamplingObject", _POINTER),
    *_IMAGE,
    ("decodeStopReason", _INT),
    ("overflow", _U8),
)
PM_COUNT: Final = _params(
    "cuptiPmSamplingGetCounterDataInfo",
    *_IMAGE,
    ("numTotalSamples", _SIZE),
    ("numPopulatedSamples", _SIZE),
    ("numCompletedSamples", _SIZE),
)
PM_SAMPLE: Final = _params(
    "cuptiPmSamplingCounterDataGetSampleInfo",
    ("pPmSamplingObject", _POINTER),
    *_IMAGE,
    ("sampleIndex", _SIZE),
    ("startTimestamp", _U64),
    ("endTimestamp", _U64),
)
_COMMON: Final = (
    INITIALIZE, CHIP_NAME, HOST_INITIALIZE, HOST_DEINITIALIZE, BASE_METRICS, ADD_METRICS, CONFIG_SIZE, CONFIG,
    PASSES, EVALUATE,
)  # fmt: skip
#: The calls that each way to measure needs.
FOR_RANGES: Final = (
    *_COMMON, AVAILABILITY, RANGE_ENABLE, RANGE_DISABLE, RANGE_DATA_SIZE, RANGE_DATA, RANGE_CONFIG,
    RANGE_START, RANGE_STOP, RANGE_DECODE, RANGE_COUNT, RANGE_NAME,
)  # fmt: skip
FOR_SAMPLES: Final = (
    *_COMMON, PM_AVAILABILITY, PM_ENABLE, PM_DISABLE, PM_CONFIG, PM_DATA_SIZE, PM_DATA, PM_START, PM_STOP,
    PM_DECODE, PM_COUNT, PM_SAMPLE,
)  # fmt: skip


class Library:
    """One ``libcupti`` with all calls of ``needed``. Raises CountersRefused if it lacks one."""

    def __init__(self, path: Path | str, needed: Sequence[type[Params]] = FOR_RANGES) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CountersRefused(f"{path} cannot be loaded: {error}") from error
        self._calls = {}
        for params in needed:
            call = getattr(self._library, params.CALL, None)
            if call is None:
                raise CountersRefused(
                    f"this libcupti has no {params.CALL}: counters need the libcupti of CUDA 12.6 or later"
                )
            call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_int
            self._calls[params.CALL] = call

    def call(self, params: type[Params], **given: Any) -> Any:
        """Make a call and return its structure, with what it wrote. Raises CountersRefused if it fails."""
        structure = params(structSize=params.struct_size(), **given)
        code = self._calls[params.CALL](ctypes.byref(structure))
        if code:
            meant = _MEANT.get(code, f"CUPTI's result is {code}")
            raise CountersRefused(f"{params.CALL}: {meant}", code)
        return structure


def texts(names: Sequence[str]) -> Any:
    """Return names as an array of C strings; the array must be kept as long as CUPTI may read it."""
    return (_TEXT * len(names))(*(name.encode() for name in names))


def room(size: int) -> Any:
    """Return a buffer of ``size`` bytes, all 0. Raises CountersRefused for an impossible size."""
    if not 0 <= size <= 1 << 32:
        raise CountersRefused(f"CUPTI asks for a buffer of {size:,} bytes")
    return (ctypes.c_uint8 * max(size, 1))()
