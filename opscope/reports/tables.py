"""A report as the table that the terminal shows, in the words of the device's vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.core.not_merged import NotMerged
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Report, View, why_not_merged
from opscope.core.question.tables import listed

from . import vendor_words

if TYPE_CHECKING:
    from opscope.profile import Profile


def table(report: Report, profile: Profile, view: View) -> Table:
    """Return the report as the table that the terminal shows, in the words of the device's vendor.

    If a profile made from partials lacks the report, the table says so.
    """
    try:
        return table_of(report, profile, view)
    except NotMerged as error:
        why = why_not_merged(report)
        said = f"{error} ({why})" if why else str(error)
        return Table(report.heading, [Column("what", "")], (), (said,))


def table_of(report: Report, profile: Profile, view: View) -> Table:
    """Like ``table``, but raises NotMerged if a profile made from partials lacks the report."""
    if report.table is not None:
        table = report.table(report, profile, view)
    else:
        table = listed(report, report.frame(profile), view)
    return vendor_words.told(table, vendor_words.vendor(profile))
