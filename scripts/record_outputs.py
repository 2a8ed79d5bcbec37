"""Record what opscope prints and writes for many traces, so that a refactoring can be shown to change no byte.

Usage: PYTHONPATH=CHECKOUT python scripts/record_outputs.py -o FOLDER [--quick] [--only PATTERN] [--jobs N] [--resume]
       python scripts/record_outputs.py --compare OLD NEW [--quick] [--only PATTERN]

FOLDER gets a manifest for each input (a line ``name  sha256  bytes`` for each output) and the outputs, each
once. The traces are those of OPSCOPE_SHARED, by default ../shared. Only the command and public names are used.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import functools
import gzip
import hashlib
import importlib
import importlib.util
import inspect
import io
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared"))
#: What a process that records is given, so that two runs differ in nothing but opscope.
SETTINGS = {
    "COLUMNS": "100",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "POLARS_MAX_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TZ": "UTC",
}
#: Files that are texts about the traces.
TEXTS = (".md", ".py", ".sh", "README")
#: Folders that are an input as a whole, besides each of their files.
FOLDERS = (
    "data/dlprof",
    "data/mindspore/*",
    "data/ncu/roofline_rtx5070",
    "data/rocm/*",
    "data/tensorrt/trex",
    "cases/frameworks/mindspore_graph_5steps",
    "cases/same_rank_twice",
)
#: Files that are opened together, as the parts of one job.
JOBS = {
    "job-sampled": ("data/kineto/sampled_rank0.json.gz", "data/kineto/sampled_rank1.json.gz"),
    "job-tensor-parallel": (
        "cases/pytorch/tp_trace0.json.gz",
        "cases/pytorch/tp_trace1.json.gz",
    ),
    "job-two-sessions": (
        "cases/frameworks/two_2026-11-28_12-57-52_206.json",
        "cases/frameworks/two_2026-11-28_12-57-52_242.json",
    ),
    "job-two-cycles": (
        "cases/two_cycles_of_one_rank/cycle1.json",
        "cases/two_cycles_of_one_rank/cycle2.json",
    ),
    "job-with-a-damaged-file": (
        "cases/containers/trace.json",
        "cases/containers/truncated.json.gz",
    ),
}
DIFFS = {
    "diff-sampled": JOBS["job-sampled"],
    "diff-resnet50-workers": (
        "data/kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
        "data/kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    ),
    "diff-h100": (
        "data/kineto/qwen1.5_0.5b_h100.json.gz",
        "data/kineto/timesformer_h100.json.gz",
    ),
    "diff-alexnet": (
        "data/kineto/alexnet_cuda_sync_a100.json.gz",
        "data/kineto/alexnet_cupti_counters_a100.json.gz",
    ),
    "diff-nsys": (
        "data/nsys_more/fuser_h200_test_matmul.sqlite",
        "data/nsys_more/fuser_h200_pytest_nvtx.sqlite",
    ),
    "diff-dlprof-nvprof": ("data/dlprof/nsys_profile.sqlite", "data/nvprof/language_model.sqlite"),
    "diff-xplane": (
        "cases/frameworks/jax_conv_fft.xplane.pb",
        "cases/frameworks/tf_keras_fit.xplane.pb",
    ),
    "diff-cpu": ("cases/pytorch/F3.json", "cases/pytorch/P4.json"),
    "diff-servers": ("cases/server_steps/trace.json", "cases/server_steps_varied/trace.json"),
    "diff-refused": ("cases/containers/trace.json", "cases/containers/truncated.json.gz"),
}
QUICK = (
    "facts",
    "cases/containers/truncated.json.gz",
    "cases/frameworks/jax_conv_fft.xplane.pb",
    "cases/frameworks/mindspore_graph_5steps",
    "cases/pytorch/F3.json",
    "data/dlprof/nsys_profile.sqlite",
    "data/kineto/alexnet_cupti_counters_a100.json.gz",
    "data/kineto/vllm_decode_cudagraph.json.gz",
    "data/mindspore/msprof_device0",
    "data/ncu/speedy_scan_profile.ncu-rep",
    "data/nsys_more/fuser_h200_test_matmul.sqlite",
    "data/onnxruntime/resnet_inference_gemmini.json",
    "data/rocm/rpd/matmul_result.rpd",
    "data/tensorrt/trex/resnet_pt_a100_fp16.profile.json",
    "job-sampled",
    "diff-alexnet",
)
#: Formats of ``opscope export`` by the package that each needs besides opscope's own.
EXPORTS = {
    "perfetto": None,
    "chrome": None,
    "speedscope": None,
    "flamegraph": None,
    "otlp": None,
    "tensorboard": "tensorboard",
    "prometheus": None,
    "html": None,
}
#: How the output of a command begins that could read its files.
READ = b"exit status: 0\n"
#: What is recorded of files that ``opscope report`` refuses, besides that refusal.
REFUSED = ("report-json", "kernels-style-pyprof", "advise-json", "export-perfetto", "doctor")


@dataclass(frozen=True)
class Input:
    """What is recorded under ``name``: what opscope says of ``paths``, a difference of two, or facts."""

    name: str
    paths: tuple[str, ...] = ()
    diff: bool = False

    @property
    def manifest(self) -> str:
        """The name of the manifest's file, which is there when the input is done."""
        return self.name.replace("/", "__") + ".txt"

    @property
    def begun(self) -> str:
        """The name of the manifest's file while the input is recorded."""
        return self.name.replace("/", "__") + ".begun"


def inputs() -> list[Input]:
    """Return every input, the facts about the code first."""
    files = sorted(
        path.relative_to(SHARED).as_posix()
        for room in ("data", "cases")
        for path in (SHARED / room).rglob("*")
        if path.is_file() and not path.name.endswith(TEXTS)
    )
    folders = sorted(
        path.relative_to(SHARED).as_posix()
        for pattern in FOLDERS
        for path in SHARED.glob(pattern)
        if path.is_dir()
    )
    return [
        Input("facts"),
        *(Input(name, paths) for name, paths in JOBS.items()),
        *(Input(name, paths, diff=True) for name, paths in DIFFS.items()),
        *(Input(name, (name,)) for name in sorted({*files, *folders})),
    ]


class Store:
    """A folder of outputs: a manifest for each input, and each distinct output once, compressed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where the output with this SHA-256 is."""
        return self.folder / "outputs" / digest[:2] / f"{digest}.gz"

    def add(self, input_: Input, name: str, data: bytes) -> None:
        """Write the output, and its line at the end of the input's manifest that was begun."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(gzip.compress(data, 3, mtime=0))
            os.replace(file.name, path)
        with (self.folder / input_.begun).open("a", encoding="utf-8") as manifest:
            manifest.write(f"{name}  {digest}  {len(data)}\n")

    def end(self, input_: Input) -> None:
        """Give the manifest its name."""
        (self.folder / input_.begun).replace(self.folder / input_.manifest)

    def digests(self, manifest: str) -> dict[str, str]:
        """Return the SHA-256 of each output of a manifest by its name."""
        path = self.folder / manifest
        if not path.exists():
            return {}
        lines = path.read_text("utf-8").splitlines()
        return {name: digest for name, digest, _ in (line.split("  ") for line in lines)}

    def output(self, digest: str) -> bytes:
        """Return an output."""
        return gzip.decompress(self.path(digest).read_bytes())


# What a process records of one input.


def record(input_: Input, store: Store, share: bool) -> None:
    """Record every output of the input, whose manifest is begun anew.

    ``share``: load a file once for all commands, not once for each.
    """
    for manifest in (input_.begun, input_.manifest):
        (store.folder / manifest).unlink(missing_ok=True)
    add = functools.partial(store.add, input_)
    if not input_.paths:
        for name, text in facts():
            add(name, text.encode())
        return
    with tempfile.TemporaryDirectory(prefix="record-") as place:
        scratch = Path(place)
        if input_.diff:
            add("json", run_command(["diff", *input_.paths, "--json", "--full"], scratch))
            add("text", run_command(["diff", *input_.paths, "--width", "100"], scratch))
            return
        if share:
            load_once()
        refused = False
        for name, args, file in commands(input_.paths, scratch):
            if refused and name not in REFUSED:
                continue
            output = run_command(args, scratch)
            add(name, output)
            refused = refused or (name == "report-100" and not output.startswith(READ))
            if file is not None and file.exists():
                add(f"{name}.file", read_written(file))
        add("frames", frames(input_.paths).encode())


def commands(paths: Sequence[str], scratch: Path) -> Iterator[tuple[str, list[str], Path | None]]:
    """Yield each command's name, its arguments, and what it writes."""
    reports = catalogue().reports
    read = ["report", *paths]
    yield "report-100", [*read, "--width", "100"], None
    yield "report-0", [*read, "--width", "0"], None
    yield "report-json", [*read, "--json", "--full"], None
    yield "report-small", [*read, "--json"], None
    yield (
        "report-step-1",
        [*read, "--json", "--full", "--iter-start", "1", "--iter-stop", "1"],
        None,
    )
    for name in reports():
        yield f"reports/{name}", [*read, "--reports", name, "--width", "100"], None
    for style in ("dlprof", "pyprof"):
        yield f"report-style-{style}", [*read, "--style", style, "--width", "100"], None
    dlprof = [*read, "--style", "dlprof", "--reports", "all"]
    yield "report-style-dlprof-all", [*dlprof, "--width", "0"], None
    yield "report-style-dlprof-json", [*dlprof, "--json"], None
    yield (
        "kernels-style-pyprof",
        ["kernels", *paths, "--style", "pyprof", "-c", "all", "--csv"],
        None,
    )
    yield "advise-json", ["advise", *paths, "--json", "--full"], None
    yield "advise-100", ["advise", *paths, "--width", "100"], None
    for command in ("ops", "kernels", "iterations", "counters"):
        yield f"{command}-csv", [command, *paths, "--csv"], None
    yield "whatif", ["whatif", *paths, "--host", "0.5", "--json"], None
    yield "doctor", ["doctor", *paths], None
    html = scratch / "report.html"
    yield "report-html", [*read, "--html", str(html)], html
    for name, package in EXPORTS.items():
        if package is not None and importlib.util.find_spec(package) is None:
            print(f"not recorded: export --to {name}, which needs {package}", file=sys.stderr)
            continue
        file = scratch / f"export-{name}"
        yield f"export-{name}", ["export", *paths, "--to", name, "-o", str(file)], file
    for by in ("layer", "source"):
        file = scratch / f"flamegraph-{by}"
        args = ["export", *paths, "--to", "flamegraph", "--by", by, "-o", str(file)]
        yield f"export-flamegraph-{by}", args, file
    if len(paths) > 1:
        yield "report-merged", [*read, "--jobs", "1", "--json"], None


def run_command(args: list[str], scratch: Path) -> bytes:
    """Run the command in this process; return its exit status, and what it printed on stdout and stderr."""
    from opscope.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    before = sys.argv
    sys.argv = ["opscope", *args]
    status: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        status = end.code or 0
    except Exception as error:  # noqa: BLE001 - a traceback is an output too
        status = "traceback: " + traceback.format_exception_only(error)[-1].strip()
    finally:
        sys.argv = before
    pieces = []
    for stream in (out, err):
        stream.flush()
        pieces.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
    text = b"exit status: %s\n--- stderr\n%s--- stdout\n%s" % (str(status).encode(), *pieces[::-1])
    return text.replace(os.fsencode(scratch), b"SCRATCH")


def read_written(path: Path) -> bytes:
    """Return the bytes of a file that a command wrote, or of all files of a folder."""
    if path.is_file():
        return path.read_bytes()
    return b"".join(
        b"--- %s\n%s"
        % (file.parent.relative_to(path).as_posix().encode(), later_events(file.read_bytes()))
        for file in sorted(path.rglob("*"))
        if file.is_file()
    )


def later_events(data: bytes) -> bytes:
    """Return TensorBoard's event file without its first record, which has the time of writing."""
    return data[8 + 4 + struct.unpack("<Q", data[:8])[0] + 4 :] if len(data) > 8 else data


def load_once() -> None:
    """Let all commands of this process share a load of the same files with the same options."""
    import typer.main

    import opscope

    profile = importlib.import_module("opscope.profile")
    # Typer builds every command anew at each call, which is two thirds of the time for a small trace
    typer.main.get_command = functools.cache(typer.main.get_command)
    results: dict[str, Any] = {}
    for load in {opscope.load, profile.load}:
        shared = share_results(load, results)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "opscope":
                for attribute in [key for key, value in vars(module).items() if value is load]:
                    setattr(module, attribute, shared)


def share_results(load: Callable[..., Any], results: dict[str, Any]) -> Callable[..., Any]:
    """Return ``load`` so that it keeps what it returns or raises in ``results``."""

    @functools.wraps(load)
    def shared(path: Any, **options: Any) -> Any:
        if options.get("executor") is not None or options.get("parts") is not None:
            return load(path, **options)
        given = {key: value for key, value in sorted(options.items()) if value not in (None, False)}
        given.pop("progress", None)
        key = repr((path, given))
        if key not in results:
            try:
                results[key] = load(path, **options)
            except Exception as error:  # noqa: BLE001 - raised below, and by each later command
                results[key] = error
        if isinstance(results[key], Exception):
            raise results[key].with_traceback(None)
        return results[key]

    return shared


def frames(paths: Sequence[str]) -> str:
    """Return the columns, types, and rows' SHA-256 of each frame that a profile gives without arguments."""
    import opscope

    try:
        profile = opscope.load(paths[0] if len(paths) == 1 else list(paths))
    except Exception as error:  # noqa: BLE001 - what is raised is the output
        return f"load: {type(error).__name__}: {error}\n"
    lines = []
    for name, method in public(type(profile)):
        if not inspect.isfunction(method) or "DataFrame" not in str(
            inspect.signature(method).return_annotation
        ):
            continue
        _, *arguments = inspect.signature(method).parameters.values()
        if any(
            argument.default is argument.empty and argument.kind is not argument.VAR_KEYWORD
            for argument in arguments
        ):
            continue
        try:
            frame = getattr(profile, name)()
        except Exception as error:  # noqa: BLE001 - what is raised is the output
            lines.append(f"{name}: {type(error).__name__}: {error}\n")
            continue
        rows = hashlib.sha256(frame.write_ndjson().encode()).hexdigest()
        lines.append(f"{name}: {len(frame)} rows, {rows}\n")
        lines += [f"    {column}: {dtype}\n" for column, dtype in frame.schema.items()]
    return "".join(lines)


# What is recorded of the code itself.


def facts() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each fact: public names, reports, options, columns, entry points."""
    import opscope
    from opscope import errors

    registry = catalogue()
    reports = registry.reports
    by_name = {getattr(of, "name", of): word for word, of in registry.divisions().items()}
    index = importlib.import_module("opscope.core.question.index")
    profile = importlib.import_module("opscope.profile")
    yield (
        "opscope",
        "".join(
            describe(f"opscope.{key}", getattr(opscope, key)) for key in sorted(opscope.__all__)
        ),
    )
    yield "errors", "".join(describe(key, getattr(errors, key)) for key in sorted(errors.__all__))
    merged = next(kind for kind in descendants(profile.Profile) if kind.__name__ == "Merged")
    for kind in (profile.Profile, merged):
        yield kind.__name__, "".join(describe(name, value) for name, value in public(kind))
    lines = []
    for report in reports().values():
        words = [by_name[report.name]] if report.name in by_name else []
        first = report.name in index.FIRST
        lines.append(
            f"{report.name}: {report.title!r}, aliases {list(report.aliases)}, --by {words}, first"
            f" {first}, written {report.written}, lean {report.lean}, single {report.single}\n"
        )
    yield "reports", "".join(lines)
    yield (
        "columns-of-reports",
        "".join(
            f"{report.name}.{column.name} [{column.unit}]: {column.meaning}\n"
            for report in reports().values()
            for column in report.holds.columns
        ),
    )
    yield "columns-of-frames", columns_of_frames()
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    package = Path(opscope.__file__).resolve().parents[1]
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    yield (
        "entry-points",
        "".join(
            f"{group}: {name} = {value}\n"
            for group, values in sorted(groups.items())
            for name, value in sorted(values.items())
        ),
    )
    top = run_command(["--help"], Path("/nowhere")).decode()
    yield "help", top
    _, _, listed = top.partition("Commands:\n")
    for line in listed.splitlines():
        if line.startswith("  ") and not line.startswith("   "):
            command = line.split()[0]
            yield f"help-{command}", run_command([command, "--help"], Path("/nowhere")).decode()


def catalogue() -> Any:
    """Return the module that finds the reports."""
    return importlib.import_module("opscope.core.question.registry")


def columns_of_frames() -> str:
    """Return the columns that the documentation lists for each frame of a profile."""
    return "".join(
        f"{frame.call}.{column.name} [{column.unit}]: {column.meaning}\n"
        for frame in catalogue().frames()
        for column in frame.columns
    )


def descendants(kind: type) -> Iterator[type]:
    """Yield the classes below a class."""
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


def public(kind: type) -> list[tuple[str, Any]]:
    """Return the public attributes of a class, by name, not bound."""
    names = [name for name in dir(kind) if not name.startswith("_")]
    made = {name: getattr(kind, name) for name in names}
    return [
        (name, made[name] if callable(made[name]) else inspect.getattr_static(kind, name))
        for name in names
    ]


def describe(name: str, value: Any) -> str:
    """Return the name with its signature, and the docstring beneath."""
    function = getattr(value, "fget", None) or getattr(value, "func", None) or value
    try:
        call = str(inspect.signature(function))
    except (TypeError, ValueError):
        call = f": {type(value).__name__}"
    kind = "" if function is value else f" ({type(value).__name__})"
    words = inspect.getdoc(function) or ""
    return f"{name}{call}{kind}\n" + "".join(f"    {line}\n" for line in words.splitlines())


# The comparison.


def compare(old: Store, new: Store, fits: Callable[[str], bool], lines: int) -> int:
    """Print the differences of two recordings; return how many there are."""
    manifests = {path.name for store in (old, new) for path in store.folder.glob("*.txt")}
    by_output: Counter[str] = Counter()
    outputs = 0
    for manifest in sorted(manifests):
        input_ = manifest.removesuffix(".txt").replace("__", "/")
        if not fits(input_):
            continue
        before, after = old.digests(manifest), new.digests(manifest)
        if not before or not after:
            print(f"{input_}: only in {(new if after else old).folder}")
            by_output["(all of an input)"] += 1
            continue
        for store, names in ((old, before.keys() - after), (new, after.keys() - before)):
            if names:
                first = ", ".join(sorted(names)[:5])
                print(f"{input_}: only in {store.folder}: {first} ({len(names)} in all)")
        for name in dict.fromkeys((*before, *after)):
            outputs += 1
            if before.get(name) == after.get(name):
                continue
            by_output[name] += 1
            if name not in before or name not in after:
                continue
            print(f"{input_}: {name}")
            for line in changes(old.output(before[name]), new.output(after[name]), lines):
                print(f"    {line}")
    count = sum(by_output.values())
    for name, times in by_output.most_common(20) if count > 1 else ():
        print(f"{times:6} x {name}")
    print(f"{count} differences in {outputs} outputs")
    return count


def changes(old: bytes, new: bytes, most: int) -> list[str]:
    """Return the first lines of a unified diff, long lines cut to where they begin to differ."""
    if b"\0" in old or b"\0" in new:
        equal = equal_at_first(old, new)
        return [f"binary: {len(old)} and {len(new)} bytes, equal up to byte {equal}"]
    before, after = (data.decode("utf-8", "replace").splitlines() for data in (old, new))
    start = equal_at_first(before, after)
    # a diff of the first lines only: difflib takes minutes for a file of a million lines
    window = slice(max(start - 1, 0), start + 100)
    diff = difflib.unified_diff(before[window], after[window], lineterm="", n=1)
    body = [line for line in diff if not line.startswith(("---", "+++", "@@"))]
    left = f"line {start + 1} of {len(before)} and {len(after)}:"
    first = [next((line for line in body if line.startswith(mark)), "") for mark in "-+"]
    equal = equal_at_first(*(line[1:] for line in first))
    cut = max(equal - 60, 0) if max(map(len, first)) > 160 else 0
    return [left, *(line[0] + line[1 + cut :][:160] for line in body[:most])]


def equal_at_first(old: Sequence[object], new: Sequence[object]) -> int:
    """Return how many items both begin with."""
    differing = (
        n for n, (before, after) in enumerate(zip(old, new, strict=False)) if before != after
    )
    return next(differing, min(len(old), len(new)))


# The command line.


def record_all(store: Store, wanted: list[Input], jobs: int, limit: int, share: bool) -> None:
    """Record each input in a process of its own, which ends after ``limit`` seconds of processor time."""
    store.folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def record_input(input_: Input) -> str:
        args = [sys.executable, os.path.abspath(__file__), "-o", str(store.folder.resolve())]
        args += ["--limit", str(limit), "--input", input_.name, *(() if share else ("--fresh",))]
        environment = {name: value for name, value in os.environ.items() if name[:8] != "OPSCOPE_"}
        environment |= {**SETTINGS, "OPSCOPE_SHARED": str(SHARED.resolve())}
        start = time.monotonic()
        try:
            # by the clock ten times as long, so that a busy machine ends no recording
            done = subprocess.run(
                args, env=environment, cwd=SHARED, timeout=10 * limit, check=False
            )
            if done.returncode == -signal.SIGXCPU:
                store.add(input_, "ended", b"timeout\n")
            elif done.returncode:
                store.add(input_, "ended", f"the recorder ended with {done.returncode}\n".encode())
        except subprocess.TimeoutExpired:
            store.add(input_, "ended", b"timeout\n")
        store.end(input_)
        return f"{time.monotonic() - start:7.1f} s  {input_.name}"

    with ThreadPoolExecutor(jobs) as pool:
        for line in pool.map(record_input, wanted):
            print(line, flush=True)
    print(f"{time.monotonic() - begun:7.1f} s  {len(wanted)} inputs")


def main() -> int:
    """Record, or compare two recordings; the exit status is 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="folder for the recording")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--lines", type=int, default=6, help="lines of each difference")
    parser.add_argument("--only", default="*", help="only inputs whose name has this or fits it")
    parser.add_argument("--quick", action="store_true", help="a fixed subset of small inputs")
    parser.add_argument("--jobs", type=int, default=1, help="inputs at once")
    parser.add_argument(
        "--limit", type=int, default=600, help="seconds of processor time for an input"
    )
    parser.add_argument("--resume", action="store_true", help="keep the inputs that are done")
    parser.add_argument("--fresh", action="store_true", help="load a file anew for each command")
    parser.add_argument("--input", help=argparse.SUPPRESS)
    given = parser.parse_args()

    def fits(name: str) -> bool:
        named = given.only in name or fnmatch.fnmatch(name, given.only)
        return named and (not given.quick or name in QUICK)

    if given.compare:
        for folder in given.compare:
            if not folder.is_dir():
                parser.error(f"{folder}: there is no such folder")
        old, new = map(Store, given.compare)
        return 1 if compare(old, new, fits, given.lines) else 0
    if given.output is None:
        parser.error("-o FOLDER or --compare OLD NEW is needed")
    store = Store(given.output)
    if given.input is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (given.limit, given.limit + 5))
        record(next(each for each in inputs() if each.name == given.input), store, not given.fresh)
        return 0
    wanted = [each for each in inputs() if fits(each.name)]
    if not wanted:
        parser.error(f"no input fits in {SHARED}")
    if given.resume:
        wanted = [each for each in wanted if not (store.folder / each.manifest).exists()]
    record_all(store, wanted, given.jobs, given.limit, not given.fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
