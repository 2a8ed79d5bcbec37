"""The timeline of a single file against the server's: the same slices, shares, sums, hits and details."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.viewer import single
from opscope.viewer.question import Asked
from opscope.viewer.questions import (
    timeline,
    timeline_curves,
    timeline_find,
    timeline_lanes,
    timeline_slice,
    timeline_sum,
)
from opscope.viewer.timeline import whole
from opscope.viewer.timeline.index import timeline_of
from opscope.viewer.viewed import Viewed

from . import in_node
from . import timeline_reading as reading

#: All slices of these are in their files. Times of the second are beyond what a browser's numbers hold.
REAL = {
    "resnet": "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "fsdp": "nsys/fsdp_h100x2_2026.sqlite",
}
WINDOWS = 60


class Both:
    """The file of a profile and the server's answers about the same profile."""

    def __init__(self, profile, folder: Path) -> None:
        self.profile = profile
        self.module = in_node.built(folder, Path(__file__).with_name("timeline_of_file.ts"))
        self.html = folder / "run.html"
        # rows of tables are not left out, so that the details of every slice are there
        self.html.write_bytes(single.page(Viewed(profile, ("run",)), most=100_000_000)[0])
        self.timeline = timeline_of(profile)
        self.lanes = self.timeline.all_lanes()
        self.span = (
            min(lane.span[0] for _, lane in self.lanes),
            max(lane.span[1] for _, lane in self.lanes),
        )

    def file(self, calls: list[list]) -> list:
        return in_node.timeline_answers(self.module, self.html, calls)

    def served(self, module, **given: object):
        texts = {name: str(value) for name, value in given.items()}
        return module.QUESTION.answer(Asked(Viewed(self.profile, ("run",)), texts))

    def windows(self, many: int) -> list[tuple[int, int, int]]:
        """Random windows of any length, and in how many columns they are looked at."""
        random = np.random.default_rng(3)
        low, high = self.span
        found = []
        for _ in range(many):
            span = max(1, int((high - low) * 10 ** random.uniform(-4, 0.1)))
            start = int(random.integers(low - span // 2, high))
            found.append((start, start + span, int(random.integers(1, 300))))
        return found


def in_order(rows: list[dict], by: str) -> list[tuple]:
    """Rows of sums; names of slices have 200 characters in a file."""
    return sorted((row["time"], row["slices"], row[by][:200]) for row in rows)


@pytest.fixture(scope="module", params=["made", *REAL])
def both(request, small, of, tmp_path_factory):
    profile = small if request.param == "made" else of(REAL[request.param])
    made = Both(profile, tmp_path_factory.mktemp("file"))
    assert reading.Reader(whole.whole(made.timeline)).head["left"]["slices"] == 0
    return made


def test_the_lanes_are_the_servers(both) -> None:
    found = both.file([["lanes", "host"], ["lanes", "device"]])
    assert found == [both.served(timeline_lanes, part=part) for part in ("host", "device")]


def test_random_windows_have_the_same_slices_and_shares(both) -> None:
    windows = both.windows(WINDOWS)
    ids = [lane_id for lane_id, _ in both.lanes]
    asked = [["picture", ids, str(low), str(high), columns] for low, high, columns in windows]
    modes = set()
    for (low, high, columns), found in zip(windows, both.file(asked), strict=True):
        data = both.served(timeline, lanes=",".join(ids), start=low, end=high, columns=columns)
        head, lanes = reading.picture(data)
        assert found["columns"] == head["columns"] == min(columns, high - low)
        assert list(found["lanes"]) == list(lanes)
        names = {}
        for lane_id, strips in lanes.items():
            for seen, expected in zip(found["lanes"][lane_id], strips, strict=True):
                modes.add(expected["mode"])
                for one in ("mode", "busy"):
                    assert seen[one] == expected[one]
                for one in ("index", "start", "lasted", "kind"):
                    assert seen[one] == expected[one].tolist()
                for number, same in zip(seen["name"], expected["name"].tolist(), strict=True):
                    assert names.setdefault(number, same) == same
                if expected["mode"] == "columns":
                    assert (seen["slices"], seen["kinds"]) == (
                        expected["slices"],
                        expected["kinds"],
                    )
                    assert seen["shares"] == expected["shares"].reshape(-1).tolist()
                    assert seen["longest"] == expected["longest"].tolist()
        texts = dict(both.file([["names", list(names)]])[0]) if names else {}
        assert texts == {one: both.timeline.names[other][:200] for one, other in names.items()}
    assert modes == {"rows", "columns"} or sum(lane.slices for _, lane in both.lanes) < 100


def test_random_windows_have_the_same_busy_curve(both) -> None:
    windows = both.windows(WINDOWS)
    asked = [["curves", "busy", str(low), str(high), columns] for low, high, columns in windows]
    for (low, high, columns), found in zip(windows, both.file(asked), strict=True):
        data = both.served(timeline_curves, of="busy", start=low, end=high, columns=columns)
        reader = reading.Reader(data)
        assert len(found["curves"]) == len(reader.head["curves"])
        for seen, expected in zip(found["curves"], reader.head["curves"], strict=True):
            values = seen.pop("values")
            assert seen == expected
            assert values == pytest.approx(reader("<f4", reader.head["columns"]).tolist(), abs=0)


def test_sums_and_hits_are_the_servers(both) -> None:
    ids = [lane_id for lane_id, _ in both.lanes]
    windows = both.windows(20)
    sums = both.file([["sums", str(low), str(high), ids] for low, high, _ in windows])
    for (low, high, _), found in zip(windows, sums, strict=True):
        expected = both.served(timeline_sum, start=low, end=high, lanes=",".join(ids))
        for one in ("time", "slices", "lanes", "more"):
            assert found[one] == expected[one]
        for one, by in (("kinds", "kind"), ("names", "name")):
            assert in_order(found[one], by) == in_order(expected[one], by)
    start = both.span[0]
    for text in ("mm", "MEMCPY", "kernel", "<b>ünsafe"):
        for back in (False, True):
            [found] = both.file([["find", text, str(start), back, None]])
            given = {"text": text, "from": start, "back": "1" if back else "0"}
            expected = both.served(timeline_find, **given)
            if expected["found"]:
                expected["found"]["name"] = expected["found"]["name"][:200]
            assert found == expected


def test_a_slice_has_the_same_details_and_arrows(both) -> None:
    """But for what the file has no table of: the texts of ranges, the numbers of calls."""
    random = np.random.default_rng(7)
    wanted = []
    for lane_id, lane in both.lanes:
        for level, strip in enumerate(lane.strips):
            for index in random.choice(len(strip), min(len(strip), 4), replace=False).tolist():
                wanted.append({"lane": lane_id, "level": level, "index": index})
    told = ties = 0
    for at, found in zip(wanted, both.file([["detail", one] for one in wanted]), strict=True):
        expected = both.served(timeline_slice, **at)
        for one in ("text", "correlation"):
            if one not in found["told"]:
                expected["told"].pop(one, None)
        for flow in expected["flows"]:
            flow["name"] = flow["name"][:200]
        if len(found["name"]) == 200:  # of a slice that is in no table
            expected["name"] = expected["name"][:200]
        assert found == expected, at
        told += bool(found["told"])
        ties += len(found["flows"])
    assert told
    assert ties
