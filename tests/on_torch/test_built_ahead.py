"""What PyTorch's observer needs is compiled before the program's first op, and that is said, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from opscope.adapters.shared.compiled import BuildError
from opscope.adapters.torch.native.binary import MEMORY, build, plan
from tests.compiler import Compiler

ROOT = Path(__file__).parents[2]
LINE = "opscope: building the PyTorch observer for this torch, once (about 11 s)\n"


@pytest.fixture
def compiler(tmp_path):
    try:
        libraries = build(plan()).parent
        build(plan(MEMORY))
    except BuildError as error:
        pytest.skip(str(error))
    return Compiler(tmp_path, libraries)


def run(compiler, folder, *words, **more):
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **compiler.environment, **more},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_init_compiles_and_says_so(compiler, tmp_path):
    code = (
        "import sys, torch, opscope\nopscope.init()\nsys.stderr.write('ready\\n')\n"
        "with opscope.capture('one.opscope', backend='recorder', force=True):\n    torch.ones(3) * 2\n"
    )
    done = run(compiler, tmp_path, "-c", code)
    assert done.stderr == LINE + "ready\n"
    assert compiler.made == ["torch-observer-" + compiler.made[0].removeprefix("torch-observer-")]
    done = run(compiler, tmp_path, "-c", code)
    assert done.stderr == "ready\n"
    assert len(compiler.made) == 1


def test_a_framework_that_is_imported_later_is_served_as_it_is(compiler, tmp_path):
    code = "import sys, opscope\nopscope.init()\nimport torch\nsys.stderr.write('ready\\n')"
    assert run(compiler, tmp_path, "-c", code).stderr == LINE + "ready\n"


def test_with_a_dispatch_mode_nothing_is_compiled(compiler, tmp_path):
    code = "import torch, opscope\nopscope.init()"
    assert run(compiler, tmp_path, "-c", code, OPSCOPE_TORCH_OPS="dispatch").stderr == ""
    assert not compiler.made


@pytest.mark.parametrize("named", [True, False])
def test_a_run_compiles_before_the_program_or_as_it_imports_the_framework(
    named, compiler, tmp_path
):
    """Where the script names PyTorch, and where only what it imports does."""
    (tmp_path / "library.py").write_text("import torch\n")
    imports = "import torch" if named else "import library"
    (tmp_path / "train.py").write_text(
        "import os, sys\nsys.stderr.write('begins %s\\n' % os.path.exists('compiled'))\n"
        f"{imports}\nsys.stderr.write('imported\\n')\nsys.modules['to' + 'rch'].ones(3) * 2\n"
    )
    words = ("-m", "opscope", "run", "--memory", "--no-report", sys.executable, "train.py")
    done = run(compiler, tmp_path, *words)
    lines = done.stderr.splitlines()
    built = [line for line in lines if "building" in line]
    assert len(built) == len(compiler.made) == 2, done.stderr  # the observer, and that of memory
    closing = [
        "opscope: backend recorder: no GPU is visible, so there are no kernels to record",
        "opscope: wrote train.opscope",
    ]
    if named:
        assert lines == [*built, "begins True", "imported", *closing]
    else:
        assert lines == ["begins False", *built, "imported", *closing]
    done = run(compiler, tmp_path, *words)
    assert "building" not in done.stderr
    assert len(compiler.made) == 2
