"""A simulated CUDA driver under PyTorch's own lazy initialisation, for PyTorch's CPU build.

PyTorch's Python code runs unchanged: ``torch.cuda._lazy_init``, ``_lazy_call``, the queue of calls, the lock
that is held while they run, ``set_device``, ``torch.profiler``. The C++ functions that programs and our hooks
call are replaced here by the rules of PyTorch's sources (2.6 to 2.15):

* ``_cuda_setDevice`` initialises CUDA before it sets the device (``torch/csrc/cuda/Module.cpp``), so queued
  calls run with device 0;
* a call that needs a context creates the primary context of the current device, and is logged with its
  caller;
* the history of allocations is a ring buffer per device: a restart keeps its entries unless
  ``clear_history`` is set, a stop empties it (``recordHistory`` in ``c10/cuda/CUDACachingAllocator.cpp``).
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable

import wrapt

BLOCK = 512


def wait_for_torch(log: str | None = None, **options: object) -> None:
    """Make a driver and install it when PyTorch is imported; ``log`` gets its report at process exit."""
    driver = Driver(**options)
    sys.modules["cuda_driver"].driver = driver  # for the program

    def imported(torch: types.ModuleType) -> None:
        driver.install(torch)

    if log is not None:
        atexit.register(
            lambda: driver.write(f"{log}.{os.getpid()}")
        )  # runs after the handlers that opscope registers
    wrapt.register_post_import_hook(imported, "torch")
    # the version of PyTorch's CPU build says that it is one
    wrapt.register_post_import_hook(
        lambda runtime: setattr(runtime, "platform_of", lambda _: "cuda"),
        "opscope.backends.gpu_runtime",
    )
    # the device files of a GPU do not exist either
    wrapt.register_post_import_hook(
        lambda choice: setattr(choice, "gpu_vendor", lambda *_: "nvidia"), "opscope.backends.choice"
    )


class Ring:
    """The allocations of a device and their history."""

    def __init__(self) -> None:
        self.enabled = False
        self.max_entries = 1
        self.entries: deque[dict[str, object]] = deque()
        self.skipped: frozenset[str] = frozenset()
        self.live: dict[int, int] = {}
        self.reserved = 0
        self.next = 1 << 32

    def record(self, enabled: bool, max_entries: int, clear: bool, skipped: list[str]) -> None:
        self.enabled = enabled
        self.max_entries = max(1, max_entries)
        self.skipped = frozenset(skipped)
        if not enabled or clear:
            self.entries.clear()

    def note(self, action: str, address: int, size: int) -> None:
        if not self.enabled or action in self.skipped:
            return
        while len(self.entries) >= self.max_entries:
            self.entries.popleft()
        self.entries.append(
            {
                "action": action, "addr": address, "size": size, "stream": 0,
                "time_us": time.time_ns() // 1000, "frames": [],
            }
        )  # fmt: skip


class Driver:
    """``devices`` GPUs. ``reentrant``: a thread can take PyTorch's lock twice (from 2.15 on)."""

    def __init__(self, devices: int = 2, reentrant: bool = False) -> None:
        self.devices = devices
        self.reentrant = reentrant
        self.rings = [Ring() for _ in range(devices)]
        #: (device, call, whether opscope made it), in order; the first of a device creates its context.
        self.needed_context: list[tuple[int, str, bool]] = []
        #: The names of all calls.
        self.calls: list[str] = []
        self._local = threading.local()
        self._pid = os.getpid()

    # -------------------------------------------------------------------- for the program

    @property
    def current(self) -> int:
        """The current device of this thread."""
        return getattr(self._local, "device", 0)

    def allocate(self, size: int, device: int | None = None) -> int:
        """Allocate memory as a tensor does; return the address of the block."""
        place = self.current if device is None else device
        self._needs_context("cudaMalloc", place)
        ring, segment = self.rings[place], (size + BLOCK - 1) // BLOCK * BLOCK
        address, ring.next = ring.next, ring.next + segment
        ring.live[address] = size
        ring.reserved += segment
        ring.note("segment_alloc", address, segment)
        ring.note("alloc", address, size)
        return address

    def release(self, address: int, device: int | None = None) -> None:
        """Release a block."""
        ring = self.rings[self.current if device is None else device]
        size = ring.live.pop(address)
        ring.note("free_requested", address, size)
        ring.note("free_completed", address, size)

    def report(self) -> dict[str, object]:
        """Return the calls to the driver."""
        return {"contexts": self.needed_context, "calls": self.calls}

    def write(self, path: str) -> None:
        """Write the report as JSON."""
        with open(path, "w") as file:
            json.dump(self.report(), file)

    # ------------------------------------------------------------------------- in PyTorch

    def install(
        self, torch: types.ModuleType, put: Callable[[object, str, object], None] = setattr
    ) -> None:
        """Replace PyTorch's C++ functions with ``put``; CUDA is not initialised afterwards.

        Python names are replaced only if they stand for a class or a function of C++.
        """
        cuda = self.cuda = torch.cuda
        for name in vars(type(self)):
            if name.startswith("_cuda_"):
                put(torch._C, name, getattr(self, name))
        put(torch._C, "_has_cuda", True)
        put(cuda, "_is_in_bad_fork", lambda: os.getpid() != self._pid)
        put(cuda, "_exchange_device", self._exchange)
        put(cuda, "_maybe_exchange_device", self._exchange)
        put(cuda.graphs, "_cuda_isCurrentStreamCapturing", self._cuda_isCurrentStreamCapturing)
        put(cuda, "_cudart", types.SimpleNamespace(cudaDriverGetVersion=self._driver_version))
        put(cuda, "default_generators", tuple(torch.Generator() for _ in self.rings))
        put(cuda, "_initialized", False)
        put(cuda, "_lazy_seed_tracker", type(cuda._lazy_seed_tracker)())
        put(cuda, "_queued_calls", list(cuda._queued_calls))
        put(cuda, "_initialization_lock", threading.RLock() if self.reentrant else threading.Lock())
        stand_in = self

        class Stream:
            """A stand-in for the C++ class, which a CPU build lacks."""

            def __init__(self, **where: object) -> None:
                self.cuda_stream = where.get("stream_id", 0)

            def query(self) -> bool:
                stand_in._needs_context("cudaStreamQuery")
                return True

            def synchronize(self) -> None:
                stand_in._needs_context("cudaStreamSynchronize")

        put(cuda, "Stream", Stream)
        profiler = torch.autograd.profiler
        supported = profiler._supported_activities
        activity = torch._C._profiler.ProfilerActivity
        both = lambda: {*supported(), activity.CUDA}  # noqa: E731
        put(profiler, "_supported_activities", both)
        put(torch.autograd, "_supported_activities", both)

    def _needs_context(self, call: str, device: int | None = None) -> None:
        frame, ours = sys._getframe(1), False
        while frame is not None:
            ours = ours or frame.f_globals.get("__name__", "").startswith("opscope")
            frame = frame.f_back
        self.calls.append(call)
        self.needed_context.append((self.current if device is None else device, call, ours))

    def _exchange(self, device: int) -> int:
        before = self.current
        if device >= 0:
            self._local.device = device
        return before

    def _driver_version(self) -> int:
        self.calls.append("cudaDriverGetVersion")
        return 13000

    def _cuda_init(self) -> None:
        self.calls.append("_cuda_init")

    def _cuda_getDeviceCount(self) -> int:
        return self.devices

    def _cuda_getDevice(self) -> int:
        return self.current

    def _cuda_setDevice(self, device: int) -> None:
        self.cuda._lazy_init()  # first: queued calls run with the previous device
        self._local.device = device
        self._needs_context("cudaSetDevice")  # since CUDA 12

    def _cuda_hasPrimaryContext(self, device: int) -> bool:
        return any(made == device for made, *_ in self.needed_context)

    def _cuda_synchronize(self) -> None:
        self._needs_context("cudaDeviceSynchronize")

    def _cuda_isCurrentStreamCapturing(self) -> bool:
        return False

    def _cuda_getCurrentStream(self, device: int) -> tuple[int, int, int]:
        return (0, self.current if device is None else device, 1)

    def _cuda_getCurrentRawStream(self, device: int) -> int:
        return 0

    def _cuda_getArchFlags(self) -> str:
        return ""

    def _cuda_isHistoryEnabled(self) -> bool:
        return self.rings[self.current].enabled

    def _cuda_record_memory_history(
        self,
        enabled: str | None,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: list[str] = [],  # noqa: B006 - as it is called
    ) -> None:
        if enabled not in (None, "state", "all"):
            raise RuntimeError("expected state to be 'state', 'all', or None")
        self.cuda._lazy_init()
        self.calls.append(f"_cuda_record_memory_history({enabled})")
        for ring in self.rings:
            many = max_entries if enabled == "all" else 1
            ring.record(enabled is not None, many, clear_history, skip_actions)

    def _cuda_record_memory_history_legacy(
        self,
        enabled: bool,
        record_context: bool = True,
        trace_alloc_max_entries: int = 1,
        trace_alloc_record_context: bool = False,
        record_cpp_context: bool = False,
        clear_history: bool = False,
        *more: object,
    ) -> None:
        self.cuda._lazy_init()
        self.calls.append(f"_cuda_record_memory_history_legacy({enabled})")
        for ring in self.rings:
            ring.record(enabled, trace_alloc_max_entries, clear_history, [])

    def _cuda_memorySnapshot(self, pool: object = None) -> dict[str, object]:
        self.calls.append("_cuda_memorySnapshot")
        traces = not isinstance(pool, tuple) or len(pool) < 3 or pool[2]
        found = {
            "segments": [],
            "device_traces": [list(r.entries) if traces else [] for r in self.rings],
        }
        for ring in self.rings:
            ring.note("snapshot", 0, 0)
        return found

    def _cuda_memoryStats(self, device: int) -> dict[str, object]:
        ring = self.rings[device]
        return {
            "requested_bytes": {"all": {"current": sum(ring.live.values())}},
            "reserved_bytes": {"all": {"current": ring.reserved}},
        }
