"""The Typer application: a table of commands, each loaded when it is typed; an expected error is one line.

A command of another package is a function with Typer's annotations at the entry-point group ``GROUP``:

    [project.entry-points."opscope.commands"]
    mycommand = "opscope_mylib.command:mycommand"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

import opscope
from opscope.core import registered

from . import common
from .kept_pages import with_kept_pages
from .progress_bar import with_bar

#: The entry-point group in which other packages register commands.
GROUP: Final = "opscope.commands"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """A command of opscope: the module and function, what is put around it, Typer's settings of it.

    A class ``Command`` in the module is the command's.
    """

    place: str
    around: tuple[Callable[[Any], Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


_ANALYSES: Final = (with_kept_pages, with_bar)

#: opscope's commands, in the order of the help.
_KNOWN: Final[Mapping[str, _Known]] = {
    "run": _Known("run:run", settings={"context_settings": {"allow_interspersed_args": False}}),
    "dlprof": _Known("dlprof.command:dlprof", settings={"add_help_option": False}),
    "attach": _Known("attach:attach"),
    "report": _Known("report:report", _ANALYSES),
    "advise": _Known("advise:advise", _ANALYSES),
    "ops": _Known("ops:ops", _ANALYSES),
    "iterations": _Known("iterations:iterations", _ANALYSES),
    "kernels": _Known("kernels:kernels", _ANALYSES),
    "counters": _Known("counters:counters", _ANALYSES),
    "diff": _Known("diff:diff", _ANALYSES),
    "whatif": _Known("whatif:whatif", _ANALYSES),
    "export": _Known("export:export", (with_bar,)),
    "partial": _Known("partial:partial", (with_bar,)),
    "merge": _Known("merge:merge", (with_bar,)),
    "view": _Known("view:view"),
    "doctor": _Known("doctor:doctor", (with_bar,)),
    "redact": _Known("redact:redact", (with_bar,)),
    "build": _Known("build:build"),
}


class Commands(TyperGroup):
    """The commands, of which only what is typed is loaded; the help and a misspelling load all."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of opscope's commands, then those of other packages."""
        return [*_KNOWN, *sorted(set(registered.entries(GROUP)) - set(_KNOWN))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None."""
        names = [cmd_name] if cmd_name in _KNOWN else self.list_commands(ctx)
        for name in [cmd_name] if cmd_name in names else names:  # click says which name is alike
            self._load(name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> None:
        if name in self.commands:
            return
        entry = _KNOWN.get(name)
        if entry is not None:
            self.commands[name] = _ours(name, entry)
            return
        target = registered.entries(GROUP)[name]
        try:
            self.commands[name] = _command(name, _at(target))
        except Exception as error:  # noqa: BLE001 - another package's fault must not block other commands
            _log.warning("opscope: the command %s (%s) is left out: %s", name, target, error)


def _ours(name: str, known: _Known) -> Any:
    module, _, function = known.place.partition(":")
    room = import_module(f"{__package__}.{module}")
    command = getattr(room, function)
    for wrap in known.around:
        command = wrap(command)
    return _command(name, command, cls=getattr(room, "Command", None), **known.settings)


def _at(target: str) -> Any:
    module, _, names = target.partition(":")
    function: Any = import_module(module)
    for name in filter(None, names.split(".")):
        function = getattr(function, name)
    return function


def _command(name: str, function: Callable[..., Any], **settings: Any) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, **settings)(function)
    return get_command(alone)


app = typer.Typer(
    cls=Commands,
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
