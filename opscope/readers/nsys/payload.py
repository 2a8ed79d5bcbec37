"""Decode binary NVTX payloads (``binaryData``) into JSON, by the schemas that the program registered.

A payload has the bytes that ``nvtxPayloadData_t`` pointed to, after a header of four 64-bit integers: domain,
schema, payload size, and either the payload's offset from the header's start or the end of the whole,
depending on the version. Schemas are C structs: every entry has a type, an offset and, for arrays, a length.
Each schema becomes one NumPy record type, and all its payloads are decoded at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from .source import Source
from .strings import constant

_HEADER: Final = 32
#: nvToolsExtPayload.h, NVTX_PAYLOAD_ENTRY_TYPE_*; C types as on 64-bit Linux.
_TYPES: Final[Mapping[int, str]] = {
    1: "S1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8",
    10: "<u8", 11: "i1", 12: "u1", 13: "<i2", 14: "<u2", 15: "<i4", 16: "<u4", 17: "<i8",
    18: "<u8", 19: "<f4", 20: "<f8", 22: "<u8", 23: "<u8", 25: "S1", 32: "u1", 42: "<f2",
    43: "<f4", 44: "<f8", 67: "<u8", 68: "<u4", 69: "<u4", 70: "<u8", 71: "<u4", 72: "<u8",
    73: "<u4", 74: "<u8", 80: "<u8",
}  # fmt: skip
_CHARACTERS: Final = (1, 25, 75, 76)
_FIRST_OWN_TYPE: Final = 1 << 24
_FLAG_POINTER: Final = 1 << 1
_FLAG_FIXED_ARRAY: Final = 1 << 4
_FLAG_ARRAYS: Final = 7 << 4
_FLAG_HIDE: Final = 1 << 9
_STATIC: Final = 1
_MAX_ARRAY: Final = 4096
_MAX_DEPTH: Final = 8
_SCHEMA: Final = {
    "domainId": "int", "schemaId": "int", "name": "text", "type": "int", "payloadSize": "int",
    "alignTo": "int",
}  # fmt: skip
_ENTRY: Final = {
    "domainId": "int", "schemaId": "int", "idx": "int", "flags": "int", "type": "int",
    "name": "text", "arrayOrUnionDetail": "int", "offset": "int",
}  # fmt: skip


class _Unreadable(ValueError):
    """The schema does not have the layout of a fixed C struct."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    dtype: Any
    offset: int
    length: int | None
    text: bool
    labels: Mapping[int, str] | None


class Schemas:
    """The payload schemas of an export, keyed by (domain, schema).

    ``failures`` counts the payloads that could not be decoded, by reason. Thread-safe.
    """

    def __init__(self, source: Source) -> None:
        self.failures: Counter[str] = Counter()
        self._lock = Lock()
        self._layouts: dict[tuple[int, int], tuple[list[_Field], int] | str] = {}
        self._sizes: dict[tuple[int, int], int | None] = {}
        self._kinds: dict[tuple[int, int], int | None] = {}
        self._entries: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self._enums: dict[tuple[int, int], dict[int, str]] = {}
        # several processes register the same schemas: the first of equal keys is kept
        for row in _rows(source, "NVTX_PAYLOAD_SCHEMAS", _SCHEMA):
            key = (row["domainId"] or 0, row["schemaId"] or 0)
            self._sizes.setdefault(key, row["payloadSize"])
            self._kinds.setdefault(key, row["type"])
        for row in _rows(source, "NVTX_PAYLOAD_SCHEMA_ENTRIES", _ENTRY):
            key = (row["domainId"] or 0, row["schemaId"] or 0)
            self._entries.setdefault(key, [])
            if all(other["idx"] != row["idx"] for other in self._entries[key]):
                self._entries[key].append(row)
        for row in _rows(
            source,
            "NVTX_PAYLOAD_ENUM_ENTRIES",
            {"domainId": "int", "schemaId": "int", "name": "text", "value": "int"},
        ):
            if row["name"] is not None and row["value"] is not None:
                key = (row["domainId"] or 0, row["schemaId"] or 0)
                self._enums.setdefault(key, {})[row["value"]] = row["name"]

    def decode(self, payloads: pl.Series) -> pl.Series:
        """Return each payload (Binary) as a JSON object; null if there is none or it cannot be decoded."""
        texts = constant("attrs", None, pl.String, len(payloads))
        lengths = payloads.bin.size().fill_null(0)
        long_enough = lengths >= _HEADER
        short = int((payloads.is_not_null() & ~long_enough).sum())
        if short:
            self._fail("NVTX payloads not decoded: shorter than their header", short)
        places = long_enough.arg_true()
        if not len(places):
            return texts
        all_payloads = payloads.gather(places)
        heads = _matrix(all_payloads.bin.slice(0, _HEADER), _HEADER).view("<u8")
        groups = pl.DataFrame(
            {"domain": heads[:, 0], "schema": heads[:, 1], "at": _start(heads, all_payloads)}
        ).with_row_index("place")
        for key, group in groups.group_by(["domain", "schema", "at"], maintain_order=True):
            rows = group["place"]
            domain, schema, start = (int(part) for part in key)
            texts_decoded = self._decode_group((domain, schema), start, all_payloads.gather(rows))
            if texts_decoded is not None:
                has_text = texts_decoded.is_not_null()
                texts = texts.scatter(
                    places.gather(rows).filter(has_text), texts_decoded.filter(has_text)
                )
        return texts

    def _decode_group(
        self, key: tuple[int, int], start: int, payloads: pl.Series
    ) -> pl.Series | None:
        layout = self._layout(key)
        if isinstance(layout, str):
            self._fail(layout, len(payloads))
            return None
        fields, size = layout
        enough = payloads.bin.size() >= start + size
        if not enough.all():
            self._fail("NVTX payloads not decoded: shorter than their schema", int((~enough).sum()))
        if not enough.any():
            return None
        raw = _matrix(payloads.filter(enough).bin.slice(start, size), size)
        columns = [_column(raw, field) for field in fields]
        decoded = pl.DataFrame(columns).select(pl.struct(pl.all()).struct.json_encode()).to_series()
        texts = constant("attrs", None, pl.String, len(payloads))
        return texts.scatter(enough.arg_true(), decoded)

    def _layout(self, key: tuple[int, int]) -> tuple[list[_Field], int] | str:
        with self._lock:
            if key not in self._layouts:
                try:
                    self._layouts[key] = self._build(key, 0)
                except _Unreadable as reason:
                    self._layouts[key] = f"NVTX payloads not decoded: {reason}"
            return self._layouts[key]

    def _build(self, key: tuple[int, int], depth: int) -> tuple[list[_Field], int]:
        entries = self._entries.get(key)
        if not entries:
            raise _Unreadable("the trace does not describe their schema")
        if self._kinds.get(key) not in (None, _STATIC):
            raise _Unreadable("their schema has a variable layout")
        if depth > _MAX_DEPTH:
            raise _Unreadable("their schema contains itself")
        fields: list[_Field] = []
        at = 0
        for entry in sorted(entries, key=lambda entry: entry["idx"] or 0):
            built, at = self._entry(key[0], entry, at, depth)
            if not (entry["flags"] or 0) & _FLAG_HIDE:
                fields.extend(built)
        return fields, max(at, self._sizes.get(key) or 0)

    def _entry(
        self, domain: int, entry: Mapping[str, Any], at: int, depth: int
    ) -> tuple[list[_Field], int]:
        """Return the fields of one entry, and the offset of the first byte after it."""
        flags, kind = entry["flags"] or 0, entry["type"] or 0
        if flags & _FLAG_POINTER or (flags & _FLAG_ARRAYS) not in (0, _FLAG_FIXED_ARRAY):
            raise _Unreadable("their schema has a variable layout")
        length = entry["arrayOrUnionDetail"] if flags & _FLAG_FIXED_ARRAY else None
        if kind in (75, 76) and length is None:  # a C string in place: the detail is its length
            length = entry["arrayOrUnionDetail"]
        if length is not None and not 0 < length <= _MAX_ARRAY:
            raise _Unreadable("their schema has an array without a valid length")
        name = entry["name"] or f"field {entry['idx']}"
        labels = self._enums.get((domain, kind))
        if kind >= _FIRST_OWN_TYPE and labels is None and (domain, kind) in self._entries:
            inner, size = self._build((domain, kind), depth + 1)
            start = at if entry["offset"] is None else entry["offset"]
            if length is not None:
                raise _Unreadable("their schema has an array of structs")
            return [
                _Field(f"{name}.{f.name}", f.dtype, start + f.offset, f.length, f.text, f.labels)
                for f in inner
            ], start + size
        if kind >= _FIRST_OWN_TYPE:  # an enumeration, whose entries may be missing from the export
            code = "<i4"
        elif kind in (75, 76) and length is not None:
            code = "S1"
        elif kind in _TYPES:
            code = _TYPES[kind]
        else:
            raise _Unreadable(f"their schema has entries of type {kind}")
        dtype = np.dtype(code)
        start = entry["offset"]
        if start is None or (start == 0 and at):  # not given: use C's alignment
            start = -(-at // dtype.itemsize) * dtype.itemsize
        if start < 0:
            raise _Unreadable("their schema has a negative offset")
        text = kind in _CHARACTERS
        field = _Field(name, dtype, start, length, text, labels)
        return [field], start + dtype.itemsize * (length or 1)

    def _fail(self, message: str, count: int) -> None:
        with self._lock:
            self.failures[message] += count


def _rows(source: Source, table: str, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    frame = source.rows(table, columns)
    if not frame.width:
        return []
    absent = [name for name in columns if name not in frame.columns]
    return frame.with_columns(pl.lit(None).alias(name) for name in absent).to_dicts()


def _start(heads: npt.NDArray[np.uint64], column: pl.Series) -> npt.NDArray[np.int64]:
    """The offset of each payload: the header's last number, or else the end of the header."""
    size, last = heads[:, 2].astype(np.int64), heads[:, 3].astype(np.int64)
    length = column.bin.size().to_numpy().astype(np.int64)
    is_offset = (last >= _HEADER) & (size >= 0) & (last <= length - size)
    return np.where(is_offset, last, _HEADER)


def _matrix(payloads: pl.Series, size: int) -> npt.NDArray[np.uint8]:
    """Payloads of one size as a matrix of bytes, one row per payload."""
    return payloads.bin.reinterpret(dtype=pl.Array(pl.UInt8, size)).to_numpy()


def _column(raw: npt.NDArray[np.uint8], field: _Field) -> pl.Series:
    count = field.length or 1
    stop = field.offset + field.dtype.itemsize * count
    part = np.ascontiguousarray(raw[:, field.offset : stop])
    if field.text:
        strings = part.view(f"S{count}").reshape(-1)
        return pl.Series(field.name, [s.decode("utf-8", "replace") for s in strings.tolist()])
    values = part.view(field.dtype)
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if field.length is not None:
        inner = pl.Series(values[:0, 0]).dtype
        lists: pl.Series = pl.Series(field.name, values).cast(pl.List(inner))
        return lists
    series = pl.Series(field.name, values.reshape(-1))
    if field.labels is None:
        return series
    distinct = series.unique()
    names = [field.labels.get(number, str(number)) for number in distinct.to_list()]
    named: pl.Series = series.replace_strict(distinct, names, return_dtype=pl.String)
    return named
