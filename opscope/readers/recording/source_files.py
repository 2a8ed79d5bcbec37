"""The source files that recordings name, with the hashes that they had when the recordings ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Most files of one process, and the longest name.
MOST: Final = 1_000
_LONGEST: Final = 4_096
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def source_file(line: Mapping[str, Any]) -> dict[str, str]:
    """Return a fact of the recording: the file's name in range texts, its path, its hash.

    Raises ValueError if it is none.
    """
    facts = {"file": line["source_file"], "path": line["path"], "sha256": line["sha256"]}
    for value in facts.values():
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise ValueError(f"not a source file: {value!r:.60}")
    if _SHA256.fullmatch(facts["sha256"]) is None:
        raise ValueError(f"no hash: {facts['sha256']!r:.60}")
    return facts


def merged(parts: Sequence[Sequence[dict[str, str]]]) -> list[dict[str, str]]:
    """Return the files of all processes, by name; a name that means different files is left out."""
    file_by_name: dict[str, dict[str, str] | None] = {}
    for file in (one for part in parts for one in part):
        file_by_name[file["file"]] = file if file_by_name.get(file["file"], file) == file else None
    return [one for _, one in sorted(file_by_name.items()) if one is not None]
