"""Read trtexec's output: options, device, performance summary, layers and their times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from opscope.core.tensorrt_layers import Layer, NotLayers, layers_of
from opscope.readers.errors import BadInput

from .parts import LayerTime, Part, Stated, Times, named_apart, number, once

#: The beginning of each line: time, severity, and source.
_PREFIX: Final = re.compile(
    r"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[TRT\] (?=\[))?(?:\[([EWIV])\] ?)?(\[TRT\] ?)?"
)
#: How the inspector's JSON begins, alone or among lines of a log.
LAYERS: Final = re.compile(r'\{\s*"Layers"\s*:')
_SECTION: Final = re.compile(r"=== (.{1,80}?) ===\s*\Z")
_PAIR: Final = re.compile(r"([A-Za-z][\w ()/\[\]-]{0,60}?): ?(.*)\Z")
_MEASURE: Final = re.compile(
    r"(min|max|mean|median|percentile)(?:\((\d{1,2}(?:\.\d+)?)%\))? ?[:=] ?"
    r"([\d.eE+-]{1,24}) ms(?: at (\d{1,2})%)?"
)
_NUMBER: Final = re.compile(r"([\d.eE+-]{1,24}) ?(?:qps|s|ms)\b")
_VERSION: Final = re.compile(r"TensorRT version: (\d[\w.]{0,30})")
_RUNNING: Final = re.compile(r"\[TensorRT v(\d{4,8})\]")
_PROFILE: Final = re.compile(r"=== Profile \((\d{1,15}) iterations ?\) ===")
_OLD_ROW: Final = re.compile(r"(.*?)((?:\s+-?[\d.]+(?:e[+-]?\d+)?){3,4})\s*\Z")
_NEW_ROW: Final = re.compile(r"\s*((?:-?[\d.]+(?:e[+-]?\d+)?\s+){3,4})(\S.*?)\s*\Z")
#: The summary's lines before TensorRT 8.0, each a heading with its numbers on the lines below.
_HEADINGS: Final[Mapping[str, str]] = {
    "GPU Compute": "GPU Compute Time",
    "Host Latency": "Latency",
    "Enqueue Time": "Enqueue Time",
}
_OPTIONS: Final = ("Model Options", "Build Options", "Inference Options", "System Options")
_DEVICE: Final = "Device Information"
_SUMMARY: Final = "Performance summary"

_NAME: Final = re.compile(r"Name: (.*?), LayerType: ")
_TENSOR: Final = re.compile(
    r"\{ Name: (.*?), (?:Location: (\w+), )?Dimensions: \[([\d, -]*)\], Format/Datatype: (.*?) \}"
)
_KEY: Final = re.compile(r", ([A-Z][A-Za-z]*):(?: |\Z)")


def read(path: Path, body: bytes) -> Part:
    """Return the content of the log. Raises BadInput if it has nothing about an engine."""
    part = Part(path)
    printed = body.decode("utf-8", "replace")
    part.layers = printed_json(path, printed)
    if part.layers:
        part.kinds.add("layers")
    layers: list[dict[str, Any]] = []
    section, heading, times = "", "", _Table()
    # not splitlines: the names of a layer's origins are parted by a control character that it splits at
    for line in printed.split("\n"):
        line = line.rstrip("\r")
        match = _PREFIX.match(line)
        text = line[match.end() :] if match else line
        if text.startswith("Name: "):
            layer = printed_layer(text)
            if layer is not None:
                layers.append(layer)
            continue
        if part.version is None:
            part.version = _version(text)
        profile = _PROFILE.search(text)
        title = _SECTION.match(text)
        if profile or title:
            section, heading = ("Profile" if profile else title[1]), ""  # type: ignore[index]
            if profile:
                times = _Table(int(profile[1]))
        elif section == "Profile":
            times.add(text)
        elif not text.strip() and section in (*_OPTIONS, _DEVICE):
            section = ""
        elif section == _SUMMARY:
            heading = _summarise(part, text, heading)
        elif section == _DEVICE:
            for key, value in _pairs(text):
                part.device.setdefault(key, value)
        elif section in _OPTIONS:
            for key, value in _pairs(text):
                part.options.setdefault(key, value)
        elif match and match[1] and text in _HEADINGS:  # TensorRT 7
            section = _SUMMARY
            heading = _summarise(part, text, heading)
    if layers:
        try:
            part.layers = layers_of({"Layers": layers})
        except NotLayers as error:
            raise BadInput(path, f"its printed layers: {error}") from error
        part.kinds.add("layers")
    if times.rows:
        part.times = times.times(part.notes)
        part.kinds.add("times")
    if part.stated:
        part.kinds.add("performance")
    if part.device:
        part.kinds.add("device")
    if not part.kinds & {"layers", "times", "performance"}:
        raise BadInput(
            path, "a log of TensorRT without a performance summary, layers or their times"
        )
    return part


def printed_json(path: Path, text: str) -> list[Layer]:
    """Return the layers that a program printed as the inspector's JSON among other lines; none if it did not.

    Raises BadInput.
    """
    found = LAYERS.search(text)
    if found is None:
        return []
    try:
        document, _ = json.JSONDecoder().raw_decode(text, found.start())
        return layers_of(document)
    except (ValueError, RecursionError, NotLayers) as error:
        raise BadInput(path, f"its printed layers: {error}") from error


def _version(text: str) -> str | None:
    match = _VERSION.search(text)
    if match:
        return match[1]
    packed = _RUNNING.search(text)
    if not packed:
        return None
    digits = packed[1]  # 8601: 8.6.1; 101601: 10.16.1
    major, rest = (digits[:-3], digits[-3:]) if len(digits) <= 4 else (digits[:-4], digits[-4:])
    minor, patch = (rest[:1], rest[1:]) if len(rest) == 3 else (rest[:2], rest[2:])
    return f"{int(major)}.{int(minor)}.{int(patch)}"


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    match = _PAIR.match(text.strip())
    if match and match[2] and len(match[2]) < 1024:
        yield match[1], match[2].strip()


def _summarise(part: Part, text: str, heading: str) -> str:
    """Add a line of the summary; returns the heading to which the next lines belong."""
    text = text.strip()
    if text in _HEADINGS:
        part.stated.append(Stated(_HEADINGS[text], {}))
        return _HEADINGS[text]
    measures = {
        f"p{float(pct or late):g}" if label == "percentile" else label: value
        for label, pct, raw, late in _MEASURE.findall(text)
        if (value := _float(raw)) is not None and (label != "percentile" or pct or late)
    }
    name = text.partition(":")[0].strip()
    if measures and heading and name in ("min", "max", "mean", "median", "percentile"):
        last = part.stated[-1]
        part.stated[-1] = Stated(last.name, {**last.values, **measures})
        return heading
    if measures:
        part.stated.append(Stated(name, measures))
    elif name in ("Throughput", "Total Host Walltime", "Total GPU Compute Time"):
        match = _NUMBER.search(text)
        value = _float(match[1]) if match else None
        if value is not None:
            part.stated.append(Stated(name, {"value": value}))
    return ""


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


class _Table:
    """The table of layer times; TensorRT 8 prints a layer's name first, later versions last."""

    def __init__(self, runs: int | None = None) -> None:
        self.runs = runs
        self.rows: list[LayerTime] = []
        self.total: LayerTime | None = None
        self._name_first: bool | None = None
        self._median = True

    def add(self, text: str) -> None:
        """Add a line of the table, its header included."""
        if self.total is not None:
            return
        if "Layer" in text and "Time" in text and "%" in text and self._name_first is None:
            self._name_first = text.lstrip().startswith("Layer")
            self._median = "Median" in text
            return
        if self._name_first is None:
            return
        match = (_OLD_ROW if self._name_first else _NEW_ROW).match(text)
        if not match:
            return
        name, numbers = (match[1], match[2]) if self._name_first else (match[2], match[1])
        values = [_float(number_text) for number_text in numbers.split()]
        wanted = 4 if self._median else 3
        if self._name_first and len(values) > wanted:  # a name that ends in a number
            name = " ".join([name, *numbers.split()[:-wanted]])
            values = values[-wanted:]
        if len(values) != wanted or values[0] is None:
            return
        median = values[2] if self._median else None
        row = LayerTime(name.strip(), values[0], values[1], median, values[-1])
        if row.name == "Total":
            self.total = row
        else:
            self.rows.append(row)

    def times(self, notes: list[tuple[str, str, int]]) -> Times:
        return Times(self.runs, tuple(named_apart(once(self.rows, notes))), self.total)


# ------------------------------------------------------------------------------ printed layers


def printed_layer(text: str) -> dict[str, Any] | None:
    """Return a line of ``--dumpLayerInfo`` as the inspector's JSON has that layer; None for another line."""
    match = _NAME.match(text)
    if match is None:
        return None
    layer: dict[str, Any] = {"Name": match[1]}
    head, _, rest = text[match.end() :].partition(", Inputs: [")
    layer["LayerType"] = head.strip()
    inputs, between, rest = rest.partition("], Outputs: [")
    if not between:
        return layer
    layer["Inputs"] = _printed_tensors(inputs)
    ends = [one.end() for one in _TENSOR.finditer(rest)]
    # attributes follow the outputs: the last tensor that only "," and blanks separate from the one before
    last = 0
    for one in _TENSOR.finditer(rest):
        if rest[last : one.start()].strip(" ,"):
            break
        last = one.end()
    layer["Outputs"] = _printed_tensors(rest[:last]) if ends else []
    tail = rest[last:].lstrip(" ]")
    keys = list(_KEY.finditer(tail))
    for number_, key in enumerate(keys):
        end = keys[number_ + 1].start() if number_ + 1 < len(keys) else len(tail)
        layer[key[1]] = _value(tail[key.end() : end])
    return layer


def _printed_tensors(text: str) -> list[dict[str, Any]]:
    tensors = []
    for name, location, dims, form in _TENSOR.findall(text):
        sizes = [int(dim) for dim in dims.split(",") if re.fullmatch(r"\s*-?\d{1,18}\s*", dim)]
        where = {"Location": location} if location else {}
        tensors.append({"Name": name, **where, "Dimensions": sizes, "Format/Datatype": form})
    return tensors


def _value(text: str) -> Any:
    text = text.strip(" ")
    if text[:1] in ("[", "{") or re.fullmatch(r"-?\d{1,18}(?:\.\d+)?", text):
        try:
            return msgspec.json.decode(text.encode())
        except msgspec.DecodeError:
            return text
    return text
