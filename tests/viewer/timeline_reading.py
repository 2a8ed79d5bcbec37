"""Read the timeline's typed arrays as the page does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


class Reader:
    """Arrays one after the other, each from a multiple of 8 bytes on."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[:4], "little")
        self.data, self.head = data, json.loads(data[4 : 4 + length])
        self.at = -(-(4 + length) // 8) * 8

    def __call__(self, kind: str, many: int) -> Any:
        found = np.frombuffer(self.data, kind, many, self.at)
        self.at += -(-found.nbytes // 8) * 8
        return found

    def slices(self, head: dict[str, Any]) -> dict[str, Any]:
        times = "<f8" if head["wide"] else "<i4"
        many = head["many"]
        start, lasted = (self(times, many).astype(np.int64) for _ in range(2))
        return {
            "start": start,
            "lasted": lasted,
            "name": self("<u4", many),
            "kind": self("u1", many),
        }


def picture(data: bytes) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the header, and per lane its strips with their arrays; nothing is left over."""
    reader = Reader(data)
    columns = reader.head["columns"]
    lanes = {}
    for lane in reader.head["lanes"]:
        strips = []
        for head in lane["strips"]:
            one = dict(head)
            if head["mode"] == "columns":
                one["shares"] = reader("u1", len(head["kinds"]) * columns).reshape(-1, columns)
                one["longest"] = reader("<i4", columns)
                one["index"] = reader("<i4", head["many"])
            else:
                one["index"] = head["first"] + np.arange(head["many"])
            strips.append({**one, **reader.slices(head)})
        lanes[lane["id"]] = strips
    assert reader.at == len(data)
    return reader.head, lanes
