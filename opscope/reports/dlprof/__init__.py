"""DLProf's eight reports, in its layout: as tables, files and on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.dlprof.model import Model
    from opscope.core.question.layout import Table
    from opscope.profile import Profile

    from .sections import Section

REPORTS: Final[tuple[str, ...]] = (
    "summary", "detail", "iteration", "kernel", "tensor", "op_type", "group_node", "expert_systems",
)  # fmt: skip
FORMATS: Final = ("csv", "json", "parquet")
#: DLProf's word for all reports.
ALL: Final = "all"


class ReportError(ValueError):
    """The reports cannot be made or written as requested; the message says why."""


def resolve(names: Iterable[str]) -> list[str]:
    """Return the reports of these names (``all``: every one) in DLProf's order. Raises ReportError."""
    from opscope.core.question.suggest import unknown

    wanted = {name.strip().lower().replace("-", "_") for name in names}
    names_known = {
        **{name: name for name in REPORTS},
        "detailed": "detail",
        "tensor_core": "tensor",
    }
    # the guide's own example of --reports says node_op
    names_known |= {"group_op": "group_node", "node_op": "detail"}
    for name in sorted(wanted - {ALL} - set(names_known)):
        raise ReportError(unknown("report", name, (*REPORTS, ALL)))
    if ALL in wanted:
        return list(REPORTS)
    chosen = {names_known[name] for name in wanted}
    return [name for name in REPORTS if name in chosen]


def tables(
    profile: Profile,
    name: str,
    *,
    key: str | None = None,
    iter_start: int | None = None,
    iter_stop: int | None = None,
    domain: str | None = None,
) -> list[Section]:
    """Return the sections of one report. Raises ReportError if one of these is unknown."""
    (chosen,) = resolve([name])
    return _sections(profile, _model(profile, key, iter_start, iter_stop, domain), chosen)


def _model(
    profile: Profile,
    key: str | None,
    iter_start: int | None,
    iter_stop: int | None,
    domain: str | None,
) -> Model:
    from opscope.core.dlprof.iterations import BadIterationRange

    if domain is not None and domain not in profile.dlprof.domains:
        from opscope.core.question.suggest import unknown

        raise ReportError(unknown("domain", domain, profile.dlprof.domains))
    if key and (problem := profile.dlprof.unknown_key(key)):
        raise ReportError(problem)
    try:
        return profile.dlprof.model(key, iter_start, iter_stop, domain)
    except BadIterationRange as error:
        raise ReportError(str(error)) from error


def _sections(
    profile: Profile, model: Model, name: str, profile_name: str | None = None, shapes: bool = True
) -> list[Section]:
    from .sections import MAKERS, Wishes

    return MAKERS[name][1](profile, model, Wishes(profile_name, shapes))


def write(
    profile: Profile,
    names: Iterable[str],
    folder: Path,
    *,
    base_name: str = "dlprof",
    formats: Sequence[str] = ("csv",),
    domains: Sequence[str] | None = None,
    key: str | None = None,
    iter_start: int | None = None,
    iter_stop: int | None = None,
    force: bool = False,
    profile_name: str | None = None,
    shapes: bool = True,
) -> list[Path]:
    """Write ``base_report[_domain].ext`` for each report, format and domain; on an error, none.

    ``domains``: the NVTX domains that get files of their own, besides the reports of all ops; None: every
    domain that the user's program made. The names of the files are DLProf's (``dlprof_detailed.csv``).
    ``profile_name`` appears in the summary; without ``shapes`` the detailed report has no data type and no
    shapes of inputs. Returns the paths.

    Raises ReportError for an unknown report, format, domain, key op or range, and where a file exists and
    ``force`` is not given; OSError if the folder cannot be written.
    """
    from opscope.core.question.suggest import unknown
    from opscope.core.tables.columns import hand_back

    from . import files
    from .sections import MAKERS

    chosen = resolve(names)
    wanted = [kind.strip().lower() for kind in formats]
    for kind in wanted:
        if kind not in FORMATS:
            raise ReportError(unknown("format", kind, FORMATS))
    parts: list[str | None] = [None, *(profile.dlprof.domains if domains is None else domains)]
    paths = {
        (domain, name, kind): f"{base_name}_{MAKERS[name][0]}{_suffix(domain)}.{kind}"
        for domain in parts
        for name in chosen
        for kind in wanted
    }
    taken = [path for path in paths.values() if (folder / path).exists()]
    if taken and not force:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise ReportError(f"{folder / taken[0]}{more}: already exists; --force replaces it")
    with files.scratch(folder, base_name) as scratch_folder:
        paths_made: list[Path] = []
        for domain in parts:
            model = _model(profile, key, iter_start, iter_stop, domain)
            for name in chosen:
                sections = _sections(profile, model, name, profile_name, shapes)
                for kind in wanted:
                    path = Path(scratch_folder, paths[domain, name, kind])
                    files.write_section(sections, kind, path)
                    paths_made.append(path)
                del sections
                hand_back()  # after a million ops, glibc keeps the memory of the last report
        return files.place(paths_made, folder)


def _suffix(domain: str | None) -> str:
    """Return the suffix that a domain adds to file names; characters not allowed in file names become
    ``_``."""
    if domain is None:
        return ""
    return "_" + "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in domain)


def show(
    profile: Profile,
    names: Iterable[str],
    *,
    top: int | None = 20,
    key: str | None = None,
    iter_start: int | None = None,
    iter_stop: int | None = None,
    domain: str | None = None,
) -> list[Table]:
    """Return the reports as tables for the terminal, of at most ``top`` rows (None: all)."""
    from .shown import shown

    model = _model(profile, key, iter_start, iter_stop, domain)
    notes = [*model.source.reasons, *([model.found.reason] if model.found.reason else [])]
    tables: list[Table] = []
    for name in resolve(names):
        tables.extend(shown(section, top) for section in _sections(profile, model, name))
    return [*tables[:-1], _note(tables[-1], notes)] if tables else []


def as_json(
    profile: Profile,
    names: Iterable[str],
    *,
    key: str | None = None,
    iter_start: int | None = None,
    iter_stop: int | None = None,
    domain: str | None = None,
) -> str:
    """Return the reports as one JSON object with a key for each, and in it one for each section."""
    from io import StringIO

    from . import files

    model = _model(profile, key, iter_start, iter_stop, domain)
    text = StringIO()
    for number, name in enumerate(resolve(names)):
        text.write(f'{"," if number else "{"}\n"{name}": ')
        files.write_json(_sections(profile, model, name), text)
    return text.getvalue() + "}"


def _note(table: Table, notes: Sequence[str]) -> Table:
    from dataclasses import replace

    return replace(table, footnotes=(*table.footnotes, *notes))
