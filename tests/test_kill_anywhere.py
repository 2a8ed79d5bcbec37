"""Twenty instants of the script that ends `opscope run` anywhere; by hand it does a hundred a signal."""

from __future__ import annotations

import os

import pytest

from .script import module_at


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the script looks there")
def test_a_run_that_is_ended_anywhere_loses_no_more_than_half_a_second(capsys):
    arguments = ["--times", "5", "--until", "4.5", "--jobs", "4"]
    status = module_at("scripts/kill_anywhere.py").main(arguments)
    assert status == 0, capsys.readouterr().out
