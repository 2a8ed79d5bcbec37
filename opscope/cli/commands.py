"""The table of opscope's commands, each loaded when it is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

#: The entry-point group in which other packages register commands.
GROUP: Final = "opscope.commands"


class Known(NamedTuple):
    """A command of opscope: its module and function, and the wrappers around it, each as ``module:name``."""

    place: str
    around: tuple[str, ...] = ()
    #: Options may follow what is typed without a name.
    interspersed: bool = True
    #: Whether the words are of another tool's grammar: they are left as typed.
    verbatim: bool = False

    def function(self) -> Callable[..., Any]:
        """Return the command, loaded."""
        command: Callable[..., Any] = _loaded(self.place)
        for place in self.around:
            command = _loaded(place)(command)
        return command

    def help_texts(self, every: bool) -> Mapping[str, str]:
        """Return help texts by parameter, where the command's module makes them only when the help is shown.
        ``every``: whether the user asked for the complete help."""
        room = import_module(f"{__package__}.{self.place.partition(':')[0]}")
        texts: Callable[[bool], Mapping[str, str]] | None = getattr(room, "help_texts", None)
        return texts(every) if texts else {}


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


_BAR: Final = "progress_bar:with_bar"
_ANALYSES: Final = ("kept_pages:with_kept_pages", _BAR)

#: opscope's commands, in the order of the help.
KNOWN: Final[Mapping[str, Known]] = {
    "run": Known("run:run", interspersed=False),
    "dlprof": Known("dlprof.command:dlprof", verbatim=True),
    "attach": Known("attach:attach"),
    "report": Known("report:report", _ANALYSES),
    "reports": Known("reports:reports"),
    "advise": Known("advise:advise", _ANALYSES),
    "ops": Known("ops:ops", _ANALYSES),
    "iterations": Known("iterations:iterations", _ANALYSES),
    "kernels": Known("kernels:kernels", _ANALYSES),
    "counters": Known("counters:counters", _ANALYSES),
    "diff": Known("diff:diff", _ANALYSES),
    "baseline": Known("baseline:baseline"),
    "try": Known("trial:try_", interspersed=False),
    "whatif": Known("whatif:whatif", _ANALYSES),
    "ask": Known("ask:ask", _ANALYSES),
    "mcp": Known("mcp:mcp"),
    "export": Known("export:export", (_BAR,)),
    "partial": Known("partial:partial", (_BAR,)),
    "merge": Known("merge:merge", (_BAR,)),
    "view": Known("view:view"),
    "dlprofviewer": Known("view:dlprofviewer"),
    "doctor": Known("doctor:doctor", (_BAR,)),
    "redact": Known("redact:redact", (_BAR,)),
    "build": Known("build:build"),
}
