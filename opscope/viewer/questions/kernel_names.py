"""``kernel_names``: short forms of long kernel names for pages, all different. The answer is
``KernelNames`` of ``web/src/parts/kernel_names.ts``; it takes no parameters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.core.dialects.demangle import all_demangled
from opscope.core.question.names import kernel, shortened
from opscope.viewer.question import Asked, Question

if TYPE_CHECKING:
    from opscope.profile import Profile
    from opscope.viewer.viewed import Viewed

#: Characters of a shown name: a column of names has room for about as many.
_WIDTH: Final = 44
#: Number of names that are shortened together, the names with the most time; of other names, pages cut out
#: the middle.
_MOST: Final = 2_000


def answer(asked: Asked) -> dict[str, Any]:
    """Return the short form of each name by the recorded name; for mangled names also the demangled
    one."""
    viewed = asked.viewed
    shown: dict[str, Any] = viewed.tables.get("kernel_names", lambda: _names(viewed.profile))
    return shown


def _names(profile: Profile) -> dict[str, Any]:
    totals = profile.kernel_totals()
    names = totals["name"].cast(pl.String).drop_nulls().unique(maintain_order=True)
    recorded = names.head(_MOST).to_list()
    full = [str(name) for name in all_demangled(recorded)]
    return {
        "short": {
            name: short for name, short in zip(recorded, _short(full), strict=True) if short != name
        },
        "whole": {name: text for name, text in zip(recorded, full, strict=True) if text != name},
    }


def _short(full: list[str]) -> list[str]:
    """Return short names without signatures; names that differ only in their signatures keep them."""
    bare = [kernel(name) for name in full]
    alike = {text for text, times in Counter(bare).items() if times > 1}
    texts = [name if text in alike else text for name, text in zip(full, bare, strict=True)]
    return shortened(texts, _WIDTH, parts="words")


def _store(viewed: Viewed) -> list[dict[str, str]]:
    return [{}]


QUESTION = Question(name="kernel_names", answer=answer, stored=_store)
