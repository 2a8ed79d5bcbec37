"""The Typer application: a table of commands, each loaded when it is typed.

A command of another package is a function with Typer's annotations at the entry-point group ``GROUP``:

    [project.entry-points."opscope.commands"]
    mycommand = "opscope_mylib.command:mycommand"
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import opscope
from opscope.core import registered

from .commands import GROUP as GROUP
from .commands import KNOWN, Known
from .declared import Argument, Exit, Misuse, Option
from .grouped_help import Grouped, start

#: The parameter by which Typer gives a command its context.
_CONTEXT: Final = "typer_context"
_log = logging.getLogger(__name__)


#: The groups of the commands in the help.
_GROUPS: Final = {
    "Record": "run attach dlprof build",
    "Read": "report reports advise diff view ops kernels counters iterations whatif export dlprofviewer",
    "Tests and agents": "baseline try ask mcp",
    "Many ranks, and other": "partial merge doctor redact",
}


class Commands(TyperGroup):
    """The commands; only the typed one is loaded, except that the help loads all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words. If a command comes first, no option before it can be meant. Typer would load
        Pydantic to see that help and completion are not asked for, which takes longer than Typer itself."""
        plain = bool(args) and not args[0].startswith("-")
        if plain:
            self.params = [each for each in self.params if each.name == "version"]
        self.add_help_option = not plain
        try:
            parsed: list[str] = super().parse_args(ctx, args)
        finally:
            self.add_help_option = True  # error messages name the help option
        return parsed

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of opscope's commands, then those of other packages."""
        return [*KNOWN, *sorted(set(registered.entries(GROUP)) - set(KNOWN))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None."""
        if cmd_name in KNOWN or cmd_name in self.list_commands(ctx):
            self._load(cmd_name)
        else:
            for name in self.list_commands(ctx):  # click suggests a similar name
                self.commands.setdefault(name, TyperCommand(name))
            return None
        return self.commands.get(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a sentence with the options, then the commands: a line each, in groups."""
        named = ", ".join(option.opts[0] for option in self.get_params(ctx)[:-1])
        formatter.write_paragraph()
        formatter.write_text(f"opscope COMMAND --help explains a command. Options: {named}.")
        loadable = [name for name in self.list_commands(ctx) if self.get_command(ctx, name)]
        widest = max(map(len, loadable))
        grouped = {name for names in _GROUPS.values() for name in names.split()}
        rest = " ".join(name for name in loadable if name not in grouped)
        for title, names in {**_GROUPS, **({"Of other packages": rest} if rest else {})}.items():
            with formatter.section(title):
                for name in names.split():
                    text = self.commands[name].get_short_help_str(200).rstrip(".")
                    text = start(text, formatter.width - widest - 4)
                    formatter.write(f"  {name:{widest}}  {text}\n")

    def _load(self, name: str) -> None:
        if name in self.commands:
            return
        entry = KNOWN.get(name)
        if entry is not None:
            self.commands[name] = _ours(name, entry)
            return
        target = registered.entries(GROUP)[name]
        try:
            self.commands[name] = _command(name, _at(target), cls=Grouped)
        except Exception as error:  # noqa: BLE001 - another package's fault must not block other commands
            _log.warning("opscope: the command %s (%s) is left out: %s", name, target, error)


class _Command(Grouped):
    """A command of opscope; some of its help texts are made when the help is shown."""

    known: Known

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        texts = self.known.help_texts(self._all)
        for option in self.params:
            if option.name in texts:
                option.help = texts[option.name]  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; for a command with another tool's grammar, give them all to its argument."""
        words = ["--", *args] if self.known.verbatim else args
        parsed: list[str] = super().parse_args(ctx, words)
        return parsed


def _ours(name: str, known: Known) -> Any:
    settings: dict[str, Any] = {"add_help_option": not known.verbatim}
    if not known.interspersed:
        settings["context_settings"] = {"allow_interspersed_args": False}
    function = known.function()
    if isinstance(function, typer.Typer):
        return _group(name, function)
    command = _command(name, _typed(function), cls=_Command, **settings)
    command.known = known
    return command


def _group(name: str, commands: typer.Typer) -> Any:
    """Return a command that has subcommands."""
    for each in commands.registered_commands:
        if each.callback is not None and each.cls is not Grouped:
            each.callback, each.cls = _typed(each.callback), Grouped
    group = get_command(commands)
    group.name = name
    return group


def _typed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with Typer's parameters, made from the declared ones."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        each.replace(annotation=_hint(each.annotation), kind=inspect.Parameter.KEYWORD_ONLY)
        for each in signature.parameters.values()
    ]

    parameters.append(
        inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    )

    @wraps(command)
    def called(**given: Any) -> None:
        context = given.pop(_CONTEXT)
        try:
            command(**given)
        except Exit as end:
            raise typer.Exit(end.status) from None
        except Misuse as error:
            context.fail(str(error))

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _hint(hint: Any) -> Any:
    declared = getattr(hint, "__metadata__", (None,))[0]
    if not isinstance(declared, Option):
        return hint
    kind = typer.Argument if isinstance(declared, Argument) else typer.Option
    return Annotated[hint.__origin__, kind(*declared.names, **declared.settings)]


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
