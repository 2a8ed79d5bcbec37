"""``opscope report --style``: reports in the layout of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Final

from . import common, outputs

if TYPE_CHECKING:
    from opscope.profile import Profile

STYLES: Final = ("opscope", "dlprof")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``opscope report`` that every style has."""

    reports: str | None
    formats: str | None
    output_path: str | None
    base_name: str | None
    json: bool
    top: int | None
    width: int | None


def refuse(style: str, options: Mapping[str, object]) -> None:
    """End the command if there is no such style, or if the style has not these options."""
    if style not in STYLES:
        from opscope.core.question.suggest import unknown

        common.fail(unknown("style", style, STYLES))
    if style == "opscope":
        given = next(name for name, value in options.items() if value)
        common.fail(f"{given} is an option of --style dlprof")


def dlprof(
    profile: Profile,
    asked: Asked,
    key: str | None,
    domains: str | None,
    iter_start: int | None,
    iter_stop: int | None,
    force: bool,
) -> None:
    """Print DLProf's reports, or write them to files."""
    from opscope.reports import dlprof as reports

    names = common.split(asked.reports) if asked.reports is not None else None
    kinds = common.split(asked.formats or "")
    if asked.output_path is not None and not kinds:
        kinds = ["csv"]
    try:
        chosen = reports.resolve(names if names is not None else ["all" if kinds else "summary"])
        if not chosen:
            common.fail("--reports names no report")
        if kinds:
            with outputs.folder(asked.output_path, force) as place:
                made = reports.write(
                    profile,
                    chosen,
                    place.path,
                    base_name=asked.base_name or "dlprof",
                    formats=kinds,
                    domains=None if domains is None else common.split(domains),
                    key=key,
                    iter_start=iter_start,
                    iter_stop=iter_stop,
                    force=force,
                )
            for path in made:
                common.say(f"wrote {place.named(path)}")
        each = [None] if not domains else common.split(domains)
        if asked.json:
            found = {
                domain: reports.as_json(
                    profile,
                    chosen,
                    key=key,
                    iter_start=iter_start,
                    iter_stop=iter_stop,
                    domain=domain,
                )
                for domain in each
            }
            if len(found) == 1:
                common.emit(*found.values())
            else:  # an object with a key per domain
                texts = [f"{dumps(domain)}: {text}" for domain, text in found.items()]
                common.emit("{" + ",\n".join(texts) + "}")
        elif not kinds:
            top = (common.TOP if asked.top is None else asked.top) or None
            for domain in each:
                shown = reports.show(
                    profile,
                    chosen,
                    top=top,
                    key=key,
                    iter_start=iter_start,
                    iter_stop=iter_stop,
                    domain=domain,
                )
                common.show(shown, asked.width)
    except reports.ReportError as error:
        common.fail(str(error))
    except OSError as error:
        common.fail(f"{asked.output_path or '.'}: {error.strerror or error}")
