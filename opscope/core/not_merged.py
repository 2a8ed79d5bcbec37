"""The error of a question that a profile made from partials cannot answer; it loads nothing."""

from __future__ import annotations


class NotMerged(LookupError):
    """The profile was merged from partials, which have sums and no single events, so it lacks the data
    ``what`` that were asked for."""

    def __init__(self, noun: str) -> None:
        self.what = noun
        super().__init__(
            f"made from partials, which hold no {noun} one by one: open the rank's own file"
        )
