"""What importing opscope loads: nothing that is not needed yet."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]
#: The tests may run against an installed package, which has no scripts beside it.
CHECKOUT = Path(__file__).resolve().parents[1]
#: Modules that are imported only because the user's program has them.
USERS = {"torch", "tensorflow", "jax", "keras", "mindspore", "abacus", "lightning", "pytorch_lightning",
         "transformers", "onnxruntime", "tensorboard", "sitecustomize"}  # fmt: skip
FRAMEWORKS = ("torch", "tensorflow", "jax", "mindspore", "onnxruntime", "keras", "tensorrt")


def loaded(code: str, *args: str) -> set[str]:
    """The top-level modules that ``python -X importtime -c code`` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 10
    return {line.rsplit("|", 1)[1].strip().partition(".")[0] for line in lines[1:]}


def bare() -> set[str]:
    return loaded("pass")


def test_import_opscope_loads_the_standard_library_and_itself():
    added = loaded("import opscope") - bare()
    assert "opscope" in added
    foreign = {name for name in added if name not in sys.stdlib_module_names} - {"opscope"}
    assert foreign == set()
    assert "typing" not in added  # it costs more than the rest of ``import opscope``


def test_init_imports_no_adapter_before_its_framework():
    code = (
        "import sys, opscope; opscope.init()\n"
        "rooms = {name.split('.')[2] for name in sys.modules if name.startswith('opscope.adapters.')}\n"
        "assert rooms == {'base', 'known'}, rooms"
    )
    loaded(code)


def test_adapters_callbacks_and_backends_alone_import_a_framework():
    foreign = []
    for path in ROOT.joinpath("opscope").rglob("*.py"):
        if path.relative_to(ROOT).parts[1] in ("adapters", "callbacks", "backends"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            packages = {name.partition(".")[0] for name in names}
            foreign += [f"{path.name} -> {package}" for package in packages & set(FRAMEWORKS)]
    assert foreign == []


@pytest.mark.parametrize("room", ["adapters", "callbacks"])
def test_no_import_of_opscope_s_own_is_hidden_from_the_import_contracts(room):
    """``import_module`` of a name that is written out is an import that import-linter does not see."""
    hidden = []
    for path in ROOT.joinpath("opscope", room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                hidden += [path.name for one in node.args if "opscope" in ast.unparse(one)]
    assert hidden == []


def test_init_loads_no_framework_and_nothing_heavy():
    added = loaded("import opscope; opscope.init()")
    assert added & {*FRAMEWORKS, "polars", "pyarrow", "rich", "typer"} == set()


@pytest.mark.parametrize("command", [["--version"], ["run", "--help"], ["report", "--help"]])
def test_the_command_line_s_help_loads_no_tables_and_no_framework(command):
    code = (
        "from opscope.cli import main\ntry: main()\nexcept SystemExit as end: assert not end.code"
    )
    assert loaded(code, *command) & {*FRAMEWORKS, "polars", "pyarrow", "numpy"} == set()


def test_a_report_loads_no_framework(tmp_path):
    code = "import opscope.profile, opscope.readers, opscope.reports.console, opscope.reports.files"
    assert loaded(code) & set(FRAMEWORKS) == set()
    assert "polars" in loaded(code)


def test_every_library_that_is_imported_is_declared():
    """What comes only with another library is missing where that one no longer brings it."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {canonical(re.split(r"[^\w.-]", line)[0]) for line in project["dependencies"]}
    # an extra's package, not installed here, is known by its own name
    extras = {
        canonical(re.split(r"[^\w.-]", line)[0])
        for extra in ("cloud", "cluster", "mcp", "ray", "testing")
        for line in project["optional-dependencies"].get(extra, [])
    }
    modules = {
        name
        for name, owners in metadata.packages_distributions().items()
        if declared & set(map(canonical, owners))
    }
    undeclared = {}
    for path in ROOT.joinpath("opscope").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        unrun = {id(each) for node in ast.walk(tree) if for_types(node) for each in ast.walk(node)}
        for node in ast.walk(tree):
            names = []
            if id(node) in unrun:
                continue
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in {*sys.stdlib_module_names, *modules, *USERS, *extras, "opscope"}:
                    undeclared.setdefault(top, path.relative_to(ROOT))
    assert undeclared == {}


def for_types(node: ast.AST) -> bool:
    """Whether it is ``if TYPE_CHECKING:``, whose imports no program runs."""
    return isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_trace_of_nsight_is_reported_without_pyarrow(tmp_path):
    made = tmp_path / "made.sqlite"
    script = CHECKOUT / "benchmarks" / "make_nsys.py"
    code = (
        "import sys; sys.modules.update(pyarrow=None, pandas=None)\n"
        "import runpy\n"
        "from opscope.cli import main\n"
        f"sys.argv = ['make', {str(made)!r}, '--kernels', '300', '--texts', 'torch']\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        f"sys.argv = ['opscope', 'report', {str(made)!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                          text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "aten::" in done.stdout


def test_what_init_exports_exists():
    assert {"init", "shutdown", "annotate", "step", "wrap", "capture", "load"} <= set(dir(opscope))
    for name in opscope.__all__:
        assert callable(getattr(opscope, name))


def test_a_capture_loads_no_tables():
    """A program is recorded without Polars; only its profile, at the end, needs them."""
    names = ("recorder", "kineto", "xplane", "profile_capture")
    code = "; ".join(f"import opscope.backends.{name}" for name in names)
    assert loaded(code) & {*FRAMEWORKS, "polars", "pyarrow"} == set()
