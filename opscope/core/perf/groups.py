"""Reductions of rows by groups (bags, segments): the number of operations if the group sizes are unknown.

A group of n rows takes n − 1 additions or comparisons (a mean also divides: n); an empty group takes none. A
trace records how many rows and groups there are, but not which groups are empty. The count is lowest if as
few groups as possible are empty.
"""

from __future__ import annotations


def by_group(
    rows: int,
    groups: int,
    noun: str,
    *,
    mean: bool = False,
    even: bool = False,
    unused: bool = False,
) -> tuple[int, str]:
    """Return the least number of operations per column, and a note if there may be more.

    ``even``: all groups have the same number of rows. ``unused``: any number of rows may be left out.
    """
    filled = min(rows, groups)
    most = rows if mean else rows - (filled if even else min(filled, 1))
    least = 0 if unused else rows if mean else rows - filled
    if least == most:
        return least, ""
    why = "how many rows are padding is" if unused else f"which {noun} are empty is"
    return least, (
        f"{why} data that no trace records: {least} to {most} operations per column are possible, and the "
        f"least is counted"
    )
