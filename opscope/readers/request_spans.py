"""Read requests from spans of OpenTelemetry, as vLLM and SGLang write them, in OTLP's JSON or Jaeger's.

OTLP: an export, a list of exports, or one a line (the collector's file exporter). A request is a span with
``gen_ai.request.id``, or vLLM's ``llm_request``: vLLM writes these from 0.4.3 on (its engine V1 with the
times in the model), SGLang on its root span since ``observability/trace.py``. Times in attributes are
seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.readers.errors import BadInput

_ID: Final = "gen_ai.request.id"
_TTFT: Final = "gen_ai.latency.time_to_first_token"
_E2E: Final = "gen_ai.latency.e2e"
_QUEUE: Final = "gen_ai.latency.time_in_queue"
_TOKENS: Final = {
    "prompt_tokens": ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
    "output_tokens": ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"),
}
#: Known attributes that say nothing about when a request ran.
_KNOWN: Final = {_ID, _TTFT, _E2E, _QUEUE, *(name for names in _TOKENS.values() for name in names)}
_REQUEST: Final = "llm_request"
#: A single document must be smaller, because it is in memory several times while it is decoded.
_LARGEST: Final = 256 << 20
#: Times (ns) are within the bounds of 64 bits.
_LATEST: Final = 1 << 62


def read(file: Path, text: str) -> tuple[pl.DataFrame, list[str], int]:
    """Return the requests of the spans in ``text``, the attributes that are not read, and how many spans are
    not requests. Raises BadInput if no span is a request."""
    rows: list[dict[str, Any]] = []
    unread: set[str] = set()
    others = 0
    for name, start, end, values in _spans(file, text):
        if _ID not in values and name != _REQUEST:
            others += 1
            continue
        unread |= values.keys() - _KNOWN
        rows.append(_request(start, end, values, len(rows)))
    if not rows:
        raise BadInput(file, f"has spans, but none of a request ({_ID}, or {_REQUEST})")
    whole = dict.fromkeys(("arrival", "first_token", "finished", "queue", *_TOKENS), pl.Int64)
    table = pl.DataFrame(rows, schema={"id": pl.String, **whole}, orient="row")
    return table, [*unread], others


def _request(
    start: int | None, end: int | None, values: Mapping[str, Any], number: int
) -> dict[str, Any]:
    def after(name: str) -> int | None:
        lasted = _seconds(values.get(name))
        return None if lasted is None or start is None else start + lasted

    tokens = {
        column: next(
            (count for name in names if (count := _whole(values.get(name))) is not None), None
        )
        for column, names in _TOKENS.items()
    }
    last = after(_E2E)
    return {
        "id": str(values.get(_ID) or f"span {number + 1}"),
        "arrival": start,
        "first_token": after(_TTFT),
        "finished": end if last is None else last,
        "queue": _seconds(values.get(_QUEUE)),
        **tokens,
    }


# ------------------------------------------------------------------------------------------------- documents

Span = tuple[str, "int | None", "int | None", dict[str, Any]]


def _spans(file: Path, text: str) -> Iterator[Span]:
    """Yield name, start, end (Unix ns) and attributes of each span."""
    for document in _documents(file, text):
        for export in document if isinstance(document, list) else [document]:
            if not isinstance(export, dict):
                raise BadInput(file, "is JSON, but not an export of OpenTelemetry")
            if "resourceSpans" not in export and "data" not in export:
                raise BadInput(
                    file, "is JSON without resourceSpans: not an export of OpenTelemetry"
                )
            yield from _otlp(export)
            yield from _jaeger(export)


def _documents(file: Path, text: str) -> Iterator[Any]:
    """Yield the JSON documents of the text: one, or one per line; an incomplete last line is left out."""
    lines = text.strip().splitlines()
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        if len(text) > _LARGEST:
            raise BadInput(
                file, f"is one JSON document of more than {_LARGEST >> 20} MiB"
            ) from None
        try:
            yield json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(file, f"is not JSON: {error}") from None
        return
    yield first
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                if number < len(lines):
                    raise BadInput(file, f"line {number} is not JSON") from None


def _otlp(export: dict[str, Any]) -> Iterator[Span]:
    for resource in _list(export, "resourceSpans"):
        for scope in _list(resource, "scopeSpans") + _list(resource, "instrumentationLibrarySpans"):
            for span in _list(scope, "spans"):
                values = {
                    str(each.get("key")): next(iter(each["value"].values()), None)
                    for each in _list(span, "attributes")
                    if isinstance(each.get("value"), dict)
                }
                start, end = (
                    _whole(span.get(name)) for name in ("startTimeUnixNano", "endTimeUnixNano")
                )
                yield str(span.get("name")), start, end, values


def _jaeger(export: dict[str, Any]) -> Iterator[Span]:
    for trace in _list(export, "data"):
        for span in _list(trace, "spans"):
            values = {str(tag.get("key")): tag.get("value") for tag in _list(span, "tags")}
            start, lasted = (_whole(span.get(name)) for name in ("startTime", "duration"))
            begun = None if start is None else _whole(start * 1_000)
            end = None if begun is None or lasted is None else _whole(begun + lasted * 1_000)
            yield str(span.get("operationName")), begun, end, values


def _list(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    held = holder.get(name)
    return [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []


def _whole(value: object) -> int | None:
    """Return a number, which OTLP's JSON writes as text or as a number."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST
    return value if fits and isinstance(value, int) else None


def _seconds(value: object) -> int | None:
    """Return seconds as ns."""
    try:
        lasted = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        return None
    return round(lasted * 1e9) if 0 <= lasted < 1e7 else None
