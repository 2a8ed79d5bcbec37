"""Sample NVIDIA GPUs by NVML: use, memory, clocks, power, temperature, throttling, PCIe and NVLink, energy.

NVML is asked through NVIDIA's own binding (nvidia-ml-py), on the writer's thread alone: a call takes from 10
µs to some ms, and one for PCIe traffic measures for 20 ms. The binding releases the GIL meanwhile. If a
machine has several ranks, each samples its own GPU; else the process samples every GPU that it can see. A
quantity that a GPU does not support is noted once, with NVML's reason, and left out from then on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from glob import glob
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

#: The most GPUs that are sampled, and the errors in a row after which a quantity is no longer read.
MAX_GPUS: Final = 16
MAX_ERRORS: Final = 5
#: Least time (ns) between samples of all quantities, and of those that measure for long.
FAST_NS: Final = 100_000_000
SLOW_NS: Final = 1_000_000_000
#: NVML's codes of errors that stay: not supported, no permission, no such function, and a GPU that is gone.
_STAY: Final = (3, 4, 13)
_LOST: Final = 15
#: Reasons why clocks are below their maximum, by NVML's bits (``nvmlClocksEventReasons``). Idling and clocks
#: set by the user do not count.
THROTTLED: Final[Mapping[int, str]] = MappingProxyType(
    {
        0x04: "power limit",
        0x08: "hardware slowdown",
        0x10: "sync boost",
        0x20: "temperature (software)",
        0x40: "temperature (hardware)",
        0x80: "power brake",
    }
)
#: The field id for all links together, and the scope that means all links.
_NVLINK: Final = ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")
_ALL_LINKS: Final = 0xFFFFFFFF

#: Reads one quantity, or several by their names: (NVML, handle) → values.
_Read = Callable[[Any, Any], Mapping[str, float]]


def _use(nvml: Any, gpu: Any) -> Mapping[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return {"GPU utilization [%]": rates.gpu, "GPU memory traffic [%]": rates.memory}


def _memory(nvml: Any, gpu: Any) -> Mapping[str, float]:
    return {"GPU memory used [bytes]": nvml.nvmlDeviceGetMemoryInfo(gpu).used}


def _clocks(nvml: Any, gpu: Any) -> Mapping[str, float]:
    return {
        "GPU clock [MHz]": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "GPU memory clock [MHz]": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    }


def _power(nvml: Any, gpu: Any) -> Mapping[str, float]:
    return {"GPU power [W]": nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3}


def _temperature(nvml: Any, gpu: Any) -> Mapping[str, float]:
    return {"GPU temperature [C]": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)}


def _throttled(nvml: Any, gpu: Any) -> Mapping[str, float]:
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if ask is None:  # before version 12.535 of the binding
        ask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    bits = int(ask(gpu))
    return {
        f"GPU throttled: {word} [fraction]": float(bool(bits & bit))
        for bit, word in THROTTLED.items()
    }


def _energy(nvml: Any, gpu: Any) -> Mapping[str, float]:
    return {"GPU energy [J]": nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3}


def _pcie(nvml: Any, gpu: Any) -> Mapping[str, float]:
    sent = nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES)
    received = nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES)
    return {"GPU PCIe sent [bytes/s]": sent * 1e3, "GPU PCIe received [bytes/s]": received * 1e3}


def _nvlink(nvml: Any, gpu: Any) -> Mapping[str, float]:
    """Return the links' counters, in bytes since the driver began; ``Gpu`` converts them to rates."""
    fields = [(getattr(nvml, name), _ALL_LINKS) for name in _NVLINK]
    sent, received = nvml.nvmlDeviceGetFieldValues(gpu, fields)
    for counter in (sent, received):
        if counter.nvmlReturn:
            raise nvml.NVMLError(counter.nvmlReturn)
    return {
        "GPU NVLink sent [bytes/s]": sent.value.ullVal * 1024,
        "GPU NVLink received [bytes/s]": received.value.ullVal * 1024,
    }


#: The sampled quantities: name for people, whether a MIG instance has its own, whether it is slow to read,
#: whether it is a counter, and the function that reads it.
QUANTITIES: Final[tuple[tuple[str, bool, bool, bool, _Read], ...]] = (
    ("utilization", True, False, False, _use),
    ("memory", True, False, False, _memory),
    ("clocks", False, False, False, _clocks),
    ("power", False, False, False, _power),
    ("temperature", False, False, False, _temperature),
    ("throttling reasons", False, False, False, _throttled),
    ("energy", False, False, False, _energy),
    ("PCIe traffic", False, True, False, _pcie),
    ("NVLink traffic", False, True, True, _nvlink),
)


class _Gpu:
    """One GPU, or one MIG instance."""

    def __init__(self, number: int, handle: Any, instance: Any) -> None:
        self.number = number
        self.handle = handle
        self.instance = instance
        self.left = list(QUANTITIES)
        self.errors: dict[str, int] = {}
        self.counted: dict[str, tuple[int, float]] = {}


class GpuSamples:
    """Samples the GPUs that this process can see. No method raises."""

    def __init__(
        self, note: Callable[[str, str], object], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._note = note
        self._nvml: Any = None
        self._gpus: list[_Gpu] = []
        self._due = self._slow_due = 0
        try:
            self._gpus = list(self._found(environ))
        except Exception as error:  # noqa: BLE001 - a fault of the driver must not be the program's
            self._note("info", f"GPUs are not sampled: {_why(error)}")

    def __bool__(self) -> bool:
        return bool(self._gpus)

    def _found(self, environ: Mapping[str, str]) -> Iterator[_Gpu]:
        seen = bool(glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
            return
        try:
            nvml = import_module("pynvml")
        except ImportError as error:
            if seen:
                self._note(
                    "info",
                    "GPUs are not sampled: NVIDIA's binding of NVML cannot be imported: install "
                    f"nvidia-ml-py, or opscope[gpu] ({error})",
                )
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if seen:
                self._note("info", f"GPUs are not sampled: NVML does not begin: {_why(error)}")
            return
        self._nvml = nvml
        named = [word.strip() for word in (visible or "").split(",") if word.strip()]
        count = len(named) if named else int(nvml.nvmlDeviceGetCount())
        numbers = list(range(min(count, MAX_GPUS)))
        rank = environ.get("LOCAL_RANK", "")
        if rank.isdecimal() and int(rank) in numbers:
            numbers = [int(rank)]
        for number in numbers:
            try:
                yield self._gpu(nvml, number, named[number] if named else str(number))
            except nvml.NVMLError as error:
                self._note("info", f"GPU {number} is not sampled: {_why(error)}")

    def _gpu(self, nvml: Any, number: int, name: str) -> _Gpu:
        if name.isdecimal():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(name)
            if name.startswith("MIG"):
                return self._instance(
                    number, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle), handle
                )
        try:
            parted = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
        except nvml.NVMLError:  # a GPU without support for MIG
            parted = False
        if parted:  # CUDA sees only the first instance
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
            return self._instance(number, handle, instance)
        return _Gpu(number, handle, handle)

    def _instance(self, number: int, handle: Any, instance: Any) -> _Gpu:
        self._note(
            "info",
            f"GPU {number} is a MIG instance: its memory is its own; clocks, power, energy, temperature and "
            "traffic are those of the whole GPU",
        )
        return _Gpu(number, handle, instance)

    def sample(self, now: int) -> list[tuple[int, dict[str, float]]]:
        """Return (device, name → value) of each GPU at ``now`` (ns), nothing if no sample is due."""
        if not self._gpus or now < self._due:
            return []
        self._due = now + FAST_NS
        slowly = now >= self._slow_due
        if slowly:
            self._slow_due = now + SLOW_NS
        values_of_gpus = [(gpu.number, self._of(gpu, now, slowly)) for gpu in tuple(self._gpus)]
        return [pair for pair in values_of_gpus if pair[1]]

    def _of(self, gpu: _Gpu, now: int, slowly: bool) -> dict[str, float]:
        values: dict[str, float] = {}
        for quantity in tuple(gpu.left):
            quantity_name, own, slow, counts, read = quantity
            if slow and not slowly:
                continue
            try:
                reading = read(self._nvml, gpu.instance if own else gpu.handle)
            except Exception as error:  # noqa: BLE001 - whatever a driver answers, the rest is sampled
                code = getattr(error, "value", None)
                if code == _LOST:
                    self._gpus.remove(gpu)
                    self._note("warning", f"GPU {gpu.number} is lost: {_why(error)}")
                    return values
                errors = gpu.errors[quantity_name] = gpu.errors.get(quantity_name, 0) + 1
                if code in _STAY or errors >= MAX_ERRORS or not hasattr(error, "value"):
                    gpu.left.remove(quantity)
                    self._note("info", f"GPU {gpu.number}: no {quantity_name}: {_why(error)}")
                continue
            gpu.errors.pop(quantity_name, None)
            for name, value in reading.items():
                if not counts:
                    values[name] = float(value)
                    continue
                before = gpu.counted.get(name)
                gpu.counted[name] = (now, value)
                if before is not None and now > before[0]:
                    values[name] = max(0.0, value - before[1]) / (now - before[0]) * 1e9
        return values


def _why(error: BaseException) -> str:
    text = str(error)
    return text if hasattr(error, "value") else f"{type(error).__name__}: {text}"
