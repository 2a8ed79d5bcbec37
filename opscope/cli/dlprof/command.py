"""``opscope dlprof``: read DLProf's command line, then record a command or read what was recorded."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import opscope
from opscope.cli import common


class Command(TyperCommand):
    """The command, whose words are DLProf's grammar: they are left as they were typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give all words to the argument, those that begin with dashes included."""
        parsed: list[str] = super().parse_args(ctx, ["--", *args])
        return parsed


def dlprof(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SWITCHES] [--] COMMAND [ARGS]...",
            help="DLProf's switches: opscope dlprof --help",
        ),
    ] = None,
) -> None:
    """Profile COMMAND and write DLProf's reports: DLProf's own command line."""
    from .asked import asked
    from .grammar import Usage, parse
    from .help_text import help_text

    try:
        given = parse(words or [])
        if "help" in given.values or not words:
            common.emit(help_text())
            raise typer.Exit(0 if words else 2)
        if "version" in given.values:
            common.emit(f"opscope {opscope.__version__}, with the switches of DLProf 1.8")
            raise typer.Exit
        wanted = asked(given)
    except Usage as error:
        common.fail(f"dlprof: {error}")
    if wanted.database is not None:
        from .again import again

        again(wanted, wanted.database)
    else:
        from .record import record

        raise typer.Exit(record(wanted))
