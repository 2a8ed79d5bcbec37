"""Compare opscope's emitter with raw nvtx calls in one run, in ns per range.

    python benchmarks/emit.py [--ranges 100000] [--repeats 5]

Every line is the median over the repeats of (push + pop) in a tight loop, with the loop included. "over raw"
is what opscope adds to the cheapest nvtx calls that send the same. The table is printed without a tool, and
with a tool attached that drops everything (compiled from C on the spot, if a compiler and the nvidia-nvtx
headers are installed); with a tool, ranges are always written from Python. Times vary by about 30 %: compare within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: A tool that receives the calls and does nothing, so that only the client's cost is measured.
SINK = """
#include "nvtx3/nvToolsExt.h"
static int NVTX_API push(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) { return 0; }
static int NVTX_API pop(nvtxDomainHandle_t d) { return 0; }
static void NVTX_API mark(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) { }
static nvtxDomainHandle_t NVTX_API make(const char *n) { return (nvtxDomainHandle_t)1; }
static nvtxStringHandle_t NVTX_API text(nvtxDomainHandle_t d, const char *n)
{ return (nvtxStringHandle_t)1; }
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *c = (const NvtxExportTableCallbacks *)get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable t; unsigned int n;
    if (!c || !c->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &t, &n)) return 0;
    *t[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *t[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    *t[NVTX_CBID_CORE2_DomainMarkEx] = (NvtxFunctionPointer)mark;
    *t[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)make;
    *t[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)text;
    return 1;
}
"""


def measure(ranges: int, repeats: int) -> dict[str, float]:
    """Return ns per range of each way; the ways are interleaved, so all see the same state of the machine."""
    import nvtx

    from opscope.adapters.shared import ranges as native_ranges
    from opscope.core.capture import emit, session
    from opscope.core.capture.recorder_sink import Recorder
    from opscope.core.schema import OpCall, TensorSpec

    emitter = session.emitter("torch")
    spec = TensorSpec("f32", (64, 64))
    call = emitter.prepare(OpCall("aten::mm", (spec, spec)), "forward")
    whole = emitter.prepare(OpCall("aten::mm", (spec, spec), (spec,)), "forward")
    domain = nvtx.get_domain("raw")
    attributes = domain.get_event_attributes(message=call.text, category=1)
    payload = domain.get_event_attributes(message=call.text, category=1, payload=1)

    def loop() -> None:
        for _ in range(ranges):
            pass

    def annotate() -> None:
        for _ in range(ranges):
            with nvtx.annotate("aten::mm"):
                pass

    def module() -> None:
        push, pop = nvtx.push_range, nvtx.pop_range
        for _ in range(ranges):
            push("aten::mm")
            pop()

    def prepared() -> None:
        push, pop = domain.push_range, domain.pop_range
        for _ in range(ranges):
            push(attributes)
            pop()

    def prepared_payload() -> None:
        push, pop = domain.push_range, domain.pop_range
        for number in range(ranges):
            push(payload, payload=number)
            pop()

    def ours() -> None:
        for _ in range(ranges):
            emitter.push(call)
            emitter.pop()

    def ours_payload() -> None:
        for number in range(ranges):
            emitter.push(call, number, 1)
            emitter.pop()

    def ours_result() -> None:
        for _ in range(ranges):
            emitter.push(call)
            emitter.pop(whole)

    def hook() -> None:
        for _ in range(ranges):
            if emitter.active:
                emitter.push(call)

    natively = native_ranges.load()

    def recorded(function: Callable[[], None], writes: Any = None) -> Callable[[], None]:
        def run() -> None:
            emit.write_natively(writes)
            with tempfile.TemporaryDirectory() as folder:
                recorder = Recorder(folder)
                recorder.start()
                session.listen(recorder)
                begin = time.perf_counter_ns()
                function()
                run.took = time.perf_counter_ns() - begin  # type: ignore[attr-defined]
                session.listen(None)
                recorder.stop()

        return run

    ways: dict[str, Callable[[], None]] = {
        "empty loop": loop,
        "raw: nvtx.annotate": annotate,
        "raw: nvtx.push_range, pop_range": module,
        "raw: prepared": prepared,
        "raw: prepared, payload": prepared_payload,
        "opscope": ours,
        "opscope, payload": ours_payload,
        "opscope, result mark": ours_result,
        "opscope + recorder": recorded(ours, natively),
        "opscope + recorder, payload": recorded(ours_payload, natively),
        "opscope + recorder, result": recorded(ours_result, natively),
        "the same in Python": recorded(ours),
        "the same in Python, payload": recorded(ours_payload),
        "the same in Python, result": recorded(ours_result),
    }
    if not emitter.active:
        ways["hook that asks emitter.active"] = hook
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begin = time.perf_counter_ns()
            way()
            took = getattr(way, "took", None) or time.perf_counter_ns() - begin
            taken[name].append(took / ranges)
    return {name: statistics.median(times) for name, times in taken.items()}


def tool(folder: Path) -> Path | None:
    """Build the tool that drops everything; return None if it cannot be built."""
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        from nvtx_tool import include
    except ImportError:
        return None
    source, library = folder / "sink.c", folder / "sink.so"
    source.write_text(SINK)
    try:
        headers = include()
        command = ["gcc", "-O2", "-shared", "-fPIC", "-I", headers, str(source), "-o", str(library)]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the tool that drops everything could not be built: {error}")
        return None
    return library


def run(label: str, arguments: argparse.Namespace, injection: Path | None) -> None:
    """Measure in a fresh process, as a process decides only once whether NVTX is live; print a table."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("NVTX_")}
    env["PYTHONPATH"] = str(ROOT)
    if injection is not None:
        env["NVTX_INJECTION64_PATH"] = str(injection)
    command = [sys.executable, __file__, "--child", "--ranges", str(arguments.ranges)]
    command += ["--repeats", str(arguments.repeats)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    times = json.loads(done.stdout)
    empty, plain, payload = (
        times["empty loop"], times["raw: prepared"], times["raw: prepared, payload"]
    )  # fmt: skip
    print(f"\n{label}\n{'':36}{'ns/range':>9}{'over raw':>10}{'× raw':>8}")
    for name, took in times.items():
        raw = (payload if "payload" in name else plain) if "opscope" in name else None
        more = "" if raw is None else f"{took - raw:+10.0f}{took / raw:8.1f}"
        print(f"{name:36}{took:9.0f}{more}")
    print(f"{'(the empty loop is in every line)':36}{empty:9.0f}")


def main() -> None:
    """Run the benchmark without and with a tool attached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranges", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.ranges, arguments.repeats)))
        return
    with tempfile.TemporaryDirectory() as folder:
        run("no tool attached: NVTX is off", arguments, None)
        library = tool(Path(folder))
        if library is not None:
            run("a tool attached: NVTX is live", arguments, library)


if __name__ == "__main__":
    main()
