"""Select a part of a profile: some steps, devices, ranks, layers or user ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from opscope.core.analysis.ops.selection import Selection


class Where(TypedDict, total=False):
    """The arguments of ``Profile.select``, which every method that returns a frame takes as well."""

    steps: int | tuple[int | None, int | None] | None
    device: int | Sequence[int] | None
    rank: int | Sequence[int] | None
    layer: str | Sequence[str] | None
    range: str | Sequence[str] | None
    key: str | None


KEY: Final = "key"
_WHERE: Final = ("steps", "device", "rank", "layer", "range")


def selection(where: Where) -> Selection:
    """Return the selection that ``where`` states, without its key."""
    steps = where.get("steps")
    return Selection(
        (steps, steps) if isinstance(steps, int) else steps,
        *(_each(where.get(name)) for name in _WHERE[1:]),
    )


def refuse_unknown(where: Where) -> None:
    """Raise TypeError for arguments that nothing can be selected by."""
    unknown = set(where) - {*_WHERE, KEY}
    if unknown:
        raise TypeError(
            f"cannot select by {', '.join(sorted(unknown))}, only by {', '.join((*_WHERE, KEY))}"
        )


def _each(value: Any) -> tuple[Any, ...]:
    """Return the values of an argument that takes one value or several."""
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)
