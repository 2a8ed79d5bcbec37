"""What DLProf's reports of a Profile are made of."""

from __future__ import annotations

from opscope.core.analysis.steps.key_ops import Key
from opscope.core.dlprof.model import COSTS, Source
from opscope.core.once import once

from .work import Work


class Dlprof(Work):
    """The ops, iterations and times of a Profile as DLProf counts them."""

    @once
    def dlprof(self) -> Source:
        """The source of DLProf's reports; ``opscope.reports.dlprof`` writes them."""
        return Source(self._ops, self._passing("kernels", COSTS), self.device[0])

    def _key_by_id(self, key: str) -> Key | None:
        rows = self.dlprof.rows_of(key)
        return None if rows is None or not len(rows) else Key(rows, key)
