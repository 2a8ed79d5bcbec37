"""How a command states its options and how it ends, without Typer, which takes long to import. ``quick``
reads a plain command line by these declarations; ``app`` makes Typer's parameters from them for help, wrong
command lines and all that is not plain."""

from __future__ import annotations

from typing import Any


class Option:
    """An option: its names (``-n``, ``--yes/--no``; none: that of the parameter), and Typer's settings."""

    __slots__ = ("names", "settings")

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Argument(Option):
    """What is typed without a name before it."""

    __slots__ = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class Exit(Exception):
    """End the command with this status; its messages have been printed."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(status)
        self.status = status


class Misuse(Exception):
    """The command found its command line wrong, before it did anything."""
