"""Our ears in the import tables of libraries that announce as TSL and XLA:GPU do, which need no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.adapters.shared.compiled import BuildError
from opscope.core.recording_format import CHUNK, RECORD_BYTES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _running():
    """The module that makes our ears, without TensorFlow, which its package imports."""
    path = ROOT / "opscope" / "adapters" / "tensorflow" / "running.py"
    spec = importlib.util.spec_from_file_location("opscope_running", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


running = _running()
POP = -7
XLA = "XlaModule:#hlo_module=jit_f,program_id=3#"
THUNK = "Thunk:#hlo_op=dot.3#"


class Process:
    """The two libraries and ours in this process; the libraries' names decide whose tables are changed."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("g++") or shutil.which("c++")
        if compiler is None or not sys.platform.startswith("linux"):
            pytest.skip("no C++ compiler (g++ or c++), or not Linux")
        self.path = folder / "libtensorflow_framework.so.2"
        client = folder / "libtensorflow_cc.so.2"
        flags = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall"]
        subprocess.run([*flags, str(HERE / "framework.cc"), "-o", str(self.path)], check=True)
        link = ["-Wl,-rpath,$ORIGIN", str(self.path), "-o", str(client)]
        subprocess.run([*flags, str(HERE / "client.cc"), *link], check=True)
        self.framework = ctypes.CDLL(str(self.path))
        self.client = ctypes.CDLL(str(client))
        for name in ("tool_heard", "stack_now"):
            getattr(self.framework, name).restype = ctypes.c_char_p
        self.client.compile.restype = ctypes.c_void_p
        self.client.push_instruction.argtypes = [ctypes.c_void_p]
        try:
            self.ears = ctypes.CDLL(str(running.observer_library()))
        except BuildError as error:
            pytest.skip(str(error))
        running._declare(self.ears)

    def listen(self) -> None:
        assert self.ears.opscope_install(str(self.path).encode()) >= 4
        self.ears.opscope_listen(1, 0, 0, POP, 0, CHUNK)
        self.ears.opscope_annotate(1)

    def silence(self) -> None:
        self.ears.opscope_listen(0, 0, 0, 0, 0, 0)
        self.ears.opscope_annotate(0)
        self.ears.opscope_uninstall()

    def op(self, name: str) -> None:
        self.client.push_op(name.encode())

    def instruction(self, title: str) -> None:
        self.client.push_instruction(self.client.compile(title.encode()))

    def stack(self) -> str:
        return self.framework.stack_now().decode()

    def taken(self) -> list[list[str]]:
        """What each thread was recorded to do since the last time: names, ``-`` for an end."""
        room = self.ears.opscope_waiting() + 64
        buffer = ctypes.create_string_buffer(room * RECORD_BYTES)
        many = self.ears.opscope_take(buffer, room)
        numbers = (ctypes.c_int64 * (2 * many)).from_buffer(buffer)
        threads: dict[int, list[str]] = {}
        row = 0
        while row < many:
            thread, count = numbers[2 * row], numbers[2 * row + 1]
            for one in range(row + 1, row + 1 + count):
                code = numbers[2 * one]
                text = "-" if code == POP else self.ears.opscope_text(code).decode()
                threads.setdefault(thread, []).append(text)
            row += 1 + count
        return [threads[number] for number in sorted(threads, reverse=True)]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    return Process(tmp_path_factory.mktemp("tsl"))


@pytest.fixture(autouse=True)
def quiet(process):
    """Each test begins with nothing hooked, nothing profiled, nothing on the stack."""
    process.taken()
    yield
    process.silence()
    process.client.profile(0)


def on_a_thread(function) -> None:
    failed = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_ops_are_heard_and_stay_on_the_stack_that_the_profiler_reads(process):
    process.client.profile(1)
    process.listen()
    process.op("net/MatMul:MatMul")
    assert process.stack() == "net/MatMul:MatMul"
    process.op("inner:Relu")
    assert process.stack() == "net/MatMul:MatMul::inner:Relu"
    process.client.pop()
    process.client.pop()
    assert process.stack() == ""
    assert process.taken() == [["net/MatMul:MatMul", "inner:Relu", "-", "-"]]


def test_an_instructions_end_does_not_end_the_op_around_it(process):
    process.listen()
    process.op("cluster:XlaLaunch")
    process.instruction(XLA)
    process.instruction(THUNK)
    assert process.stack() == f"cluster:XlaLaunch::{XLA}::{THUNK}"
    process.client.pop()
    process.client.pop()
    process.op("inner:Relu")
    process.client.pop()
    process.client.pop()
    assert process.taken() == [["cluster:XlaLaunch", XLA, THUNK, "-", "-", "inner:Relu", "-", "-"]]


def test_an_op_that_began_before_listening_ends_unheard(process):
    process.op("before:Op")
    process.listen()
    process.op("in:Op")
    process.client.pop()
    process.client.pop()
    process.op("after:Op")
    process.client.pop()
    assert process.taken() == [["in:Op", "-", "after:Op", "-"]]


def test_an_op_that_is_open_when_listening_ends_takes_no_other_with_it(process):
    process.listen()
    process.op("open:Op")
    process.silence()
    process.client.pop()
    process.listen()
    process.op("next:Op")
    process.client.pop()
    (found,) = process.taken()
    assert found == ["open:Op", "next:Op", "-"]


def test_threads_are_told_apart(process):
    process.listen()
    both = threading.Barrier(2)

    def work(name: str) -> None:
        both.wait()
        process.op(name)
        both.wait()
        process.op("inner:" + name)
        assert process.stack() == f"{name}::inner:{name}"
        process.client.pop()
        both.wait()
        process.client.pop()

    other = threading.Thread(target=work, args=("B",))
    other.start()
    on_a_thread(lambda: work("A"))
    other.join()
    assert sorted(process.taken()) == [[name, f"inner:{name}", "-", "-"] for name in "AB"]


def test_the_users_profile_begins_and_ends_beside_us(process):
    process.listen()
    process.op("outer:Op")
    process.client.profile(1)
    process.op("seen:Op")
    assert process.stack() == "seen:Op"  # what began before a profile is not in it
    process.client.profile(0)
    process.client.pop()
    process.client.pop()
    process.op("unprofiled:Op")
    process.client.pop()
    assert process.taken() == [["outer:Op", "seen:Op", "-", "-", "unprofiled:Op", "-"]]


def test_a_profile_outlasts_us(process):
    process.listen()
    process.client.profile(1)
    process.op("outer:Op")
    process.silence()
    process.op("inner:Op")
    assert process.stack() == "outer:Op::inner:Op"
    process.client.pop()
    process.client.pop()
    process.client.profile(0)
    process.op("unseen:Op")
    assert process.stack() == ""


def test_to_be_silenced_twice_ends_no_profile(process):
    process.listen()
    process.silence()
    process.client.profile(1)
    process.silence()
    process.op("net/MatMul:MatMul")
    assert process.stack() == "net/MatMul:MatMul"
    process.client.pop()


def test_a_process_that_never_listened_may_be_silenced(tmp_path):
    program = "from tests.tsl.test_annotations import *; Process(Path(sys.argv[1])).silence(); print('lives')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr


def test_deep_nests_are_counted_and_end_where_they_do(process):
    lost = process.ears.opscope_lost()
    process.listen()
    for number in range(300):
        process.op(f"n{number}:Op")
    for _ in range(300):
        process.client.pop()
    process.op("after:Op")
    process.client.pop()
    (found,) = process.taken()
    assert found[:256] == [f"n{number}:Op" for number in range(256)]
    assert found[256:] == ["-"] * 256 + ["after:Op", "-"]
    assert process.ears.opscope_lost() - lost == 300 - 256


STEPS = st.lists(
    st.sampled_from(["op", "module", "thunk", "pop", "pop", "profile", "end", "listen", "silence"]),
    max_size=40,
)


class Model:
    """The annotation stack as it is without us."""

    def __init__(self) -> None:
        self.on = False
        self.stack: list[str] = []

    def profile(self, on: bool) -> None:
        if on != self.on:
            self.stack = []
        self.on = on


@given(STEPS)
def test_a_profile_sees_what_it_would_see_without_us(process, steps):
    """And what is recorded is nested, each range that began while we listened, in order."""
    process.taken()
    listening, expected = False, []

    def run() -> None:
        nonlocal listening
        model, depth = Model(), 0
        for number, step in enumerate(steps):
            if step in ("op", "module", "thunk"):
                name = f"op{number}:Op" if step == "op" else {"module": XLA, "thunk": THUNK}[step]
                (process.op if step == "op" else process.instruction)(name)
                if model.on:
                    model.stack.append(name)
                if listening:
                    expected.append(name)
                    depth += 1
            elif step == "pop":
                process.client.pop()
                if model.on and model.stack:
                    model.stack.pop()
                if listening and depth:
                    expected.append("-")
                    depth -= 1
            elif step in ("profile", "end"):
                process.client.profile(step == "profile")
                model.profile(step == "profile")
            elif step == "listen" and not listening:
                process.listen()
                listening, depth = True, 0
            elif step == "silence" and listening:
                process.silence()
                listening = False
            if model.on:
                assert process.stack() == "::".join(model.stack), step

    try:
        on_a_thread(run)
    finally:
        process.silence()
        process.client.profile(0)
    assert [text for thread in process.taken() for text in thread] == expected


# ------------------------------------------------------------------------- with an NVTX tool's domain

WITH_TOOL = """
import json, sys
from pathlib import Path
from tests.tsl.test_annotations import THUNK, XLA, Process
process = Process(Path(sys.argv[1]))
process.framework.tool_attaches()
before = process.client.compile(THUNK.encode())   # its title is not known to us
observed = sys.argv[2] == "1"
if observed:
    process.listen()
later = process.client.compile(XLA.encode())
process.op("cluster:XlaLaunch")
process.client.push_instruction(later)
process.client.push_instruction(before)
process.op("inner:Relu")
process.client.pop(); process.client.pop(); process.client.pop()
process.op("next:Op")
process.client.pop(); process.client.pop()
print(json.dumps([process.framework.tool_heard().decode(), process.taken(), process.stack()]))
"""


def test_what_a_tool_hears_is_the_same_and_is_recorded_too(tmp_path):
    found = []
    for observed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", WITH_TOOL, str(tmp_path), observed],
            capture_output=True, text=True, cwd=ROOT, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0][0] == found[1][0]
    assert found[0][0].splitlines()[2] == f"titled {THUNK} 40"
    assert found[0][1] == []
    # the instruction that was compiled before we listened has no name, yet its end is its own
    assert found[1][1] == [["cluster:XlaLaunch", XLA, "inner:Relu", "-", "-", "next:Op", "-", "-"]]
    assert found[1][2] == ""
