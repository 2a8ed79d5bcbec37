"""Names of the runtime's and the driver's calls by CUPTI's numbers (callback ids).

``calls.json`` has them, which ``scripts/make_cupti_layouts.py`` takes from the headers. A number keeps its
call; CUDA 13 has given some calls other names.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from opscope.core.cupti.kinds import DRIVER, RUNTIME

_SIDES = {RUNTIME: "runtime", DRIVER: "driver"}
_NONE = "-"


@lru_cache(maxsize=8)
def names(kind: int, version: int) -> tuple[str, ...]:
    """Return the names of the calls in records of ``kind`` (RUNTIME or DRIVER) of a version of CUPTI.

    A name's place is the call's number; a call without a known name is ``cbid_N``.
    """
    facts = json.loads(Path(__file__).with_name("calls.json").read_bytes())[_SIDES[kind]]
    all_names: list[str] = facts["names"].split()
    for since, changed in facts["renamed"].items():
        if version >= int(since):
            for number, name in changed.items():
                all_names[int(number)] = name
    return tuple(
        f"cbid_{number}" if name == _NONE else name for number, name in enumerate(all_names)
    )
