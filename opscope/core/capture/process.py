"""The recording process: host, pid, rank, versions, living threads, and the command without secrets."""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opscope.core.capture import hardware
from opscope.core.process_specs import FORK, GRAPH, KEY, PRIVATE
from opscope.core.rangetext import format_spec
from opscope.core.schema import OpCall, ParamValue

_IMPORT_TIME: Final = time.time_ns()
#: Before Python 3.12 an allocation may collect garbage at once, also inside ``sys._current_frames``.
_COLLECTS: Final = sys.version_info < (3, 12)

#: The variables of each launcher for (rank, world size, local rank). The first launcher counts that sets
#: both rank and world size.
_RANK_NAMES: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
    # not SLURM_NTASKS: a batch script has it too, with SLURM_PROCID 0, and is not a rank
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
#: Modules whose versions are recorded, if the program itself has imported them.
_FRAMEWORKS: Final = (
    "torch", "tensorflow", "keras", "jax", "mindspore", "onnxruntime", "tensorrt", "lightning",
    "transformers", "triton", "numpy", "nvtx",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``start_time`` is Unix ns; computed again in this process it is the same."""

    host: str
    boot: str | None
    pid: int
    parent: int
    start_time: int
    rank: int | None
    world_size: int | None
    local_rank: int | None
    name: str
    command: tuple[str, ...] = field(default=())

    @property
    def folder(self) -> str:
        """The folder name of this process's part of a recording."""
        host = re.sub(r"[^\w.-]", "_", self.host)[:80] or "host"
        return f"part-{host}-{self.pid}-{self.start_time}"


def current() -> Process:
    """Return the current process; nothing is cached, because a fork changes it."""
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else Path(sys.executable).name
    command = tuple(getattr(sys, "orig_argv", sys.argv))
    return _process(os.getpid(), os.getppid(), name, command, os.environ.get(PRIVATE) == "1")


def child(pid: int, name: str, command: tuple[str, ...], private: bool) -> Process:
    """Return a child of this process, which runs ``command``: the same process as ``current`` returns there.

    Its name and command may differ.
    """
    return _process(pid, os.getpid(), name, command, private)


def private_host(host: str, boot: str | None) -> str:
    """Return a name that is the same for all processes of a machine and does not identify the machine."""
    import hashlib  # lazy: private runs need it

    key = hashlib.sha256((boot or "").encode()).digest()
    return "host-" + hashlib.blake2s(host.encode(), key=key, digest_size=4).hexdigest()


def _process(pid: int, parent: int, name: str, command: tuple[str, ...], hidden: bool) -> Process:
    from opscope.core import redaction  # lazy: its patterns take 3 ms to compile

    rank, world_size, local_rank = ranks(os.environ)
    host, known_boot = socket.gethostname(), boot()
    return Process(
        host=private_host(host, known_boot) if hidden else host,
        boot=known_boot,
        pid=pid,
        parent=parent,
        start_time=_start_time(pid),
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        name=name,
        command=redaction.private(command) if hidden else redaction.redact(command),
    )


def boot() -> str | None:
    """Return the system's id of this boot; None if the system gives none."""
    return _text("/proc/sys/kernel/random/boot_id")


def spec() -> str:
    """Return the spec that describes this process to an NVTX tool, which knows neither rank nor parent.

    ``process/facts = process() {host="a", pid=7, parent=1, rank=0, world_size=2, …}``
    """
    who = current()
    facts: dict[str, ParamValue] = {
        "host": who.host,
        "pid": who.pid,
        "parent": who.parent,
        "start_time": who.start_time,
        "rank": who.rank,
        "world_size": who.world_size,
        "local_rank": who.local_rank,
        "name": who.name,
        "versions": tuple(f"{name} {version}" for name, version in versions().items()),
    }
    params = tuple((name, value) for name, value in facts.items() if value is not None)
    return format_spec(GRAPH, KEY, OpCall(GRAPH, (), None, params))


def forked_spec() -> str:
    """Return the spec that tells an NVTX tool that this process has forked: the child may not be traced."""
    return format_spec(GRAPH, FORK, OpCall(FORK))


def ranks(environ: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Return ``(rank, world size, local rank)`` as set by torchrun, MPI or Slurm; ``None`` if unset.

    A Slurm step of one task is not a rank: Slurm also starts shells this way.
    """
    for names in _RANK_NAMES:
        rank, world, local = (_number(environ.get(name)) for name in names)
        if rank is not None and world is not None:
            if names[0].startswith("SLURM") and world <= 1:
                continue
            return rank, world, local
    return None, None, None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the frameworks that this process has imported, and what they run
    on: the processor's model (``cpu``), its measured roofs (``cpu_roofs``) and, once a framework is there,
    the cuDNN that it has loaded."""
    versions_by_name = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions_by_name[name] = version
    machine = {"cpu": hardware.cpu_model(), "cpu_roofs": hardware.cpu_roofs()}
    if len(versions_by_name) > 1:
        machine["cudnn"] = hardware.cudnn_version()
    return versions_by_name | {name: said for name, said in machine.items() if said}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def began() -> int | None:
    """Return when this process began, on the clock of ``perf_counter_ns``; None if the system does not say.
    Exact to a tick of the system, 10 ms."""
    since_boot = _start(os.getpid())
    if since_boot is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot
    return time.perf_counter_ns() - age if age >= 0 else None


def _start_time(pid: int) -> int:
    """Return boot time plus the process's start (proc(5)), else this module's import time, in Unix ns."""
    since_boot, kernel = _start(pid), _text("/proc/stat")
    boot = re.search(r"^btime ([0-9]+)", kernel or "", re.MULTILINE)
    if since_boot is None or boot is None:
        return _IMPORT_TIME
    return int(boot.group(1)) * 1_000_000_000 + since_boot


def _start(pid: int) -> int | None:
    """Return how long after boot the process started (ns); None if the system does not say."""
    folder = "self" if pid == os.getpid() else pid  # /proc may be of another namespace
    stat = _text(f"/proc/{folder}/stat")
    # field 2, the command, is in parentheses and may contain any character: count from the last ")"
    fields = [] if stat is None else stat[stat.rindex(")") + 1 :].split()
    if len(fields) < 20:
        return None
    return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def living_threads() -> set[int]:
    """Return the idents of the threads that are alive.

    Until Python 3.11, the program would stop for ever if garbage with a ``threading.local`` were collected
    inside ``sys._current_frames``: both take the interpreter's lock of its threads.

    Frames are not returned: the caller's own frame is among them. It would keep itself alive, and all objects
    of its callers, until the garbage collector finds the cycle.
    """
    pause = _COLLECTS and gc.isenabled()
    if pause:
        gc.disable()
    try:
        return set(sys._current_frames())
    finally:
        if pause:
            gc.enable()
