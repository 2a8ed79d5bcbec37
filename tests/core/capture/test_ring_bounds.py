"""What a user may name as the last of a program, and as a signal."""

from __future__ import annotations

import signal

import pytest

from opscope.core.capture.ring_bounds import Bounds, Last, parse_last
from opscope.core.capture.ring_signal import parse_signal


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("60s", Last(seconds=60)),
        ("60", Last(seconds=60)),
        (1.5, Last(seconds=1.5)),
        ("5min", Last(seconds=300)),
        ("5 m", Last(seconds=300)),
        ("1h", Last(seconds=3600)),
        ("20 steps", Last(steps=20)),
        ("1step", Last(steps=1)),
        (" 20 STEPS ", Last(steps=20)),
    ],
)
def test_a_time_or_a_number_of_steps_is_read(text: str | float, last: Last) -> None:
    assert parse_last(text) == last
    assert parse_last(str(last)) == last


@pytest.mark.parametrize(
    "text", ["", "s", "0s", "0 steps", "1.5 steps", "-1s", "60 parsecs", "1e3s", "25h", "inf", True]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"steps|seconds"):
        parse_last(text)


def test_a_factor_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="median"):
        Bounds(Last(seconds=1), slow=0.5)


def test_a_signal_with_another_use_is_refused() -> None:
    assert parse_signal("usr2") is parse_signal("SIGUSR2") is signal.SIGUSR2
    for name in ("KILL", "INT", "SIGCHLD", "SEGV", "nonsense"):
        with pytest.raises(ValueError, match=r"another use|no signal"):
            parse_signal(name)
