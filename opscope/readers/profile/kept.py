"""Keep results in the folder of a saved profile, for the next time it is opened: ``kept.NAME.parquet``.

Whoever first computes a result keeps it, if the folder is theirs. Each file names its tables and its version
of the analysis; a file with other ones is ignored. A file is written under another name and renamed, so there
is never half of one, and of two processes that write the same result the last one counts. Nothing else in the
folder changes. Results that cannot be kept are computed again, so no failure here is an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.columns import to_read

from .profile_folder import DAMAGE, META, refuse_pipe

#: ``0`` in this environment variable: results are read, and none is kept.
KEEP: Final = "OPSCOPE_KEEP"
_FILE: Final = re.compile(r"kept\.([a-z][a-z0-9_]{0,63})\.parquet\Z")
#: Key of the file's own metadata.
_OF: Final = "opscope"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder for the results of a profile. ``tables``: the hash of its ``meta.json``."""

    folder: Path
    tables: str
    analysis: int

    @classmethod
    def of(cls, folder: str | os.PathLike[str], analysis: int) -> Place:
        """Return the place for results of the profile ``folder``. Raises OSError."""
        return cls(Path(folder), _tables(Path(folder)), analysis)

    def files(self) -> dict[str, Path]:
        """Return the file of each result that is kept."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return {}
        named = {match[1]: self.folder / name for name in names if (match := _FILE.match(name))}
        return {name: file for name, file in named.items() if self._fits(file)}

    def _fits(self, file: Path) -> bool:
        try:
            refuse_pipe(file)
            return pl.read_parquet_metadata(to_read(file)).get(_OF) == self._label()
        except DAMAGE as error:
            _log.debug("%s is not used: %s", file, error)
            return False

    def _label(self) -> str:
        return json.dumps({"tables": self.tables, "analysis": self.analysis})

    def keep(self, name: str, frame: pl.DataFrame) -> Path | None:
        """Keep the result ``name`` and return its file; None if that is not possible."""
        if not self.keeps():
            return None
        try:
            return self._write(f"kept.{name}.parquet", frame)
        except DAMAGE as error:
            _log.debug("%s of %s is not kept: %s", name, self.folder, error)
            return None

    def keeps(self) -> bool:
        """Whether this user owns the folder and may write into it, and it still has the same tables."""
        if os.environ.get(KEEP) == "0":
            return False
        try:
            ours = not hasattr(os, "geteuid") or self.folder.stat().st_uid == os.geteuid()
            return ours and os.access(self.folder, os.W_OK) and _tables(self.folder) == self.tables
        except OSError:
            return False

    def _write(self, name: str, frame: pl.DataFrame) -> Path:
        number, temporary = tempfile.mkstemp(".tmp", f".{name}.", self.folder)
        try:
            with os.fdopen(number, "wb") as file:
                frame.write_parquet(
                    file, compression="zstd", compression_level=1, metadata={_OF: self._label()}
                )
            # users who may read the profile may read its results
            os.chmod(temporary, (self.folder / META).stat().st_mode & 0o666)
            os.replace(temporary, self.folder / name)
            return self.folder / name
        except BaseException:
            # after Ctrl-C too no incomplete file stays; the exception is raised again
            os.unlink(temporary)
            raise


def _tables(folder: Path) -> str:
    """Return a text that differs between any two profiles. Raises OSError."""
    refuse_pipe(folder / META)
    return hashlib.blake2b((folder / META).read_bytes(), digest_size=16).hexdigest()
