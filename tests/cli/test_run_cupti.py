"""``opscope run`` with CUPTI, over a stand-in for the library: Python programs and others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.cupti import kinds
from tests.cupti_stand_in.library import build
from tests.cupti_stand_in.play import Activity

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CUPTI's helper is built on Linux only"
)
ROOT = Path(opscope.__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parents[1] / "cupti_stand_in"
LIMIT_S = 120
KERNELS = [f"k{number}<float>" for number in range(5)]


class Machine:
    """A folder with the stand-in, and ``opscope run`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = build(folder / "lib")
        activity = Activity()
        activity.call()
        for number, name in enumerate(KERNELS):
            activity.kernel(name, duration=1000 + number)
        self.play = activity.write(folder / "play")
        self.env = {
            **{name: value for name, value in os.environ.items() if "CUDA" not in name},
            "PYTHONPATH": os.pathsep.join([str(HERE / "site"), str(ROOT)]),
            "LD_LIBRARY_PATH": str(folder / "lib"),
            "CUPTI_STAND_IN_GPU": "1",
            "CUPTI_STAND_IN_PLAY": str(self.play),
            "OMP_NUM_THREADS": "1",
        }

    def program(self) -> str:
        compiler = shutil.which("gcc") or shutil.which("cc")
        target = self.folder / "a.out"
        source = HERE / "program.c"
        subprocess.run([compiler, str(source), "-o", str(target), "-ldl", "-lpthread"], check=True)
        return str(target)

    def start(self, *command: str, options=(), **environ: str) -> subprocess.Popen:
        return subprocess.Popen(
            [
                sys.executable, "-m", "opscope", "run", "-o", "out", "--no-report", *options, "--",
                *command,
            ],
            cwd=self.folder, env={**self.env, **environ}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *command: str, options=(), status: int = 0, **environ: str) -> str:
        started = self.start(*command, options=options, **environ)
        self.output, errors = started.communicate(timeout=LIMIT_S)
        assert started.returncode == status, errors
        return errors

    @property
    def trace(self):
        return opscope.load(self.folder / "out.opscope").trace


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def names(trace) -> list[str]:
    return trace["kernels"].sort("start")["name"].cast(pl.String).to_list()


PYTHON = """
    import ctypes, os, sys, time
    import opscope
    cupti = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libcupti.so.12")
    opscope.step()
    first = opscope.core.capture.session.recorder()
    # CUDA is initialised: its driver loads the injection library
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    while not cupti.standin_subscribed():  # what makes a context takes a while
        time.sleep(0.01)
    # the first recording gives way to another, or CUPTI has joined it where it is a ring
    while True:
        now = opscope.core.capture.session.recorder()
        if now is not None and (now is not first or getattr(now, "segmented", None)):
            break
        time.sleep(0.01)
    for _ in range(3):
        opscope.step()
        for number in range(5):
            with opscope.annotate(f"op{number}"):
                cupti.standin_launch(0, 1 + number, ctypes.c_uint64(0))
    print("ended")
"""


@pytest.mark.parametrize("options", [["--backend", "cupti"], []])
def test_a_program_of_any_framework_has_its_kernels(machine, options):
    """Without PyTorch in this Python, ``auto`` is CUPTI; where it is installed, it is asked for."""
    if not options and shutil.which("nsys"):
        pytest.skip("auto is Nsight Systems here")
    (machine.folder / "program.py").write_text(textwrap.dedent(PYTHON))
    hidden = machine.folder / "hidden"
    hidden.mkdir()
    if not options:  # a PyTorch and a JAX that cannot be found
        code = "import importlib.util as u; f = u.find_spec\n"
        code += "u.find_spec = lambda n, *a: None if n in ('torch', 'jax') else f(n, *a)\n"
        site = hidden / "sitecustomize.py"
        site.write_text((HERE / "site" / "sitecustomize.py").read_text() + code)
        machine.env["PYTHONPATH"] = f"{hidden}{os.pathsep}{ROOT}"
    errors = machine.run(sys.executable, "program.py", options=options)
    assert machine.output == "ended\n"
    assert names(machine.trace) == 3 * KERNELS
    assert "Traceback" not in errors
    ops = opscope.load(machine.folder / "out.opscope").kernels().sort("start")["range"].to_list()
    assert ops == 3 * [f"op{number}" for number in range(5)]


AT_ONCE = """
    import ctypes, os
    import opscope
    cupti = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libcupti.so.12")
    opscope.step()
    with opscope.annotate("before"):
        pass
    ctypes.{library}(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    for number in range(5):
        with opscope.annotate(f"op{{number}}"):
            cupti.standin_launch(0, 1 + number, ctypes.c_uint64(0))
"""


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
@pytest.mark.parametrize("options", [["--backend", "cupti"], ["--mode", "simple"]])
def test_what_follows_cuda_s_initialisation_at_once_is_recorded(machine, library, options):
    """CUDA's initialisation waits for CUPTI, whether the thread has Python's lock (PyDLL) or not."""
    (machine.folder / "program.py").write_text(textwrap.dedent(AT_ONCE.format(library=library)))
    errors = machine.run(sys.executable, "program.py", options=options)
    assert names(machine.trace) == KERNELS
    assert "CUPTI began late" not in errors
    ranges = machine.trace["ranges"]["text"].cast(pl.String).to_list()
    assert sorted(one for one in ranges if not one.startswith(("step", "program"))) == [
        "before",
        *(f"op{number}" for number in range(5)),
    ]
    # no kernel can have run before CUDA was initialised, so nothing is missing of that time
    assert machine.trace["windows"].is_empty()


def test_a_python_that_never_uses_cuda_loads_no_cupti(machine):
    (machine.folder / "program.py").write_text(
        "import opscope\nopscope.step()\n"
        "print(any('libcupti' in line for line in open('/proc/self/maps')))\n"
    )
    machine.run(sys.executable, "program.py", options=["--backend", "cupti"])
    assert machine.output == "False\n"


@pytest.mark.parametrize("options", [["--backend", "cupti"], ["--mode", "simple"]])
def test_a_program_that_is_no_python_has_its_kernels(machine, options):
    errors = machine.run(
        machine.program(), str(machine.library), "50", "3", "0", options=options, status=7
    )
    assert machine.output == "done\n"
    trace = machine.trace
    assert sorted(names(trace)) == sorted(30 * KERNELS)
    calls = trace["calls"]
    assert calls["thread"].n_unique() == 3
    assert calls["name"].cast(pl.String).unique().to_list() == ["cudaLaunchKernel_v7000"]
    launched = trace["kernels"].join(calls, on=["process", "correlation"])
    assert len(launched) == 150
    assert (launched["start"] > launched["start_right"]).all()
    if "simple" in options:
        assert "150 kernels" in errors


def test_a_fork_of_a_program_that_is_no_python_records_its_parent_alone(machine):
    machine.run(
        machine.program(), str(machine.library), "50", "1", "0", "fork",
        options=["--mode", "simple"], status=7,
    )  # fmt: skip
    trace = machine.trace
    assert len(trace["kernels"]) == 100
    assert trace["kernels"]["process"].n_unique() == 1


def test_a_program_that_is_killed_leaves_what_was_handed_over(machine):
    program = machine.start(
        machine.program(), str(machine.library), "50", "1", "600", options=["--mode", "simple"]
    )
    assert program.stdout.readline() == "done\n"
    deadline = time.monotonic() + LIMIT_S
    parts = []
    while not any(one.stat().st_size for one in parts):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        parts = [*machine.folder.glob("*/part-*-cupti/cupti.raw")]
    facts = parts[0].with_name("facts.jsonl")
    while facts.read_text().count("abruptly") < 2:  # the buffer is before the second
        time.sleep(0.05)
    os.kill(int(parts[0].parent.name.split("-")[-3]), signal.SIGKILL)
    program.communicate(timeout=LIMIT_S)
    assert program.returncode == 128 + signal.SIGKILL
    assert len(machine.trace["kernels"]) == 50


@pytest.mark.parametrize(
    ("environ", "note"),
    [
        ({"CUPTI_STAND_IN_TAKEN": "a tool"}, "the subscription failed"),
        ({"CUPTI_STAND_IN_VERSION": "9"}, "layouts of version 9 are not known"),
        ({"CUPTI_STAND_IN_ERRORS": "cuptiActivityEnable:22=27"}, "no records of kind 22"),
        ({"CUPTI_STAND_IN_ERRORS": "cuptiGetVersion=999"}, "cannot be loaded or lacks a call"),
        ({"CUPTI_STAND_IN_ERRORS": "cuptiSetThreadIdType=27"}, "threads may not be told apart"),
    ],
)
def test_what_goes_wrong_in_a_program_that_is_no_python_is_told(machine, environ, note):
    """Its exit status and its output are its own."""
    machine.run(
        machine.program(), str(machine.library), "5", "1", "0",
        options=["--mode", "simple"], status=7, **environ,
    )  # fmt: skip
    assert machine.output == "done\n"
    assert any(note in text for text in machine.trace["notes"]["what"])


def test_another_tools_injection_stays(machine):
    errors = machine.run(
        machine.program(), str(machine.library), "5", "1", "0",
        options=["--mode", "simple"], status=7, CUDA_INJECTION64_PATH="/nowhere/libtool.so",
    )  # fmt: skip
    assert machine.output == "done\n"
    assert not machine.trace.has("kernels"), errors


def test_a_private_run_of_a_program_that_is_no_python_has_no_host(machine):
    import socket

    machine.run(
        machine.program(), str(machine.library), "5", "1", "0",
        options=["--mode", "simple", "--private"], status=7,
    )  # fmt: skip
    processes = machine.trace["processes"]
    assert len(processes) == 1
    assert socket.gethostname() not in json.dumps(processes.to_dicts(), default=str)


def test_cupti_without_a_gpu_ends_before_the_program_runs(machine):
    errors = machine.run(
        sys.executable, "-c", "print('ran')", options=["--backend", "cupti"], status=2,
        CUPTI_STAND_IN_GPU="",
    )  # fmt: skip
    assert machine.output == ""
    assert "no GPU is visible" in errors


GRAPHS = """
    for _ in range(3):
        opscope.step()
        with opscope.annotate("replays"):
            cupti.standin_launch(0, 1, ctypes.c_uint64(0))
    print("ended")
"""


def graphs(machine: Machine) -> None:
    """The stand-in's launches are of CUDA graphs: it records them as wholes where it is told to."""
    activity = Activity()
    activity.call(311)  # cudaGraphLaunch
    for number in range(5):
        activity.add(kinds.GRAPH_TRACE, duration=5000 + number, graphId=5, contextId=1, streamId=7)
    activity.write(machine.play)


@pytest.mark.parametrize(("options", "many"), [(["--cuda-graph-trace", "graph"], 3), ([], 0)])
def test_graphs_are_traced_as_wholes_where_that_is_asked_for(machine, options, many):
    graphs(machine)
    program = textwrap.dedent(PYTHON)
    (machine.folder / "program.py").write_text(
        program[: program.index("for _ in range(3)")] + textwrap.dedent(GRAPHS)
    )
    machine.run(sys.executable, "program.py", options=["--backend", "cupti", *options])
    profile = opscope.load(machine.folder / "out.opscope")
    found = profile.kernels()
    assert found.select("name", "duration", "op").rows() == many * [
        ("CUDA graph 5", 5000, "replays")
    ]
    told = "traced as a whole" in "\n".join(profile.trace["notes"]["what"])
    assert told == bool(many)


def test_graphs_of_a_program_that_is_no_python_are_traced_as_wholes(machine):
    graphs(machine)
    machine.run(
        machine.program(), str(machine.library), "50", "1", "1",
        options=["--backend", "cupti", "--cuda-graph-trace", "graph"], status=7,
    )  # fmt: skip
    assert names(machine.trace) == 50 * ["CUDA graph 5"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--cuda-graph-trace", "kernel"], "choose node"),
        (["--cuda-graph-trace", "graph"], "needs --backend cupti or nsys"),
    ],
)
def test_a_backend_that_traces_nodes_only_refuses_wholes(machine, options, line):
    errors = machine.run(
        sys.executable, "-c", "print('ran')", options=["--backend", "auto", *options], status=2
    )
    assert machine.output == ""
    assert line in " ".join(errors.split())


#: Twenty steps of five kernels, of which the fourteenth is slow.
LAST = """
    for number in range(20):
        opscope.step()
        for place in range(5):
            with opscope.annotate(f"op{place}"):
                cupti.standin_launch(0, 1 + place, ctypes.c_uint64(0))
        time.sleep(0.5 if number == 14 else 0.02)
    opscope.step()
    time.sleep(1)
    print("ended")
"""


@pytest.mark.parametrize("backend", ["auto", "cupti", "recorder"])
def test_the_last_of_a_run_and_its_slow_step_have_their_kernels(machine, backend):
    program = textwrap.dedent(PYTHON)
    (machine.folder / "program.py").write_text(
        program[: program.index("for _ in range(3)")] + textwrap.dedent(LAST)
        if backend != "recorder"
        else "import ctypes, os, time\nimport opscope\n"
        "cupti = ctypes.CDLL(os.environ['LD_LIBRARY_PATH'] + '/libcupti.so.12')\n"
        + textwrap.dedent(LAST)
    )
    errors = machine.run(
        sys.executable, "program.py",
        options=["--backend", backend, "--last", "4 steps", "--slow", "3"],
    )  # fmt: skip
    assert machine.output == "ended\n"
    assert "without kernels" not in errors
    last = opscope.load(machine.folder / "out.opscope")
    slow = opscope.load(machine.folder / "out-slow-1.opscope")
    if backend == "recorder":
        assert not last.trace.has("kernels")
        assert not slow.trace.has("kernels")
        return
    kernels = last.kernels().sort("start")
    assert kernels["name"].to_list() == 4 * KERNELS
    assert kernels["op"].to_list() == 4 * [f"op{place}" for place in range(5)]
    assert kernels["step"].unique().sort().to_list() == [17, 18, 19, 20]
    around = slow.kernels().group_by("step").len().sort("step")
    planted = slow.kernels().filter(pl.col("step") == 15).sort("start")
    assert planted["op"].to_list() == [f"op{place}" for place in range(5)], around
    assert {14, 16} <= set(around["step"])


def test_a_ring_without_cupti_says_that_it_has_no_kernels_and_why(machine):
    (machine.folder / "program.py").write_text(
        "import opscope\nfor _ in range(5): opscope.step()\nprint('ended')\n"
    )
    errors = machine.run(
        sys.executable, "program.py", options=["--last", "3 steps"], CUPTI_STAND_IN_GPU="amd"
    )
    assert machine.output == "ended\n"
    why = "kept as ranges only, without kernels: PyTorch's profiler keeps all in memory, and CUPTI cannot be used"
    assert why in errors
    assert "CUPTI records NVIDIA's GPUs, and this is another" in errors
    assert any(why in note for note in machine.trace["notes"]["what"])
