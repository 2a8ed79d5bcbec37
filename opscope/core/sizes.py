"""The single rule for numbers that are not sizes: placeholders that writers use for "none", and results of
overflow.

It applies to sizes, counts and lengths: of tensors (``rangetext``), grids, bytes, registers and
counters (``readers/sound.py``), and measured times. A number that is not a size counts as unknown,
and a note says how many there were.
"""

from __future__ import annotations

import re
from typing import Final

#: The largest numbers of 32 and 64 bits, with and without a sign.
NONE_GIVEN: Final = ((1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
#: No tensor, copy or grid is larger: 1 PiB of bytes.
LARGEST: Final = 1 << 50
#: No kernel takes longer (ns); see ``core/tables/impossible.py``.
HOUR: Final = 3_600 * 10**9
#: Matches such a number among the sizes of a tensor in a range's text.
_IN_TEXT: Final = re.compile(
    rf"[\[,{{](?:{'|'.join(map(str, NONE_GIVEN))}|[0-9]{{17,}})(?=[\],}}])"
)
NO_SIZES: Final = (
    "ops with sizes that are none (the largest number of 32 or 64 bits, or over 2⁵⁰), not known"
)


def is_size(number: float) -> bool:
    """Whether a number may be a size; negative numbers are not."""
    return 0 <= number <= LARGEST and number not in NONE_GIVEN


def is_kernel_time(ns: float) -> bool:
    """Whether a kernel may have taken this long, according to a tool that measured only that kernel."""
    return 0 <= ns <= HOUR and round(ns) not in NONE_GIVEN


def has_other(text: str) -> bool:
    """Whether a range's text has a tensor size that is not a size."""
    is_listed = "[" in text or "," in text or "{" in text  # no step of a server has any
    return is_listed and _IN_TEXT.search(text) is not None


def as_floats() -> tuple[float, ...]:
    """Return ``NONE_GIVEN`` in double precision, as counters have them."""
    return tuple(map(float, NONE_GIVEN))
