"""The first page's figures are those of ``opscope report --json``; what is unknown has a reason."""

from __future__ import annotations

import json

import pytest

from opscope.core.question import registry as questions
from opscope.reports import files, registry
from opscope.viewer.question import Asked
from opscope.viewer.questions import about, overview
from opscope.viewer.viewed import Viewed
from tests import traces
from tests.viewer.traces import TRACES

#: The figures that are a share of two numbers of the summary; the others are a column as it stands.
SHARES = {
    "tensor_cores": ("tensor_core_time", "kernel_time"),
    "attributed": ("device_attributed_time", "device_time"),
}
REPORTS = (
    "summary",
    "step_summary",
    "device_use",
    "utilization",
    "by_op",
    "unattributed",
    "diagnosis",
    "advice",
    "notes",
)


@pytest.fixture(scope="module", params=TRACES)
def both(request, shared):
    """What the page is told, and what the command prints, each from a profile of its own."""
    printed = traces.load(shared / request.param)
    chosen = {name: questions.reports()[name] for name in REPORTS}
    reports = json.loads(files.as_json("report", registry.frames(printed, chosen)))
    viewed = Viewed(traces.load(shared / request.param), ("a",))
    told = [overview.answer(Asked(viewed, given)) for given in ({}, {"part": "advice"})]
    return json.loads(json.dumps(told[0], allow_nan=False)), told[1], reports


def test_each_card_is_the_figure_of_the_report_that_it_names(both):
    page, _, reports = both
    summary = reports["summary"]
    names = {card["name"] for card in page["cards"]}
    assert {"wall_time", "attributed", "flops_known", "mfu", "step_time"} <= names
    for card in page["cards"]:
        name, value = card["name"], card["value"]
        assert (value is None) == bool(card["reason"]), name
        rows = reports[card["report"]]
        rows = [rows] if isinstance(rows, dict) else rows
        held = [row[card["column"]] for row in rows if row[card["column"]] is not None]
        if name in SHARES:
            part, whole = (summary[column] for column in SHARES[name])
            assert value == (part / whole if part is not None and whole else None), name
        elif name == "step_time":
            steps = [
                row["median"] for row in rows if row["part"] == "step" and row["median"] is not None
            ]
            assert value == (max(steps) if steps else None)
        elif name == "mfu":
            middle = sorted(held)[(len(held) - 1) // 2 : len(held) // 2 + 1]
            assert value == (pytest.approx(sum(middle) / len(middle)) if held else None)
        elif card["report"] == "device_use":
            assert value == (min(held) if held else None), name
        else:
            assert value == (held[0] if held else None), name
        if name == "device_busy" and value is not None:
            wall = (
                summary["wall_time"] if summary["window_time"] is None else summary["window_time"]
            )
            assert card["share"] == value / (wall * summary["devices"])
        if name == "tensor_cores" and value is not None:
            rest = summary["tensor_core_undetermined_time"]
            assert card["undetermined"] == rest / summary["kernel_time"]


def test_the_lists_are_the_rows_of_the_reports(both):
    page, advice, reports = both
    for row, printed in zip(page["top"], reports["by_op"][:10], strict=True):
        assert row == {name: printed[name] for name in row}
    assert page["ops"] == len(reports["by_op"])
    rest = reports["by_op"][10:]
    assert page["others_share"] == (
        pytest.approx(sum(row["share"] for row in rest))
        if rest and all(row["share"] is not None for row in rest)
        else None
    )
    assert (page["unattributed"]["time"], page["unattributed"]["whole"]) == (
        reports["summary"]["device_unattributed_time"], reports["summary"]["device_time"]
    )  # fmt: skip
    for made, printed in (
        (page["unattributed"]["reasons"], reports["unattributed"]), (page["diagnosis"], reports["diagnosis"]),
        (advice["advice"], [row for row in reports["advice"] if row["outcome"] == "found"]),
        (page["steps"], [row for row in reports["step_summary"]
                         if row["steps"] and row["part"] != "step" and not row["part"].startswith("phase: ")]),
    ):  # fmt: skip
        assert len(made) == len(printed)
        for row, other in zip(made, printed, strict=True):
            assert {**row, "saving_text": 0} == {
                **{name: other.get(name) for name in row},
                "saving_text": 0,
            }
    doubts = {
        f"{row['severity']}: {row['what']}" for row in reports["notes"] if row["severity"] != "info"
    }
    assert set(page["warnings"]) <= doubts


def test_a_selection_is_that_of_the_report(shared):
    profile = traces.load(shared / "nsys/fsdp_h100x2_2026.sqlite")
    viewed = Viewed(profile, ("a",))
    steps = about.answer(Asked(viewed, {}))["steps"]
    part = profile.select(steps=(steps["last"], steps["last"]), device=[0])
    page = overview.answer(Asked(viewed, {"steps": str(steps["last"]), "device": "0"}))
    assert page["selected"] == part.selected
    cards = {card["name"]: card["value"] for card in page["cards"]}
    summary = part.summary().row(0, named=True)
    assert (cards["wall_time"], cards["device_busy"]) == (
        summary["wall_time"],
        summary["device_busy"],
    )
    whole = {card["name"]: card["value"] for card in overview.answer(Asked(viewed, {}))["cards"]}
    assert whole["wall_time"] > cards["wall_time"]
