"""The Typer application: registers the commands; an expected error is one line on stderr."""

from __future__ import annotations

from typing import Annotated

import typer

import opscope

from . import advise as advise_command
from . import attach as attach_command
from . import build as build_command
from . import (
    common,
    counters,
    diff,
    doctor,
    export,
    iterations,
    kernels,
    merge,
    ops,
    partial,
    redact,
    report,
    view,
    whatif,
)
from . import run as run_command
from .dlprof import command as dlprof_command
from .kept_pages import with_kept_pages
from .progress_bar import with_bar

app = typer.Typer(
    name="opscope",
    help="Show where the time of a neural network goes, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"opscope {opscope.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("run", context_settings={"allow_interspersed_args": False})(run_command.run)
app.command("dlprof", cls=dlprof_command.Command, add_help_option=False)(dlprof_command.dlprof)
app.command("attach")(attach_command.attach)
app.command("report", cls=report.Command)(with_bar(with_kept_pages(report.report)))
app.command("advise")(with_bar(with_kept_pages(advise_command.advise)))
app.command("ops")(with_bar(with_kept_pages(ops.ops)))
app.command("iterations")(with_bar(with_kept_pages(iterations.iterations)))
app.command("kernels")(with_bar(with_kept_pages(kernels.kernels)))
app.command("counters")(with_bar(with_kept_pages(counters.counters)))
app.command("diff")(with_bar(with_kept_pages(diff.diff)))
app.command("whatif")(with_bar(with_kept_pages(whatif.whatif)))
app.command("export")(with_bar(export.export))
app.command("partial")(with_bar(partial.partial))
app.command("merge")(with_bar(merge.merge))
app.command("view")(view.view)
app.command("doctor")(with_bar(doctor.doctor))
app.command("redact")(with_bar(redact.redact))
app.command("build")(build_command.build)


def run() -> int:
    """Run the command that was typed; return the exit status."""
    from opscope.core.not_merged import NotMerged
    from opscope.readers.errors import BadInput
    from opscope.scale.errors import EngineError

    try:
        app(prog_name="opscope")
    except (BadInput, EngineError, NotMerged) as error:
        common.say(str(error))
        return 2
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0
