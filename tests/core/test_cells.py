"""How typed code is called, by the names that IPython and Python give it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from opscope.core import cells


@pytest.fixture
def shell(monkeypatch):
    """IPython with two cells, as a kernel names their code; the first ran again as number 7."""
    numbers = {"/tmp/ipykernel_12/345.py": 7, "/tmp/ipykernel_12/678.py": 2}
    compiler = SimpleNamespace(
        format_code_name=lambda name: ("Cell", f"In[{numbers[name]}]") if name in numbers else None
    )
    made = ModuleType("IPython")
    made.get_ipython = lambda: SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", made)
    return numbers


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/tmp/ipykernel_12/345.py", "In [7]"),
        ("/tmp/ipykernel_12/678.py", "In [2]"),
        ("/tmp/ipykernel_12/999.py", None),
        ("<timed exec>", "%%time"),
        ("train.py", None),
        ("<frozen importlib._bootstrap>", None),
        ("<string>", None),
    ],
)
def test_a_kernel_s_code_is_called_by_its_cell(shell, file, name):
    assert cells.cell(file) == name


def test_an_ipython_that_tells_no_numbers_leaves_the_file_name(shell, monkeypatch):
    monkeypatch.setattr(
        sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace(compile=None)
    )
    assert cells.cell("/tmp/ipykernel_12/345.py") is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("<ipython-input-3-0123456789ab>", "In [3]"),
        ("<stdin>", "stdin"),
        ("<python-input-12>", "stdin [12]"),
    ],
)
def test_a_prompt_s_code_is_called_by_its_number_without_ipython(file, name):
    assert cells.cell(file) == name


def test_profiles_are_replaced_unasked_in_ipython_alone(shell, monkeypatch):
    assert cells.replaces(None)
    assert not cells.replaces(False)
    monkeypatch.delitem(sys.modules, "IPython")
    assert not cells.replaces(None)
    assert cells.replaces(True)


def test_a_program_that_comes_in_by_a_pipe_has_lines(tmp_path):
    program = (
        "import opscope\n"
        "from opscope.adapters.shared.source import Sources\n"
        "import sys\n"
        "def place():\n"
        "    return Sources().find(sys._getframe())\n"
        "print(place().frames)\n"
    )
    done = subprocess.run(
        [sys.executable, "-"],
        input=program,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "(('stdin', 5), ('stdin', 6))"


def test_a_package_of_another_environment_is_not_the_user_s():
    from opscope.adapters.shared.source import Sources

    assert Sources().shown("/other/lib/python3.11/site-packages/IPython/core/shell.py") is None
    assert Sources().shown("/usr/lib/python3/dist-packages/numpy/core.py") is None
    assert Sources().shown("/work/site-packages.py") is not None
