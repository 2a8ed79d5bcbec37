"""Times, sizes and shares as text for sentences: three digits, in a fitting unit."""

from __future__ import annotations

from typing import Final

#: A share between its limit and this many times the limit is borderline: runs of one program differ by that
#: much. On a CPU, which other programs use too, a share below the limit by that much is borderline as well:
#: LeNet's time outside ops, in eight steps of 4 ms, was 28 to 36 % of them from run to run.
NEAR: Final = 1.25
#: Prefix of the name of a borderline cause.
NEARLY: Final = "borderline "


def ns(time: float) -> str:
    """Return a time (ns): ``57.1 ms``."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if time >= scale:
            return f"{_digits(time / scale)} {unit}"
    return f"{time:.0f} ns"


def size(number: float) -> str:
    """Return a size (bytes): ``1.34 GB``."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= scale:
            return f"{_digits(number / scale)} {unit}"
    return f"{number:.0f} B"


def share(part: float) -> str:
    """Return a fraction: ``12.3 %``."""
    return f"{_digits(100 * part)} %"


def _digits(value: float) -> str:
    """Return three digits; ``.3g`` alone would write 1000 as 1e+03."""
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


def borderline(finding: str, text: str, limit: float, uneven: bool = False) -> dict[str, str]:
    """Return finding and text, marked as borderline if the share is near its ``limit`` on either side, or
    if it exceeds the limit in steps so ``uneven`` that other runs may not."""
    why = (
        "but steps differ too much to be sure"
        if uneven
        else "so near that another run may say otherwise"
    )
    return {
        "finding": f"{NEARLY}{finding}",
        "text": f"{text}; {finding} is over {share(limit)}, {why}",
    }
