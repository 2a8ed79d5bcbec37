"""``opscope doctor`` on machines where something is odd: what it is there for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opscope import backends
from opscope.adapters import known
from opscope.backends import Availability, Backend, Machine
from opscope.backends import known as known_backends
from opscope.cli import doctor, doctor_backends, doctor_roofs, start
from opscope.core.capture import hardware, process
from opscope.core.perf.devices import identify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """``framework(code)``: ``odd`` is installed, by a distribution of another name; its adapter is that."""
    information = tmp_path / "odd_cpu-3.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-cpu\nVersion: 3.1\n")
    (information / "top_level.txt").write_text("odd\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(known, "available", lambda: {"odd": "odd_adapter:Adapter"})
    doctor._distributions.cache_clear()

    def make(code):
        (tmp_path / "odd_adapter.py").write_text(code)
        (check,) = (one for one in doctor.checks() if one.what == "odd")
        return check

    yield make
    sys.modules.pop("odd_adapter", None)
    doctor._distributions.cache_clear()


def test_a_framework_whose_distribution_has_another_name(framework):
    check = framework("class Adapter:\n    requires = '>=3'\n")
    assert (check.works, check.found) == (True, "3.1")


def test_a_framework_that_cannot_be_imported_is_told_with_the_rest(framework):
    check = framework("raise ImportError('libodd.so.1:\\n no such file')\n")
    assert (check.works, check.found) == (False, "3.1")
    assert check.advice == "it cannot be imported: libodd.so.1: no such file"


@pytest.mark.parametrize("name", ["openvino", "executorch", "tvm", "tinygrad", "paddle"])
def test_a_framework_without_an_adapter_has_its_mode(name, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda asked: "1.2" if asked == name else None)
    (check,) = (check for check in doctor._adapters(doctor.Program()) if check.what == name)
    assert (check.works, check.found) == (False, "1.2")
    assert "opscope run --mode simple" in check.advice
    assert ("reads its ETDump" in check.advice) == (name == "executorch")
    offered = f"pip install examples/opscope_{name}" in check.advice
    assert offered == (EXAMPLES / f"opscope_{name}").is_dir()


class Driver:
    """A driver's library: its first call succeeds, its second counts devices."""

    def __init__(self, names, devices):
        begin, count = names
        setattr(self, begin, lambda _: 0)

        def counted(where):
            where._obj.value = devices
            return 0

        setattr(self, count, counted)


@pytest.mark.parametrize(
    ("cuda", "hip", "works", "found"),
    [
        (2, None, True, "2 CUDA devices"),
        (None, 1, True, "1 HIP device"),
        (0, 8, True, "8 HIP devices"),
        (0, None, False, "CUDA driver present, no device (error 0)"),
        (None, None, False, "no CUDA or HIP driver"),
    ],
)
def test_a_gpu_of_either_platform_is_found(cuda, hip, works, found, monkeypatch):
    drivers = {
        "libcuda.so.1": cuda is not None and Driver(("cuInit", "cuDeviceGetCount"), cuda),
        "libamdhip64.so": hip is not None and Driver(("hipInit", "hipGetDeviceCount"), hip),
    }

    def load(name):
        if not drivers.get(name):
            raise OSError(name)
        return drivers[name]

    monkeypatch.setattr("ctypes.CDLL", load)
    monkeypatch.setattr("opscope.backends.choice.gpu_vendor", lambda *_: None)
    check = doctor._gpu()
    assert (check.works, check.found) == (works, found)


# ------------------------------------------------------------------------------- backends


def machine(root, **more):
    return Machine(more.pop("environ", {}), root, modules={}, **{"packages": (), **more})


def shown(here):
    choice = backends.choose(machine=here)
    return {row["what"]: row for row in doctor_backends.rows(here, choice)}


def test_each_backend_is_a_row_and_the_one_that_auto_takes_is_marked(tmp_path):
    rows = shown(machine(tmp_path))
    ours = {f"backend {name}" for name in known_backends.available()}
    assert set(rows) == ours
    assert [what for what, row in rows.items() if row["state"] == "auto"] == ["backend recorder"]
    for row in rows.values():
        assert row["found"]
    assert rows["backend xplane"]["advice"] == "pip install jax in this environment"


def test_what_auto_takes_later_is_told(tmp_path):
    here = machine(tmp_path, packages=("jax",))
    line = doctor_backends.picked(here, backends.choose(machine=here))
    assert line == (
        "recorder: no GPU is visible, so there are no kernels to record; "
        "xplane once a program uses its framework"
    )


def test_a_hidden_gpu_is_hidden_and_not_missing(tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    here = machine(tmp_path, environ={"CUDA_VISIBLE_DEVICES": ""})
    assert doctor_backends.gpu_of(here) == (
        "an NVIDIA GPU is hidden by CUDA_VISIBLE_DEVICES=''",
        "unset CUDA_VISIBLE_DEVICES to use it",
    )
    assert doctor_backends.gpu_of(machine(tmp_path)) is None
    monkeypatch.setattr(backends, "here", lambda: here)
    assert not doctor._gpu().works
    assert doctor._gpu().found == "an NVIDIA GPU is hidden by CUDA_VISIBLE_DEVICES=''"


@pytest.mark.parametrize(
    ("environ", "works", "found"),
    [
        ({}, True, "no tool is attached"),
        ({"NVTX_INJECTION64_PATH": "{there}"}, True, "a tool is attached"),
        ({"NVTX_INJECTION64_PATH": "/gone.so"}, False, "the tool /gone.so does not exist"),
        ({"NVTX_INJECTION64_PATH": "{there}", "NVTX_DISABLE": "1"}, False, "turned off"),
    ],
)
def test_an_nvtx_tool_is_attached_only_if_it_is_there(environ, works, found, tmp_path, monkeypatch):
    (tmp_path / "tool.so").touch()
    for name in ("NVTX_INJECTION64_PATH", "NVTX_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value.format(there=tmp_path / "tool.so"))
    check = doctor._nvtx()
    assert check.works == works
    assert found in check.found


# ------------------------------------------------------------------------------- the self-test


class Recording(Backend):
    """The recorder; the program of the test begins the registered one, by its name."""

    name, gives, rank = "recorder", "ranges", 0

    def available(self, machine):
        return Availability(True, "it works")


def test_the_recorder_passes_its_self_test():
    tested = doctor_backends.self_test(Recording(), 60)
    assert tested.works, tested.found
    assert tested.found.startswith("3 steps and 3 ranges of a program arrived, in ")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("opscope.step()", "pass", "0 of 3 steps arrived"),
        ("with opscope.annotate({text!r}):", "if True:", "0 of 3 ranges arrived"),
        ("time.sleep(0.001)", "pass", "a range that took at least 1 ms is shorter"),
        ("begin(folder, name)", "raise KeyError('libcupti')", "recorded nothing: KeyError: 'lib"),
        ("begin(folder, name)", "pass", "what it recorded cannot be read"),
        (
            "begin(folder, name)",
            "import os; os.abort()",
            "recorded nothing: its process ended with",
        ),
    ],
)
def test_the_self_test_fails_where_something_does_not_arrive(old, new, found, monkeypatch):
    assert old in doctor_backends._PROGRAM
    monkeypatch.setattr(doctor_backends, "_PROGRAM", doctor_backends._PROGRAM.replace(old, new))
    tested = doctor_backends.self_test(Recording(), 60)
    assert not tested.works
    assert found in tested.found


def test_the_self_test_asks_the_backend_for_what_it_gives():
    class Lacking(Recording):
        def missing(self, trace):
            return None if trace.has("kernels") else "no kernel arrived"

    tested = doctor_backends.self_test(Lacking(), 60)
    assert not tested.works
    assert tested.found.startswith("no kernel arrived")

    class Failing(Recording):
        def missing(self, trace):
            raise SystemExit("odd")

    assert "cannot be checked: SystemExit: odd" in doctor_backends.self_test(Failing(), 60).found


def program(monkeypatch, old, new):
    assert old in doctor_backends._PROGRAM
    monkeypatch.setattr(doctor_backends, "_PROGRAM", doctor_backends._PROGRAM.replace(old, new))


def test_a_self_test_that_does_not_end_is_not_waited_for_and_says_nothing_of_the_backend(
    monkeypatch,
):
    program(monkeypatch, "begin(folder, name)", "time.sleep(600)")
    tested = doctor_backends.self_test(Recording(), 0.5)
    assert tested.works is None
    assert tested.found == "not known: the test had not ended 0.5 s after its start"
    assert tested.advice == "opscope doctor --backend recorder waits 60 s"


class Clock:
    """A clock for which every look takes ten seconds until the program has started, and then no time."""

    def __init__(self, monkeypatch):
        self.now, self.ready = 0.0, None
        times = doctor_backends._times

        def watched(process, ready, *rest):
            self.ready = ready
            return times(process, ready, *rest)

        monkeypatch.setattr(doctor_backends, "_times", watched)
        monkeypatch.setattr(doctor_backends.time, "monotonic", self)

    def __call__(self):
        if self.ready is not None and not self.ready.exists():
            self.now += 10
        return self.now


COLD = """sample = "import sys, time; time.sleep(0 if 'warm' in sys.modules else 0.5); sys.modules['warm'] = sys"
"""


def test_a_device_that_is_slow_the_first_time_works(monkeypatch):
    """The start took minutes by the clock; only what comes after it is held to five seconds."""
    program(monkeypatch, "sample = known.load(name).sample", COLD)
    monkeypatch.setattr(doctor_backends, "START_S", 1e9)
    Clock(monkeypatch)
    told = []
    tested = doctor_backends.self_test(Recording(), 5, lambda: told.append("it waits"))
    assert tested.works, tested.found
    assert "a program arrived, in 0.0 s after a start of " in tested.found
    assert told == ["it waits"]


def test_a_program_that_never_starts_says_nothing_of_the_backend(monkeypatch):
    program(monkeypatch, "sample = known.load(name).sample", "time.sleep(600)")
    Clock(monkeypatch)
    tested = doctor_backends.self_test(Recording())
    assert tested.works is None
    assert tested.found == "not known: the test's program had not started after 120 s"
    assert "--no-self-test leaves the test out" in tested.advice


@pytest.mark.parametrize(("works", "state"), [(True, "ok"), (False, "--"), (None, "??")])
def test_what_is_not_known_is_no_failure(works, state, monkeypatch, capsys):
    tested = doctor_backends.Tested("recorder", works, "found", "do this")

    def test(backend, limit_s, waiting):
        waiting()
        return tested

    monkeypatch.setattr(doctor_backends, "self_test", test)
    (row,) = (
        row
        for row in doctor._backends("auto", True, doctor.Program())[1]
        if "self-test" in row["what"]
    )
    assert (row["state"], row["advice"]) == (state, "do this")
    said = "the self-test of recorder waits for its program to start, at most 120 s"
    assert said in capsys.readouterr().err


def test_what_a_tool_outside_records_is_not_tested():
    class Outside(Recording):
        outside = True

    assert doctor_backends.self_test(Outside()).found.startswith("not tested: ")


def nsys(folder, version):
    """A program that answers as ``nsys --version`` does."""
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}'\n")
    path.chmod(0o755)
    return path


def about_nsight(monkeypatch, path):
    monkeypatch.setattr(
        "opscope.backends.nsys.where.find", lambda machine: None if path is None else str(path)
    )
    monkeypatch.setattr(doctor_backends, "about_to_start", lambda: Machine({}, gpu="nvidia"))
    return [check for check in doctor.checks() if check.what.startswith("Nsight Systems")]


def test_what_a_report_of_nsight_systems_would_lack_is_told(monkeypatch, tmp_path):
    monkeypatch.delenv("NVTX_DISABLE", raising=False)
    first, *_ = about_nsight(monkeypatch, nsys(tmp_path, "2020.4.3.7-10543b6"))
    assert first.works
    assert first.found.startswith("2020.4.3")
    monkeypatch.setenv("NVTX_DISABLE", "1")
    _, lacks = about_nsight(monkeypatch, nsys(tmp_path, "2020.4.3.7-10543b6"))
    assert not lacks.works
    assert lacks.advice.startswith("NVTX_DISABLE is set: no range is recorded")


def test_an_nsight_systems_that_is_too_old_or_answers_nonsense_is_told(monkeypatch, tmp_path):
    (only,) = about_nsight(monkeypatch, nsys(tmp_path, "2019.1.1.1"))
    assert not only.works
    assert "too old" in only.advice
    (only,) = about_nsight(monkeypatch, nsys(tmp_path, "of something"))
    assert not only.works
    assert "does not name a version" in only.advice
    (only,) = about_nsight(monkeypatch, None)
    assert only.found == "nsys is not on PATH, nor in NVIDIA's folders"


def test_an_nsight_systems_whose_importer_is_missing_or_does_not_start_is_told(
    monkeypatch, tmp_path
):
    target, host = tmp_path / "target-linux-x64", tmp_path / "host-linux-x64"
    target.mkdir()
    linked = tmp_path / "nsys"
    linked.symlink_to(nsys(target, "2023.4.4.54-234433681190v0"))

    def told():
        checks = about_nsight(monkeypatch, linked)
        return [check.advice for check in checks if "importer" in check.what]

    (missing,) = told()
    assert "is missing" in missing
    host.mkdir()
    importer = host / "QdstrmImporter"
    importer.write_text(
        "#!/bin/sh\necho 'QdstrmImporter: error while loading shared libraries: libQt6.so' >&2; exit 127\n"
    )
    importer.chmod(0o755)
    (broken,) = told()
    assert "libQt6.so" in broken
    importer.chmod(0o644)
    (broken,) = told()
    assert "does not start" in broken
    importer.write_text("#!/bin/sh\necho 'unknown option' >&2; exit 1\n")
    importer.chmod(0o755)
    assert told() == [], "it starts; what it then says of an option is its own"


def test_the_clock_of_light_mode_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path))
    compiler = tmp_path / "compiler"
    monkeypatch.setenv("CC", str(compiler))
    found = doctor._light_clock()
    assert not found.works
    assert "twice the cost" in found.advice
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    assert "opscope build light" in doctor._light_clock().advice


# ------------------------------------------------------------------- what the program would use


def advised(program=None) -> dict[str, str]:
    return {check.what: check.advice for check in doctor.checks(program) if check.advice}


def test_a_framework_that_is_not_installed_is_named_and_not_advised(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert not [
        what for what, advice in advised().items() if "pip install" in advice and what != "NVTX"
    ]
    others = next(check for check in doctor.checks() if check.what == "other frameworks")
    assert "jax" in others.found
    assert "torch" in others.found


def test_what_a_program_imports_is_advised_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    path = tmp_path / "train.py"
    path.write_text("def main():\n    import jax.numpy as jnp\n    from . import torch\n")
    program = doctor.program_of(str(path))
    assert program.imports == {"jax"}
    told = advised(program)
    assert told["jax"] == "pip install jax in this environment"
    assert "torch" not in told
    _, rows = doctor._backends("auto", False, program)
    assert rows[0]["what"] == "auto"
    ways = {row["what"]: row["advice"] for row in doctor._backends("auto", False, program)[0]}
    assert ways["backend xplane"] == "pip install jax in this environment"
    assert not ways["backend mindspore"]


def test_a_file_that_is_no_program_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "bad.py").write_text("x = (")
    monkeypatch.setattr("sys.argv", ["opscope", "doctor", str(tmp_path / "bad.py")])
    assert start.run() == 2
    assert "bad.py is no Python program: '(' was never closed" in capsys.readouterr().err


FIGURES = {"cpu": "AMD EPYC", "cores": 2, "flops": {"f32": 64e9, "f64": 32e9}, "bandwidth": 20e9,
           "cache": 32 << 20, "others": 0.0}  # fmt: skip


@pytest.fixture
def on_epyc(tmp_path, monkeypatch):
    """A machine with this CPU, and a cache folder of its own."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hardware, "cpu_model", lambda: "AMD EPYC")
    monkeypatch.setattr(hardware, "cores", lambda: 2)
    hardware.cpu_roofs.cache_clear()
    yield tmp_path / "cache" / hardware.ROOFS_FILE
    hardware.cpu_roofs.cache_clear()


def test_measured_roofs_are_those_of_recordings(on_epyc, monkeypatch):
    assert hardware.cpu_roofs() is None
    kept = doctor_roofs.keep(FIGURES)
    assert kept["roofs"] == "CPU 2 cores f32 64 GFLOP/s f64 32 GFLOP/s 20 GB/s 32 MB of AMD EPYC"
    assert process.versions()["cpu_roofs"] == kept["roofs"]
    device, _ = identify.find(kept["roofs"])
    assert (device.vector, device.bandwidth) == (FIGURES["flops"], FIGURES["bandwidth"])
    # a process that may use fewer cores is not held against those of all
    monkeypatch.setattr(hardware, "cores", lambda: 1)
    hardware.cpu_roofs.cache_clear()
    assert "cpu_roofs" not in process.versions()


def test_the_higher_figures_stay_and_other_machines_too(on_epyc):
    doctor_roofs.keep({**FIGURES, "cpu": "Xeon"})
    doctor_roofs.keep(FIGURES)
    slower = {"flops": {"f32": 10e9, "f64": 40e9}, "bandwidth": 5e9, "others": 0.9}
    kept = doctor_roofs.keep({**FIGURES, **slower})
    assert (kept["flops"], kept["bandwidth"]) == ({"f32": 64e9, "f64": 40e9}, 20e9)
    assert "90.0 % of these cores" in doctor_roofs.table(kept).footnotes[0]
    machines = json.loads(on_epyc.read_text())["machines"]
    assert [machine["cpu"] for machine in machines] == ["AMD EPYC", "Xeon"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machines": 3}', '{"machines": [3, {}]}'])
def test_a_broken_file_of_roofs_is_none(text, on_epyc):
    on_epyc.parent.mkdir()
    on_epyc.write_text(text)
    assert hardware.cpu_roofs() is None
    assert doctor_roofs.keep(FIGURES)["bandwidth"] == 20e9


def test_every_figure_is_measured(monkeypatch):
    monkeypatch.setattr(doctor_roofs, "_LEAST_COPY", 1 << 16)
    monkeypatch.setattr(doctor_roofs, "_MOST_COPY", 1 << 16)
    figures = doctor_roofs._figures(0.001)
    assert set(figures["flops"]) == {"f32", "f64"}
    assert min(*figures["flops"].values(), figures["bandwidth"]) > 0
