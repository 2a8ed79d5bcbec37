"""Say on stderr what a part of a large file shows, before all of it is read, and whether all of it agrees."""

from __future__ import annotations

import logging
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from opscope import profile, readers
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL
from opscope.core.question import units

from . import common

_log = logging.getLogger(__name__)
#: Formats of which a part can be cut out, with the module that does it and the part's name.
_CUTS: Final = {
    "kineto": ("opscope.readers.kineto.excerpt", "part.json"),
    "nsys": ("opscope.readers.nsys.excerpt", "part.sqlite"),
}
#: How many findings are named.
_FINDINGS: Final = 2


def say_provisional(path: str) -> str | None:
    """Say what a part of the file shows, if its format has one; return the first finding's name.

    Whatever goes wrong is left to the reading of the whole file.
    """
    try:
        file = Path(path)
        if not file.is_file():
            return None
        module, name = _CUTS.get(readers.format_of(file), ("", ""))
        if not module:
            return None
        with tempfile.TemporaryDirectory(prefix="opscope-") as folder:
            part = Path(folder) / name
            share = import_module(module).cut(file, part)
            loaded = None if share is None else profile.load(part)
        return None if share is None or loaded is None else _say(loaded, share)
    except Exception:  # noqa: BLE001 - the report on all of the file is what was asked for
        _log.debug("opscope: no provisional answer", exc_info=True)
        return None


def _say(part: profile.Profile, share: float) -> str | None:
    rows = [row for row in part.diagnosis().to_dicts() if row["finding"] != CANNOT_TELL]
    if not rows:
        return None
    steps = int(part.summary()["steps"].item() or 0)
    basis = f"{units.counted(steps, 'step')} near its middle" if steps else "no whole step"
    named = " and ".join(map(_named, rows[:_FINDINGS]))
    common.say(
        f"provisional, from {units.share(share)} of the file ({basis}): {named}; reading all of it …"
    )
    return str(rows[0]["finding"])


def _named(row: dict[str, Any]) -> str:
    share = f" ({units.share(row['share'])} of {row['of']})" if row["share"] else ""
    return f"{units.text(row['finding'])}{share}"


def say_correction(provisional: str, whole_file: profile.Profile) -> None:
    """Say that all of the file shows another cause than its part did, if so."""
    finding = str(whole_file.diagnosis()["finding"][0])
    if finding != provisional:
        shown = "does not tell the cause" if finding == CANNOT_TELL else f"shows {finding}"
        common.say(f"corrected: {provisional} was provisional; all of the file {shown}")
