"""``opscope doctor``: what works on this machine, what a profile lacks, and how to get the rest."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import opscope

from . import common, declared, gaps, options
from .doctor_program import Program, is_program, program_of

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.profile import Profile

#: Packages without an adapter of opscope's own, which users may look for here.
_WITHOUT_ADAPTER = ("cupy", "executorch", "numba", "openvino", "paddle", "tinygrad", "tvm")
#: Those with an adapter of their own package beside opscope's sources.
_IN_EXAMPLES = ("openvino", "paddle")
#: How to install a framework where its name alone is not enough.
_INSTALL = {
    "mindspore": "pip install mindspore 'numpy<2' in an environment of its own",
    "onnxruntime": "pip install onnxruntime (onnxruntime-gpu for CUDA) in this environment",
    "tensorrt": "it needs an NVIDIA GPU; there: pip install tensorrt in this environment",
}


TestedBackend = Annotated[
    str,
    declared.Option(
        "--backend", help="Which backend to test: auto (the one that it takes), or its name."
    ),
]
SelfTest = Annotated[
    bool,
    declared.Option(
        "--self-test/--no-self-test",
        help="Record a small program with the backend, and read the recording: at most five seconds "
        "after the program's start, or a minute for a backend named with --backend. For the start, which "
        "loads the framework and the device's libraries, it waits two minutes.",
    ),
]
Measure = Annotated[
    bool,
    declared.Option(
        "--measure",
        help="Measure what this CPU can do, in ten seconds, and keep it: recordings made here "
        "afterwards have a roofline without a GPU.",
    ),
]
#: The reports that show what a profile lacks.
_EXPLAINING = ("unattributed", "missing", "notes")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked: whether it works, what was found, and what to do if it does not work."""

    what: str
    works: bool
    found: str
    advice: str = ""


@options.spread
def doctor(
    file: Annotated[
        list[str] | None,
        declared.Argument(
            metavar="FILE",
            help="A profile or trace: explain what it lacks. A Python program: what it needs here.",
        ),
    ] = None,
    ops: Annotated[
        bool, declared.Option("--ops", help="List the ops whose FLOPs and bytes opscope computes.")
    ] = False,
    measure: Measure = False,
    *,
    reading: options.Reading,
    backend: TestedBackend = "auto",
    test: SelfTest = True,
    json: Annotated[bool, declared.Option("--json", help="Print the same as JSON.")] = False,
    width: options.Width = None,
) -> None:
    """Show what works on this machine, or what a FILE lacks.

    For what does not work or is missing, it says why and how to get it.
    """
    if ops:
        from .doctor_ops import models, table

        rows = models()
        _show(rows, [table(rows)], json, width)
    elif measure:
        from . import doctor_roofs

        measured = doctor_roofs.keep(doctor_roofs.measured())
        _show([measured], [doctor_roofs.table(measured)], json, width)
    elif file and is_program(file):
        _show_machine(backend, test, json, width, program_of(file[0]))
    elif file:
        _show_lacking(file, reading.load(file), json, width)
    else:
        _show_machine(backend, test, json, width, Program())


def _show_lacking(files: list[str], profile: Profile, json: bool, width: int | None) -> None:
    """Print what the profile of the files has, what it lacks, and how to get that."""
    from opscope.core.question.forms import columns
    from opscope.core.question.layout import Table
    from opscope.reports import console, registry, vendor_words
    from opscope.reports.files import as_json

    tables, closing = gaps.tables(profile), gaps.advice(profile)
    if json:
        frames = registry.frames(profile, _EXPLAINING)
        common.emit(as_json("doctor", frames, tables=tables, advice=closing))
        return
    more = console.tables(profile, _EXPLAINING, None)
    of = vendor_words.vendor(profile)
    lines = [f"{vendor_words.said(str(row['reason']), of)}: {row['advice']}" for row in closing]
    more[0] = replace(more[0], footnotes=(*more[0].footnotes, *lines))
    contents = Table(f"Contents of {', '.join(files)}", columns(["table", "rows", "means"]), tables)
    common.show([contents, *more], width)


def _show_machine(
    backend: str, test: bool, json: bool, width: int | None, program: Program
) -> None:
    """Print what works here, the backends, and the self-test of one."""
    from opscope.core.question.forms import columns
    from opscope.core.question.layout import Table

    checked = [
        {
            "state": "ok" if check.works else "--",
            "what": check.what,
            "found": check.found,
            "advice": "" if check.works else check.advice,
        }
        for check in checks(program)
    ]
    ways, last = _backends(backend, test, program)
    results = [f"{row['what']}: {row['found']}" for row in last]
    title = "Backends: the ways to record a program"
    shown = columns(["state", "what", "gives", "found"])
    tables = [
        Table("This machine", columns(["state", "what", "found"]), checked, _advice(checked)),
        Table(title, shown, ways, [*results, *_advice([*ways, *last])]),
    ]
    _show([*checked, *ways, *last], tables, json, width)


def _show(
    rows: Sequence[Mapping[str, object]], tables: list[Table], json: bool, width: int | None
) -> None:
    if json:
        common.emit(dumps(rows, indent=2))
    else:
        common.show(tables, width)


def _advice(rows: Iterable[Mapping[str, str]]) -> list[str]:
    return [f"{row['what']}: {row['advice']}" for row in rows if row["advice"]]


def _backends(
    name: str, test: bool, program: Program
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return a row for each backend, then rows for the choice of ``auto`` and for the test of a backend. Ends
    the command if there is no backend ``name``."""
    from opscope.backends import choose, known

    from . import doctor_backends

    machine = doctor_backends.about_to_start()
    choice = choose(machine=machine)
    last = [
        {
            "state": "ok",
            "what": "auto",
            "found": doctor_backends.picked(machine, choice),
            "advice": "",
        }
    ]
    try:
        chosen = known.load(choice.name if name == "auto" else name)
    except (ValueError, known.BrokenBackend) as error:
        common.fail(str(error))
    if test:
        limit = doctor_backends.LIMIT_S if name == "auto" else doctor_backends.NAMED_LIMIT_S
        waiting = functools.partial(_tell_start, chosen.name, doctor_backends.START_S)
        tested = doctor_backends.self_test(chosen, limit, waiting)
        title = f"self-test of {tested.name}"
        state = {True: "ok", False: "--", None: "??"}[tested.works]
        last.append({"state": state, "what": title, "found": tested.found, "advice": tested.advice})
    ways = doctor_backends.rows(machine, choice)
    return [_for_program(row, program, machine.gpu is not None) for row in ways], last


def _for_program(row: dict[str, str], program: Program, gpu: bool) -> dict[str, str]:
    """Return a backend's row without advice that the program does not need, such as on GPUs or other
    frameworks."""
    from opscope.adapters import known

    installs = {_install(name): program.uses(name, _is_here(name)) for name in known.available()}
    needed = installs.get(row["advice"], gpu)
    return row if needed else {**row, "advice": ""}


def _install(framework: str) -> str:
    """Return how a framework is installed."""
    return _INSTALL.get(framework, f"pip install {framework} in this environment")


def _is_here(framework: str) -> bool:
    return _version(framework) is not None


def _tell_start(name: str, limit_s: float) -> None:
    common.say(
        f"the self-test of {name} waits for its program to start, at most {limit_s:g} s: a framework and a "
        "device are slow the first time"
    )


def checks(program: Program | None = None) -> Iterator[Check]:
    """Yield every check of this machine. Loads the frameworks that are installed. Frameworks that the
    ``program`` does not use are named without advice; without a program, those that are not installed."""
    program = program or Program()
    yield Check("opscope", True, f"{opscope.__version__}, Python {platform.python_version()}")
    supported = sys.platform.startswith("linux")
    yield Check(
        "capture",
        supported,
        platform.platform(),
        "opscope records on Linux only; reports work here",
    )
    yield from _adapters(program)
    yield Check("any other program", True, "opscope run --mode simple -- COMMAND")
    gpu = _gpu()
    yield gpu
    yield _cpu(gpu.works)
    yield from _nsys(gpu.works)
    yield _nvtx()
    if _is_here("torch") and program.uses("torch", True):
        yield from _torch_observers()
    if _is_here("tensorflow") and program.uses("tensorflow", True):
        yield from _tensorflow_observers()
    yield _light_clock()


def _adapters(program: Program) -> Iterator[Check]:
    from packaging.specifiers import SpecifierSet

    from opscope.adapters import known

    targets, others = known.available(), []
    for name in dict.fromkeys((*sorted(targets), *_WITHOUT_ADAPTER)):
        version = _version(name)
        if name not in targets:
            if version:
                advice = "there is no adapter for it; opscope run --mode simple records its kernels"
                if name in _IN_EXAMPLES:
                    advice += (
                        f"; for its ops, pip install examples/opscope_{name} of opscope's sources"
                    )
                elif name == "executorch":
                    advice += "; opscope reads its ETDump (.etdp)"
                yield Check(name, False, version, advice)
            continue
        if version is None and program.uses(name, installed=False):
            yield Check(name, False, "not installed, and the program imports it", _install(name))
        if version is None or (program.imports is not None and name not in program.imports):
            others += [name] if not program.uses(name, installed=False) else []
            continue
        try:
            requires = known.load(targets[name]).requires
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken framework may raise anything
            why = " ".join(str(error).split()) or type(error).__name__
            if name == "keras" and "KERAS_BACKEND" not in os.environ:
                why += " (KERAS_BACKEND=torch or jax names a backend that is installed)"
            yield Check(name, False, version, f"it cannot be imported: {why}")
            continue
        fits = SpecifierSet(requires).contains(version, prereleases=True)
        yield Check(name, fits, version, f"the adapter needs {name} {requires}")
    if others:
        why = "not installed" if program.imports is None else "not imported by the program"
        yield Check("other frameworks", False, f"{why}: {', '.join(others)}")


def _version(name: str) -> str | None:
    """Return the version of the distribution ``name``, else of one that provides the package ``name``
    (``tensorflow-cpu`` provides ``tensorflow``); None if there is neither."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        others = _distributions().get(name)
    return importlib.metadata.version(others[0]) if others else None


_distributions = functools.cache(importlib.metadata.packages_distributions)


def _gpu() -> Check:
    """Check for a GPU by the CUDA or HIP driver; loading the driver creates no context on a GPU."""
    import ctypes

    from opscope.backends import here

    from .doctor_backends import gpu_of

    machine = here()
    hidden = gpu_of(machine)
    if hidden is not None:  # the driver would say that there is no device
        return Check("GPU", False, *hidden)
    windows = os.name == "nt"
    without = Check(
        "GPU",
        False,
        "no CUDA or HIP driver",
        "profiles made here have the elapsed times of ops on the CPU; GPU traces made elsewhere can be read",
    )
    for runtime, library, names in (
        ("CUDA", "nvcuda.dll" if windows else "libcuda.so.1", ("cuInit", "cuDeviceGetCount")),
        ("HIP", "amdhip64.dll" if windows else "libamdhip64.so", ("hipInit", "hipGetDeviceCount")),
    ):
        try:
            driver = ctypes.CDLL(library)
            begin, count_devices = (getattr(driver, name) for name in names)
        except (OSError, AttributeError):
            continue
        count = ctypes.c_int(0)
        status = begin(0) or count_devices(ctypes.byref(count))
        if count.value and not status:
            several = "s" if count.value > 1 else ""
            return Check("GPU", True, f"{count.value} {runtime} device{several}")
        look = "see nvidia-smi" if runtime == "CUDA" else "see rocm-smi"
        driver_state = f"{runtime} driver present, no device (error {status})"
        without = Check("GPU", False, driver_state, look)
    if machine.gpu == "amd":  # PyTorch's wheels contain HIP, so the system may lack it
        return Check("GPU", True, "an AMD GPU (/dev/kfd exists); the system has no HIP of its own")
    return without


def _cpu(gpu: bool) -> Check:
    """Check whether this CPU's roofs were measured; a program on a ``gpu`` does not need them."""
    from opscope.core.capture import hardware

    roofs = hardware.cpu_roofs()
    said = f"{hardware.cpu_model() or 'a processor without a name'}, {hardware.cores()} cores"
    if roofs is not None:
        return Check("CPU", True, f"limits measured: {roofs.removeprefix('CPU ')}")
    advice = (
        ""
        if gpu
        else "opscope doctor --measure (ten seconds) gives recordings made here a roofline"
    )
    return Check("CPU", False, f"{said}, its limits not measured", advice)


def _nsys(gpu: bool) -> Iterator[Check]:
    """Check Nsight Systems, and what its report would lack if it recorded here; only a ``gpu`` needs it."""
    from opscope.backends.nsys import importer, preflight, tool, where

    from . import doctor_backends

    machine = doctor_backends.about_to_start()
    path = where.find(machine)
    if path is None:
        yield Check(
            "Nsight Systems",
            False,
            "nsys is not on PATH, nor in NVIDIA's folders",
            "PyTorch does not need it; with it, any program can be profiled on a GPU"
            if gpu
            else "",
        )
        return
    try:
        tool_there = tool.ask(path)
    except tool.NoTool as error:
        yield Check("Nsight Systems", False, path, str(error))
        return
    yield Check("Nsight Systems", True, f"{tool_there.full}, {path}")
    broken = importer.trouble(path)
    if broken is not None:
        yield Check("Nsight Systems's importer", False, "it makes no reports", broken)
    for problem in preflight.findings(tool_there, machine, foreign=False):
        yield Check("Nsight Systems here", False, "its reports would lack something", problem)


def _nvtx() -> Check:
    version = _version("nvtx")
    if version is None:
        return Check("NVTX", False, "not installed", "pip install nvtx")
    from opscope.core.capture.nvtx_sink import INJECTION, attached

    if os.environ.get("NVTX_DISABLE"):
        advice = "unset NVTX_DISABLE: no tool hears ranges while it is set"
        return Check("NVTX", False, f"{version}, turned off by NVTX_DISABLE", advice)
    if attached() is not None:
        return Check("NVTX", True, f"{version}, a tool is attached")
    gone = os.environ.get(INJECTION)
    if gone:
        advice = f"{INJECTION} names a file that is not there, so NVTX is silent: unset it"
        return Check("NVTX", False, f"{version}, the tool {gone} does not exist", advice)
    return Check("NVTX", True, f"{version}, no tool is attached to this process")


def _torch_observers() -> Iterator[Check]:
    """Check the native libraries of the PyTorch adapter: built, or why they are not."""
    whats = ("PyTorch observer", "PyTorch memory observer", "PyTorch process groups")
    without = (
        "ops are observed from Python, which takes 10 µs per op",
        "the CPU's memory is not recorded",
        "collectives are recorded without their process group",
    )
    when = (
        "the first capture, in about 11 s",
        "the first capture with --memory, in about 5 s",
        "the first capture with process groups, in about 8 s",
    )
    if _version("torch") is None:
        for title in whats:
            yield Check(title, False, "PyTorch is not installed", "it is built against PyTorch")
        return
    from opscope.adapters.torch.native.binary import (
        GROUPS,
        MEMORY,
        SOURCE,
        BuildError,
        built,
        plan,
    )

    sources = (SOURCE, MEMORY, GROUPS)
    for title, source, lacking, first in zip(whats, sources, without, when, strict=True):
        try:
            wanted = plan(source)
        except BuildError as error:
            yield Check(title, False, str(error), lacking)
            continue
        path = built(wanted)
        if path is not None:
            deaf = source == SOURCE and wanted.nvtx is None
            yield Check(
                title, True, f"{path}{', without NVTX (pip install nvidia-nvtx)' if deaf else ''}"
            )
        elif wanted.compiler is None:
            advice = f"install a C++ compiler; without one {lacking}"
            yield Check(title, False, "not built: no C++ compiler was found", advice)
        else:
            advice = f"it is built at {first}; to build it now: opscope build torch"
            yield Check(title, False, f"not built yet; {wanted.compiler} can build it", advice)


def _tensorflow_observers() -> Iterator[Check]:
    """Check the native libraries of the TensorFlow adapter: the observer of graph ops, and the reader of
    sizes that a graph leaves open."""
    ears, inputs = "TensorFlow observer", "TensorFlow size reader"
    if _version("tensorflow") is None:
        for title in (ears, inputs):
            yield Check(
                title, False, "TensorFlow is not installed", "it is built against TensorFlow"
            )
        return
    try:
        from opscope.adapters.tensorflow import running

        flags = running.inputs_flags(importlib.import_module("tensorflow"))
    except Exception as error:  # noqa: BLE001 - a broken TensorFlow may raise anything
        why = " ".join(str(error).split()) or type(error).__name__
        for title in (ears, inputs):
            yield Check(title, False, "TensorFlow cannot be used", why)
        return
    profiler = "the ops of graphs come from TensorFlow's profiler"
    unknown = "sizes that a graph does not know are not recorded"
    yield _compile(ears, running.SOURCE, ((),), "the first capture, in about 1 s", profiler)
    when = "the first capture of a graph that does not know its sizes, in a few seconds"
    yield _compile(inputs, running.INPUTS, flags, when, unknown)


def _light_clock() -> Check:
    """Check the native library of light mode."""
    from opscope.backends import light_clock

    without = "light mode's hooks are Python functions, at twice the cost"
    when = "the first run in light mode, in about 1 s"
    return _compile("light mode's clock", light_clock.SOURCE, ((),), when, without, "light")


def _compile(
    title: str,
    source: Path,
    flags: tuple[tuple[str, ...], ...],
    when: str,
    without: str,
    build: str = "tensorflow",
) -> Check:
    """Check a library of ``adapters.shared.compiled``, built with the first of ``flags`` that works.
    ``without``: the effect of its absence; ``when``: when it is built; ``build``: the argument of ``opscope
    build`` that builds it."""
    from opscope.adapters.shared.compiled import BuildError, cached, compiler_of, library_name

    try:
        names = [library_name(source, each) for each in flags]
    except BuildError as error:
        return Check(title, False, str(error), without)
    path = next(filter(None, map(cached, names)), None)
    if path is not None:
        return Check(title, True, str(path))
    compiler, language = compiler_of(source), "C++" if source.suffix == ".cc" else "C"
    if compiler is None:
        advice = f"install a {language} compiler; without one {without}"
        return Check(title, False, f"not built: no {language} compiler was found", advice)
    advice = f"it is built at {when}; to build it now: opscope build {build}"
    return Check(title, False, f"not built yet; {compiler} can build it", advice)
