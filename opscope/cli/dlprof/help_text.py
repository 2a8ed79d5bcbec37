"""The help of ``opscope dlprof``, made of the table of its switches."""

from __future__ import annotations

import textwrap
from typing import Final

from .switches import GROUPS, Switch

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
