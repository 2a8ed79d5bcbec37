"""Rows brought together by groups (bags, segments): the operations, where the groups' sizes are data.

A group of n rows takes n − 1 additions or comparisons, with a mean's division n, and an empty one takes
none. A trace records how many rows and groups there are, not which groups are empty: the fewest operations
are those with the fewest empty groups.
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
    """Return the least number of operations per column, and a note where more are possible.

    ``even``: every group has as many rows. ``unused``: any number of the rows may be left out.
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
