"""The error of a question that a profile made from partials cannot answer; it loads nothing."""

from __future__ import annotations


class NotMerged(LookupError):
    """A profile that was merged from partials lacks what was asked for: it has sums, and no single events.

    ``what`` names it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"made from partials, which hold no {what} one by one: open the rank's own file"
        )
