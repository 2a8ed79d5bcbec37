"""``opscope export``: write a profile in the format of another tool."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from . import common, html_file, outputs

#: The viewer's pages in one file; they are no format of ``exports``, which the viewer stands beside.
_HTML: Final = "html"


def export(
    file: common.Files,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The format: perfetto, chrome, speedscope, flamegraph, otlp, tensorboard, prometheus,"
            " or html (the pages of opscope view).",
            show_default=False,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="The file to write, at a path or URL.  [the trace's name]",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="With flamegraph: the stacks are of op (steps, layers, ops, kernels), layer or source.",
            show_default="op",
        ),
    ] = None,
    embed_source: html_file.EmbedSource = False,
    source_root: html_file.SourceRoot = None,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Replace the file if it exists.")
    ] = False,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    key: common.KeyNode = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    strict: common.Strict = False,
) -> None:
    """Write the profile for another tool: a viewer of timelines or flame graphs, or a metrics system.

    A timeline has every op, layer, step and user range by thread, the CUDA calls, and what ran on each
    stream, with arrows from call to kernel; and counters for what was sampled.
    """
    from opscope.core.question.suggest import unknown
    from opscope.exports.flamegraph import BY
    from opscope.exports.formats import FORMATS
    from opscope.exports.formats import export as write

    if to == _HTML:
        if by is not None:
            common.fail(f"--by is for --to flamegraph, not {to}")
        below = html_file.embedded_folder(embed_source, source_root)
        with html_file.placed(output or f"{common.stem(file[0])}.html", force) as page:
            profile = common.load(file, gpu, strict, model=model)
            profile = common.select(
                profile, iter_start, iter_stop, device, rank, layer, range_, key
            )
            html_file.write(page, profile, file, sources=embed_source, source_root=below)
        return
    if embed_source or source_root is not None:
        common.fail("--embed-source and --source-root are options of --to html")
    if to not in FORMATS:
        common.fail(unknown("format", to, [*FORMATS, _HTML]))
    wanted = FORMATS[to]
    options: dict[str, Any] = {}
    if by is not None:
        if "by" not in wanted.options:
            common.fail(f"--by is for --to flamegraph, not {to}")
        if by not in BY:
            common.fail(unknown("--by", by, BY))
        options["by"] = by
    with outputs.file(output or common.stem(file[0]) + wanted.suffix, force) as target:
        if target.path.is_dir() and not wanted.folder:
            common.fail(f"{target.path} is a folder")
        if target.path.exists() and not force:
            common.fail(f"{target.path} exists; --force replaces it")
        profile = common.load(file, gpu, strict, model=model)
        profile = common.select(profile, iter_start, iter_stop, device, rank, layer, range_, key)
        try:
            counts = write(profile, to, target.path, **options)
        except OSError as error:
            common.fail(f"{target.named()} was not written: {error.strerror or error}")
        except ImportError as error:  # a package that the format needs
            common.fail(str(error))
    said = ", ".join(f"{many:,} {what}" for what, many in counts.items() if what != "time")
    common.say(f"wrote {target.named()}: {said}")
