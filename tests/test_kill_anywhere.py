"""The script that ends `opscope run` anywhere: eight instants of it, and a hundred in the full run."""

from __future__ import annotations

import os

import pytest

from .script import module_at


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the script looks there")
@pytest.mark.parametrize("times", [2, 25])
def test_a_run_that_is_ended_anywhere_loses_no_more_than_half_a_second(times, capsys):
    arguments = ["--times", str(times), "--until", "4.5", "--jobs", "4"]
    status = module_at("scripts/kill_anywhere.py").main(arguments)
    assert status == 0, capsys.readouterr().out
