"""``opscope run --counters`` by CUPTI's own calls, over a stand-in for the library, under real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.backends.cupti_counters.range_profiling import CYCLE
from tests.cupti_stand_in.library import build
from tests.cupti_stand_in.play import Activity

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CUPTI's helper is built on Linux only"
)
ROOT = Path(opscope.__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parents[1] / "cupti_stand_in"
LIMIT_S = 180
NAMES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
KERNELS = [f"void k{number}<float>(int)" for number in range(3)]

BEGIN = """
    import ctypes, os, threading, time
    import opscope
    cupti = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libcupti.so.12")

    def launch(number, call=0):
        cupti.standin_launch(call, number, ctypes.c_uint64(0))

    def cuda_begins():
        "CUDA's driver loads the injection library, and another recording takes the first one's place."
        first = opscope.core.capture.session.recorder()
        ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
        deadline = time.monotonic() + 60
        while opscope.core.capture.session.recorder() in (None, first):
            time.sleep(0.01)
            assert time.monotonic() < deadline, "nothing began"
"""
#: A program without a framework: three steps of three kernels, in ranges.
PLAIN = (
    BEGIN
    + """
    cuda_begins()
    for _ in range(3):
        opscope.step()
        for number in range(3):
            with opscope.annotate(f"op{number}"):
                launch(2 + number)
    print("ended")
"""
)


def then(more: str) -> str:
    """``PLAIN`` that does more before it ends."""
    return PLAIN.replace(
        'print("ended")', textwrap.indent(more, "    ").lstrip() + '\n    print("ended")'
    )


#: A training of PyTorch's; each product of matrices launches a kernel.
TRAINING = (
    BEGIN
    + """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode


    class Launches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), more=None):
            if function._schema.name in ("aten::addmm", "aten::mm"):
                launch(2)
            return function(*arguments, **(more or {}))

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    cuda_begins()
    with Launches():
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(16, 64)).sum()
            loss.backward()
            optimizer.step()
    print(float(loss))
"""
)


class Machine:
    """A folder with the stand-in, and ``opscope run --counters`` in it."""

    def __init__(self, folder: Path, *flags: str, counters: bool = True) -> None:
        self.folder = folder
        build(folder / "lib", *flags, counters=counters)
        activity = Activity()
        activity.call()  # 0: cudaLaunchKernel
        activity.call(311)  # 1: cudaGraphLaunch
        for number, name in enumerate(KERNELS):
            activity.kernel(name, duration=1000 + number)
        self.env = {
            **{name: value for name, value in os.environ.items() if "CUDA" not in name},
            "PYTHONPATH": os.pathsep.join([str(HERE / "site"), str(ROOT)]),
            "LD_LIBRARY_PATH": str(folder / "lib"),
            "CUPTI_STAND_IN_GPU": "1",
            "CUPTI_STAND_IN_PLAY": str(activity.write(folder / "play")),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, program: str, *options: str, status: int = 0, **environ: str) -> str:
        (self.folder / "program.py").write_text(textwrap.dedent(program))
        command = [sys.executable, "-m", "opscope", "run", "-o", "out", "--no-report"]
        done = subprocess.run(
            [*command, "--counters", "dram", *options, "--", sys.executable, "program.py"],
            cwd=self.folder, env={**self.env, **environ}, text=True, capture_output=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        self.output = done.stdout
        return done.stderr

    @property
    def profile(self):
        return opscope.load(self.folder / "out.opscope")

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "opscope", *words],
            cwd=self.folder, env={**self.env, "CUPTI_STAND_IN_GPU": ""}, text=True, capture_output=True,
            timeout=LIMIT_S, check=True,
        )  # fmt: skip
        return done.stdout


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def value(name: str, place: int) -> float:
    """What the stand-in counts of the kernel at a place."""
    return 1000.0 * len(name) + place


def test_each_kernel_has_its_counters_and_its_range(machine):
    told = machine.run(PLAIN)
    assert machine.output == "ended\n"
    assert (
        "hardware counters of 9 kernels, by CUPTI's range profiling (libcupti has range profiling (CUDA 12.6"
        " or later)): opscope counters FILE shows them"
    ) in told
    found = machine.profile.counters()
    assert found["name"].to_list() == 3 * KERNELS
    assert found["bottom_op"].to_list() == 3 * ["op0", "op1", "op2"]
    assert found["step"].to_list() == 3 * [0] + 3 * [1] + 3 * [2]
    assert found["device"].to_list() == 9 * [0]
    for name in NAMES:
        assert found[name].to_list() == [value(name, place) for place in range(9)]
    assert not machine.profile.trace.has("kernels")  # no time of theirs is the program's


def test_a_training_has_its_counters_by_op_and_beside_the_model(machine):
    pytest.importorskip("torch")
    told = machine.run(TRAINING, "--counters", "flops,dram")
    alone = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRAINING.replace("\n    cuda_begins()", ""))],
        env=machine.env, text=True, capture_output=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert machine.output == alone.stdout  # the training's results are its own
    profile = machine.profile
    found = profile.counters()
    # a step: two products forward, two for the weights' gradients and one for the hidden layer's
    assert len(found) == 4 * 5
    assert "hardware counters of 20 kernels" in told
    assert set(found["bottom_op"]) == {"aten::addmm", "aten::mm"}
    assert set(found["direction"]) == {"forward", "backward"}
    assert found["layer"].null_count() == 0
    rows = json.loads(machine.command("counters", "out.opscope", "--json"))
    assert sum(row["counted_kernels"] for row in rows if row["counter"] == NAMES[0]) == 20
    roofline = profile.counter_roofline()
    read = value(NAMES[0], 0) + value(NAMES[1], 0)
    first = roofline.filter(pl.col("op") == "aten::addmm")
    assert first["calls"].sum() == 8
    assert first["counted_bytes"].sum() >= 8 * read
    assert first["model_flops"].sum() == 4 * 2 * 16 * (64 * 32 + 32 * 8)
    assert "A100" in machine.command("counters", "out.opscope", "--roofline")


def test_counters_that_the_driver_forbids_are_told_with_the_remedy(machine):
    told = machine.run(PLAIN, CUPTI_STAND_IN_ERRORS="cuptiRangeProfilerEnable=35")
    assert machine.output == "ended\n"
    last = told.strip().splitlines()[-1]
    assert last.startswith("opscope: no hardware counters, by CUPTI's range profiling")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in last
    assert "--cap-add=SYS_ADMIN" in last
    trace = machine.profile.trace
    assert any("ERR_NVGPUCTRPERM" in note for note in trace["notes"]["what"])
    assert len(trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")) == 3


def test_another_subscriber_is_told_and_the_run_goes_on(machine):
    """Sampling needs no subscriber, so it is what is left where another tool is the subscriber."""
    told = machine.run(
        PLAIN, "--counters-by", "ranges", CUPTI_STAND_IN_TAKEN="CUPTI for Nsight Systems"
    )
    assert machine.output == "ended\n"
    last = told.strip().splitlines()[-1]
    assert last.startswith("opscope: no hardware counters: CUPTI's range profiling: ")
    assert "it is CUPTI for Nsight Systems" in last


def test_a_library_without_range_profiling_leaves_the_next_ways(tmp_path):
    machine = Machine(tmp_path, counters=False)
    told = machine.run(PLAIN)
    assert machine.output == "ended\n"
    last = told.strip().splitlines()[-1]
    assert (
        "no hardware counters: CUPTI's range profiling: it could not start: this libcupti has no"
        in last
    )
    assert "counters need the libcupti of CUDA 12.6 or later" in last
    assert "PyTorch's profiler: it could not start: the program does not use PyTorch" in last
    assert "CUPTI's PM sampling: it could not start" in last
    assert not len(machine.profile.trace["counters"])


@pytest.mark.parametrize(
    ("options", "environ", "why"),
    [
        (["--counters-by", "sampling"], {}, "libcupti has PM sampling"),
        (
            [],
            {"CUPTI_STAND_IN_TAKEN": "a tool"},
            "range profiling: it could not start: cuptiSubscribe",
        ),
    ],
)
def test_a_device_is_sampled_where_that_is_asked_for_or_left(machine, options, environ, why):
    program = PLAIN.replace('print("ended")', 'time.sleep(0.7); print("ended")')
    told = machine.run(program, *options, **environ)
    last = told.strip().splitlines()[-1]
    assert "9 samples of hardware counters, by CUPTI's PM sampling" in last
    assert why in last
    trace = machine.profile.trace
    sampled = trace["samples"].filter(pl.col("name").cast(pl.String).is_in(NAMES))
    assert len(sampled) == 2 * 9
    assert sampled["device"].to_list() == 18 * [0]
    first = sampled.filter(pl.col("name").cast(pl.String) == NAMES[0]).sort("time")
    assert first["value"].to_list()[0] == value(NAMES[0], 0)
    begin, end = trace["ranges"]["start"].min(), trace["ranges"]["end"].max()
    assert (
        begin - 2_000_000_000 < sampled["time"].min() <= sampled["time"].max() < end + 2_000_000_000
    )
    assert not len(trace["counters"])


def test_counters_of_a_launched_graph_have_no_launch(machine):
    machine.run(then("launch(2, call=1)"))
    profile = machine.profile
    found = profile.counters()
    assert len(found) == 10
    assert found["correlation"].null_count() == 10
    assert any(
        "1 launch of CUDA graphs ran an unknown number" in n for n in profile.trace["notes"]["what"]
    )


def test_launches_of_threads_that_cross_are_not_told_apart(machine):
    """Two threads launch at once, again and again: a launch that overlaps none of the other has its counters."""
    machine.run(
        then("""
def work():
    for _ in range(50):
        launch(2)

threads = [threading.Thread(target=work) for _ in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
""")
    )
    trace = machine.profile.trace
    counters = trace["counters"].filter(pl.col("name").cast(pl.String) == NAMES[0])
    assert len(counters) == 109
    linked = counters.drop_nulls("correlation")
    assert len(linked) >= 9  # those before the threads
    assert linked["correlation"].n_unique() == len(linked)
    # those before the threads are in the order of the launches
    order = trace["calls"].sort("start")["correlation"].to_list()
    assert counters.sort("range_id")["correlation"].to_list()[:9] == order[:9]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--counters-by", "magic"], "choose one of: auto, ranges, torch, sampling"),
        (["--counters", "no counter!"], "is no counter's name"),
        (["--backend", "recorder"], "cannot be measured by --backend recorder"),
        (["--last", "3 steps"], "--counters measures them without"),
        (
            ["--backend", "cupti", "--counters-by", "torch"],
            "--backend cupti measures counters by ranges",
        ),
    ],
)
def test_options_that_cannot_be_met_end_the_command(machine, options, line):
    told = machine.run(PLAIN, *options, status=2)
    assert line in " ".join(told.split())
    assert machine.output == ""


def test_a_launch_that_holds_pythons_lock_goes_on_without_its_counters(machine):
    """Whoever begins to count needs the lock, so the launch must not wait for that for ever."""
    machine.run(
        PLAIN.replace(
            "cuda_begins()\n    for",
            "cuda_begins()\n    held = ctypes.PyDLL(cupti._name)\n"
            "    held.standin_launch(0, 2, ctypes.c_uint64(0))\n    time.sleep(1)\n    for",
        )
    )
    assert machine.output == "ended\n"
    trace = machine.profile.trace
    assert len(trace["calls"]) == 10
    counters = trace["counters"].filter(pl.col("name").cast(pl.String) == NAMES[0])
    # the first is not measured, and none of the others has its place
    assert counters.sort("range_id")["correlation"].to_list() == list(range(2, 11))
    assert any("their first kernels are not measured" in note for note in trace["notes"]["what"])


def test_a_context_that_cannot_be_measured_leaves_the_others(machine):
    """The stand-in has room for one context."""
    machine.run(
        then("""
cupti.standin_context(ctypes.c_uint64(0x2000))
launch(3)
cupti.standin_context(ctypes.c_uint64(0x1000))
""")
    )
    trace = machine.profile.trace
    assert len(trace["calls"]) == 10
    assert any("another tool measures counters" in note for note in trace["notes"]["what"])
    # the stand-in counts launches of any context: as many as none can be told from the other
    assert trace["counters"]["correlation"].null_count() == len(trace["counters"])
    assert any("9 launches, and CUPTI measured 10 kernels" in n for n in trace["notes"]["what"])


def test_more_kernels_than_there_is_room_for_are_measured_in_turns(machine):
    """CUPTI has room for few kernels: launches wait while their counters are taken out, in every thread."""
    machine.run(
        then("""
def work():
    for _ in range(250):
        launch(2)
        time.sleep(0)

threads = [threading.Thread(target=work) for _ in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
for _ in range(300):
    launch(4)
""")
    )
    assert machine.output == "ended\n"
    trace = machine.profile.trace
    assert len(trace["calls"]) == 9 + 500 + 300
    counters = trace["counters"].filter(pl.col("name").cast(pl.String) == NAMES[0])
    assert len(counters) == 809
    # the stand-in counts from 0 each time that it begins: every kernel in its place
    places = (counters.sort("range_id")["value"] - value(NAMES[0], 0)).cast(pl.Int64).to_list()
    begins = [at for at, place in enumerate(places) if place == 0]
    assert begins[0] == 0
    assert places == [at - max(one for one in begins if one <= at) for at in range(809)]
    assert max(places) < CYCLE
    assert not any("no room" in note or "not measured" in note for note in trace["notes"]["what"])
    # those after the threads have ended are linked to their launches, in order
    order = trace["calls"].sort("start")["correlation"].to_list()
    assert counters.sort("range_id")["correlation"].to_list()[-300:] == order[-300:]


def test_nothing_is_taken_out_while_a_cuda_graph_is_captured(machine):
    """It would end the capture. What has no room meanwhile is told; later kernels are measured again."""
    machine.run(
        then("""
from opscope.core.capture.cuda_graphs import OF_PROCESS

class Graph:
    pass

graph = Graph()
OF_PROCESS.begins(graph)
for _ in range(40):
    launch(2)
OF_PROCESS.ends(graph)
for _ in range(40):
    launch(3)
""")
    )
    assert machine.output == "ended\n"
    trace = machine.profile.trace
    counters = trace["counters"].filter(pl.col("name").cast(pl.String) == NAMES[0])
    # 9 and 23 of the capture, then what came once values had been taken out
    assert CYCLE <= len(counters) < 9 + 40 + 40
    assert any("had no room" in note for note in trace["notes"]["what"])
    places = (counters.sort("range_id")["value"] - value(NAMES[0], 0)).cast(pl.Int64).to_list()
    assert places.count(0) == 2
