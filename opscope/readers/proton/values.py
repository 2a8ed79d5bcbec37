"""Parts that the forms of Proton's files share: the process, and checks of untrusted numbers."""

from __future__ import annotations

import polars as pl


def processes() -> dict[str, pl.DataFrame]:
    """Return the process and the clock of a file, which names neither."""
    return {
        "processes": pl.DataFrame({"process": [0], "framework": ["triton"], "clock_domain": [0]}),
        "clocks": pl.DataFrame(
            {"clock_domain": [0], "kind": ["unknown"], "to_unix_ns": [None]},
            schema={"clock_domain": pl.Int32, "kind": pl.String, "to_unix_ns": pl.Int64},
        ),
    }


def whole(value: object, most: int = 1 << 53) -> int | None:
    """A number that is not negative, as an integer; None for anything else."""
    if (type(value) is float and value.is_integer()) or type(value) is int:
        number = int(value)
        return number if 0 <= number <= most else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None
