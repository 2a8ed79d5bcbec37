"""Read the NVTX ranges and marks of an Nsight Systems export, with their domains, categories and payloads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from opscope.core.dialects import torch_nvtx
from opscope.core.process_specs import GRAPH, KEY
from opscope.core.rangetext import CUT
from opscope.core.tables import torch_numbers
from opscope.core.tables.columns import matching, stacked
from opscope.readers.sqlite import ROW, Kind

from .payload import Schemas
from .source import Source
from .strings import (
    TID_BITS,
    TID_MASK,
    Codes,
    Strings,
    Threads,
    constant,
    named,
)

#: Event types (ENUM_NSYS_EVENT_TYPE) of NVTX, and of imported NVTXT text files.
_PUSHPOP: Final = (59, 70)
_STARTEND: Final = (60, 71)
_MARKS: Final = (34, 65)
#: Pushes and starts that lack an end; recent versions close them at the capture's end.
_OPEN: Final = (35, 37, 66, 68)
_CATEGORY_NAME: Final = (33, 64)
_DOMAIN_CREATE: Final = 75
_EVENTS: Final = (*_PUSHPOP, *_STARTEND, *_MARKS, *_OPEN)
_KIND: Final[Mapping[int, str]] = {
    **dict.fromkeys((*_PUSHPOP, 35, 66), "pushpop"),
    **dict.fromkeys((*_STARTEND, 37, 68), "startend"),
    **dict.fromkeys(_MARKS, "mark"),
}
_COLUMNS: Final[Mapping[str, Kind]] = {
    "start": "int",
    "end": "int",
    "eventType": "int",
    "globalTid": "int",
    "domainId": "int",
}
#: Columns that one program fills in every row and another in none; read only if they have values.
_ALL_OR_NONE: Final[Mapping[str, Kind]] = {
    "category": "int",
    "textId": "int",
    "int64Value": "int",
    "text": "text",
}
#: Columns that no framework fills on every range; read only in the rows that have them.
_RARE: Final[Mapping[str, Kind]] = {
    "endGlobalTid": "int",
    "uint64Value": "int",
    "uint32Value": "int",
    "int32Value": "int",
    "doubleValue": "real",
    "floatValue": "real",
    "jsonTextId": "int",
    "jsonText": "text",
    "binaryData": "blob",
}
#: Bits 0–47 of opscope's payload are the sequence number, bits 48–62 the forward thread, from 1.
_SEQ_BITS: Final = 48
#: Beginning of the texts with a process's facts (core.process_specs), such as the pid of its parent.
_FACTS: Final = f"{GRAPH}/{KEY} = "
_PARENT: Final = re.compile(r"\bparent=([0-9]{1,10})\b")
#: A text of opscope's that was cut inside its name or directly after it.
_LOST: Final = rf'\A(?:[^(]*|(?:"(?:\\.|[^"\\])*"|[^("]*)\(){CUT}'


@dataclass(slots=True)
class Ranges:
    """``frame``: the ``ranges`` table; open ranges have a null end. ``notes``: what was inferred or lost."""

    frame: pl.DataFrame
    notes: list[tuple[str, str, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Piece:
    events: pl.DataFrame
    names: pl.DataFrame
    odd: int


@dataclass(slots=True)
class Events:
    """The rows of ``NVTX_EVENTS`` as read, and what names their domains and categories."""

    pieces: list[_Piece]
    domains: Codes
    categories: Codes
    domain_names: pl.DataFrame
    failures: Mapping[str, int]


def read_events(source: Source, strings: Strings, threads: Threads) -> Events:
    """Read the rows of ``NVTX_EVENTS``. ``process`` has provisional codes of ``threads``."""
    domains, categories, schemas = Codes(), Codes(), Schemas(source)

    def convert(frame: pl.DataFrame, rare: pl.DataFrame | None) -> _Piece:
        for column in (*_COLUMNS, *_ALL_OR_NONE):
            if column not in frame.columns and column != "text":
                frame = frame.with_columns(pl.lit(None, pl.Int64).alias(column))
        if rare is not None:
            frame = _with_rare(frame, rare, strings, schemas)
        process, thread = threads.split(frame["globalTid"])
        domain = domains.of(_key(process, frame["domainId"].fill_null(0)))
        category = categories.of(_key(domain, frame["category"]))
        frame = frame.with_columns(
            process, thread, domain.alias("domain"), category.alias("category_code")
        )
        wanted = frame["eventType"].is_in(_EVENTS)
        if wanted.all():
            return _Piece(_events(frame, strings), frame.clear(), 0)
        rest = frame.filter(~wanted)
        names = rest.filter(pl.col("eventType").is_in((*_CATEGORY_NAME, _DOMAIN_CREATE)))
        odd = rest.filter(
            ~pl.col("eventType").is_in((*_CATEGORY_NAME, _DOMAIN_CREATE, _DOMAIN_CREATE + 1))
        ).height
        return _Piece(_events(frame.filter(wanted), strings), names, odd)

    columns, rare_columns = dict(_COLUMNS), dict(_RARE)
    # plain texts are in every row or, if strings are registered, in hardly any
    for name, holds in _ALL_OR_NONE.items():
        mostly = source.mostly("NVTX_EVENTS", name)
        (columns if mostly else rare_columns)[name] = holds
    # versions of 2020 may also have a table of domain names, without their process
    domain_names = source.rows("DomainStrings", {"id": "int", "domainName": "text"})
    pieces = source.scan("NVTX_EVENTS", columns, convert, rare_columns)
    return Events(pieces, domains, categories, domain_names, schemas.failures)


def ranges_of(read: Events, strings: Strings, processes: Codes) -> Ranges:
    """Return the events as ranges with named domains and categories; empties ``read.pieces``."""
    pieces = read.pieces
    names = pl.concat([piece.names for piece in pieces], how="diagonal_relaxed")
    odd = sum(piece.odd for piece in pieces)
    events = [piece.events for piece in pieces]
    pieces.clear()
    frame = stacked(events)
    result = Ranges(frame)
    # pieces with only push/pop ranges lack the column: one value for all rows takes no memory
    usual = pl.lit("pushpop", pl.Categorical)
    mixed = "kind" in frame.columns
    kind = pl.col("kind").fill_null(usual) if mixed else usual
    result.frame = frame.with_columns(kind.alias("kind"))
    same = _name_domains(result, read.domain_names, strings, names, read.domains, processes)
    _name_categories(result, strings, names, read.categories, same)
    result.notes += _cut_notes(result.frame)
    if odd:
        result.notes.append(("info", "NVTX events of a type that is not read", odd))
    for message, count in read.failures.items():
        result.notes.append(("warning", message, count))
    return result


def _key(high: pl.Series, low: pl.Series) -> pl.Series:
    key: pl.Series = high.cast(pl.Int64) * (1 << 32) + (low % (1 << 32))
    return key


def _events(frame: pl.DataFrame, strings: Strings) -> pl.DataFrame:
    """The piece's events in the trace's columns, without the columns that have no value."""
    types = frame["eventType"]
    columns = [
        frame["process"],
        frame["thread"],
        frame["start"],
        frame["end"],
        frame["domain"],
    ]
    if not types.is_in(_PUSHPOP).all():
        columns.append(types.replace_strict(_KIND, return_dtype=pl.Categorical).alias("kind"))
        at_start = pl.when(pl.col("eventType").is_in(_MARKS)).then("start").otherwise("end")
        columns[3] = frame.select(at_start.alias("end")).to_series()
    if "endGlobalTid" in frame.columns:
        columns.append((frame["endGlobalTid"] % (1 << TID_BITS)).alias("end_thread"))
    if frame["category_code"].null_count() < len(types):
        columns.append(frame["category_code"].alias("category"))
    columns += _texts(frame, strings)
    if frame["int64Value"].null_count() < len(types):
        columns.append(frame["int64Value"].alias("payload"))
    if "attrs" in frame.columns:
        columns.append(frame["attrs"])
    return pl.DataFrame(columns)


def _texts(frame: pl.DataFrame, strings: Strings) -> list[pl.Series]:
    """Return the ``text`` of each event, and ``seq`` if PyTorch's texts contain it."""
    ids = frame["textId"]
    plain = frame["text"] if "text" in frame.columns else None
    registered = strings.categorical(ids) if ids.null_count() < len(ids) else None
    if plain is None:
        registered = (
            constant("text", None, pl.Categorical, len(ids)) if registered is None else registered
        )
    elif registered is None or plain.null_count() < len(plain):
        text, seq = _plain(plain.cast(pl.String), frame["domainId"])
        both: pl.Series = text if registered is None else text.fill_null(registered)
        return [both.alias("text"), *seq]
    return [registered.alias("text")]


def _plain(texts: pl.Series, domains: pl.Series) -> tuple[pl.Series, list[pl.Series]]:
    """Texts as Categorical, without the numbers that PyTorch gives each call in NVTX's default domain."""
    split = torch_numbers.split(texts)
    seq = split["seq"]
    unchanged = (domains.fill_null(0) != 0) | pl.Series(
        matching(split["text"], torch_nvtx.NUMBERED)
    )
    if unchanged.any():
        texts_unchanged = texts.zip_with(unchanged, texts.clear(len(texts))).cast(pl.Categorical)
        split = split.with_columns(split["text"].zip_with(~unchanged, texts_unchanged))
        seq = seq.set(unchanged, None)
    return split["text"], [] if seq.null_count() == len(seq) else [seq]


def _with_rare(
    frame: pl.DataFrame, rare: pl.DataFrame, strings: Strings, schemas: Schemas
) -> pl.DataFrame:
    """Put integer payloads of any width into ``int64Value``, and other payloads into ``attrs`` as JSON."""
    rows = rare[ROW]
    columns = {name for name in rare.columns if rare[name].null_count() < rare.height}
    for name in ("endGlobalTid", *_ALL_OR_NONE):
        if name in columns:
            has_value = rare[name].is_not_null()
            dtype = pl.String if name == "text" else pl.Int64
            column = constant(name, None, dtype, frame.height)
            frame = frame.with_columns(
                column.scatter(rows.filter(has_value), rare[name].filter(has_value))
            )
    integers = [
        pl.col(name) for name in ("uint64Value", "uint32Value", "int32Value") if name in columns
    ]
    if integers:
        integers_read = rare.select(pl.coalesce(integers)).to_series()
        where = integers_read.is_not_null()
        if where.any():
            frame = frame.with_columns(
                frame["int64Value"]
                .scatter(rows.filter(where), integers_read.filter(where))
                .alias("int64Value")
            )
    attrs = constant("attrs", None, pl.String, frame.height)
    for texts in (
        _real_attrs(rare),
        _json_attrs(rare, strings),
        schemas.decode(rare["binaryData"]) if "binaryData" in columns else None,
    ):
        if texts is not None:
            where = texts.is_not_null()
            attrs = attrs.scatter(rows.filter(where), texts.filter(where))
    if attrs.null_count() == len(attrs):
        return frame
    return frame.with_columns(attrs)


def _real_attrs(rare: pl.DataFrame) -> pl.Series | None:
    columns = [pl.col(name) for name in ("doubleValue", "floatValue") if name in rare.columns]
    if not columns:
        return None
    value = rare.select(pl.coalesce(columns).alias("payload"))
    texts = value.select(pl.struct("payload").struct.json_encode()).to_series()
    return texts.set(value["payload"].is_null(), None)


def _json_attrs(rare: pl.DataFrame, strings: Strings) -> pl.Series | None:
    texts = None
    if "jsonText" in rare.columns:
        texts = rare["jsonText"]
    if "jsonTextId" in rare.columns:
        by_id = strings.categorical(rare["jsonTextId"]).cast(pl.String)
        texts = by_id if texts is None else texts.fill_null(by_id)
    if texts is None or texts.null_count() == len(texts):
        return None
    distinct = texts.drop_nulls().unique()
    objects = [_as_object(text) for text in distinct.to_list()]
    attrs: pl.Series = texts.replace_strict(distinct, objects, default=None, return_dtype=pl.String)
    return attrs


def _as_object(text: str) -> str:
    """Return a JSON payload as a JSON object; any other value becomes the object's ``payload``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return text if isinstance(value, dict) else json.dumps({"payload": value})


def _text_of(row: Mapping[str, object], strings: Strings) -> str | None:
    text, identity = row.get("text"), row["textId"]
    if isinstance(text, str):
        return text
    return strings.text(identity) if isinstance(identity, int) else None


def _name_domains(
    result: Ranges,
    old: pl.DataFrame,
    strings: Strings,
    created: pl.DataFrame,
    domains: Codes,
    processes: Codes,
) -> dict[int, int]:
    """Name the domains. Returns, for the codes named after another process's domain, that domain's code."""
    names: dict[int, str] = {}
    for row in created.filter(pl.col("eventType") == _DOMAIN_CREATE).iter_rows(named=True):
        text = _text_of(row, strings)
        if text is not None:
            names[row["domain"]] = text
    by_id = dict(old.iter_rows()) if old.width == 2 else {}
    for code, key in enumerate(domains.keys):
        identity = key % (1 << 32)
        if identity == 0:
            names[code] = ""
        elif code not in names and by_id.get(identity):
            names[code] = by_id[identity]
    used = set(result.frame["domain"].unique().to_list()) if result.frame.height else set()
    same = inherited(domains.keys, names, _parents(result.frame, processes))
    names |= {code: names[other] for code, other in same.items()}
    for code, key in enumerate(domains.keys):
        if code not in names:
            names[code] = f"domain {key % (1 << 32)}"
            if code in used:
                _guess_domain(result, names, code)
    if used & same.keys():
        message = "NVTX domains of forked processes, named as in the parent process"
        result.notes.append(("info", message, len(used & same.keys())))
    codes = result.frame["domain"] if result.frame.width else pl.Series(dtype=pl.UInt32)
    ours = [
        code
        for code, name in names.items()
        if name.startswith("opscope.") and name != "opscope.step"
    ]
    result.frame = result.frame.with_columns(
        named(codes, [names[code] for code in range(len(names))]).alias("domain"),
        *_sequence(result.frame, ours),
    )
    return same


def _parents(frame: pl.DataFrame, processes: Codes) -> dict[int, int]:
    """The parent of each forked process, by process codes, if the process recorded it."""
    if not frame.width or not processes.keys:
        return {}
    pids = {key & TID_MASK: code for code, key in enumerate(processes.keys)}
    texts = frame["text"].unique().cast(pl.String)
    fact_texts = texts.filter(texts.str.starts_with(_FACTS).fill_null(False)).to_list()
    parents = {}
    if fact_texts:
        rows = frame.filter(pl.col("text").cast(pl.String).is_in(fact_texts))
        for process, text in rows.select("process", pl.col("text").cast(pl.String)).iter_rows():
            match = _PARENT.search(text)
            if match and int(match[1]) in pids:
                parents[process] = pids[int(match[1])]
    return parents


def inherited(
    keys: list[int], names: Mapping[int, str], parents: Mapping[int, int]
) -> dict[int, int]:
    """Return, for each code without a name, the code whose name it inherits from before a fork.

    Domains and categories are named once, by the process that makes them; a forked child continues to use
    their numbers. ``keys``: process << 32 | number, for each code; ``parents``: for each process, the one
    from which it was forked. If the parent is unknown, a number gets its name in other processes if all agree
    on it.
    """
    by_number: dict[int, dict[int, int]] = {}
    for code, key in enumerate(keys):
        if code in names:
            by_number.setdefault(key % (1 << 32), {})[key >> 32] = code
    domains: dict[int, int] = {}
    for code, key in enumerate(keys):
        theirs = by_number.get(key % (1 << 32))
        if code in names or not theirs:
            continue
        process, visited = key >> 32, set()
        while process not in theirs and process in parents and process not in visited:
            visited.add(process)
            process = parents[process]
        if process in theirs:
            domains[code] = theirs[process]
        elif not visited and len({names[other] for other in theirs.values()}) == 1:
            domains[code] = min(theirs.values())
    return domains


def _guess_domain(result: Ranges, names: dict[int, str], code: int) -> None:
    """Name a domain that was made before the capture began: NCCL's is recognised by its calls."""
    texts = result.frame.filter(pl.col("domain") == code)["text"].unique().cast(pl.String)
    if texts.str.starts_with("nccl").all() and texts.drop_nulls().len():
        names[code] = "NCCL"
        message = "an unnamed NVTX domain was identified as NCCL by the names of its ranges"
    else:
        message = f"an NVTX domain without a name is shown as {names[code]!r}"
    result.notes.append(("info", message, 1))


def _sequence(frame: pl.DataFrame, ours: list[int]) -> list[pl.Series]:
    """``seq`` and ``fwd_thread`` from the payloads of opscope's domains, if any row has them."""
    if "payload" not in frame.columns or not ours:
        return []
    has_number = pl.col("domain").is_in(ours) & (pl.col("payload") >= 0)
    thread = pl.col("payload") // (1 << _SEQ_BITS)
    recorded_seq = "seq" if "seq" in frame.columns else None
    seq = pl.when(has_number).then(pl.col("payload") % (1 << _SEQ_BITS)).otherwise(recorded_seq)
    forward_thread = pl.when(has_number & (thread > 0)).then(thread)
    columns = frame.select(seq.alias("seq"), forward_thread.alias("fwd_thread")).get_columns()
    # a program without backward has no forward thread, which saves 8 bytes for each of its ranges
    return [column for column in columns if column.null_count() < len(column)]


def _cut_notes(frame: pl.DataFrame) -> list[tuple[str, str, int]]:
    """Notes on opscope's ranges whose text was cut, and on those ranges of which only a name is left."""
    if not frame.height:
        return []
    texts = frame["text"].unique().cast(pl.String)
    cut = texts.filter(texts.str.contains(CUT, literal=True).fill_null(False))
    if not len(cut):
        return []
    lost = cut.filter(cut.str.contains(_LOST))
    ours = frame.filter(pl.col("domain").cast(pl.String).str.starts_with("opscope."))["text"]
    counts = [int(ours.cast(pl.String).is_in(some.to_list()).sum()) for some in (cut, lost)]
    notes = [
        (
            "warning",
            "ranges whose text was cut because it is over 4 KiB: what was cut from the call, and its "
            "cost, is not known",
            counts[0] - counts[1],
        ),
        (
            "warning",
            "ranges that lost their arguments or the number in their name: the program has over 65,536 "
            "distinct texts, and opscope gives NVTX no more than that",
            counts[1],
        ),
    ]
    return [note for note in notes if note[2]]


def _name_categories(
    result: Ranges,
    strings: Strings,
    created: pl.DataFrame,
    categories: Codes,
    same: Mapping[int, int],
) -> None:
    if "category" not in result.frame.columns:
        return
    names: dict[int, str] = {}
    for row in created.filter(pl.col("eventType").is_in(_CATEGORY_NAME)).iter_rows(named=True):
        text = _text_of(row, strings)
        if text is not None and row["category_code"] is not None:
            names[row["category_code"]] = text
    codes = {key: code for code, key in enumerate(categories.keys)}
    for code, key in enumerate(categories.keys):
        if code not in names and key >> 32 in same:
            other = codes.get((same[key >> 32] << 32) + key % (1 << 32))
            if other in names:
                names[code] = names[other]
    # 0 is NVTX's "no category"; a number without a name is shown as a number
    texts = [
        names.get(code, str(key % (1 << 32)) if key % (1 << 32) else None)
        for code, key in enumerate(categories.keys)
    ]
    result.frame = result.frame.with_columns(named(result.frame["category"], texts))
