"""``opscope build light`` compiles light mode's clock ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.adapters.shared.compiled import compiler_of
from opscope.backends import light_clock


def test_the_clock_is_built_into_the_cache(tmp_path):
    if not sys.platform.startswith("linux") or compiler_of(light_clock.SOURCE) is None:
        pytest.skip("no C compiler")
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "build", "light"],
        env={**os.environ, "OPSCOPE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    made = Path(done.stdout.strip())
    assert made.parent == tmp_path
    assert made.is_file()
    assert light_clock.Library(made).call.opscope_light_abi() == light_clock.ABI
