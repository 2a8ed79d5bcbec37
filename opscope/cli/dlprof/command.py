"""``opscope dlprof``: read DLProf's command line, then record a command or read an earlier recording. Its
help is made from the table of its switches."""

from __future__ import annotations

import textwrap
from typing import Annotated, Final

import opscope
from opscope.cli import common, declared

from .switches import GROUPS, Switch


def dlprof(
    words: Annotated[
        list[str] | None,
        declared.Argument(
            metavar="[SWITCHES] [--] COMMAND [ARGS]...",
            help="DLProf's switches: opscope dlprof --help",
        ),
    ] = None,
) -> None:
    """Profile COMMAND and write DLProf's reports: DLProf's own command line."""
    from .asked import asked
    from .grammar import Usage, parse

    try:
        given = parse(words or [])
        if "help" in given.values or not words:
            common.emit(help_text())
            raise declared.Exit(0 if words else 2)
        if "version" in given.values:
            common.emit(f"opscope {opscope.__version__}, with the switches of DLProf 1.8")
            raise declared.Exit
        wanted = asked(given)
    except Usage as error:
        common.fail(f"dlprof: {error}")
    if wanted.database is not None:
        from .again import again

        again(wanted, wanted.database)
    else:
        from .record import record

        raise declared.Exit(record(wanted))


_INTRODUCTION: Final = """\
Usage: opscope dlprof [SWITCHES] [--] COMMAND [ARGS]...
       opscope dlprof --database=FILE [SWITCHES]

Profile COMMAND, or read FILE, and write DLProf's reports: the command line of DLProf 1.8 and before.
It records by Nsight Systems if nsys is installed, else by itself. The program's input, output and exit
status are its own. Each switch takes its value behind = or as the next word."""
_WIDTH: Final = 100
_INDENT: Final = " " * 6


def help_text() -> str:
    """Return the help, a paragraph for each switch."""
    lines = [_INTRODUCTION]
    for title, switches in GROUPS.items():
        lines += ["", f"{title}:"]
        for switch in switches:
            lines += ["", f"  {_names(switch)}", *_about(switch)]
    return "\n".join(lines)


def _names(switch: Switch) -> str:
    value = "" if switch.kind == "now" else "=" + _VALUES[switch.kind]
    letter = f"-{switch.letter}, " if switch.letter else ""
    others = "".join(f", --{name}" for name in switch.aliases)
    return f"{letter}--{switch.name}{value}{others}"


_VALUES: Final = {
    "text": "TEXT", "flag": "true|false", "seconds": "SECONDS", "count": "N", "names": "NAME,NAME…",
    "words": '"OPTIONS"',
}  # fmt: skip


def _about(switch: Switch) -> list[str]:
    text = f"Accepted, and does nothing: {switch.unused}." if switch.unused else switch.help
    if switch.default and not switch.unused:
        text += f"  [{switch.default}]"
    return textwrap.wrap(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
