"""Add recorded sizes, peers and communicators to the calls of collectives (rule 7).

NCCL describes its calls by NVTX payloads, Kineto by fields of the op or of its kernels; both arrive as
JSON. The values become parameters of the calls, with one reading for each distinct combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import nccl
from opscope.core.group_specs import group_size, members_of
from opscope.core.literals import json_object
from opscope.core.schema import DTYPE_BITS, ParamValue
from opscope.core.tables.columns import compact
from opscope.core.tables.interpret import ExtendedReadings, Meaning
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.ranks import groups
from opscope.core.tables.trace import Trace

_Params = tuple[tuple[str, ParamValue], ...]
#: Kineto's names of element types (c10::ScalarType, all that a collective may have) → our names.
KINETO_DTYPES: Final[Mapping[str, str]] = {
    "Double": "f64", "Float": "f32", "Half": "f16", "BFloat16": "bf16", "Long": "i64", "Int": "i32",
    "Short": "i16", "Char": "i8", "Byte": "u8", "Bool": "bool", "UInt16": "u16", "UInt32": "u32",
    "UInt64": "u64", "ComplexHalf": "c32", "ComplexFloat": "c64", "ComplexDouble": "c128",
    "Float8_e4m3fn": "f8e4m3fn", "Float8_e5m2": "f8e5m2", "Float8_e4m3fnuz": "f8e4m3fnuz",
    "Float8_e5m2fnuz": "f8e5m2fnuz", "Float8_e8m0fnu": "f8e8m0fnu",
}  # fmt: skip
#: Kineto's fields that become parameters unchanged, and the names of the parameters.
_FIELDS: Final[Mapping[str, str]] = {
    "collective": "collective",
    "group": "group",
    "group_size": "ranks",
    "source_rank": "source",
    "target_rank": "peer",
}


def add_parameters(
    trace: Trace, meaning: Meaning, is_op: NDArray[np.bool_], kernel_op: NDArray[np.int32]
) -> Meaning:
    """Return ``meaning`` with the recorded parameters of each collective.

    ``kernel_op``: the op row of each kernel. An op without a record of its own gets the record of its first
    kernel.
    """
    talks = meaning.talks
    rows = np.flatnonzero(is_op & talks[meaning.reading])
    if not len(rows):
        return meaning
    # earlier sources win: first the group's own size, then a record's, then the job's
    meaning = _with_sizes(trace, meaning, rows)
    meaning = _with_records(trace, meaning, rows, kernel_op)
    return _with_world(trace, meaning, rows)


def _with_records(
    trace: Trace, meaning: Meaning, rows: Ints, kernel_op: NDArray[np.int32]
) -> Meaning:
    """Add the parameters from the record of each range, or of its first kernel."""
    records = _records(trace, rows, kernel_op)
    recorded = np.flatnonzero(records.is_not_null().to_numpy())
    if not len(recorded):
        return meaning
    rows, records = rows[recorded], records.gather(recorded)
    codes, texts = compact(records.cast(pl.Categorical))
    fields = [json_object(text) for text in texts]
    process = trace["ranges"]["process"].gather(rows).fill_null(NONE).to_numpy()
    ranks = _communicators(fields, codes, process)
    keys = np.stack((meaning.reading[rows], codes, process), axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    new_readings, readings = np.empty(len(distinct), np.int32), ExtendedReadings(meaning)
    known_as: dict[tuple[int, _Params], int] = {}  # many records have equal parameters
    for index, (old, code, owner) in enumerate(distinct.tolist()):
        params = _params_of(fields[code], owner, ranks)
        if (old, params) not in known_as:
            known_as[old, params] = (
                _with(readings, old, params) if meaning.readings[old].call else old
            )
        new_readings[index] = known_as[old, params]
    return readings.meaning(rows, new_readings[inverse.reshape(-1)])


def _with_sizes(trace: Trace, meaning: Meaning, rows: Ints) -> Meaning:
    """Add ``ranks``, the number of participants, to calls that name a process group with a spec."""
    group_rows = groups(trace).drop_nulls("size").select("process", "group", "size").rows()
    sizes = {(process, group): size for process, group, size in group_rows}
    if not sizes:
        return meaning
    process = trace["ranges"]["process"].gather(rows).fill_null(NONE).to_numpy()
    keys, inverse = np.unique(
        np.stack((meaning.reading[rows], process), axis=1), axis=0, return_inverse=True
    )
    new_readings, readings = np.empty(len(keys), np.int32), ExtendedReadings(meaning)
    for index, (old, owner) in enumerate(keys.tolist()):
        call = meaning.readings[old].call
        name = call and next(filter(None, map(call.param, ("process_group", "group_name"))), None)
        size = sizes.get((owner, str(name)))
        new_readings[index] = old if size is None else _with(readings, old, (("ranks", size),))
    return readings.meaning(rows, new_readings[inverse.reshape(-1)])


def _with_world(trace: Trace, meaning: Meaning, rows: Ints) -> Meaning:
    """Add the job's ``world_size`` to calls for which the trace has no group size.

    A process gets no ``world_size`` if any of its calls has a group whose size is neither 1 nor the job's.
    """
    process_rows = trace["processes"].select("process", "world_size").drop_nulls().rows()
    worlds: dict[int, int] = {process: size for process, size in process_rows if size > 0}
    if not worlds:
        return meaning
    process = trace["ranges"]["process"].gather(rows).fill_null(NONE).to_numpy()
    keys, inverse = np.unique(
        np.stack((meaning.reading[rows], process), axis=1), axis=0, return_inverse=True
    )
    calls = [meaning.readings[reading].call for reading in keys[:, 0].tolist()]
    sizes = [group_size(call) if call is not None else None for call in calls]
    for owner, size in zip(keys[:, 1].tolist(), sizes, strict=True):
        if size not in (None, 1, worlds.get(owner)):
            worlds.pop(owner, None)
    new_readings, readings = keys[:, 0].astype(np.int32), ExtendedReadings(meaning)
    for index, owner in enumerate(keys[:, 1].tolist()):
        if owner in worlds and calls[index] is not None and sizes[index] is None:
            new_readings[index] = _with(
                readings, int(new_readings[index]), (("world_size", worlds[owner]),)
            )
    return readings.meaning(rows, new_readings[inverse.reshape(-1)])


def _records(trace: Trace, rows: Ints, kernel_op: NDArray[np.int32]) -> pl.Series:
    """Return the JSON record of each op row: the record of its range, else that of its first kernel."""
    own: pl.Series = trace["ranges"]["attrs"].gather(rows)
    missing = np.flatnonzero(own.is_null().to_numpy())
    attrs = trace["kernels"]["attrs"]
    if not len(missing) or attrs.null_count() == len(attrs):
        return own
    has_record = attrs.str.contains('"collective":', literal=True).fill_null(False).to_numpy()
    kernels = np.flatnonzero(has_record & (kernel_op >= 0))
    op, first = np.unique(kernel_op[kernels], return_index=True)
    kernel_of_row = np.full(len(rows), NONE, np.int64)
    index = np.searchsorted(op, rows[missing])
    hit = index < len(op)
    hit[hit] = op[index[hit]] == rows[missing[hit]]
    kernel_of_row[missing[hit]] = kernels[first[index[hit]]]
    theirs = attrs.gather(pl.Series(kernel_of_row).replace(NONE, None).cast(pl.UInt32))
    column: pl.Series = own.zip_with(own.is_not_null(), theirs)
    return column


def _communicators(
    fields: list[dict[str, Any]], codes: NDArray[np.integer[Any]], process: Ints
) -> dict[tuple[int, ParamValue], int]:
    """Return (process, communicator) → number of ranks, from the payloads of ncclCommInitRank."""
    sizes: dict[tuple[int, ParamValue], int] = {}
    for code, field in enumerate(fields):
        params = dict(nccl.parameters(field))
        ranks, communicator = params.get("ranks"), params.get("communicator")
        if type(ranks) is int and communicator is not None:
            for owner in np.unique(process[codes == code]).tolist():
                sizes[owner, communicator] = ranks
    return sizes


def _params_of(
    fields: dict[str, Any], process: int, ranks_of: Mapping[tuple[int, ParamValue], int]
) -> _Params:
    """Return the parameters in the record of a call of ``process``."""
    params = nccl.parameters(fields) or _kineto(fields)
    named = dict(params)
    ranks = ranks_of.get((process, named.get("communicator")))
    if ranks is not None and "ranks" not in named:
        params = (*params, ("ranks", ranks))
    return params


def _with(readings: ExtendedReadings, old: int, params: _Params) -> int:
    """Return the number of reading ``old`` with the parameters that its call does not have yet."""
    reading = readings.reading(old)
    call = reading.call
    assert call is not None
    new = tuple((key, value) for key, value in params if call.param(key) is None)
    if not new:
        return old
    completed = replace(call, params=(*call.params, *new))
    return readings.add(replace(reading, call=completed), readings.text(old))


def _kineto(fields: Mapping[str, Any]) -> _Params:
    """Return the parameters in Kineto's record; ``bytes`` is the larger of input and output."""
    params: list[tuple[str, ParamValue]] = [
        (ours, fields[theirs])
        for theirs, ours in _FIELDS.items()
        if isinstance(fields.get(theirs), (int, str)) and fields[theirs] != ""
    ]
    counts = [fields.get(key) for key in ("in_nelems", "out_nelems")]
    given = [count for count in counts if type(count) is int and count >= 0]
    members = members_of(fields.get("group_ranks", ""))
    if members is not None:
        params.append(("members", members))
    dtype = KINETO_DTYPES.get(str(fields.get("dtype")))
    if given and dtype is not None:
        params += [("bytes", max(given) * DTYPE_BITS[dtype] // 8), ("dtype", dtype)]
    return tuple(params)
