"""A stand-in for NVIDIA's binding of NVML: it plays back what ``OPSCOPE_TEST_NVML`` (a JSON file) says.

The functions, their units and their errors are those of nvidia-ml-py. The file holds ``gpus``, each with
``uuid``, ``values`` (function's name → a list of answers, one a call, the last for ever) and ``mig``. An answer
``{"error": code}`` is raised as NVMLError; a list of numbers is a record's fields.
"""

from __future__ import annotations

import json
import os
import threading
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_TEMPERATURE_GPU = 0
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
_MESSAGES = {2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found",
             9: "Driver Not Loaded", 12: "NVML Shared Library Not Found", 13: "Function Not Found",
             15: "GPU is lost", 999: "Unknown Error"}  # fmt: skip
#: The threads that called a function.
threads: set[int] = set()
_state: dict = {}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return _MESSAGES.get(self.value, f"NVML Error with code {self.value}")


def play(what: dict) -> None:
    """Play ``what`` from now on."""
    _state.clear()
    _state.update(what, calls={})
    threads.clear()


def nvmlInit():
    if not _state:
        with open(os.environ["OPSCOPE_TEST_NVML"], encoding="utf-8") as file:
            play(json.load(file))
    if "init" in _state:
        raise NVMLError(_state["init"])


def nvmlDeviceGetCount():
    return len(_state["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    if index >= len(_state["gpus"]):
        raise NVMLError(2)
    return ("gpu", index)


def nvmlDeviceGetHandleByUUID(uuid):
    for index, gpu in enumerate(_state["gpus"]):
        if gpu.get("uuid") == uuid:
            return ("gpu", index)
        if uuid in gpu.get("mig", {}):
            return ("mig", index)
    raise NVMLError(6)


def nvmlDeviceGetMigMode(handle):
    gpu = _state["gpus"][handle[1]]
    if "mig" not in gpu:
        raise NVMLError(3)
    return [1, 1]


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    return ("mig", handle[1])


def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle):
    return ("gpu", handle[1])


def _answer(handle, name, *which):
    threads.add(threading.get_ident())
    gpu = _state["gpus"][handle[1]]
    values = gpu["values"] if handle[0] == "gpu" else gpu["mig_values"]
    key = "/".join(map(str, (name, *which)))
    if key not in values:
        raise NVMLError(3)
    count = _state["calls"][handle, key] = _state["calls"].get((handle, key), -1) + 1
    found = values[key][min(count, len(values[key]) - 1)]
    if isinstance(found, dict):
        raise NVMLError(found["error"])
    return found


def nvmlDeviceGetUtilizationRates(handle):
    gpu, memory = _answer(handle, "utilization")
    return SimpleNamespace(gpu=gpu, memory=memory)


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=_answer(handle, "memory"))


def nvmlDeviceGetClockInfo(handle, which):
    return _answer(handle, "clock", which)


def nvmlDeviceGetPowerUsage(handle):
    return _answer(handle, "power")


def nvmlDeviceGetTemperature(handle, which):
    return _answer(handle, "temperature")


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return _answer(handle, "reasons")


def nvmlDeviceGetTotalEnergyConsumption(handle):
    return _answer(handle, "energy")


def nvmlDeviceGetPcieThroughput(handle, which):
    return _answer(handle, "pcie", which)


def nvmlDeviceGetFieldValues(handle, fields):
    found = []
    for field, scope in fields:
        assert scope == 0xFFFFFFFF, "all links"
        try:
            value, code = _answer(handle, "nvlink", field), 0
        except NVMLError as error:
            value, code = 0, error.value
        found.append(SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(ullVal=value)))
    return found
