"""Programs with a planted cause, recorded by ``opscope run``: what is said first is the cause."""

from __future__ import annotations

import pytest

from tests.planted_truths.live import check


@pytest.mark.parametrize("name", ["live-keras_fit-sleep-8"])
def test_the_planted_cause_is_said_first(name, tmp_path):
    check(name, tmp_path)
