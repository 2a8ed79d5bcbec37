"""Several runs in one folder: a page lists them, and each is read when it is opened."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from .question import whole
from .viewed import Viewed


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of ``folder``, the last one first. ``view`` reads one; it raises BadInput if it cannot."""

    folder: str
    paths: tuple[Path, ...]
    view: Callable[[Path], Viewed]
    _opened: dict[int, Viewed] = field(default_factory=dict, compare=False, repr=False)
    _locks: dict[int, threading.Lock] = field(default_factory=dict, compare=False, repr=False)

    def viewed(self, number: int) -> Viewed:
        """Return the run, read only once even if a page asks several questions at the same time."""
        with self._locks.setdefault(number, threading.Lock()):
            if number not in self._opened:
                self._opened[number] = self.view(self.paths[number])
            return self._opened[number]


def by_age(paths: Sequence[Path]) -> list[tuple[Path, datetime]]:
    """Return the runs with when each was last written, the last one first."""
    return sorted(((path, _written(path)) for path in paths), key=lambda run: run[1], reverse=True)


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime)


def page(runs: Runs) -> str:
    """Return the list as a page without a script; a link opens a run's own pages."""
    rows = "".join(
        f'<tr><td><a href="run/{number}/">{html.escape(whole(path.name))}</a></td>'
        f"<td>{_written(path).isoformat(' ', 'minutes')}</td></tr>"
        for number, path in enumerate(runs.paths)
    )
    folder = html.escape(whole(runs.folder))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<title>{folder} – opscope</title>\n<link rel="icon" href="data:,">\n'
        '<link rel="stylesheet" href="viewer.css">\n</head>\n<body>\n<main class="main runs">\n'
        f"<h1>Runs of {folder}</h1>\n<p>These are several runs and not one job. Each opens on its own.</p>\n"
        '<table class="list">\n<thead><tr><th scope="col">run</th>'
        '<th scope="col">last written</th></tr></thead>\n'
        f"<tbody>{rows}</tbody>\n</table>\n</main>\n</body>\n</html>\n"
    )
