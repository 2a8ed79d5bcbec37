"""Which packages ``opscope doctor`` gives advice on: those that a program imports, or the installed ones."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import common

#: Suffixes of Python programs.
SUFFIXES = (".py", ".pyw")


@dataclass(frozen=True, slots=True)
class Program:
    """The program that is to be recorded; ``imports``: the packages that its file imports, if known."""

    imports: frozenset[str] | None = None

    def uses(self, package: str, installed: bool) -> bool:
        """Whether the program uses the package: it imports it or, if that is not known, it is installed."""
        return installed if self.imports is None else package in self.imports


def is_program(files: Collection[str] | None) -> bool:
    """Whether the files are one Python program, and no profile or trace."""
    return files is not None and len(files) == 1 and next(iter(files)).endswith(SUFFIXES)


def program_of(path: str) -> Program:
    """Return the program in the file at ``path``, parsed and not run; ends the command if it is none."""
    try:
        tree = ast.parse(Path(path).read_bytes(), path)
    except OSError as error:
        common.fail(f"{path}: {error.strerror or error}")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        common.fail(f"{path} is no Python program: {error}")
    return Program(frozenset(_imported(ast.walk(tree))))


def _imported(nodes: Iterable[ast.AST]) -> Iterable[str]:
    """Yield the packages that these nodes import, by their top-level names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
