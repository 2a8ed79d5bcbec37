"""Answer a plain command line without Typer, whose loading takes as long as the report of a small trace. A
line is plain if it has only existing options, each with a value of its type, and as many files as the command
takes. Typer handles everything else: help of commands, completion, and errors."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from .declared import Argument, Exit, Misuse, Option

#: Settings of a parameter that only affect its help, and those that ``_value`` checks.
_SHOWN: Final = frozenset({"help", "metavar", "show_default", "autocompletion", "rich_help_panel"})
_BOUNDS: Final = frozenset({"min", "max"})
#: Usual forms of numbers; Typer judges all others.
_NUMBERS: Final = {
    int: re.compile(r"-?[0-9]{1,15}"),
    float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?"),
}
#: The width of the prepared help.
_WIDTH: Final = 80


class NotPlain(Exception):
    """Typer has to read this command line."""


def answer(words: Sequence[str]) -> int | None:
    """Run a plain command line; return the exit status, or None if Typer has to read the line."""
    if "_OPSCOPE_COMPLETE" in os.environ:
        return None
    text = _ready(words)
    if text is not None:
        return _print(text)
    from .commands import KNOWN

    command_row = KNOWN.get(words[0]) if words else None
    if command_row is None or command_row.verbatim:
        return None
    if command_row.interspersed and ("-h" in words or "--help" in words):
        return None
    command = command_row.function()
    try:
        given = parse(command, words[1:], command_row.interspersed)
    except NotPlain:
        return None
    return _call(command, given)


def _call(command: Callable[..., Any], given: dict[str, Any]) -> int | None:
    """Run the command; handle Ctrl-C, the end of input and a closed pipe as Typer does."""
    try:
        command(**given)
    except Misuse:
        return None
    except Exit as end:
        return end.status
    except KeyboardInterrupt:
        return 130
    except EOFError:
        sys.stderr.write("\nAborted!\n")
        return 1
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        from .common import discard

        discard(sys.stdout)
        return 1
    return 0


# Prepared texts.


def _ready(words: Sequence[str]) -> str | None:
    """Return the version, or the prepared help if the terminal has its width."""
    if list(words) == ["--version"]:
        from opscope.version import __version__

        return f"opscope {__version__}\n"
    if list(words) not in (["--help"], ["-h"]) or _columns() < _WIDTH or _others():
        return None
    return Path(__file__).with_name("help.txt").read_text(encoding="utf-8")


def _others() -> bool:
    """Whether other packages have commands, which the help must list too."""
    from opscope.core import registered

    from .commands import GROUP

    return bool(registered.entries(GROUP))


def _columns() -> int:
    """Return the terminal's width, as ``shutil.get_terminal_size``, which takes 10 ms to import."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns > 0:
        return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _WIDTH  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return _WIDTH


def _print(text: str) -> int | None:
    if sys.stdout is None:
        return None
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        return None
    return 0


# Words to values.


class _Parameter:
    """A parameter of a command: its names, its type, its bounds, and whether it takes several values."""

    __slots__ = ("argument", "bounds", "several", "type", "values")

    def __init__(self, hint: Any) -> None:
        declared, *more = getattr(hint, "__metadata__", (None,))
        if not isinstance(declared, Option) or more or set(declared.settings) - _SHOWN - _BOUNDS:
            raise NotPlain
        self.argument = isinstance(declared, Argument)
        self.bounds = declared.settings.get("min"), declared.settings.get("max")
        kind = hint.__origin__
        if get_origin(kind) in (Union, UnionType):
            kinds = [each for each in get_args(kind) if each is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else None
        self.several = get_origin(kind) is list
        self.type = get_args(kind)[0] if self.several else kind
        if self.type not in (str, int, float, bool, Path):
            raise NotPlain
        #: The values given so far.
        self.values: list[Any] = []

    def add(self, text: str) -> None:
        """Take a value."""
        pattern = _NUMBERS.get(self.type)
        if self.type is bool or (pattern is not None and pattern.fullmatch(text) is None):
            raise NotPlain
        value = self.type(text)
        least, most = self.bounds
        if (least is not None and value < least) or (most is not None and value > most):
            raise NotPlain
        self.values.append(value)


def parse(
    command: Callable[..., Any], words: Sequence[str], interspersed: bool = True
) -> dict[str, Any]:
    """Return the arguments with which Typer would call the command. Raises ``NotPlain`` if Typer must read
    the line. Unless ``interspersed``, all that follows the first word without a name is another command."""
    signature = signature_of(command).parameters
    parameters = {name: _Parameter(each.annotation) for name, each in signature.items()}
    named, switches = _names(signature, parameters)
    typed = _read(words, named, switches, interspersed)
    arguments = [each for each in parameters.values() if each.argument]
    for position, word in enumerate(typed):
        last = len(arguments) - 1
        if position > last and not (arguments and arguments[last].several):
            raise NotPlain
        arguments[min(position, last)].add(word)
    given = {}
    for name, each in parameters.items():
        default = signature[name].default
        if not each.values and default is signature[name].empty:
            raise NotPlain
        if each.values:
            given[name] = each.values if each.several else each.values[-1]
        else:
            given[name] = default
    return given


def signature_of(command: Callable[..., Any]) -> Any:
    """Return the command's signature with evaluated annotations."""
    import inspect

    return inspect.signature(command, eval_str=True)


def _names(
    signature: Any, parameters: dict[str, _Parameter]
) -> tuple[dict[str, _Parameter], dict[str, bool]]:
    """Return the options by name, and for options without a value their value by name."""
    named: dict[str, _Parameter] = {}
    switches: dict[str, bool] = {}
    for name, each in parameters.items():
        if each.argument:
            continue
        stated = signature[name].annotation.__metadata__[0].names or (
            f"--{name.replace('_', '-')}",
        )
        for words in stated:
            for value, word in zip((True, False), words.split("/"), strict=False):
                named[word] = each
                if each.type is bool:
                    switches[word] = value
    return named, switches


def _read(
    words: Sequence[str],
    named: dict[str, _Parameter],
    switches: dict[str, bool],
    interspersed: bool,
) -> list[str]:
    """Give each option its value; return the words without a name."""
    typed = []
    rest = iter(words)
    for word in rest:
        if not interspersed and (word == "--" or not word.startswith("-") or word == "-"):
            return [*([] if word == "--" else [word]), *rest]
        if not word.startswith("-") or word == "-":
            typed.append(word)
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = named.get(name)
        if option is None:
            raise NotPlain
        if name in switches:
            if equals:
                raise NotPlain
            option.values.append(switches[name])
            continue
        if not equals:
            value = next(rest, "-")
            if value.startswith("-"):
                raise NotPlain
        option.add(value)
    return typed
