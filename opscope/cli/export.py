"""``opscope export``: write a profile in the format of another tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from . import common, declared, html_file, options, outputs

if TYPE_CHECKING:
    from opscope.exports.formats import Format
    from opscope.profile import Profile

#: The viewer's pages in one file. They are no format of ``exports``, which cannot import the viewer.
_HTML: Final = "html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for."""

    file: options.Files
    to: Annotated[
        str,
        declared.Option(
            "--to",
            help="The format: perfetto, chrome, speedscope, flamegraph, otlp, tensorboard, prometheus,"
            " or html (the pages of opscope view).",
            show_default=False,
        ),
    ]
    output: Annotated[
        str | None,
        declared.Option(
            "-o",
            "--output",
            help="The file to write, at a path or URL.  [the trace's name]",
            show_default=False,
        ),
    ] = None
    by: Annotated[
        str | None,
        declared.Option(
            "--by",
            help="Stacks of a flamegraph: op (steps, layers, ops, kernels), layer or source.",
            show_default="op",
        ),
    ] = None
    embed_source: html_file.EmbedSource = False
    source_root: html_file.SourceRoot = None
    force: Annotated[
        bool, declared.Option("-f", "--force", help="Replace the file if it exists.")
    ] = False
    where: options.Where
    reading: options.Reading

    def load(self) -> Profile:
        """Return the part of the profile that is exported."""
        return self.where.select(self.reading.load(self.file))


@options.spread
def export(asked: Options) -> None:
    """Write the profile for another tool: a viewer of timelines or flame graphs, or a metrics system.

    A timeline has every op, layer, step and user range by thread, the CUDA calls, and what ran on each
    stream, with arrows from call to kernel; and counters for what was sampled.
    """
    if asked.to == _HTML:
        _html(asked)
    else:
        _other(asked)


def _html(asked: Options) -> None:
    if asked.by is not None:
        common.fail(f"--by is for --to flamegraph, not {asked.to}")
    below = html_file.embedded_folder(asked.embed_source, asked.source_root)
    target = asked.output or f"{common.stem(asked.file[0])}.html"
    with html_file.placed(target, asked.force) as page:
        profile = asked.load()
        html_file.write(page, profile, asked.file, sources=asked.embed_source, source_root=below)


def _other(asked: Options) -> None:
    from opscope.core.question.suggest import unknown
    from opscope.exports.formats import FORMATS
    from opscope.exports.formats import export as write

    if asked.embed_source or asked.source_root is not None:
        common.fail("--embed-source and --source-root are options of --to html")
    if asked.to not in FORMATS:
        common.fail(unknown("format", asked.to, [*FORMATS, _HTML]))
    wanted = FORMATS[asked.to]
    more = _more(asked, wanted)
    with outputs.file(
        asked.output or common.stem(asked.file[0]) + wanted.suffix, asked.force
    ) as target:
        if target.path.is_dir() and not wanted.folder:
            common.fail(f"{target.path} is a folder")
        common.refuse_device(target.path)
        if target.path.exists() and not asked.force:
            common.fail(f"{target.path} exists; --force replaces it")
        profile = asked.load()
        try:
            counts = write(profile, asked.to, target.path, **more)
        except OSError as error:
            common.fail(f"{target.named()} was not written: {error.strerror or error}")
        except ImportError as error:  # a package that the format needs is missing
            common.fail(str(error))
    said = ", ".join(f"{count:,} {title}" for title, count in counts.items() if title != "time")
    common.say(f"wrote {target.named()}: {said}")


def _more(asked: Options, wanted: Format) -> dict[str, Any]:
    """Return the options of the format; ends the command if it does not have one of them."""
    from opscope.core.question.suggest import unknown
    from opscope.exports.flamegraph import BY

    if asked.by is None:
        return {}
    if "by" not in wanted.options:
        common.fail(f"--by is for --to flamegraph, not {asked.to}")
    if asked.by not in BY:
        common.fail(unknown("--by", asked.by, BY))
    return {"by": asked.by}
