"""The values of a measurement to assert on: counts, names, and unknown values, which equal nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

import pytest

#: Counts that are names, not numbers.
NAMES: Final = ("dtypes",)
#: Lines that a failed assertion shows at the most.
MOST: Final = 10


class Count(int):
    """A number that was counted; a failed assertion on it shows what was counted."""

    name: str
    detail: str | None
    _most: Callable[[], list[str]]

    def __new__(
        cls, value: int, name: str, detail: str | None, most: Callable[[], list[str]]
    ) -> Count:
        """Return the count ``value`` called ``name``; ``most`` returns lines that list the counted calls."""
        count = super().__new__(cls, value)
        count.name, count.detail, count._most = name, detail, most
        return count

    def opscope_explain(self, op: str, left: object, right: object) -> list[str]:
        """Return the lines that pytest shows for a comparison that failed."""
        made_of = [self.detail] if self.detail else self._most()
        lines = [
            f"{self.name}: {_side(left)} {op} {_side(right)}",
            *(f"  {line}" for line in made_of),
        ]
        return lines[:MOST]


class Names(frozenset[str]):
    """Names that were seen, such as dtypes; a failed assertion on them shows where each was seen."""

    _where: Callable[[Iterable[str]], list[str]]

    def __new__(cls, names: Iterable[str], where: Callable[[Iterable[str]], list[str]]) -> Names:
        """Return the names; ``where`` returns a line for each name, which says which ops have it."""
        new = super().__new__(cls, names)
        new._where = where
        return new

    def opscope_explain(self, op: str, left: object, right: object) -> list[str]:
        """Return the lines that pytest shows for a comparison that failed."""
        other = right if left is self else left
        extra = sorted(self - other) if isinstance(other, (set, frozenset)) else sorted(self)
        said = f"dtypes: {', '.join(sorted(self))} {op} {_side(other)}"
        return [said, *(f"  {line}" for line in self._where(extra))][:MOST]


class Unknown:
    """A count that cannot be known here: any use of it fails or skips the test, with the reason."""

    def __init__(self, name: str, reason: str, refuse: Callable[[str], NoReturn]) -> None:
        self.name, self.reason, self._refuse = name, reason, refuse

    def _asked(self, *_: object) -> Any:
        self._refuse(f"{self.name} cannot be known here: {self.reason}")

    def __repr__(self) -> str:
        return f"<{self.name} is not known: {self.reason}>"

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _asked
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _asked
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _asked
    __neg__ = __abs__ = __round__ = __bool__ = __int__ = __float__ = __index__ = _asked
    __iter__ = __len__ = __contains__ = __and__ = __or__ = __hash__ = _asked


def refusal(policy: str) -> Callable[[str], NoReturn]:
    """Return the function that ends a test with a reason: ``fail`` or ``skip``. Raises pytest.UsageError
    for another."""
    if policy == "fail":
        return lambda reason: pytest.fail(f"{reason} (opscope_unknown = skip skips)", pytrace=False)
    if policy == "skip":
        return lambda reason: pytest.skip(reason)
    raise pytest.UsageError(f"opscope_unknown is fail or skip, not {policy!r}")


def _side(value: object) -> str:
    if isinstance(value, (set, frozenset)):
        return ", ".join(sorted(map(str, value))) or "none"
    return f"{value:,}" if isinstance(value, int) else repr(value)


def names_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names that a row of ``counts()`` counts."""
    return [] if not row["detail"] else str(row["detail"]).split(", ")


def file_name(text: str) -> str:
    """Return the text as a file's name on every system: ``test_step[8-fp16]`` as ``test_step-8-fp16``."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:100] or "test"
