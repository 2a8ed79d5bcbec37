"""Names of a megabyte, many in a file: no reader, report or export takes more than seconds of processor time.

What limits the work is the processor time of this process, whatever else the machine does.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from tests.command import opscope
from tests.long_names import lengthen
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
fuzz_seeds = pytest.importorskip("fuzz_seeds")

LENGTH = 1_000_000
#: Seconds of processor time that one command may take; where patterns ran over whole names it was minutes.
MOST_SECONDS = 20
#: What a name is made of: one that patterns begin to match at each place, or that has many parts.
UNITS = (
    "layer.block1.", "(", "f32[3,4], ", "_ZN2at6native", "a/b/", "void a<int, ", "1x1,", "{'mod': 'a', ",
    "@a.py:1 ", "aten::", "conv", " ", "elementwise_kernel",
)  # fmt: skip
READERS = (
    "nsys SQLite", "nsys Parquet", "nvprof", "DLProf", "Kineto JSON", "ONNX Runtime JSON", "TensorRT", "XPlane",
    "profile", "recording",
    *(name for name in fuzz_seeds.beside_tests() if name != "PyTorch's memory timelines"),  # it has no names
)  # fmt: skip
EXPORTS = ("perfetto", "chrome", "speedscope", "flamegraph", "otlp", "prometheus", "html")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return fuzz_seeds.made(tmp_path_factory.mktemp("seeds"))


@contextmanager
def bounded_work():
    """Fail if the block takes more processor time than ``MOST_SECONDS``."""

    def stop(*_: object) -> None:
        raise AssertionError(f"more than {MOST_SECONDS} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def long_named(source: Path, folder: Path, unit: str, most: int, length: int = LENGTH) -> Path:
    target = folder / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    assert lengthen(target, unit * (length // len(unit)), most), "no name became long"
    return target


def read(*words: object) -> None:
    with bounded_work():
        done = opscope(*words)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no timer of processor time")
@pytest.mark.parametrize("reader", READERS)
def test_names_of_a_megabyte(reader: str, seeds, tmp_path: Path) -> None:
    read("report", long_named(seeds[reader][0], tmp_path, UNITS[0], 8))


@pytest.mark.skipif(sys.platform == "win32", reason="no timer of processor time")
@pytest.mark.parametrize("category", ["kernel", "cpu_op"])
def test_25_kernels_and_ops_with_names_of_a_megabyte(category: str, seeds, tmp_path: Path) -> None:
    whole = json.loads(seeds["Kineto JSON"][0].read_bytes())
    events = whole["traceEvents"]
    last = [event for event in events if event.get("cat") == category][-1]
    for number in range(25):
        events.append(
            {**last, "ts": last["ts"] + 1000 * number, "args": {"device": 0, "stream": 7}}
        )
        events[-1]["name"] = "aten::" * (LENGTH // 6) + str(number)
    (trace := tmp_path / "trace.json").write_text(json.dumps(whole))
    read("report", trace)


@pytest.mark.skipif(sys.platform == "win32", reason="no timer of processor time")
def test_a_layer_of_many_parts(seeds, tmp_path: Path) -> None:
    trace = long_named(seeds["Kineto JSON"][0], tmp_path, UNITS[0], 60, 2 * LENGTH)
    read("report", trace, "--reports", "modules", "--json")


@pytest.mark.timeout(3_600)  # all forms of names, of up to four files
@pytest.mark.parametrize("reader", READERS)
def test_names_of_a_megabyte_in_all_answers(reader: str, seeds, tmp_path: Path) -> None:
    for number, (unit, source) in enumerate(product(UNITS, seeds[reader])):
        (folder := tmp_path / str(number)).mkdir()
        trace = long_named(source, folder, unit, 25)
        for words in (
            ["report"],
            ["advise"],
            ["ops", "--json"],
            ["redact", "-o", folder / "redacted"],
        ):
            read(words[0], trace, *words[1:])
        read("diff", trace, source)
        for to in EXPORTS:
            read("export", trace, "--to", to, "-o", folder / f"out-{to}")
        shutil.rmtree(folder)  # of all forms they would be gigabytes
