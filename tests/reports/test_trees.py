"""A tree in the terminal: folded to the rows with the most time, its branches drawn, what is folded counted."""

from __future__ import annotations

import io

import pytest

from opscope.core.question.layout import write
from opscope.core.question.record import View
from opscope.core.question.registry import reports
from opscope.profile import Profile

PLACE = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}


def op(start: int, end: int) -> dict:
    return {**PLACE, "text": "aten::mm()", "category": "forward", "start": start, "end": end}


def layer(text: str, start: int, end: int) -> dict:
    return {**PLACE, "text": text, "category": "layer", "start": start, "end": end}


@pytest.fixture
def profile(trace_of) -> Profile:
    ranges = [
        layer("Net", 0, 1000),
        *(layer(f"Net.blocks.{n}", 100 * n, 100 * n + 90) for n in range(4)),
        *(op(100 * n + 5, 100 * n + 60 + n) for n in range(4)),
        op(2000, 2010),
    ]
    return Profile(trace_of(ranges=ranges))


def shown(profile: Profile, name: str, top: int | None) -> list[str]:
    report = reports()[name]
    assert report.table is not None
    out = io.StringIO()
    write([report.table(report, profile, View(top))], out, None)
    return out.getvalue().splitlines()


def names(profile: Profile, top: int | None) -> list[str]:
    report = reports()["modules"]
    assert report.table is not None
    return [row["module"] for row in report.table(report, profile, View(top)).rows]


def test_all_rows_are_drawn_with_their_branches(profile):
    assert names(profile, None) == [
        "(all)",
        "├ Net",
        "│ └ blocks",
        "│   ├ 3",
        "│   ├ 2",
        "│   ├ 1",
        "│   └ 0",
        "└ (outside any module)",
    ]


def test_rows_with_less_time_are_folded_and_counted(profile):
    assert names(profile, 4) == [
        "(all)  … 1 more",
        "├ Net",
        "│ └ blocks  … 3 more",
        "│   ├ 3",
    ]
    assert names(profile, 1) == ["(all)  … 2 more"]
    assert "4 of 8 rows; --top 0 shows all" in shown(profile, "modules", 4)


def test_the_call_tree_is_drawn_likewise(profile):
    lines = shown(profile, "call_tree", 3)
    assert any(line.startswith("├ Net  … 3 more") for line in lines)


def test_a_trace_without_modules_says_how_to_record_them(trace_of):
    lines = shown(Profile(trace_of(ranges=[op(0, 10)])), "modules", None)
    assert any("names no modules" in line for line in lines)
    assert any("(outside any module)" in line for line in lines)
    assert any("names no modules" in line for line in shown(Profile(trace_of()), "modules", None))
