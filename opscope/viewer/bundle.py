"""The built script and style of the pages, which are part of the package."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

#: The only files that are served, each with its type.
STATIC: Final = {
    "viewer.js": "text/javascript; charset=utf-8",
    "viewer.css": "text/css; charset=utf-8",
}


class NotBuilt(FileNotFoundError):
    """The script of the pages does not exist; the message says how to build it."""


#: Further files that a single file contains.
_IN_FILES: Final = ("loader.js", "THIRD_PARTY.txt")


@cache
def static(name: str) -> bytes:
    """Return a file of ``STATIC``, or one that only single files contain. Raises NotBuilt."""
    resource = resources.files("opscope.viewer") / "static" / name
    try:
        return resource.read_bytes()
    except OSError:
        raise NotBuilt(
            f"the viewer's pages are not built (opscope/viewer/static/{name} is missing): in a checkout run"
            " 'npm ci && node build.mjs' in web/; an installed opscope brings them"
        ) from None


def static_files() -> None:
    """Raise NotBuilt if a file of the pages is missing."""
    for name in (*STATIC, *_IN_FILES):
        static(name)
