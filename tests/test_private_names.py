"""Every private name of a framework that opscope uses is in the table, and the table's reader tells what is gone."""

from __future__ import annotations

import runpy
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "check_private_names.py"


@pytest.fixture(scope="module")
def checks():
    if not SCRIPT.is_file():
        pytest.skip("the source distribution has no scripts")
    return runpy.run_path(str(SCRIPT))


def test_every_private_name_of_a_framework_that_opscope_uses_is_in_the_table(checks):
    listed = {name for names in checks["table"]().values() for name in names}
    uses = checks["uses"]()
    assert {"torch._C._current_autograd_node", "jax._src.pjit", "_sess_options"} <= set(uses)
    missing = {name: where for name, where in uses.items() if not checks["is_listed"](name, listed)}
    assert not missing, (
        "list them in opscope/adapters/private_names.toml, with what is lost without them"
    )


def test_every_name_has_what_is_lost_without_it(checks):
    for framework, names in checks["table"]().items():
        assert framework in {*checks["FRAMEWORKS"], "python"}
        assert all(names.values()), framework


def test_a_use_that_is_not_listed_is_told(checks):
    listed = {"torch.autograd.graph._engine_run_backward", "a/b.so: _symbol"}
    is_listed = checks["is_listed"]
    assert is_listed("torch.autograd.graph._engine_run_backward", listed)
    assert is_listed("torch.autograd", listed)
    assert is_listed("_engine_run_backward", listed)
    assert is_listed("_symbol", listed)
    assert not is_listed("torch.autograd.graph._other", listed)
    assert not is_listed("_engine", listed)


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/__init__.py", "")
        archive.writestr(
            "torch/sub.py",
            "from .other import _imported\nif True:\n    _nested = 1\n"
            "class Base:\n    def __init__(self):\n        self._kept = self._read\n"
            "class Kind(Base):\n    _own: int\n# _remark\n",
        )
        archive.writestr("torch/native.cpython-311.so", b"\0_symbol\0")
        archive.writestr("torch/newer.py", "_name = 1\nthis is no syntax of today\n")
    return path  # fmt: skip


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("torch.sub", "there"),
        ("torch.sub._imported", "there"),
        ("torch.sub._nested", "there"),
        ("torch.sub.Kind._own", "there"),
        ("torch.sub.Kind._kept", "there"),
        ("torch.sub.Kind._read", "text"),
        ("torch.sub._remark", "text"),
        ("torch.sub._absent", "gone"),
        ("torch.sub._absent | torch.sub._nested", "there"),
        ("torch.native._symbol", "there"),
        ("torch.native._absent", "gone"),
        ("torch/native.so: _symbol", "there"),
        ("torch/sub.py: _remark", "there"),
        ("torch/absent.py: _remark", "gone"),
        ("torch.newer._name", "text"),
    ],
)
def test_names_are_looked_for_in_a_wheel_without_running_it(checks, wheel, name, state):
    assert checks["state"](checks["Files"](wheel), name) == state


def test_what_is_gone_is_printed_with_what_is_lost(checks, wheel, capsys):
    assert checks["main"]([wheel]) == 1
    out = capsys.readouterr().out
    assert f"{wheel.name}: torch._ops.HigherOrderOperator is gone: adapter\n" in out
    assert "of" in out.splitlines()[-1]


def test_this_python_has_every_name_of_its_own(checks):
    files = checks["Files"](Path(checks["ast"].__file__).parent)
    gone = [name for name in checks["table"]()["python"] if checks["state"](files, name) == "gone"]
    assert not gone, sys.version
