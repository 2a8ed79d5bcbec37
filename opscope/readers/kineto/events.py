"""Decode the events of Kineto's JSON into typed structs, with only the fields that become columns."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct
from msgspec import field as f
from numpy.typing import NDArray

#: The value of an absent raw field; compare with ``is``.
ABSENT: Final = Raw(b"")


class _Absent:
    """The value of an absent rare field: empty bytes, and neither less nor greater than anything."""

    def __bytes__(self) -> bytes:
        return b""

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __lt__


#: The value of an absent rare field; compare with ``is``.
ABSENT_RARE: Final[Any] = _Absent()


class _More:
    """Greater than any value that an event may have in ``mark``."""

    def __gt__(self, other: object) -> bool:
        return True


_UNMARKED: Final[Any] = 0
_MORE: Final[Any] = _More()


class Rare(Struct, gc=False, order=True):
    """Fields that few events have. They come first, so that one comparison shows that all are absent."""

    # collectives
    collective: Raw = f(default=ABSENT_RARE, name="Collective name")
    in_nelems: Raw = f(default=ABSENT_RARE, name="In msg nelems")
    out_nelems: Raw = f(default=ABSENT_RARE, name="Out msg nelems")
    dtype: Raw = ABSENT_RARE
    group_size: Raw = f(default=ABSENT_RARE, name="Group size")
    group: Raw = f(default=ABSENT_RARE, name="Process Group Name")
    group_description: Raw = f(default=ABSENT_RARE, name="Process Group Description")
    group_ranks: Raw = f(default=ABSENT_RARE, name="Process Group Ranks")
    collective_seq: Raw = f(default=ABSENT_RARE, name="Seq")
    comms_id: Raw = f(default=ABSENT_RARE, name="Comms Id")
    in_split: Raw = f(default=ABSENT_RARE, name="In split size")
    out_split: Raw = f(default=ABSENT_RARE, name="Out split size")
    source_rank: Raw = f(default=ABSENT_RARE, name="Src Rank")
    target_rank: Raw = f(default=ABSENT_RARE, name="Dst Rank")
    # Inductor and Triton
    kernel_backend: Raw = ABSENT_RARE
    kernel_file: Raw = ABSENT_RARE
    kernel_hash: Raw = ABSENT_RARE
    kernel_name: Raw = ABSENT_RARE
    num_warps: Raw = ABSENT_RARE
    num_stages: Raw = ABSENT_RARE
    kernel_flop: Raw = ABSENT_RARE
    kernel_num_gb: Raw = ABSENT_RARE
    #: The first field in which an event without rare fields differs from ``PLAIN``.
    mark: Raw = f(default=_UNMARKED, name="opscope mark")


class Args(Rare, gc=False, order=True):
    """The ``args`` of any event. Raw fields are JSON bytes, decoded once per distinct value."""

    correlation: int | None = None
    external: int | None = f(default=None, name="External id")
    seq: int | None = f(default=None, name="Sequence number")
    fwd: int | None = f(default=None, name="Fwd thread id")
    dims: Raw = f(default=ABSENT, name="Input Dims")
    dims_old: Raw = f(default=ABSENT, name="Input dims")
    types: Raw = f(default=ABSENT, name="Input type")
    strides: Raw = f(default=ABSENT, name="Input Strides")
    values: Raw = f(default=ABSENT, name="Concrete Inputs")
    stack: Raw = f(default=ABSENT, name="Call stack")
    # Python's frames, since PyTorch 2.15
    called_from: Raw = f(default=ABSENT, name="CallFrom")
    # kernels, copies, sets
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    grid: Raw = ABSENT
    block: Raw = ABSENT
    registers: int | None = f(default=None, name="registers per thread")
    shared: int | None = f(default=None, name="shared memory")
    bytes: int | None = None
    occupancy: Raw = f(default=ABSENT, name="est. achieved occupancy %")
    graph_node: int | None = f(default=None, name="graph node id")
    graph: int | None = f(default=None, name="graph id")
    # memory
    device_type: int | None = f(default=None, name="Device Type")
    device_id: int | None = f(default=None, name="Device Id")
    size: int | None = f(default=None, name="Bytes")
    address: int | None = f(default=None, name="Addr")
    total: int | None = f(default=None, name="Total Allocated")
    reserved: int | None = f(default=None, name="Total Reserved")
    # synchronization
    sync_kind: str | None = f(default=None, name="cuda_sync_kind")
    sync_event: int | None = f(default=None, name="wait_on_cuda_event_id")
    sync_record: int | None = f(default=None, name="wait_on_cuda_event_record_corr_id")
    sync_stream: int | None = f(default=None, name="wait_on_stream")
    # metadata events
    name: Raw = ABSENT


#: Arguments without rare fields are less than this value: fields are compared in order, and ``mark`` is
#: the first that differs. Measured: 80 ns an event; checking each field takes 390.
PLAIN: Final = Args(mark=_MORE)


class Event(Struct, gc=False):
    """One event of the trace, of any kind. ``ts`` and ``dur`` are in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: float | Decimal | None = None
    dur: float | Decimal | None = None
    id: int | str | None = None
    args: Args | None = None


class _Fast(Event, gc=False):
    ts: int | float | None = None
    dur: int | float | None = None


class _Exact(Event, gc=False):
    ts: Decimal | None = None
    dur: Decimal | None = None


class _Counted(Struct, gc=False):
    cat: str = ""
    args: dict[str, Any] | None = None


class Sampled(Struct, gc=False):
    """A value over time: ``args`` has a value for each counter, or one for the event's name."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    ts: int | float | None = None
    args: Raw = ABSENT


class _ExactlySampled(Sampled, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]


_decode_sampled = msgspec.json.Decoder(list[Sampled]).decode
_decode_exactly_sampled = msgspec.json.Decoder(list[_ExactlySampled]).decode
_decode_fast = msgspec.json.Decoder(list[_Fast]).decode
_decode_exact = msgspec.json.Decoder(list[_Exact]).decode
_decode_any = msgspec.json.Decoder(list[Any], float_hook=Decimal).decode
_decode_counted = msgspec.json.Decoder(list[_Counted]).decode
_FIELDS: Final = {field.encode_name: field for field in msgspec.structs.fields(Args)}

#: Doubles represent whole ns up to 2**43 µs, 101 days. Kineto's ``baseTimeNanoseconds`` is no further
#: back than that; other writers give Unix time.
_EXACT_BELOW: Final = float(1 << 43)
#: Largest time in µs, Unix time in 2043: sums of three such times stay within 64 bits.
_LARGEST: Final = (1 << 61) // 1000
_ESCAPE = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_CONTROL = bytes(0x20 if code < 0x20 else code for code in range(256))


class Inexact(ValueError):
    """A double cannot represent these times to the nanosecond."""


def decode_events(text: bytes, exact: bool = False) -> list[Event] | None:
    """Return the events of a JSON array; ``None`` if it is not valid JSON. ``exact``: times as Decimal."""
    try:
        decoded: list[Any] = _decode_exact(text) if exact else _decode_fast(text)
        return decoded
    except msgspec.ValidationError:
        return _decode_loosely(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_metrics(text: bytes, category: str) -> list[dict[str, Any]]:
    """Return the ``args`` of the events of one category, unchanged and in order."""
    try:
        return [event.args or {} for event in _decode_counted(text) if event.cat == category]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def decode_sampled(text: bytes) -> tuple[list[Sampled], NDArray[np.int64]]:
    """Return the events of values over time, of any category, and their times (ns; NO_TIME for none)."""
    events: list[Any] = []
    try:
        events = [event for event in _decode_sampled(text) if event.ph == "C"]
        return events, nanoseconds([event.ts for event in events])
    except Inexact:
        events = [event for event in _decode_exactly_sampled(text) if event.ph == "C"]
    except msgspec.ValidationError:  # a field of an unexpected type is left out, not the event
        for item in _decode_any(text):
            if isinstance(item, dict) and item.get("ph") == "C":
                args = item.get("args")
                encoded = msgspec.json.encode(args) if isinstance(args, dict) else b"{}"
                events.append(
                    _ExactlySampled(
                        "C",
                        _text(item.get("cat")),
                        _text(item.get("name")),
                        _label(item.get("pid")),
                        _decimal(item.get("ts")),
                        Raw(encoded),
                    )
                )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [], np.zeros(0, np.int64)
    return events, nanoseconds([event.ts for event in events])


def repair(text: bytes) -> bytes:
    """Return valid UTF-8 without control characters, with every backslash doubled that escapes nothing."""
    clean = text.decode("utf-8", "replace").encode().translate(_CONTROL)
    return _ESCAPE.sub(lambda match: match[0] if match[1] else b"\\\\", clean)


#: Marks a time that is absent or out of range.
NO_TIME: Final = -(1 << 62)


def nanoseconds(values: list[Any]) -> NDArray[np.int64]:
    """Convert microseconds, floats or Decimals, to whole ns; NO_TIME for None.

    Raises Inexact if floats cannot represent them to the ns.
    """
    types = set(map(type, values))
    if Decimal in types:
        return np.array([_decimal_ns(value) for value in values], np.int64)
    if types == {int}:
        try:
            integers = np.fromiter(values, np.int64, len(values))
        except OverflowError:
            raise Inexact from None
        if int(integers.min()) > -_LARGEST and int(integers.max()) < _LARGEST:
            return integers * 1000
        raise Inexact
    try:
        micros = np.array(values, np.float64)  # an absent time becomes NaN
    except OverflowError:  # a whole number of more than 308 digits
        raise Inexact from None
    is_number = ~np.isnan(micros)
    if not is_number.all():
        micros[~is_number] = 0
    below = np.floor(micros)
    part = micros - below
    size = np.abs(micros)
    large = np.flatnonzero(size >= _EXACT_BELOW)
    # A large time that is whole may be exact, or may have lost its fraction to rounding.
    if len(large) and (
        size.max() >= _LARGEST
        or (float in types and float in {type(values[at]) for at in large.tolist()})
    ):
        raise Inexact
    result = below.astype(np.int64) * 1000 + np.rint(part * 1000).astype(np.int64)
    if not is_number.all():
        result[~is_number] = NO_TIME
    return result


def _decimal_ns(value: float | Decimal | None) -> int:
    if not isinstance(value, Decimal) or not value.is_finite() or abs(value) > _LARGEST:
        return NO_TIME
    return int((value * 1000).to_integral_value())


def _decode_loosely(text: bytes) -> list[Event] | None:
    """Decode events of which some field has an unexpected type: the field is left out, not the event."""
    try:
        items = _decode_any(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return [_coerce(item) for item in items if isinstance(item, dict)]


def _coerce(item: dict[str, Any]) -> Event:
    args = item.get("args")
    return _Exact(
        ph=_text(item.get("ph")),
        cat=_text(item.get("cat")),
        name=_text(item.get("name")),
        pid=_label(item.get("pid")),
        tid=_label(item.get("tid")),
        ts=_decimal(item.get("ts")),
        dur=_decimal(item.get("dur")),
        id=_label(item.get("id")),
        args=_coerce_args(args) if isinstance(args, dict) else None,
    )


def _coerce_args(item: dict[str, Any]) -> Args:
    fields: dict[str, Any] = {}
    for key, value in item.items():
        field = _FIELDS.get(key)
        if field is None or value is None:
            continue
        if field.type is Raw:
            fields[field.name] = Raw(msgspec.json.encode(value))
        elif field.name == "sync_kind":
            fields[field.name] = _text(value)
        else:
            number = _decimal(value)
            if number is not None and abs(number) < 1 << 63:
                fields[field.name] = int(number)
    return Args(**fields)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _label(value: object) -> int | str:
    return value if isinstance(value, int) else _text(value)


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number.adjusted() < 19 else None
