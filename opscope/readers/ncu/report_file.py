"""Read Nsight Compute's reports (``.ncu-rep``, format version 7) without Nsight Compute.

The file's frame is documented by NVIDIA (Nsight Compute, Customization Guide, "Report File Format"): a magic
number, a header, and blocks of sources, results and range results, each with its size before it. The fields
of the messages are those of the ``.proto`` files that Nsight Compute brings in ``extras/FileFormat``
(``ProfilerReport.proto``, ``ProfilerResultsCommon.proto``, ``Nvtx.proto``). Values are in base units.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from opscope.core.hlo.wire import Fields, WireError, fields, number, spans, text, walk
from opscope.core.perf.counters import ARITHMETIC, OPCODES, THREAD_OPCODES
from opscope.readers.errors import BadInput
from opscope.readers.rows import frame_of

from .measured import LAUNCHES, VALUES, Measured, Open
from .nvtx import category

#: The version of the format that this module reads.
VERSION: Final = 7
_ATTRIBUTE: Final = "device__attribute_"
#: The most instances of one metric that are kept; a kernel has some hundred opcodes.
_INSTANCES: Final = 4096
#: NVTX's family of names of categories, in Nvtx.proto.
_CATEGORIES: Final = 1


class UnknownReport(Exception):
    """The report has an unknown form; ncu's own exporter may be able to read it."""


class _Block(NamedTuple):
    header: Fields
    results: list[tuple[int, int]]


def read_report(data: bytes, path: Path) -> Measured:
    """Return the launches of a report. Raises BadInput if it is damaged, UnknownReport for another
    version.
    """
    try:
        return _read(data, path)
    except (WireError, struct.error) as error:
        raise BadInput(path, f"a damaged report of Nsight Compute: {error}") from error


def _read(data: bytes, path: Path) -> Measured:
    size = _size(data, 4)
    version = number(fields(data, 8, 8 + size), 1)
    if version != VERSION:
        raise UnknownReport(f"its format has version {version}, not {VERSION}")
    strings: list[str] = []
    launches: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {name: [] for name in VALUES}
    devices: dict[int, dict[str, object]] = {}
    stacks: list[tuple[Open, ...]] = []
    places: dict[tuple[Open, ...], int] = {}
    tool, failed = "", 0
    for block in _blocks(data, 8 + size):
        for span in spans(block.header, 4):
            strings += [data[slice(*string_span)].decode("utf-8", "replace")
                        for string_span in spans(fields(data, *span), 1)]  # fmt: skip
        tool = tool or _tool(data, block.header)
        process = next((fields(data, *process_span) for process_span in spans(block.header, 6)), {})
        for start, end in block.results:
            result = fields(data, start, end)
            row = _launch(data, result, process, len(launches))
            values, texts = _values(data, result, strings)
            if not values and not texts:
                failed += 1
            device = _whole(values.get("launch__device_id", 0.0)) or 0
            row["device"] = device
            row["cc"] = _capability(values)
            devices.setdefault(device, {}).update(_device(values, texts))
            stack = _nvtx(data, result)
            if stack:
                row["stack"] = places.setdefault(stack, len(stacks))
                if len(places) > len(stacks):
                    stacks.append(stack)
            kept = {
                name: value for name, value in values.items() if not name.startswith(_ATTRIBUTE)
            }
            columns["launch"] += [len(launches)] * len(kept)
            columns["name"] += kept
            columns["value"] += kept.values()
            launches.append(row)
    if not launches:
        raise BadInput(path, "a report of Nsight Compute without kernels: ncu measured none")
    measured = Measured(
        frame_of(launches, LAUNCHES),
        pl.DataFrame(columns, schema=VALUES),
        stacks,
        devices,
    )
    measured.version = tool
    if failed:
        measured.notes.append(
            ("warning", "kernels in the report without any measured value", failed)
        )
    return measured


def _size(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise WireError("it ends early: a size is missing")
    size: int = struct.unpack_from("<I", data, at)[0]
    if at + 4 + size > len(data):
        raise WireError(f"it ends early: {size} bytes are announced, {len(data) - at - 4} are left")
    return size


def _blocks(data: bytes, at: int) -> Iterator[_Block]:
    while at < len(data):
        size = _size(data, at)
        header = fields(data, at + 4, at + 4 + size)
        at += 4 + size
        sources, results, length = (number(header, field_number) for field_number in (1, 2, 5))
        if length < 0 or at + length > len(data):
            raise WireError(f"a block of {length} bytes goes beyond the end")
        end = at + length
        sections = []
        for index in range(sources + results):
            if at >= end:
                raise WireError("a block has fewer entries than it says")
            size = _size(data, at)
            if index >= sources:
                sections.append((at + 4, at + 4 + size))
            at += 4 + size
        at = end
        yield _Block(header, sections)


def _tool(data: bytes, header: Fields) -> str:
    """Return the version of Nsight Compute that wrote the report, if this block has it."""
    for session in spans(header, 3):
        for pair_span in spans(fields(data, *session), 8):
            pair = fields(data, *pair_span)
            if text(data, pair, 1).startswith("Nsight Compute"):
                return text(data, pair, 2)
    return ""


def _launch(data: bytes, result: Fields, process: Fields, index: int) -> dict[str, Any]:
    named = [text(data, result, field) for field in (7, 6, 5)]
    return {
        "launch": index,
        "pid": number(process, 1) or None,
        "program": text(data, process, 3) or None,
        "host": text(data, process, 2) or None,
        "id": index,
        "name": next(filter(None, named), "?"),
        "context": number(result, 22),
        "stream": number(result, 23),
        "device": None,
        "cc": None,
        "grid": _three(data, result, 10),
        "block": _three(data, result, 11),
        "stack": None,
    }


def _three(data: bytes, message: Fields, field: int) -> str | None:
    for span in spans(message, field):
        axes = fields(data, *span)
        return ",".join(str(number(axes, axis)) for axis in (1, 2, 3))
    return None


def _values(
    data: bytes, result: Fields, strings: list[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the metrics of a kernel that are numbers, and those that are texts."""
    values_by_name: dict[str, float] = {}
    texts: dict[str, str] = {}
    for span in spans(result, 13):
        metric = fields(data, *span)
        index = number(metric, 1, -1)
        if not 0 <= index < len(strings):
            continue
        name = strings[index]
        for value_span in spans(metric, 2):
            value = _value(data, *value_span)
            if isinstance(value, str):
                texts[name] = value
            elif value is not None:
                values_by_name[name] = value
        if name in (OPCODES, THREAD_OPCODES) and spans(metric, 3):
            if name == THREAD_OPCODES:
                values_by_name.update(dict.fromkeys(ARITHMETIC, 0.0))
            for value_span in spans(metric, 3)[:_INSTANCES]:
                instance = fields(data, *value_span)
                key = next((_value(data, *span) for span in spans(instance, 1)), None)
                count = next((_value(data, *span) for span in spans(instance, 2)), None)
                if isinstance(key, str) and isinstance(count, float):
                    values_by_name[f"{name}:{key}"] = count
    return values_by_name, texts


def _value(data: bytes, start: int, end: int) -> float | str | None:
    """Return a ProfileMetricValue: text, float, double, uint32 or uint64."""
    for field, value, _, _ in walk(data, start, end):
        if isinstance(value, tuple):
            if field == 1:
                return data[slice(*value)].decode("utf-8", "replace")
        elif field == 2:
            return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])
        elif field == 3:
            return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])
        elif field in (4, 5):
            return float(value)
    return None


def _capability(values: dict[str, float]) -> str | None:
    both = [values.get(f"{_ATTRIBUTE}compute_capability_{part}") for part in ("major", "minor")]
    return (
        None if None in both else ".".join(str(_whole(number_part or 0.0)) for number_part in both)
    )


def _device(values: dict[str, float], texts: dict[str, str]) -> dict[str, object]:
    facts: dict[str, object] = {}
    if name := texts.get(f"{_ATTRIBUTE}display_name"):
        facts["name"] = name
    for column, attribute in (
        ("sm_count", "multiprocessor_count"),
        ("memory", "global_memory_size"),
        ("max_threads_per_sm", "max_threads_per_multiprocessor"),
    ):
        if (value := values.get(_ATTRIBUTE + attribute)) is not None:
            facts[column] = _whole(value)
    return facts


def _whole(value: float) -> int | None:
    """Return the value as an integer; None if it has more than 53 bits: no property of a device is so
    large."""
    return int(value) if abs(value) < 1 << 53 else None


# ------------------------------------------------------------------------------------------ NVTX


def _nvtx(data: bytes, result: Fields) -> tuple[Open, ...]:
    """Return the NVTX ranges that were open at a launch: start/end ranges, then each thread's."""
    open_ranges: list[Open] = []
    for span in spans(result, 21):
        state = fields(data, *span)
        domains = {
            number(domain_state, 1): _Domain(data, domain_state)
            for domain_state in _each(data, state, 1)
        }
        for thread_state in _each(data, state, 3):
            for opened in _each(data, thread_state, 2):
                open_ranges.append(
                    _open(data, opened, domains.get(number(thread_state, 1)), None, 2, 3)
                )
        for thread in _each(data, state, 2):
            for thread_state in _each(data, thread, 2):
                for opened in _each(data, thread_state, 2):
                    domain = domains.get(number(thread_state, 1))
                    open_ranges.append(_open(data, opened, domain, number(thread, 1), 1, 2))
    return tuple(open_range for open_range in open_ranges if open_range.text)


def _each(data: bytes, message: Fields, field: int) -> list[Fields]:
    return [fields(data, *span) for span in spans(message, field)]


class _Domain:
    """A domain's name, its registered strings and the names of its categories."""

    def __init__(self, data: bytes, message: Fields) -> None:
        name = text(data, message, 2)
        self.name = "" if name == "<default domain>" else name
        self.strings = {number(entry, 1): text(data, entry, 2) for entry in _each(data, message, 3)}
        self.categories = {
            number(entry, 1): text(data, entry, 2)
            for table in _each(data, message, 4)
            if number(table, 1) == _CATEGORIES
            for entry in _each(data, table, 2)
        }


def _open(
    data: bytes, message: Fields, domain: _Domain | None, thread: int | None, name: int, more: int
) -> Open:
    said, kind, payload = text(data, message, name), None, None
    for attributes in _each(data, message, more):
        if domain is not None:
            kind = domain.categories.get(number(attributes, 2))
        for attribute in _each(data, attributes, 4):
            for field in (2, 3, 5, 6):
                payload = number(attribute, field) if field in attribute else payload
        for attribute in _each(data, attributes, 5):
            registered = domain.strings.get(number(attribute, 3), "") if domain is not None else ""
            said = said or text(data, attribute, 2) or registered
    where = domain.name if domain is not None else ""
    return Open(thread, where, said, kind or category(where, said), payload)
