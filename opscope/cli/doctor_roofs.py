"""``opscope doctor --measure``: this CPU's limits, kept for recordings on this machine."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from opscope.core import owned_folder
from opscope.core.capture import hardware
from opscope.core.question import units
from opscope.core.question.forms import columns
from opscope.core.question.layout import Table

from . import common

#: Seconds that each of the three figures is measured for.
_EACH_S: Final = 2.0
_LEAST_SIZE: Final = 512
_MOST_SIZE: Final = 8_192
#: The copied array has four times the last cache, between these bytes.
_LEAST_COPY: Final = 1 << 27
_MOST_COPY: Final = 1 << 30
#: If other processes take more than this share of the cores, the figures are doubted.
_BUSY: Final = 0.1
_LAST_CACHE: Final = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


def measured() -> dict[str, Any]:
    """Return this CPU's name, cores, FLOP/s by dtype, bytes/s and last cache.

    A process of its own measures, because the variables that limit a library's threads count at its start.
    """
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS")
    environ = {name: value for name, value in os.environ.items() if name not in limits}
    common.say(
        f"measuring {hardware.cores()} cores for about {3 * _EACH_S:.0f} s: leave the machine idle"
    )
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        common.fail(f"cannot measure: {(done.stderr.strip() or 'it was killed').splitlines()[-1]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return {"cpu": hardware.cpu_model(), "cores": hardware.cores(), **figures}


def keep(figures: dict[str, Any]) -> dict[str, Any]:
    """Write the figures to the user's file; if the machine was measured before, keep the higher ones. A limit
    is the most that was ever measured, and a machine in use by others shows less. Returns the row with
    ``roofs``, the text that ``--gpu`` takes, and ``kept_in``."""
    path = owned_folder.cache_folder() / hardware.ROOFS_FILE
    here, row = (figures["cpu"], figures["cores"]), dict(figures)
    others = []
    for machine in hardware.measured_machines():
        if (machine.get("cpu"), machine.get("cores")) == here:
            row = _higher(row, machine)
        else:
            others.append(machine)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    row |= {"roofs": _text(row), "measured": now}
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {"schema": 1, "machines": [row, *others[:100]]}
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        common.fail(f"cannot keep what was measured: {path}: {error.strerror}")
    hardware.cpu_roofs.cache_clear()
    return {**row, "kept_in": str(path)}


def _higher(figures: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the figures, each replaced by the earlier row's figure if that is higher."""
    flops, bandwidth = before.get("flops"), before.get("bandwidth")
    rates = flops if isinstance(flops, dict) else {}
    known = {dtype: rate for dtype, rate in rates.items() if isinstance(rate, (int, float))}
    best = {dtype: max(rate, known.get(dtype, 0)) for dtype, rate in figures["flops"].items()}
    copied = bandwidth if isinstance(bandwidth, (int, float)) else 0
    return {**figures, "flops": best, "bandwidth": max(figures["bandwidth"], copied)}


def table(kept: dict[str, Any]) -> Table:
    """Return the table of the measured figures and of where they are kept."""
    rows = [
        {
            "what": dtype,
            "limit": units.flop_rate(rate),
            "how": "NumPy's matrix product, the fastest size",
        }
        for dtype, rate in kept["flops"].items()
    ]
    copied = (
        "copies of an array larger than the last cache, a thread a core; bytes read and written"
    )
    rows.append({"what": "memory", "limit": units.bandwidth(kept["bandwidth"]), "how": copied})
    notes = [
        f"kept in {kept['kept_in']}: recordings made here from now on carry it",
        f"for a recording made here before: --gpu {kept['roofs']!r}",
    ]
    if kept["others"] is not None and kept["others"] > _BUSY:
        busy = f"other processes took {units.share(kept['others'])} of these cores meanwhile"
        notes.insert(0, f"{busy}: measure again when they are idle; the highest figures are kept")
    title = f"Limits of {kept['cpu'] or 'this CPU'}, {kept['cores']} cores"
    return Table(title, columns(["what", "limit", "how"]), rows, notes)


def _text(figures: dict[str, Any]) -> str:
    """Return the figures as a text that ``identify.find`` reads."""
    words = [f"CPU {figures['cores']} cores"]
    words += [f"{dtype} {rate / 1e9:.4g} GFLOP/s" for dtype, rate in figures["flops"].items()]
    words.append(f"{figures['bandwidth'] / 1e9:.4g} GB/s")
    words += [f"{figures['cache'] / 2**20:.4g} MB"] if figures["cache"] else []
    words += [f"of {figures['cpu']}"] if figures["cpu"] else []
    return " ".join(words)


def _figures(each_s: float) -> dict[str, Any]:
    """Return FLOP/s by dtype, bytes/s, the last cache's bytes, and the share of the cores that others
    used."""
    cache, before, own, began = _last_cache(), _busy_s(), time.process_time(), time.perf_counter()
    flops = {name: _products(dtype, each_s) for name, dtype in (("f32", "f4"), ("f64", "f8"))}
    bandwidth, after = _copies(cache or 0, each_s), _busy_s()
    own, took = time.process_time() - own, time.perf_counter() - began
    others = None
    if before is not None and after is not None:
        others = max(0.0, (after - before - own) / took / hardware.cores())
    return {"flops": flops, "bandwidth": bandwidth, "cache": cache, "others": others}


def _busy_s() -> float | None:
    """Return how long the processors of this process have worked for any process; None if that is unknown."""
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text("ascii").splitlines()]
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        # user nice system idle iowait irq softirq steal (proc(5)): all but idle and iowait
        ticks = sum(sum(map(int, (*f[1:4], *f[6:9]))) for f in lines if f and f[0] in mine)
    except (OSError, ValueError, AttributeError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def _products(dtype: str, each_s: float) -> float:
    """Return the FLOP/s of the fastest product of square matrices, whose size doubles while there is time."""
    import numpy as np

    size, best, until = _LEAST_SIZE, 0.0, time.perf_counter() + each_s
    while True:
        left, right = np.ones((size, size), dtype), np.ones((size, size), dtype)
        out = np.empty_like(left)
        product = functools.partial(np.matmul, left, right, out=out)
        took = _fastest(product, min(until, time.perf_counter() + each_s / 4))
        best = max(best, 2 * size**3 / took)
        # the next size takes eight times as long
        if size == _MOST_SIZE or time.perf_counter() + 8 * took > until:
            return best
        size *= 2


def _copies(cache: int, each_s: float) -> float:
    """Return the bytes/s, read and written, of copies by a thread a core."""
    import numpy as np

    cores = hardware.cores()
    source = np.ones(min(max(4 * cache, _LEAST_COPY), _MOST_COPY), np.uint8)
    target = np.ones_like(source)  # write once, so that its pages exist
    pieces = list(zip(np.array_split(source, cores), np.array_split(target, cores), strict=True))
    with ThreadPoolExecutor(cores) as pool:

        def copy() -> None:  # NumPy releases the GIL
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pieces))

        return 2 * source.nbytes / _fastest(copy, time.perf_counter() + each_s)


def _fastest(call: Callable[[], object], until: float) -> float:
    """Return the least seconds that the call takes, of at least three."""
    times: list[float] = []
    while len(times) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def _last_cache() -> int | None:
    """Return the bytes of the last cache, as Linux gives them (``32768K``); None if it does not."""
    try:
        said = _LAST_CACHE.read_text(encoding="ascii").strip()
        return int(said.removesuffix("K")) * (1024 if said.endswith("K") else 1)
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_figures(_EACH_S)))
