"""Stored expectations: the facts of a measurement in ``NAME.opscope.toml``, a line each, to read in a review.

A section is of a framework, its version and the kind of device: counts differ between them, and the section
that fits best is compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from opscope.core.advice.counts import UNITS
from opscope.core.analysis.diff.calls import changed
from opscope.core.question.suggest import unknown

from .figures import MOST, NAMES, file_name, names_of

if TYPE_CHECKING:
    from .gauge import Gauge
    from .measured import Measured

SUFFIX: Final = ".opscope.toml"
#: A file of more bytes is no file of expectations.
LARGEST: Final = 1 << 22
_HEAD: Final = """\
# What a test expects of opscope's counts: `pytest --opscope-update` writes it, and keeps tolerances.
# A tolerance: flops = { value = 1000, within = "2%" }, or within = 16, or at_most = true (less is welcome).
# [section.calls] has the calls of each op by direction and layer (numbers in layers as *); they are held
# where `ops` has no tolerance, and else say what changed.
"""
_CALLS: Final = "calls"
Value = int | list[str]


@dataclass(frozen=True, slots=True)
class Fact:
    """An expected value.

    ``within``: the allowed difference, a number or ``"2%"`` of the value; ``at_most``: smaller values pass
    too.
    """

    value: Value
    within: int | str = 0
    at_most: bool = False

    def admits(self, value: Value) -> bool:
        """Whether the value is as expected."""
        if isinstance(value, list) or isinstance(self.value, list):
            return value == self.value
        width = self.within
        if isinstance(width, str):
            width = int(abs(self.value) * float(width.rstrip("% ")) / 100)
        return value <= self.value + width and (self.at_most or value >= self.value - width)


@dataclass(frozen=True, slots=True)
class Expected:
    """The facts of one section by name, and the calls by op."""

    facts: Mapping[str, Fact]
    calls: Mapping[str, int] = field(default_factory=dict)


def check(measured: Measured, gauge: Gauge, name: str | None, ignore: frozenset[str]) -> None:
    """Compare the measurement with what is stored, or store it; ``Measured.check`` says more."""
    for wrong in sorted(ignore - set(UNITS)):
        raise ValueError(unknown("count", wrong, list(UNITS)))
    item = gauge.test
    called = file_name(item.name if name is None else name)
    path = item.path.parent / f"{called}{SUFFIX}"
    sections = read(path)
    names = sections_of(measured)
    section = next((each for each in names if each in sections), names[0])
    now = _measured(measured, ignore)
    properties = item.user_properties
    properties += [
        (f"opscope.{called}.{fact}", said(each.value)) for fact, each in now.facts.items()
    ]
    if gauge.updates:
        _update(path, sections, section, now, gauge)
        properties.append((f"opscope.{called}.written", f"{path.name} [{section}]"))
        return
    if section not in sections:
        has = f"it has {', '.join(sections)}" if sections else "there is none"
        pytest.fail(
            f"{path.name} expects nothing of {names[0]} ({has}): pytest --opscope-update writes it",
            pytrace=False,
        )
    lines = [*_differences(measured, sections[section], now, ignore)]
    if lines:
        properties.append((f"opscope.{called}.differs", "; ".join(lines[:MOST])))
        head = f"{called}: not as expected in {path.name} [{section}]"
        rest = len(lines) - (MOST - 2)
        more = [f"  and {rest + 1} more"] if rest > 0 else []
        shown = lines[: MOST - 3] if more else lines
        end = "  meant? pytest --opscope-update writes what is measured now"
        pytest.fail("\n".join([head, *(f"  {line}" for line in shown), *more, end]), pytrace=False)


def sections_of(measured: Measured) -> list[str]:
    """Return the sections that fit the measurement, the one that fits best first."""
    framework, version = "program", None
    for name, versions in (
        measured.profile.trace["processes"].select("framework", "versions").rows()
    ):
        if name is not None:
            framework = name
            of_name = json.loads(versions or "{}").get(name)
            version = None if of_name is None else ".".join(str(of_name).split(".")[:2])
            break
    device = "cpu" if measured.profile.cpu_only else "gpu"
    wholes = [] if version is None else [f"{framework} {version}"]
    return [*(f"{each} {device}" for each in (*wholes, framework)), *wholes, framework]


def _measured(measured: Measured, ignore: frozenset[str]) -> Expected:
    """Return the facts and calls of the measurement that are known."""
    facts = {
        name: Fact(names_of(row) if name in NAMES else row["value"])
        for name, row in measured.counts.items()
        if row["value"] is not None and name not in ignore
    }
    calls = {} if "ops" in ignore else {key: op.calls for key, op in sorted(measured.calls.items())}
    return Expected(facts, calls)


def _differences(
    measured: Measured, expected: Expected, now: Expected, ignore: frozenset[str]
) -> Iterator[str]:
    """Yield a line for each fact that differs from the expected one, then for each op whose calls changed. If
    only shapes changed, yield the op with the most FLOPs. Ends the test if all known facts are as expected
    and some are unknown."""
    names = [name for name in expected.facts if name not in ignore]
    unknown = [name for name in names if name not in now.facts]
    names = [name for name in names if name in now.facts]
    sums: list[str] = []
    for name in names:
        fact = expected.facts[name]
        value = now.facts[name].value
        if fact.admits(value):
            continue
        more = _more(measured, name, fact, value)
        text = f"{name} {said(value)}, expected {said(fact.value)}"
        if more:
            yield text + more
        else:
            sums.append(text)
    if sums:
        yield "; ".join(sums)
    ops = expected.facts.get("ops", Fact(0))
    off = any(not expected.facts[name].admits(now.facts[name].value) for name in names)
    changes: list[str] = []
    if "ops" in names and (off or not (ops.within or ops.at_most)):
        changes = [*changed(expected.calls, measured.calls)]
    whys = [f"{name} cannot be known here: {measured.counts[name]['reason']}" for name in unknown]
    yield from changes
    if off and not changes and any("flops" in text or "bytes" in text for text in sums):
        yield from measured.heaviest()
    if whys and not off and not changes:
        measured.refuse(f"{unknown[0]} is expected, and {whys[0].removeprefix(unknown[0] + ' ')}")
    yield from whys


def _more(measured: Measured, name: str, fact: Fact, value: Value) -> str:
    """Return where a value that differs comes from; nothing for a sum over all ops."""
    if isinstance(value, list):
        other = fact.value if isinstance(fact.value, list) else []
        new = measured.where(each for each in value if each not in other)
        return f" ({'; '.join(new)})" if new else ""
    detail = measured.counts[name]["detail"]
    return f" ({detail})" if detail else ""


def said(value: Value) -> str:
    """Return a value as people read it."""
    return ", ".join(value) or "none" if isinstance(value, list) else f"{value:,}"


def _update(
    path: Path, sections: dict[str, Expected], section: str, now: Expected, gauge: Gauge
) -> None:
    """Write what is measured into the section of the file; tolerances that it has stay."""
    old = sections.get(section, Expected({}))
    facts = {
        name: Fact(fact.value, old.facts[name].within, old.facts[name].at_most)
        if name in old.facts
        else fact
        for name, fact in now.facts.items()
    }
    new = Expected(facts, now.calls)
    gauge.claim(path, section, new)
    write(path, {**sections, section: new})


def write(path: Path, sections: Mapping[str, Expected]) -> None:
    """Write the sections as the file, which appears whole or not at all."""
    text = _HEAD + "".join(_section(name, sections[name]) for name in sorted(sections))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _section(name: str, expected: Expected) -> str:
    lines = [f"\n[{_key(name)}]"]
    for fact, each in expected.facts.items():
        value = _toml(each.value)
        if each.within or each.at_most:
            width = f", within = {_toml(each.within)}" if each.within else ""
            value = f"{{ value = {value}{width}{', at_most = true' if each.at_most else ''} }}"
        lines.append(f"{fact} = {value}")
    if expected.calls:
        lines.append(f"\n[{_key(name)}.{_CALLS}]")
        lines += [f"{_key(op)} = {calls}" for op, calls in sorted(expected.calls.items())]
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _toml(text)


def _toml(value: Value | str) -> str:
    """Return the value as TOML, whose basic strings are written as those of JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{value:_}"


def read(path: Path) -> dict[str, Expected]:
    """Return the sections of the file, none if there is no file. Fails the test, naming the file and what is
    wrong, for one that is no file of expectations."""
    try:
        if path.stat().st_size > LARGEST:
            _wrong(path, f"it has more than {LARGEST >> 20} MiB")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        _wrong(path, str(error))
    try:
        document = _loads(text)
    except (ValueError, RecursionError) as error:
        _wrong(path, str(error))
    return {name: _expected(path, name, table) for name, table in document.items()}


def _loads(text: str) -> dict[str, Any]:
    try:
        reader = import_module("tomllib")
    except ImportError:  # Python 3.10, whose pytest needs tomli
        reader = import_module("tomli")
    document: dict[str, Any] = reader.loads(text)
    return document


def _expected(path: Path, section: str, table: Any) -> Expected:
    if not isinstance(table, dict):
        _wrong(path, f"{section} is no section")
    calls = table.pop(_CALLS, {})
    if not isinstance(calls, dict) or not all(_is_int(times) for times in calls.values()):
        _wrong(path, f"[{section}.{_CALLS}] is no table of whole numbers")
    facts: dict[str, Fact] = {}
    for name, value in table.items():
        if name not in UNITS:
            _wrong(path, f"[{section}]: {unknown('count', name, list(UNITS))}")
        fact = _fact(value, name in NAMES)
        if fact is None:
            _wrong(path, f"[{section}] {name} = {value!r} is no value, or has a wrong tolerance")
        facts[name] = fact
    return Expected(facts, calls)


def _fact(value: object, names: bool) -> Fact | None:
    """Return the fact that a value of TOML states; None if it states none."""
    stated: dict[str, Any] = value if isinstance(value, dict) else {"value": value}
    if not {"value"} <= set(stated) <= {"value", "within", "at_most"}:
        return None
    number, within, at_most = stated["value"], stated.get("within", 0), stated.get("at_most", False)
    if names:
        is_list = isinstance(number, list) and all(isinstance(each, str) for each in number)
        return Fact(sorted(number)) if is_list and len(stated) == 1 else None
    percent = isinstance(within, str) and re.fullmatch(r"\d+(\.\d+)?\s*%", within)
    sound = percent or (_is_int(within) and within >= 0)
    return (
        Fact(number, within, at_most)
        if _is_int(number) and sound and isinstance(at_most, bool)
        else None
    )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(path: Path, fault: str) -> NoReturn:
    raise pytest.fail.Exception(
        f"{path}: not a file of expectations: {fault}", pytrace=False
    ) from None
