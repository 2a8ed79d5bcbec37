"""``opscope doctor``: what works on this machine, what a profile lacks, and how to get the rest."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

import opscope

from . import common, gaps

#: Distribution names of frameworks without an adapter yet, which users may look for here.
_WITHOUT_ADAPTER = ("mindspore", "onnxruntime")


#: The reports that show what a profile lacks.
_EXPLAINING = ("unattributed", "missing", "notes")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked: whether it works, what was found, and what to do if it does not work."""

    what: str
    works: bool
    found: str
    advice: str = ""


def doctor(
    file: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="A profile or trace: explain what it lacks."),
    ] = None,
    ops: Annotated[
        bool, typer.Option("--ops", help="List the ops whose FLOPs and bytes opscope computes.")
    ] = False,
    gpu: common.Gpu = None,
    strict: common.Strict = False,
    json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    width: common.Width = None,
) -> None:
    """Show what works on this machine, or what a FILE lacks.

    For what does not work or is missing, it says why and how to get it.
    """
    from opscope.reports import console
    from opscope.reports.columns import columns
    from opscope.reports.layout import Table

    if ops:
        rows = _models()
        many = sum(not str(row["source"]).startswith("null: ") for row in rows)
        title = f"{many} ops with a cost model"
        if many < len(rows):
            title += f", {len(rows) - many} whose cost cannot be computed from a call"
        table = Table(title, columns(["name", "family", "source"]), rows)
    elif file:
        profile = common.load(file, gpu, strict)
        held, closing = gaps.tables(profile), gaps.advice(profile)
        if not json:
            more = console.tables(profile, _EXPLAINING, None)
            lines = [f"{row['reason']}: {row['advice']}" for row in closing]
            more[0] = replace(more[0], footnotes=(*more[0].footnotes, *lines))
            common.show(
                [
                    Table(
                        f"Contents of {', '.join(file)}",
                        columns(["table", "rows", "means"]),
                        held,
                    ),
                    *more,
                ],
                width,
            )
            return
        import json as encoder

        from opscope.reports import files, registry

        reports = registry.frames(profile, _EXPLAINING)
        common.emit(
            encoder.dumps(
                {"tables": held, "advice": closing, **encoder.loads(files.as_json(reports))},
                indent=2,
            )
        )
        return
    else:
        rows = [
            {
                "state": "ok" if check.works else "--",
                "what": check.what,
                "found": check.found,
                "advice": "" if check.works else check.advice,
            }
            for check in checks()
        ]
        advice = [f"{row['what']}: {row['advice']}" for row in rows if row["advice"]]
        table = Table("This machine", columns(["state", "what", "found"]), rows, advice)
    if json:
        import json as encoder

        common.emit(encoder.dumps(rows, indent=2))
    else:
        common.show([table], width)


def checks() -> Iterator[Check]:
    """Yield every check of this machine. Loads the frameworks that are installed."""
    yield Check("opscope", True, f"{opscope.__version__}, Python {platform.python_version()}")
    supported = sys.platform.startswith("linux")
    yield Check(
        "capture",
        supported,
        platform.platform(),
        "opscope records on Linux only; reports work here",
    )
    yield from _adapters()
    yield _gpu()
    yield _nsys()
    yield _nvtx()
    yield from _torch_observers()
    yield from _tensorflow_observers()


def _adapters() -> Iterator[Check]:
    from packaging.specifiers import SpecifierSet

    from opscope.adapters import known

    targets = known.available()
    for name in dict.fromkeys((*sorted(targets), *_WITHOUT_ADAPTER)):
        version = _version(name)
        if name not in targets:
            if version:
                yield Check(name, False, version, "opscope has no adapter for it yet")
            continue
        if version is None:
            yield Check(name, False, "not installed", f"pip install {name} in this environment")
            continue
        try:
            requires = known.load(targets[name]).requires
        except Exception as error:  # noqa: BLE001 - a broken framework may raise anything
            why = " ".join(str(error).split()) or type(error).__name__
            yield Check(name, False, version, f"it cannot be imported: {why}")
            continue
        fits = SpecifierSet(requires).contains(version, prereleases=True)
        yield Check(name, fits, version, f"the adapter needs {name} {requires}")


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

    windows = os.name == "nt"
    without = Check(
        "GPU",
        False,
        "no CUDA or HIP driver",
        "profiles made here have the CPU times of ops; GPU traces made elsewhere can be read",
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
        found = f"{runtime} driver present, no device (error {status})"
        without = Check("GPU", False, found, look)
    from opscope.backends import gpu_vendor

    if gpu_vendor() == "amd":  # PyTorch's wheels contain HIP; the system need not have it
        return Check("GPU", True, "an AMD GPU (/dev/kfd exists); the system has no HIP of its own")
    return without


def _nsys() -> Check:
    path = shutil.which("nsys")
    if path is None:
        return Check(
            "Nsight Systems",
            False,
            "nsys is not on PATH",
            "PyTorch does not need it; with it, any program can be profiled on a GPU",
        )
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Nsight Systems", False, path, f"nsys does not run: {error}")
    return Check("Nsight Systems", True, " ".join(shown.stdout.split()) or path)


def _nvtx() -> Check:
    version = _version("nvtx")
    if version is None:
        return Check("NVTX", False, "not installed", "pip install nvtx")
    if os.environ.get("NVTX_INJECTION64_PATH"):
        return Check("NVTX", True, f"{version}, a tool is attached")
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
        for what in whats:
            yield Check(what, False, "PyTorch is not installed", "it is built against PyTorch")
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
    for what, source, lacking, first in zip(whats, sources, without, when, strict=True):
        try:
            wanted = plan(source)
        except BuildError as error:
            yield Check(what, False, str(error), lacking)
            continue
        path = built(wanted)
        if path is not None:
            deaf = source == SOURCE and wanted.nvtx is None
            yield Check(
                what, True, f"{path}{', without NVTX (pip install nvidia-nvtx)' if deaf else ''}"
            )
        elif wanted.compiler is None:
            advice = f"install a C++ compiler; without one {lacking}"
            yield Check(what, False, "not built: no C++ compiler was found", advice)
        else:
            advice = f"it is built at {first}; to build it now: opscope build torch"
            yield Check(what, False, f"not built yet; {wanted.compiler} can build it", advice)


def _tensorflow_observers() -> Iterator[Check]:
    """Check the native libraries of the TensorFlow adapter: the observer of graph ops, and the reader of
    sizes that a graph does not know."""
    ears, inputs = "TensorFlow observer", "TensorFlow size reader"
    if _version("tensorflow") is None:
        for what in (ears, inputs):
            yield Check(
                what, False, "TensorFlow is not installed", "it is built against TensorFlow"
            )
        return
    try:
        from opscope.adapters.tensorflow import running

        flags = running.inputs_flags(importlib.import_module("tensorflow"))
    except Exception as error:  # noqa: BLE001 - a broken TensorFlow may raise anything
        why = " ".join(str(error).split()) or type(error).__name__
        for what in (ears, inputs):
            yield Check(what, False, "TensorFlow cannot be used", why)
        return
    profiler = "the ops of graphs come from TensorFlow's profiler"
    unknown = "sizes that a graph does not know are not recorded"
    yield _compiled(ears, running.SOURCE, ((),), "the first capture, in about 1 s", profiler)
    when = "the first capture of a graph that does not know its sizes, in a few seconds"
    yield _compiled(inputs, running.INPUTS, flags, when, unknown)


def _compiled(
    what: str, source: Path, flags: tuple[tuple[str, ...], ...], when: str, without: str
) -> Check:
    """Check a library of ``adapters.shared.compiled``, built with the first of ``flags`` that works.

    ``without`` says what happens without it, ``when`` says when it is built.
    """
    from opscope.adapters.shared.compiled import BuildError, cached, compiler_of, library_name

    try:
        names = [library_name(source, each) for each in flags]
    except BuildError as error:
        return Check(what, False, str(error), without)
    path = next(filter(None, map(cached, names)), None)
    if path is not None:
        return Check(what, True, str(path))
    compiler, language = compiler_of(source), "C++" if source.suffix == ".cc" else "C"
    if compiler is None:
        advice = f"install a {language} compiler; without one {without}"
        return Check(what, False, f"not built: no {language} compiler was found", advice)
    advice = f"it is built at {when}; to build it now: opscope build tensorflow"
    return Check(what, False, f"not built yet; {compiler} can build it", advice)


def _models() -> list[dict[str, object]]:
    from opscope.core.perf.registry import entries

    _register_models()
    return [
        {"name": entry.name, "family": entry.family, "source": " ".join(entry.source.split())}
        for entry in sorted(entries().values(), key=lambda e: (e.family, e.name))
    ]


def _register_models() -> None:
    """Import every module of cost models; importing one registers its models."""
    import pkgutil

    import opscope.core.perf as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
