"""The recipes of CONTRIBUTING.md, followed on a copy of the package, give what they promise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import opscope
from opscope.profile import Profile
from tests.script import ROOT

PACKAGE = Path(opscope.__file__).parent
STREAMS = "opscope/core/analysis/device/streams.py"
TESTED = "tests/core/analysis/test_streams.py"


DETECTOR = "opscope/core/advice/detectors/slow_copies.py"


def recipe(heading: str) -> list[str]:
    """The fenced blocks of a section of CONTRIBUTING.md, without their indentation."""
    page = ROOT / "CONTRIBUTING.md"
    if not page.is_file():
        pytest.skip("the page is not here")
    text = page.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(block.partition("```")[0]) for block in text.split("```text\n")[1:]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the package and of the script that finds questions, with the recipe's module and test."""
    pytest.importorskip("ruff")
    module, test, *_ = recipe("Add a question")
    tree = tmp_path_factory.mktemp("tree")
    without = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(PACKAGE, tree / "opscope", ignore=without)
    (tree / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "make_questions.py", tree / "scripts")
    detector, *_ = recipe("Add a detector")
    for name, source in ((STREAMS, module), (TESTED, test), (DETECTOR, detector)):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(source, "utf-8")
    run(tree, "scripts/make_questions.py")
    return tree


def run(tree: Path, *command: str, code: int = 0) -> str:
    """What a command of this Python says in the copy, and of the copy's package."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def saved(trace_of, tmp_path: Path) -> str:
    on_gpu = {"process": 0, "device": 0, "name": "k"}
    kernels = [
        {**on_gpu, "stream": stream, "start": start, "end": start + time, "correlation": start}
        for stream, start, time in ((7, 0, 5_000), (8, 10, 20_000), (7, 6_000, 10_000))
    ]
    Profile(trace_of(kernels=kernels)).save(tmp_path / "run.opscope")
    return str(tmp_path / "run.opscope")


def test_the_question_of_the_recipe_is_asked_by_every_way(tree, saved):
    out = run(tree, "-m", "opscope", "report", saved, "--reports", "streams")
    title, head, *rows = out.splitlines()
    assert (title, head.split()) == ("Streams", ["process", "device", "stream", "kernels", "total"])
    assert [" ".join(row.split()) for row in rows] == ["0 0 8 1 20.0 µs", "0 0 7 2 15.0 µs"]
    report = ("-m", "opscope", "report", saved, "--json", "--reports")
    found = json.loads(run(tree, *report, "streams:least=6us"))["streams"]
    assert [(row["stream"], row["total"]) for row in found] == [(8, 20_000), (7, 10_000)]
    said = run(tree, *report, "streams:lest=6us", code=2)
    assert "did you mean 'least'?" in said
    ask = f"import opscope; print(opscope.load({saved!r}).streams(least='6us').rows())"
    assert run(tree, "-c", ask) == "[(0, 0, 8, 1, 20000), (0, 0, 7, 1, 10000)]\n"


def test_the_test_of_the_recipe_passes_and_what_the_script_writes_is_up_to_date(tree):
    run(tree, "scripts/make_questions.py", "--check")
    index = (tree / "opscope/core/question/index.py").read_text("utf-8")
    assert '    "streams": "opscope.core.analysis.device.streams",\n' in index
    stub = (tree / "opscope/core/question/methods.pyi").read_text("utf-8")
    assert "def streams(self, least: int = ..., **where: Unpack[Where])" in stub
    assert "1 passed" in run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTED)


def test_the_recipes_pass_the_linter(tree):
    configured = ("--config", str(ROOT / "pyproject.toml"))
    run(tree, "-m", "ruff", "check", *configured, STREAMS, DETECTOR)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (2_000_000, "1 copies within the GPU take longer than 1 ms (threshold: one copy of more than 1 ms)"),
        (900_000, "nothing found: slow_copies (threshold: one copy of more than 1 ms)"),
        (None, "slow_copies cannot tell: no copies within a GPU were recorded"),
    ],
)  # fmt: skip
def test_the_detector_of_the_recipe_finds_finds_nothing_and_cannot_tell(
    tree, trace_of, tmp_path, length, said
):
    on_gpu = {"process": 0, "device": 0, "stream": 7, "start": 0, "correlation": 1}
    tables = {"kernels": [{**on_gpu, "name": "k", "end": 10}]}
    if length is not None:
        tables["memops"] = [{**on_gpu, "kind": "DtoD", "bytes": 8, "end": length}]
    Profile(trace_of(**tables)).save(tmp_path / "copies.opscope")
    asked = ("-m", "opscope", "advise", str(tmp_path / "copies.opscope"), "-w", "0")
    assert said in run(tree, *asked, "--detectors", "slow_copies", "--all", "-v")


def test_the_detector_of_the_recipe_says_in_sentences_what_it_looks_at(tree):
    record = "from opscope.core.advice.detectors.slow_copies import DETECTOR as record\n"
    said = run(
        tree, "-c", f"{record}print(record.looks_at, record.abstains, sep='\\n')"
    ).splitlines()
    assert len(said) == 2
    assert all(text.endswith(".") for text in said)


def test_the_cost_of_the_recipe_is_counted_by_a_loop():
    function, *_ = recipe("Add an op's cost")
    head = """
        from opscope.core import perf
        from opscope.core.perf import Cost, op
        from opscope.core.perf.registry import variant
        from opscope.core.perf.shapes import cost, need, numel, result, sizes
        from opscope.core.schema import OpCall, TensorSpec
    """
    check = """
        def call(name, rows, columns):
            inputs = (TensorSpec("f32", (rows, columns)), TensorSpec("f32", (rows, 1)))
            return OpCall(name, inputs)

        for rows, columns in ((3, 4), (5, 1)):
            products = sum(1 for _ in range(rows) for _ in range(columns))
            plain = perf.cost(call("mylib::scale_rows", rows, columns))[0]
            adds = perf.cost(call("mylib::scale_rows_add", rows, columns))[0]
            assert (plain.matrix_flops, plain.vector_flops) == (0, products)
            assert adds.vector_flops == 2 * products
            assert plain.bytes == 4 * (2 * products + rows), plain
    """
    code = "\n".join([textwrap.dedent(head), function, textwrap.dedent(check)])
    run(ROOT, "-c", code)
