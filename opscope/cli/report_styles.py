"""``opscope report --style dlprof``: reports in the layout of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from json import dumps
from typing import TYPE_CHECKING, Any, Final

from opscope.reports import dlprof as reports

from . import common, outputs

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .report import Options

STYLES: Final = ("opscope", "dlprof")


def dlprof(asked: Options) -> None:
    """Print DLProf's reports, or write them to files."""
    _refuse(asked)
    profile = replace(
        asked, where=replace(asked.where, iter_start=None, iter_stop=None, key=None)
    ).load()
    names = common.split(asked.reports) if asked.reports is not None else None
    kinds = common.split(asked.formats or "")
    if asked.output_path is not None and not kinds:
        kinds = ["csv"]
    try:
        chosen = reports.resolve(names if names is not None else ["all" if kinds else "summary"])
        if not chosen:
            common.fail("--reports names no report")
        if kinds:
            _write(asked, profile, chosen, kinds)
        if asked.json:
            _print_json(asked, profile, chosen)
        elif not kinds:
            top = common.rows(asked.top)
            for domain in _domains(asked):
                shown = reports.show(profile, chosen, top=top, domain=domain, **_part(asked))
                common.show(shown, asked.width)
    except reports.ReportError as error:
        common.fail(str(error))
    except OSError as error:
        common.fail(f"{asked.output_path or '.'}: {error.strerror or error}")


def _refuse(asked: Options) -> None:
    """End the command if there is no such style, or if the style does not have the options."""
    if asked.style not in STYLES:
        from opscope.core.question.suggest import unknown

        common.fail(unknown("style", asked.style, STYLES))
    if asked.style == "opscope":
        option = "--force" if asked.force and not asked.domains else "--domains"
        common.fail(f"{option} is an option of --style dlprof")
    if asked.by is not None or asked.counters is not None:
        common.fail("--style dlprof cannot be combined with --by or --counters")


def _write(asked: Options, profile: Profile, chosen: Sequence[str], kinds: list[str]) -> None:
    with outputs.folder(asked.output_path, asked.force) as output_place:
        paths = reports.write(
            profile,
            chosen,
            output_place.path,
            base_name=asked.base_name or "dlprof",
            formats=kinds,
            domains=None if asked.domains is None else common.split(asked.domains),
            force=asked.force,
            **_part(asked),
        )
    for path in paths:
        common.say(f"wrote {output_place.named(path)}")


def _print_json(asked: Options, profile: Profile, chosen: Sequence[str]) -> None:
    """Print the JSON of the domain, or an object with a key for each of several."""
    texts = {
        domain: reports.as_json(profile, chosen, domain=domain, **_part(asked))
        for domain in _domains(asked)
    }
    if len(texts) == 1:
        common.emit(*texts.values())
    else:
        named = [f"{dumps(domain)}: {text}" for domain, text in texts.items()]
        common.emit("{" + ",\n".join(named) + "}")


def _domains(asked: Options) -> Sequence[str | None]:
    return [None] if not asked.domains else common.split(asked.domains)


def _part(asked: Options) -> dict[str, Any]:
    """Return which iterations DLProf's reports aggregate; the reports select them by themselves."""
    where = asked.where
    return {"key": where.key, "iter_start": where.iter_start, "iter_stop": where.iter_stop}
