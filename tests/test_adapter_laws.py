"""What holds for every registered adapter, of opscope and of other packages: found by its entry point.

The laws that need the framework itself run where it is installed; a stand-in serves the others.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from opscope.adapters import known

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(known.available())


def ran(program: str, *args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    env.pop("OPSCOPE_MODE", None)
    backends = (one for one in ("tensorflow", "torch", "jax") if importlib.util.find_spec(one))
    env.setdefault("KERAS_BACKEND", next(backends, "tensorflow"))
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *args],
        env=env, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def stated(name: str) -> tuple[dict[str, object], set[str]]:
    """Return the constants and the methods of the adapter's class, read from its source."""
    module, _, kind = known.available()[name].partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None
    found = class_in(Path(spec.origin), kind)
    constants = {
        one.target.id: one.value.value
        for one in found.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and isinstance(one.value, ast.Constant)
    }
    bodies = [found]
    if any(isinstance(base, ast.Name) and base.id == "LoaderAdapter" for base in found.bases):
        bodies.append(class_in(ROOT / "opscope/adapters/shared/loaders.py", "LoaderAdapter"))
    methods = {one.name for body in bodies for one in body.body if isinstance(one, ast.FunctionDef)}
    return constants, methods


def class_in(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_states_what_it_is_for(name):
    constants, methods = stated(name)
    assert constants["name"] == name
    assert constants["title"]
    assert str(constants["module"]).partition(".")[0] == name
    oldest = [
        one
        for one in SpecifierSet(str(constants["requires"]))
        if one.operator in (">=", "~=", "==")
    ]
    assert oldest, "it does not say which version is the oldest"
    assert {"install", "listen", "uninstall"} <= methods


@pytest.mark.parametrize("name", NAMES)
def test_init_loads_no_adapter_before_its_framework(name):
    done = ran(
        """
        import sys, opscope
        from opscope.adapters import known
        before = set(sys.modules)
        opscope.init(sys.argv[1])
        opscope.shutdown()
        added = {one.partition(".")[0] for one in set(sys.modules) - before}
        assert sys.argv[1] not in added, added
        assert known.available()[sys.argv[1]].partition(":")[0] not in sys.modules
        """,
        name,
    )
    assert done.returncode == 0, done.stderr


OLD = """
import logging, sys
import opscope
from opscope import adapters
from opscope.adapters import known
from tests import any_framework

name = sys.argv[1]
any_framework.put(name, sys.argv[2])
kind = known.load  # the adapter's module is loaded only once the framework is imported
module = __import__(name)
heard = []
logging.getLogger("opscope").addHandler(type("H", (logging.Handler,), {
    "emit": lambda self, record: heard.append(record.getMessage())})())
opscope.init()
opscope.init()
assert adapters.installed() == (), adapters.installed()
mine = [line for line in heard if f"{name} is not observed" in line]
assert len(mine) == 2, heard  # once for each call of init
try:
    opscope.init(name)
except adapters.AdapterError as error:
    print(error)
else:
    sys.exit("not refused")
opscope.shutdown()
print(any_framework.changed)
"""


@pytest.mark.parametrize("version", ["0.0.1", "no version"])
@pytest.mark.parametrize("name", NAMES)
def test_a_version_that_is_not_supported_is_refused_and_nothing_is_hooked(name, version):
    if str(stated(name)[0]["module"]) != name:
        pytest.skip("it waits for a part of the framework")
    done = ran(OLD, name, version)
    assert done.returncode == 0, done.stderr
    why, changed = done.stdout.splitlines()
    assert why == (
        f"the version of {name} cannot be read: 'no version'"
        if version == "no version"
        else f"{name} {version} is not supported (needs {stated(name)[0]['requires']})"
    )
    assert changed == "[]"


#: Every callable attribute of the framework's modules and of their classes, before and after.
RESTORED = """
import importlib, json, logging, sys, types
import opscope
from opscope import adapters
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session

name, module, folder = sys.argv[1:]
for one in (name, module):
    importlib.import_module(one)

def attributes():
    found = {}
    for path, room in list(sys.modules.items()):
        if path.partition(".")[0] == name and isinstance(room, types.ModuleType):
            for key, value in list(vars(room).items()):
                if callable(value):
                    found[f"{path}.{key}"] = value
                if isinstance(value, type) and str(getattr(value, "__module__", "")).partition(".")[0] == name:
                    for inner, method in list(vars(value).items()):
                        if callable(method) or isinstance(method, (staticmethod, classmethod, property)):
                            found[f"{path}.{key}.{inner}"] = method
    return found

before = attributes()
heard = []
logging.getLogger("opscope").addHandler(type("H", (logging.Handler,), {
    "emit": lambda self, record: heard.append(record.getMessage())})())

def changed():
    now = attributes()
    return sorted(key for key, value in before.items() if now.get(key) is not value)

told = {}
opscope.init(name)
opscope.init(name)
told["installed"] = adapters.installed()
told["idle"] = changed()
for number in range(2):
    session.start(RecorderCapture(f"{folder}/{number}"))
    told["active"] = changed()
    session.stop()
told["again"] = changed()
opscope.shutdown()
opscope.shutdown()
told["left"] = changed()
opscope.init(name)
told["anew"] = changed()
opscope.shutdown()
told["left"] += changed()
told["heard"] = heard
print("\\n" + json.dumps(told))
"""


@pytest.mark.parametrize("name", NAMES)
def test_shutdown_restores_every_attribute_of_the_framework(name, tmp_path):
    if PathFinder.find_spec(name) is None:  # a stand-in may be loaded here
        pytest.skip(f"{name} is not installed")
    done = ran(RESTORED, name, str(stated(name)[0]["module"]), str(tmp_path), timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["installed"] == [name]
    assert told["left"] == []
    assert told["again"] == told["idle"] == told["anew"]
    assert told["heard"] == []


#: A thread that begins before the import has ended, and is waited for there: a lock of the import would hold it.
AT_THE_END_OF_THE_IMPORT = """
import importlib, sys, threading
import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import after_import, session

name, module, folder = sys.argv[1:]
began = threading.Event()

def imported(_):
    threading.Thread(target=began.set, daemon=True).start()
    assert began.wait(60)
    print("began")

opscope.init(name)  # its hook comes first
after_import.call(imported, module)
session.start(RecorderCapture(folder))
importlib.import_module(module)
session.stop()
opscope.shutdown()
print("ended", flush=True)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_thread_begins_while_the_framework_is_imported(name, tmp_path):
    if PathFinder.find_spec(name) is None:  # a stand-in may be loaded here
        pytest.skip(f"{name} is not installed")
    module = str(stated(name)[0]["module"])
    done = ran(AT_THE_END_OF_THE_IMPORT, name, module, str(tmp_path / "recording"), timeout=600)
    assert done.stdout.splitlines()[-2:] == ["began", "ended"], done.stderr
    assert done.returncode == 0, done.stderr


FAULT = """
import logging, sys
from opscope.adapters import known
from tests import any_framework

name = sys.argv[1]
any_framework.put(name, "1.0")
for needed in sys.argv[2:]:
    __import__(needed)
adapter = known.load(known.available()[name])()
adapter.uninstall()  # before install, and twice
adapter.uninstall()
heard = []
# the root's: the adapter of another package has a logger of its own name
logging.getLogger().addHandler(type("H", (logging.Handler,), {
    "emit": lambda self, record: heard.append(record.getMessage())})())
for _ in range(3):
    try:
        1 / 0
    except ZeroDivisionError:
        adapter.failed("a made fault")
assert adapter.broken
adapter.listen()  # does nothing, and does not raise
assert heard == [f"opscope: a made fault; {adapter.title} is no longer observed"], heard
assert any_framework.changed == [], any_framework.changed
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_logged_once_even_before_anything_is_hooked(name):
    done = ran(FAULT, name, name)
    assert done.returncode == 0, done.stderr
