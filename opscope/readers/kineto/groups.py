"""Find the process groups of a Kineto trace, and the ranks in each, in the head of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_CONFIG: Final = re.compile(
    r"'pg_name': '([^']{0,256})'[^{}]{0,2048}?'ranks': \[([0-9, .]{0,65536})\]"
)
_RANK: Final = re.compile(r"['\"](rank|world_size)['\"]: ([0-9]{1,9})\b")
_MOST: Final = 100_000


def member_ranks(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the ranks of each process group by the group's name, as JSON lists, from ``pg_config``.

    ``pg_config`` may be inside a text. A list that was cut (``0, 1, ..., 7``) is left out.
    """
    info = meta.get("distributedInfo")
    if isinstance(info, str):  # the repr of a Python dictionary, not JSON, and possibly cut
        pairs = _CONFIG.findall(info[: 1 << 20])
        return {name: f"[{ranks}]" for name, ranks in pairs[:_MOST] if "." not in ranks}
    config = info.get("pg_config") if isinstance(info, dict) else None
    groups: dict[str, str] = {}
    for item in config[:_MOST] if isinstance(config, list) else ():
        ranks = item.get("ranks") if isinstance(item, dict) else None
        if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
            groups[str(item.get("pg_name"))] = json.dumps(ranks)
    return groups


def only_group(meta: Mapping[str, Any], records: Iterable[bytes]) -> str | None:
    """Return the record (JSON) of the file's only process group, to which all its collectives belong; None if
    there are several, or if records of collectives (``records``) name their groups."""
    info = meta.get("distributedInfo")
    facts = info if isinstance(info, dict) else {}
    config = facts.get("pg_config")
    if not isinstance(config, list) or len(config) != 1 or not isinstance(config[0], dict):
        return None
    if facts.get("pg_count", 1) != 1 or any(b'"group":' in record for record in records):
        return None
    name, size = config[0].get("pg_name"), config[0].get("pg_size")
    if not isinstance(name, str):
        return None
    told: dict[str, Any] = {"group": name}
    if type(size) is int:
        told["group_size"] = size
    ranks = member_ranks(meta).get(name)
    return json.dumps(told | ({} if ranks is None else {"group_ranks": ranks}))


def own_rank(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``distributedInfo``; if it is the text of a dictionary, only the rank and world size."""
    info = meta.get("distributedInfo")
    if isinstance(info, str):
        return {name: int(number) for name, number in _RANK.findall(info[: 1 << 20])}
    return info if isinstance(info, dict) else {}


def with_members(attrs: str, members: Mapping[str, str]) -> str:
    """Return an event's attributes (JSON), with its group's ranks added if only the head has them
    completely."""
    if not members or '"group":' not in attrs:
        return attrs
    try:
        fields = json.loads(attrs)
    except (ValueError, RecursionError):
        return attrs
    written = str(fields.get("group_ranks", ""))
    ranks = members.get(str(fields.get("group")))
    if ranks is None or (written and "..." not in written):
        return attrs
    return json.dumps({**fields, "group_ranks": ranks}, separators=(",", ":"))
