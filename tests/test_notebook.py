"""opscope in a real kernel of Jupyter: cells are sources, run again, and keep only text."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import opscope
from tests.test_docs import ROOT, blocks, environment, installed, wanted

pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

#: What a terminal does with the cursor or the screen; colours (m) are shown by notebooks.
MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r(?!\n)")


#: A process of its own: nbclient leaves an event loop and a hook at the end of the process.
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
try:
    nbclient.NotebookClient(notebook, timeout=600).execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """``execute(cells, *before)``: the notebook of these cells as it is after its kernel ran them all."""
    path = environment(tmp_path)["PATH"]  # where `opscope` is this one
    monkeypatch.setenv("PATH", path)

    def executed(cells, *before):
        notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
        nbformat.write(notebook, tmp_path / "made.ipynb")
        command = [*before, sys.executable, "-c", EXECUTE, "made.ipynb"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return nbformat.read(tmp_path / "made.ipynb", 4), done

    return executed


@pytest.fixture
def run(execute):
    """``run(cell, cell, …)``: what each cell wrote and showed."""

    def shown(*cells: str) -> list[str]:
        notebook, done = execute(cells)
        assert done.returncode == 0, done.stderr
        return ["".join(map(text_of, cell.outputs)) for cell in notebook.cells]

    return shown


def text_of(output) -> str:
    return output.get("text") or output.get("data", {}).get("text/html") or str(
        output.get("data", {}).get("text/plain", "")
    )  # fmt: skip


BODY = {
    "torch": "def body(x):\n    # a comment\n    return torch.mm(x, x)",
    "tensorflow": "@tf.function\ndef body(x):\n    return tf.matmul(x, x)",
    "jax": "@jax.jit\ndef body(x):\n    return x @ x",
}
IMPORT = {
    "torch": "import opscope, torch\nx = torch.ones(8, 8)",
    "tensorflow": "import opscope, tensorflow as tf\nx = tf.ones((8, 8))",
    "jax": "import opscope, jax, jax.numpy as jnp\nx = jnp.ones((8, 8))",
}
CASES = [("torch", "native"), ("torch", "dispatch"), ("tensorflow", ""), ("jax", "")]


@pytest.mark.parametrize(("framework", "ops"), CASES)
def test_the_sources_of_ops_are_cells_with_the_number_of_their_last_run(
    run, monkeypatch, framework, ops
):
    if not installed(framework):
        pytest.skip(f"needs {framework}")
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", ops or "auto")
    backend = "xplane" if framework == "jax" else "auto"
    call = f"with opscope.capture('run.opscope', backend={backend!r}):\n    found = body(x)"
    show = (
        "ops = opscope.load('run.opscope').op_totals()\n"
        "print(sorted({line for line in ops['source'] if line is not None}))"
    )
    first, again = run(IMPORT[framework], BODY[framework], call, show, BODY[framework], call, show)[
        3::3
    ]
    assert "'In [2]:3 < In [3]:2'" in first
    # the same text, so the same file name in the kernel; IPython counts it anew
    assert "'In [5]:3 < In [6]:2'" in again
    for shown in (first, again):
        assert "ipykernel" not in shown
        assert "IPython" not in shown


def test_a_cell_behind_a_magic_has_lines_and_its_cell_above(run):
    if not installed("torch"):
        pytest.skip("needs torch")
    shown = run(
        IMPORT["torch"],
        "%%time\nwith opscope.capture('run.opscope'):\n    torch.ones(3)\n    torch.zeros(3)",
        "print(opscope.load('run.opscope').ops()['source'].to_list())",
    )[2]
    assert shown.strip() == "['%%time:2 < In [2]:1', '%%time:3 < In [2]:1']"


RECORD = (
    "with opscope.capture('run.opscope'):\n    with opscope.annotate(f'run {count}'):\n        pass\n"
    "print(opscope.load('run.opscope').trace['ranges']['text'].to_list())"
)


def test_a_capture_cell_runs_again_and_what_is_loaded_is_its_last_run(run):
    shown = run("import opscope; count = 1", RECORD, "count = 2", RECORD)
    assert [shown[1].strip(), shown[3].strip()] == ["['run 1']", "['run 2']"]


def test_a_cell_that_captures_otherwise_or_saves_runs_again_too(run):
    capture = (
        "from opscope.backends.profile_capture import ProfileCapture\n"
        "whole = ProfileCapture('steps.opscope')\nwhole.start()\nwhole.stop()\n"
        "opscope.load('steps.opscope').save('saved.opscope')"
    )
    assert run("import opscope", capture, capture) == [""] * 3


def test_what_is_no_profile_is_not_replaced_in_a_notebook_either(execute, tmp_path):
    (tmp_path / "run.opscope").write_text("mine")
    notebook, _ = execute(["import opscope; count = 1", RECORD])
    assert "is no profile" in notebook.cells[1].outputs[-1]["evalue"]
    assert (tmp_path / "run.opscope").read_text() == "mine"


def test_a_command_in_a_cell_leaves_no_movement_of_the_cursor(run):
    shown = run("import opscope; count = 1", RECORD, "!opscope report run.opscope")[2]
    assert "Diagnosis" in shown
    assert MOVES.findall(shown) == []


def test_a_profile_at_the_end_of_a_cell_is_shown_as_a_table(run):
    shown = run("import opscope; count = 1", RECORD, "opscope.load('run.opscope')")[2]
    assert "<table>" in shown
    assert "from run.opscope" in shown
    assert "wall time" in shown


MAGIC = "%%opscope\nfor _ in range(3):\n    with opscope.annotate('inside'):\n        pass\n7"


def test_a_recorded_cell_shows_its_value_and_its_profile(execute, tmp_path):
    show = "print(opscope.load('cell.opscope').trace['ranges']['text'].to_list())"
    notebook, done = execute(["import opscope\n%load_ext opscope", MAGIC, show, MAGIC, show])
    assert done.returncode == 0, done.stderr
    for cell, texts in ((1, 2), (3, 4)):
        value, profile = notebook.cells[cell].outputs
        assert value["data"]["text/plain"] == "7"
        assert "opscope.viewer.notebook.Shown(profile)" in profile["data"]["text/html"]
        assert "<iframe" not in profile["data"]["text/html"]
        assert profile["data"]["text/plain"].startswith("<Profile of 3 ranges")
        assert text_of(notebook.cells[texts].outputs[0]).strip() == str(["inside"] * 3)
        written = "".join(map(text_of, notebook.cells[cell].outputs))
        assert MOVES.findall(written) == []
        assert len(written) < 30_000


def test_a_recorded_cell_that_fails_fails_and_keeps_its_profile(execute, tmp_path):
    cell = "%%opscope mine.opscope\nwith opscope.annotate('before'):\n    pass\n1 / 0"
    notebook, done = execute(["import opscope\n%load_ext opscope", cell, "print('not reached')"])
    assert done.returncode != 0
    first, second = notebook.cells[1].outputs
    assert (first["ename"], second["ename"]) == ("ZeroDivisionError", "CellFailed")
    assert "mine.opscope" in "".join(second["traceback"])
    assert notebook.cells[2].outputs == []
    texts = opscope.load(tmp_path / "mine.opscope").trace["ranges"]["text"]
    assert texts.to_list() == ["before"]


def test_the_lines_of_a_recorded_cell_are_the_cells(run):
    if not installed("torch"):
        pytest.skip("needs torch")
    load = "print(sorted(set(opscope.load('cell.opscope').ops()['source'].to_list())))"
    cell = "%%opscope\ny = torch.ones(3)\nz = torch.zeros(3)"
    shown = run(IMPORT["torch"], "%load_ext opscope", cell, load)[3]
    assert shown.strip() == "['In [3]:2 < In [3]:1', 'In [3]:3 < In [3]:1']"


PAGE = ROOT / "docs" / "notebook.md"


def test_the_cells_of_the_page_on_notebooks_run_as_it_says(run):
    cells = [(needs, code) for _, needs, code in blocks(PAGE) if "cell" in wanted(needs)]
    assert len(cells) > 4
    if not all(installed(name) for needs, _ in cells for name in wanted(needs) if name != "cell"):
        pytest.skip("its cells need a framework that is not here")
    shown = run(*(code for _, code in cells))
    assert "In [1]:11" in "".join(shown)
    assert "<table>" in shown[2]
    assert "Diagnosis" in shown[4]
    assert "notebook.Shown(profile)" in shown[6]
    assert "<iframe" in shown[7]
    assert 'height="400"' in shown[7]
    again = run(*(code for _, code in cells[:2] * 2))
    assert again == [""] * 4


def test_a_kernel_that_runs_as_a_command_is_in_the_profile(execute, tmp_path):
    cell = "import opscope\nwith opscope.annotate('in a cell'): pass"
    options = ("-m", "opscope", "run", "--no-report", "-o", "n", "--")
    _, done = execute([cell], sys.executable, *options)
    assert done.returncode == 0, done.stderr
    texts = opscope.load(tmp_path / "n.opscope").trace["ranges"]["text"]
    assert "in a cell" in texts.to_list()
