"""The columns of the reports of operators: by name, by shape and by call stack."""

from __future__ import annotations

from typing import Final

from opscope.core.question.layout import Column
from opscope.core.question.units import share

#: How these columns are shown; the reports by shape and by call stack show them the same way.
FORMS: Final = (
    Column("share", "of self", share, rank=1),
    Column("tc_eligible", "TC could", rank=7),
    Column("tensor_core_self", "TC self", share, rank=6),
    Column("tensor_core_total", "TC total", share, rank=8),
)
SHOWN: Final = (
    "share device_self device_total device_mean calls op host_self host_total host_mean tc_eligible"
    " tensor_core_self tensor_core_total reason"
)
#: What the reports by shape and by call stack show, around the column of theirs.
AROUND: Final = (
    "share device_self device_total calls op {} host_self host_total tensor_core_self reason"
)
