"""Which databases of DLProf can be read, by their version and their tables, and what to say of the others.

A database names the version that wrote it in ``db_version`` (1.2 and later). DLProf's own viewer took those
from 1.2 up to its own version, and refused the rest; 1.8 was the last of DLProf.
"""

from __future__ import annotations

import re
from typing import Final

from opscope.readers.sqlite import Database

LAST: Final = (1, 8)
#: Where the version is: the table and its column.
_SAID: Final = (("db_version", "current_version"), ("read_only_system_config", "dlprof_version"))
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?\Z")


def names_itself(database: Database) -> bool:
    """Whether the database says which DLProf wrote it, as those of every kept version do."""
    return any(database.has(table, column) for table, column in _SAID)


def version(database: Database) -> tuple[int, int] | None:
    """Return the version that wrote the database; None if it names none that DLProf can have had."""
    for table, column in _SAID:
        if not database.has(table, column):
            continue
        for text in database.rows(table, {column: "text"})[column].to_list()[:1]:
            match = _VERSION.match(text or "")
            if match is not None:
                return int(match[1]), int(match[2])
    return None


def refusal(database: Database) -> str:
    """Return why a database without the tables of ops cannot be read, and what to do."""
    version_there = version(database)
    whose = "a database of DLProf of an unknown version"
    if version_there is not None:
        whose = f"a database of DLProf {version_there[0]}.{version_there[1]}"
    newer = version_there is not None and version_there > LAST
    what_is_known = (
        f"which is newer than any that is known (1.{LAST[1]} was the last)"
        if newer
        else "without the tables of ops and kernels that DLProf 1.8 keeps"
    )
    return (
        f"{whose}, {what_is_known}: give the export of Nsight Systems that it was made from"
        " (nsys_profile.sqlite)"
    )


def warning(database: Database) -> str | None:
    """Return what to tell of a database that can be read; None if its version is one of DLProf's."""
    version_there = version(database)
    if version_there is None:
        return "the database does not name the version of DLProf that wrote it"
    if version_there > LAST:
        return (
            f"the database is of DLProf {version_there[0]}.{version_there[1]}, newer than any that is known "
            f"(1.{LAST[1]} was the last)"
        )
    return None
