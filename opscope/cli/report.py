"""``opscope report``: print the reports as tables or JSON, or write them to files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from . import common, html_file, outputs, ranks


class Command(TyperCommand):
    """The command, whose help lists the reports.

    It looks the reports up only when the help is shown, because every start builds every command.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names of the reports."""
        from opscope.reports.registry import divisions, reports

        *words, last = divisions()
        named = {
            "reports": f"Reports to give, comma-separated: {', '.join(reports())}.",
            "by": f"Give the summary, and divide the time by {', '.join(words)} or {last}.",
        }
        for option in self.params:
            if option.name in named:
                option.help = named[option.name]  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def report(
    file: common.Files,
    reports: Annotated[
        str | None,
        typer.Option(
            "--reports",
            help="Reports to give, comma-separated.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Give the summary, and divide the time.",
            metavar="WHAT",
            show_default=False,
        ),
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option("--formats", help="Write files, comma-separated: csv, json, parquet."),
    ] = None,
    output_path: Annotated[
        str | None,
        typer.Option(
            "--output-path",
            "--output_path",
            help="Folder for the files, at a path or URL.",
            metavar="DIR",
        ),
    ] = None,
    base_name: Annotated[
        str | None,
        typer.Option("--base-name", "--base_name", help="First part of each file's name."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with a key per report.")
    ] = False,
    style: Annotated[
        str,
        typer.Option("--style", help="Whose reports: opscope or dlprof.", metavar="TOOL"),
    ] = "opscope",
    domains: Annotated[
        str | None,
        typer.Option(
            "--domains",
            help="With --style dlprof: NVTX domains that get files of their own, comma-separated.",
            show_default=False,
        ),
    ] = None,
    html: html_file.Html = None,
    embed_source: html_file.EmbedSource = False,
    source_root: html_file.SourceRoot = None,
    force: Annotated[
        bool,
        typer.Option(
            "-f", "--force", help="With --html and --style dlprof: replace files that exist."
        ),
    ] = False,
    counters: common.CountersFile = None,
    top: common.Top = None,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    key: common.KeyNode = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    jobs: ranks.Jobs = None,
    dask: ranks.Dask = None,
    ray: ranks.Ray = None,
    parts: ranks.Parts = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """Print where the time went, or write it to files.

    CSV, JSON and Parquet have times in nanoseconds and sizes in bytes; an unknown value is null.
    """
    from opscope.reports import console, files, registry

    engine = ranks.asked(jobs, dask, ray, parts)
    if engine:
        events = {"--html": html, "--counters": counters, "--style dlprof": style != "opscope",
                  "--iter-start": iter_start, "--iter-stop": iter_stop, "--device": device, "--rank": rank,
                  "--layer": layer, "--range": range_, "--key-node": key}  # fmt: skip
        for name, value in events.items():
            if value not in (None, False):
                common.fail(
                    f"{name} needs single events, which the small files of ranks do not hold: leave"
                    f" {' and '.join(engine)} out"
                )
    if html is not None:
        others = {"--reports": reports, "--by": by, "--formats": formats, "--json": json,
                  "--output-path": output_path, "--base-name": base_name, "--top": top,
                  "--domains": domains, "--style dlprof": style != "opscope"}  # fmt: skip
        for name, given in others.items():
            if given not in (None, False):
                common.fail(
                    f"--html and {name} cannot be combined: the pages have every report whole"
                )
        below = html_file.embedded_folder(embed_source, source_root)
        with html_file.placed(html, force) as page:
            profile = common.load(file, gpu, strict, model=model, counters=counters)
            profile = common.select(
                profile, iter_start, iter_stop, device, rank, layer, range_, key
            )
            html_file.write(page, profile, file, sources=embed_source, source_root=below)
        return
    if embed_source or source_root is not None:
        common.fail("--embed-source and --source-root are options of --html")
    if style != "opscope" or domains is not None or force:
        from . import report_styles

        report_styles.refuse(style, {"--domains": domains, "--force": force})
        if by is not None or counters is not None:
            common.fail("--style dlprof cannot be combined with --by or --counters")
        asked = report_styles.Asked(reports, formats, output_path, base_name, json, top, width)
        profile = common.load(file, gpu, strict, model=model)
        profile = common.select(profile, None, None, device, rank, layer, range_)
        report_styles.dlprof(profile, asked, key, domains, iter_start, iter_stop, force)
        return
    if by is not None and reports is not None:
        common.fail("--by and --reports cannot be combined: each chooses the reports")
    default = reports is None and by is None
    try:
        if by is not None:
            names = registry.resolve(["summary", *registry.divided(by)])
        elif reports is not None:
            names = registry.resolve(common.split(reports))
        else:  # as tables, the first screen is shown instead
            names = [one.name for one in registry.reports().values() if one.written]
        kinds = files.resolve(common.split(formats or ""))
    except (registry.UnknownReport, files.UnknownFormat) as error:
        common.fail(str(error))
    if not names:
        common.fail("--reports names no report")
    if output_path is not None and not kinds:
        kinds = ["csv"]
    every = registry.reports()
    first = [one.name for one in every.values() if one.first]
    wanted = names if json or kinds or not default else first
    lean = counters is None and all(every[name].lean for name in wanted)
    if engine:
        profile = ranks.load(file, jobs, dask, ray, parts, gpu, strict, model)
    else:
        profile = common.load(file, gpu, strict, lean, model, counters)
    profile = common.select(profile, iter_start, iter_stop, device, rank, layer, range_, key)
    if kinds:
        base = base_name or os.path.splitext(common.base_name(file[0]))[0]
        frames = registry.frames(profile, names, top or None)
        _say_lacking(names, frames)
        if default:
            empty = [name for name, frame in frames.items() if frame.is_empty()]
            frames = {name: frame for name, frame in frames.items() if name not in empty}
            if empty:
                common.say(
                    f"empty, so not written: {', '.join(empty)} (--reports NAME writes them)"
                )
        if "csv" in kinds:
            common.warn_of_formulas(*frames.values())
        try:
            with outputs.folder(output_path) as place:
                made = files.write(frames, kinds, place.path, os.path.basename(base))
        except OSError as error:
            common.fail(f"{output_path or '.'}: {error.strerror or error}")
        for path in made:
            common.say(f"wrote {place.named(path)}")
    if json:
        frames = registry.frames(profile, names, top or None)
        _say_lacking(names, frames)
        common.emit(files.as_json(frames))
    elif not kinds:
        rows = (common.TOP if top is None else top) or None
        if default:
            common.show(console.first_screen(profile, rows, enough=top is None), width)
        else:
            common.show(console.tables(profile, names, rows), width)


def _say_lacking(names: Iterable[str], frames: Collection[str]) -> None:
    """Name the reports that a profile made from partials lacks, and why; end the command if it lacks all."""
    lacking = [name for name in names if name not in frames]
    if not lacking:
        return
    from opscope.reports import not_merged  # lazy: as others of that room

    (common.say if frames else common.fail)(not_merged.told(lacking))
