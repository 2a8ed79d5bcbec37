"""The layouts of CUPTI's activity records in each version: sizes of records, and where their fields lie.

``records.json`` has the facts, which ``scripts/make_cupti_layouts.py`` takes from the headers of each
version. A version is known by the number that ``cuptiGetVersion`` gives. CUPTI writes the newest struct of
each kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: All records begin at a multiple of this many bytes, and their first four bytes are their kind.
SLOT: Final = 8
#: Kinds have smaller numbers; ``Layout.slots`` has this many entries, the last one for all larger numbers.
KINDS: Final = 256
#: Names of fields that have a time (ns), the preferred one first.
_TIMES: Final = ("start", "timestamp")


class UnknownVersion(ValueError):
    """No layout is known for a version of CUPTI."""


@dataclass(frozen=True)
class Layout:
    """The records of one version of CUPTI.

    ``dtypes``: by kind, the type of a record, with the offsets of its fields (none for kinds that
    opscope does not decode). Nested fields have names with dots; pointers are u8. ``slots``: by
    kind, the size in units of ``SLOT`` bytes, 0 for no such kind. ``times``: by kind, the position
    of a time (ns) in units of 4 bytes, 0 for none. ``exact``: whether the layout is from this
    version's headers, and no other headers have its number.
    """

    cuda: tuple[str, ...]
    version: int
    exact: bool
    dtypes: Mapping[int, np.dtype[Any]]
    slots: NDArray[np.int64]
    times: NDArray[np.int64]


def of(version: int) -> Mapping[int, np.dtype[Any]]:
    """Return by kind the types of a version's records, the likeliest where several layouts are possible.

    Raises UnknownVersion.
    """
    return candidates(version)[0].dtypes


def strings(kind: int) -> tuple[str, ...]:
    """Return the fields of a kind's records that are pointers to text; not all versions have all of these
    fields."""
    return _strings().get(kind, ())


@lru_cache(maxsize=64)
def candidates(version: int) -> tuple[Layout, ...]:
    """Return the layouts that a version may have, the likeliest first.

    Two releases of CUDA may give one number (18: 11.8 and 12.0), and a number that is not known may
    have the layouts of the version before or after it. ``walk.chosen`` decides by the records.
    Raises UnknownVersion for versions before the first known one.
    """
    every = _versions()
    numbers = [entry["version"] for entry in every]
    if version < numbers[0]:
        raise UnknownVersion(
            f"CUPTI's version {version} is older than the oldest that is known, {numbers[0]} (CUDA "
            f"{every[0]['cuda']})"
        )
    entries = [entry for entry in reversed(every) if entry["version"] == version]
    same = bool(entries)
    if not same:
        after = next((index for index, number in enumerate(numbers) if number > version), None)
        entries = [every[-1]] if after is None else [every[after - 1], every[after]]
    alike: list[list[dict[str, Any]]] = []
    for entry in entries:
        for group in alike:
            if group[0]["kinds"] == entry["kinds"]:
                group.append(entry)
                break
        else:
            alike.append([entry])
    exact = same and len(alike) == 1
    return tuple(
        _layout(tuple(entry["cuda"] for entry in group), version, group[0]["kinds"], exact)
        for group in alike
    )


def of_sizes(layout: Layout, sizes: Mapping[int, int]) -> Layout | None:
    """Return the layout with records of these ``sizes`` (slots, by kind); None if no version had such
    records. Records of unknown kinds can then be skipped by their size."""
    slots, dtypes, times = layout.slots.copy(), dict(layout.dtypes), layout.times.copy()
    for kind, size in sizes.items():
        if slots[kind] == size:
            continue
        had = [layout for layout in every() if layout.slots[kind]]
        same = [layout for layout in had if layout.slots[kind] == size]
        if had and not same:
            return None
        slots[kind] = size
        if same:
            times[kind] = same[0].times[kind]
            dtypes |= {kind: same[0].dtypes[kind]} if kind in same[0].dtypes else {}
    return replace(layout, slots=slots, dtypes=dtypes, times=times)


@lru_cache(maxsize=1)
def every() -> tuple[Layout, ...]:
    """Return all known layouts, the newest first."""
    numbers = dict.fromkeys(number for number, _ in reversed(known()))
    return tuple(layout for number in numbers for layout in candidates(number))


def known() -> list[tuple[int, str]]:
    """Return the versions whose layouts are known, the oldest first: their numbers, and CUDA's versions."""
    return [(entry["version"], entry["cuda"]) for entry in _versions()]


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(Path(__file__).with_name("records.json").read_bytes())
    return facts


@lru_cache(maxsize=1)
def _versions() -> list[dict[str, Any]]:
    """The known versions, oldest first; ``kinds`` is complete in each."""
    kinds: dict[int, str] = {}
    versions = []
    for entry in _facts()["versions"]:
        kinds = kinds | {int(kind): struct for kind, struct in entry["kinds"].items()}
        versions.append({"cuda": entry["cuda"], "version": entry["version"], "kinds": kinds})
    return versions


@lru_cache(maxsize=1)
def _strings() -> dict[int, tuple[str, ...]]:
    names_by_kind: dict[int, dict[str, None]] = {}
    structs = _facts()["structs"]
    for entry in _versions():
        for kind, struct in entry["kinds"].items():
            for name, letter, _, _ in _fields(structs[struct]):
                if letter == "s":
                    names_by_kind.setdefault(kind, {})[name] = None
    return {kind: tuple(names) for kind, names in names_by_kind.items()}


def _fields(struct: Mapping[str, Any]) -> list[tuple[str, str, str, int]]:
    """Return name, letter, size with the number of elements, and offset of each field."""
    fields = []
    for each in struct.get("fields", "").split():
        name, _, position = each.partition(":")
        size, _, offset = position[1:].partition("@")
        fields.append((name, position[0], size, int(offset)))
    return fields


def _dtype(struct: Mapping[str, Any]) -> np.dtype[Any]:
    names, formats, offsets = [], [], []
    for name, letter, size, offset in _fields(struct):
        width, _, count = size.partition("x")
        plain = (
            "V" + width
            if letter == "V" and width != "8"
            else f"<{letter if letter in 'iuf' else 'u'}{width}"
        )
        names.append(name)
        formats.append((plain, (int(count),)) if count else plain)
        offsets.append(offset)
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": struct["size"]}
    )


def _layout(cuda: tuple[str, ...], version: int, kinds: Mapping[int, str], exact: bool) -> Layout:
    structs = _facts()["structs"]
    slots, times = np.zeros(KINDS, np.int64), np.zeros(KINDS, np.int64)
    dtypes = {}
    for kind, name in kinds.items():
        slots[kind] = structs[name]["size"] // SLOT
        if "fields" not in structs[name]:
            continue
        dtypes[kind] = dtype = _dtype(structs[name])
        for time in _TIMES:
            if time in (dtype.names or ()):
                times[kind] = dtype.fields[time][1] // 4  # type: ignore[index]
                break
    return Layout(cuda, version, exact, dtypes, slots, times)
