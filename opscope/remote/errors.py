"""The error of a URL that cannot be opened, listed, copied or written."""

from __future__ import annotations

from .urls import shown


class NotReached(OSError):
    """A request to a URL failed; ``what`` says why, in one line, without any credential. ``url`` is named as
    ``urls.shown`` names it."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = shown(url)
        self.what = " ".join(reason.split())
        super().__init__(f"{self.url}: {self.what}")
