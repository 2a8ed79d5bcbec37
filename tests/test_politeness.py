"""Many frameworks in one environment: ``init()`` imports none, and a failure in one leaves the others.

Made frameworks, installed with adapters of their own, fail in every way; real ones are imported in every
order where several are installed together.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Frameworks that can be imported beside each other, as far as they are installed.
TOGETHER = ("torch", "tensorflow", "jax", "keras", "onnxruntime", "mindspore")
REAL = [name for name in TOGETHER if importlib.util.find_spec(name) is not None]

ADAPTER = """
import opscope.adapters.base
{before}

class {title}Adapter(opscope.adapters.base.Adapter):
    name = "{name}"
    title = "{title}"
    module = "{name}"
    requires = "{requires}"
    def install(self, emitter, options):
        self.emitter = emitter
        self.original = sys.modules["{name}"].run
        {install}
        sys.modules["{name}"].run = self.run
    def run(self):
        self.emitter.push(self.emitter.prepare("{name}::run", "forward"))
        try:
            return self.original()
        finally:
            self.emitter.pop()
    def listen(self):
        {listen}
    def uninstall(self):
        {uninstall}
        if hasattr(self, "original"):
            sys.modules["{name}"].run = self.original
"""
PLAIN = {
    "before": "import sys",
    "requires": ">=1",
    "install": "pass",
    "listen": "pass",
    "uninstall": "pass",
}
FAULTS = {
    "fine": {},
    "module": {"before": "import sys; 1 / 0"},
    "exits": {"before": "import sys; sys.exit('the adapter is broken')"},
    "version": {"requires": ">=2"},
    "specifier": {"requires": "nonsense"},
    "install": {"install": "1 / 0"},
    "listen": {"listen": "1 / 0"},
    "uninstall": {"uninstall": "1 / 0"},
}
#: A program that uses every framework, captures, and prints what each computed and what was recorded.
PROGRAM = """
import importlib, json, sys
import opscope
from opscope import adapters
if sys.argv[1] == "before":
    opscope.init()
names = sys.argv[3:]
modules = [importlib.import_module(name) for name in names]
originals = {name: "abacus of " + name for name in names}
if sys.argv[1] == "after":
    opscope.init()
with opscope.capture(sys.argv[2], backend="recorder"):
    results = {one.__name__: one.run() for one in modules}
assert results == originals, results
installed = sorted(adapters.installed())
opscope.shutdown()
assert {one.__name__: one.run() for one in modules} == originals
ranges = opscope.load(sys.argv[2]).trace["ranges"]["text"].cast(str).to_list()
print(json.dumps([installed, sorted(ranges)]))
"""


def make(folder: Path, frameworks: dict[str, str], inside: dict[str, str] | None = None) -> None:
    """Install made frameworks with their adapters. ``inside``: the framework that each imports itself."""
    information = folder / "made-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
    lines = ["[opscope.adapters]"]
    for name, fault in frameworks.items():
        imports = (inside or {}).get(name)
        (folder / f"{name}.py").write_text(
            f"{'import ' + imports if imports else ''}\n__version__ = '1.5'\n"
            f"def run():\n    return 'abacus of {name}'\n"
        )
        text = ADAPTER.format(name=name, title=name.title(), **{**PLAIN, **FAULTS[fault]})
        (folder / f"{name}_adapter.py").write_text(text)
        lines.append(f"{name} = {name}_adapter:{name.title()}Adapter")
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")


def python(folder: Path, program: str, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    env |= {"TF_CPP_MIN_LOG_LEVEL": "3", **more}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *args],
        cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_in_one_adapter_leaves_the_others_and_the_program(tmp_path, fault, when):
    make(tmp_path, {"one": "fine", "two": fault, "three": "fine"})
    order = ["two", "one", "three"] if when == "before" else ["one", "two", "three"]
    done = python(tmp_path, PROGRAM, when, "run.opscope", *order)
    assert done.returncode == 0, done.stderr
    installed, ranges = json.loads(done.stdout)
    assert {"one", "three"} <= set(installed)
    assert {"one::run", "three::run"} <= set(ranges)
    if fault == "fine":
        assert (done.stderr, len(ranges)) == ("", 3)
        return
    said = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert len(said) == 1, done.stderr  # once, though init and capture both meet the fault
    assert "two" in said[0].lower()


def test_a_framework_that_another_one_imports_is_observed_too(tmp_path):
    """As Keras imports TensorFlow: the outer module is not ready while the inner one is hooked."""
    make(tmp_path, {"outer": "fine", "inner": "fine"}, {"outer": "inner"})
    for number, order in enumerate((["outer", "inner"], ["inner", "outer"])):
        for when in ("before", "after"):
            done = python(tmp_path, PROGRAM, when, f"{when}{number}.opscope", *order)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)[1] == ["inner::run", "outer::run"]
            assert done.stderr == ""


def test_init_imports_no_framework_and_no_adapter_of_those_installed(tmp_path):
    make(tmp_path, dict.fromkeys(("one", "two"), "fine"))
    program = """
        import json, sys
        import opscope
        before = set(sys.modules)
        opscope.init()
        print(json.dumps(sorted({one.partition(".")[0] for one in set(sys.modules) - before})))
        """
    done = python(tmp_path, program)
    assert done.returncode == 0, done.stderr
    added = set(json.loads(done.stdout))
    assert added.isdisjoint(
        {*TOGETHER, "numpy", "polars", "one", "two", "one_adapter", "two_adapter"}
    )


def test_doctor_lists_each_framework_with_its_state(tmp_path):
    make(tmp_path, {"one": "fine", "two": "module", "three": "version"})
    for name in ("one", "two", "three"):
        information = tmp_path / f"{name}-1.5.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"
        )
    done = python(tmp_path, "from opscope.cli import main; main()", "doctor", "--json")
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert (rows["one"]["state"], rows["one"]["found"]) == ("ok", "1.5")
    assert rows["two"]["advice"] == "it cannot be imported: division by zero"
    assert rows["three"]["advice"] == "the adapter needs three >=2"


# ------------------------------------------------------------------------------- real frameworks

IMPORTED = """
import importlib, json, logging, sys
import opscope
from opscope import adapters
from opscope.adapters import known
broken = sys.argv[2]
if broken:
    load = known.load
    def loaded(target):
        kind = load(target)
        if kind.name == broken:
            def install(*_):
                raise RuntimeError("made to fail")
            kind.install = install
        return kind
    known.load = loaded
opscope.init()
assert not {"torch", "tensorflow", "jax", "keras", "onnxruntime", "mindspore"} & set(sys.modules)
for name in sys.argv[3:]:
    importlib.import_module(name)
with opscope.capture(sys.argv[1], backend="recorder"):
    pass
print("\\n" + json.dumps(sorted(adapters.installed())))
opscope.shutdown()
assert adapters.installed() == ()
"""


def orders() -> list[tuple[str, ...]]:
    """Some orders of import: each framework first once, and each last once."""
    return [tuple(REAL[number:] + REAL[:number]) for number in range(len(REAL))]


@pytest.mark.skipif(len(REAL) < 2, reason="needs two frameworks in one environment")
@pytest.mark.parametrize("order", orders(), ids=" ".join)
def test_real_frameworks_are_observed_in_any_order_of_import(tmp_path, order):
    with_adapter = installable()
    done = python(tmp_path, IMPORTED, "run.opscope", "", *order, KERAS_BACKEND=backend())
    assert done.returncode == 0, done.stderr
    assert set(with_adapter) <= set(json.loads(done.stdout.splitlines()[-1]))
    assert " observed" not in done.stderr  # other lines may say that libraries are compiled


@pytest.mark.skipif(len(REAL) < 2, reason="needs two frameworks in one environment")
def test_a_failure_in_a_real_adapter_leaves_the_others(tmp_path):
    for broken, order in zip(installable(), itertools.cycle((REAL, REAL[::-1])), strict=False):
        target = f"{broken}.opscope"
        done = python(tmp_path, IMPORTED, target, broken, *order, KERAS_BACKEND=backend())
        assert done.returncode == 0, done.stderr
        assert set(installable()) - {broken} <= set(json.loads(done.stdout.splitlines()[-1]))
        said = [line for line in done.stderr.splitlines() if " observed" in line]
        assert said == [f"opscope: {broken} is not observed: made to fail"]


def backend() -> str:
    return next((one for one in ("tensorflow", "torch", "jax") if one in REAL), "tensorflow")


def installable() -> list[str]:
    """The installed frameworks that have an adapter which waits for no part of them."""
    from opscope.adapters import known

    return [name for name in REAL if name in known.available()]
