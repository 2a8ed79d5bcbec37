"""What the user of ``opscope dlprof`` asks for: the switches' values, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.adapters import modes
from opscope.cli.collected import names_for

from .grammar import Given, Usage, Value
from .nsys_options import Options, options
from .switches import ALL, FILES, FORMATS, LEVELS, NODE_OP, NORMAL, REPORTS, SWITCHES

_SUFFIX: Final = ".opscope"


@dataclass(frozen=True, slots=True)
class Asked:
    """The switches and the command. ``notes`` are lines about switches that do nothing here,
    ``given`` the names of those that were given.

    ``delay`` and ``duration`` are seconds, and those of ``--nsys_opts`` where the switches name none; no
    duration is the whole run. ``base`` and ``profile`` are names of files in ``folder``; ``name`` is the
    profile's as the user typed it; None unless ``--profile_name`` gave one.
    """

    command: list[str]
    database: Path | None
    mode: str
    level: int
    force: bool
    delay: float
    duration: float | None
    nsys_range: bool
    nsys: Options
    nsys_name: str
    folder: Path
    base: str
    profile: str
    name: str | None
    detailed: bool
    reports: tuple[str, ...]
    formats: tuple[str, ...]
    domains: tuple[str, ...] | None
    key: str | None
    iter_start: int | None
    iter_stop: int | None
    dump: bool
    notes: tuple[str, ...]
    given: frozenset[str]

    @property
    def path(self) -> Path:
        """The path of the profile to write: the first free name, or with ``--force`` the first name."""
        first = self.folder / self.profile
        if self.force or not first.exists():
            return first
        return next(candidate for candidate in names_for(first) if not candidate.exists())

    @property
    def writes(self) -> bool:
        """Whether files are written beside the profile."""
        return bool(self.reports) or self.dump


def asked(given: Given) -> Asked:
    """Return the parsed values. Raises Usage for impossible ones."""
    values = given.values
    database = _text(values, "database")
    if not given.command and database is None:
        raise Usage("no command: opscope dlprof [switches] COMMAND, or --database FILE [switches]")
    start, stop = _count(values, "iter_start"), _count(values, "iter_stop")
    if start is not None and stop is not None and stop < start:
        raise Usage(f"--iter_stop={stop} is before --iter_start={start}")
    reports = _names(values, "reports")
    profile = _name(values, "profile_name")
    base = _name(values, "base_name")
    nsys = options(_names(values, "nsys_opts"))
    notes = tuple(
        f"--{switch.name}: {switch.unused}"
        for switch in SWITCHES
        if switch.unused and switch.name in values
    )
    return Asked(
        given.command,
        None if database is None else Path(database),
        _mode(_text(values, "mode")),
        _level(_text(values, "verbosity")),
        values.get("force") is True,
        _seconds(values, "delay") or nsys.delay,
        _seconds(values, "duration") or nsys.duration,
        values.get("nsys_profile_range") is True or nsys.range_end is not None,
        nsys,
        _name(values, "nsys_base_name") or "nsys_profile",
        Path(_text(values, "output_path") or "."),
        _in_files(base or profile or "dlprof"),
        _in_files((profile or base or "dlprof").removesuffix(_SUFFIX)) + _SUFFIX,
        profile,
        values.get("detailed_mode") is not False,
        tuple(report for report in REPORTS if _names_of(report) & {*reports}),
        tuple(kind for kind in FORMATS if kind in _names(values, "formats")) or FORMATS[:1],
        _names(values, "domains") or None,
        _text(values, "key_op"),
        start,
        stop,
        values.get("dump_model_data") is True,
        (*notes, *nsys.notes),
        frozenset(values),
    )


def _names_of(report: str) -> set[str]:
    """Return the words of ``--reports`` that name a report."""
    return {ALL, report, FILES.get(report, report), *([NODE_OP] if report == "detail" else [])}


def _in_files(name: str) -> str:
    """Return a profile's name as it appears in file names: DLProf replaces spaces."""
    return name.replace(" ", "_")


def _text(values: Mapping[str, Value], name: str) -> str | None:
    """Return a text; None if it is missing or empty, which is DLProf's own default."""
    value = values.get(name)
    return str(value).strip() or None if value is not None else None


def _names(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    names_given = values.get(name, ())
    return names_given if isinstance(names_given, tuple) else ()


def _count(values: Mapping[str, Value], name: str) -> int | None:
    value = values.get(name)
    return int(value) if isinstance(value, (int, float)) else None


def _seconds(values: Mapping[str, Value], name: str) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _name(values: Mapping[str, Value], name: str) -> str | None:
    """Return the first part of a file's name. Raises Usage if it contains a folder."""
    name_given = _text(values, name)
    if name_given is not None and (
        Path(name_given).name != name_given or name_given in (".", "..") or "\0" in name_given
    ):
        raise Usage(
            f"--{name}={name_given}: give a name without a folder; --output_path names the folder"
        )
    return name_given


def _mode(text: str | None) -> str:
    mode = text or modes.AUTO
    try:
        modes.frameworks(mode)
    except ValueError as error:
        raise Usage(f"--mode: {error}") from None
    return mode


def _level(text: str | None) -> int:
    if text is None:
        return NORMAL
    if text not in LEVELS:
        raise Usage(f"--verbosity={text}: choose from {', '.join(LEVELS)}")
    return LEVELS[text]
