"""``opscope report``: print the reports as tables or JSON, or write them to files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from . import common, declared, html_file, options, ranks

if TYPE_CHECKING:
    from opscope.profile import Profile


def help_texts(every: bool) -> dict[str, str]:
    """Return the help that lists the divisions, and if ``every`` also the reports; made only when it is
    shown."""
    from opscope.core.question.registry import divisions, reports

    *words, last = divisions()
    names = f": {', '.join(reports())}" if every else "; opscope reports lists them"
    return {
        "reports": f"Reports to give, comma-separated{names}.",
        "by": f"Give the summary, and the time by one of: {', '.join(words)} or {last}.",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for."""

    file: options.Files
    reports: Annotated[
        str | None, declared.Option("--reports", help="Reports to give, comma-separated.")
    ] = None
    by: Annotated[
        str | None,
        declared.Option(
            "--by",
            help="Give the summary, and divide the time.",
            metavar="WHAT",
            show_default=False,
        ),
    ] = None
    formats: Annotated[
        str | None,
        declared.Option("--formats", help="Write files, comma-separated: csv, json, parquet."),
    ] = None
    output_path: Annotated[
        str | None,
        declared.Option(
            "--output-path",
            "--output_path",
            help="Folder for the files, at a path or URL.",
            metavar="DIR",
        ),
    ] = None
    base_name: Annotated[
        str | None,
        declared.Option("--base-name", "--base_name", help="First part of each file's name."),
    ] = None
    json: Annotated[
        bool,
        declared.Option(
            "--json",
            help="Print one JSON object: of the first screen and the advice, or of --reports.",
        ),
    ] = False
    full: options.Full = False
    style: Annotated[
        str, declared.Option("--style", help="Whose reports: opscope or dlprof.", metavar="TOOL")
    ] = "opscope"
    domains: Annotated[
        str | None,
        declared.Option(
            "--domains",
            help="With --style dlprof: NVTX domains that get files of their own, comma-separated.",
            show_default=False,
        ),
    ] = None
    html: html_file.Html = None
    embed_source: html_file.EmbedSource = False
    source_root: html_file.SourceRoot = None
    force: Annotated[
        bool,
        declared.Option(
            "-f", "--force", help="With --html and --style dlprof: replace files that exist."
        ),
    ] = False
    counters: options.CountersFile = None
    top: options.Top = None
    where: options.Where
    gpu: options.Gpu = None
    model: options.Model = None
    model_config: options.ModelConfig = None
    requests: options.RequestsFile = None
    power: options.PowerFile = None
    slo: options.Slo = None
    price: options.Price = None
    engine: ranks.Engine
    strict: options.Strict = False
    unrelated: options.Unrelated = False
    width: options.Width = None

    @property
    def reading(self) -> options.Reading:
        """How the files are read."""
        beside = self.model_config, self.requests, self.power
        return options.Reading(self.gpu, self.model, self.strict, self.unrelated, *beside)

    def load(self, lean: bool = False) -> Profile:
        """Return the part of the profile to report on."""
        if self.engine.given():
            profile = self.engine.load(self.file, self.reading)
        else:
            profile = self.reading.load(self.file, lean, self.counters)
        return self.where.select(profile)


@options.spread
def report(asked: Options) -> None:
    """Print where the time went, or write it to files.

    CSV, JSON and Parquet have times in nanoseconds and sizes in bytes; an unknown value is null.
    """
    engine = asked.engine.given()
    if engine:
        _refuse_events(asked, engine)
    if asked.html is not None:
        _html(asked, asked.html)
        return
    if asked.embed_source or asked.source_root is not None:
        common.fail("--embed-source and --source-root are options of --html")
    if asked.style != "opscope" or asked.domains is not None or asked.force:
        from .report_styles import dlprof

        dlprof(asked)
    else:
        from .report_tables import tables

        tables(asked)


def _refuse_events(asked: Options, engine: list[str]) -> None:
    """End the command if an option needs single events, which the small files of ranks do not hold."""
    where = asked.where
    events = {"--html": asked.html, "--counters": asked.counters, "--model-config": asked.model_config,
              "--requests": asked.requests, "--power": asked.power, "--slo": asked.slo,
              "--price": asked.price,
              "--style dlprof": asked.style != "opscope",
              "--iter-start": where.iter_start, "--iter-stop": where.iter_stop, "--device": where.device,
              "--rank": where.rank, "--layer": where.layer, "--range": where.range_,
              "--key-node": where.key}  # fmt: skip
    for name, value in events.items():
        if value not in (None, False):
            common.fail(
                f"{name} needs single events, which the small files of ranks do not hold: leave"
                f" {' and '.join(engine)} out"
            )


def _html(asked: Options, html: str) -> None:
    """Write the viewer's pages into one file."""
    others = {"--reports": asked.reports, "--by": asked.by, "--formats": asked.formats, "--json": asked.json,
              "--full": asked.full, "--slo": asked.slo, "--price": asked.price,
              "--output-path": asked.output_path, "--base-name": asked.base_name, "--top": asked.top,
              "--domains": asked.domains, "--style dlprof": asked.style != "opscope"}  # fmt: skip
    for name, value in others.items():
        if value not in (None, False):
            common.fail(f"--html and {name} cannot be combined: the pages have every report whole")
    below = html_file.embedded_folder(asked.embed_source, asked.source_root)
    with html_file.placed(html, asked.force) as page:
        profile = asked.load()
        html_file.write(page, profile, asked.file, sources=asked.embed_source, source_root=below)
