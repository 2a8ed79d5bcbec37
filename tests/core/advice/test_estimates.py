"""An estimate made on a bad run, held against the same program mended: the error is printed and documented."""

from __future__ import annotations

import pytest

from opscope.core.advice.said import said_by
from tests import traces
from tests.script import ROOT

BAD, MENDED = (f"kineto/resnet50_nw{n}_step_span1.pt.trace.json.gz" for n in (0, 4))


def test_a_loader_with_workers_is_about_as_fast_as_the_replay_says(shared):
    """Without workers each of six steps waits 70 ms; with four workers four of six steps do not."""
    bad, mended = traces.load(shared / BAD), traces.load(shared / MENDED)
    (found,) = said_by(bad, ["data_loader"])
    steps = found.times.filter(found.times["step"].is_not_null())
    before, expected = steps["wall_time"].median(), steps["new_wall_time"].median()
    took = mended.steps()["time"].median()
    error = expected / took - 1
    print(
        f"{before / 1e6:.1f} ms; estimated {expected / 1e6:.1f}, took {took / 1e6:.1f}: {error:.1%}"
    )
    assert before == bad.steps()["time"].median()
    assert abs(error) < 0.1
    assert abs(before - expected) > 4 * abs(expected - took)  # the cause is most of the difference
    page = (ROOT / "docs" / "reference" / "advice.md").read_text("utf-8")
    for figure in (before, expected, took):
        assert f"{figure / 1e6:.1f} ms" in page
    assert f"{abs(error) * 100:.1f} % too {'low' if error < 0 else 'high'}" in page


def test_the_mended_run_has_less_to_save(shared):
    bad, mended = (traces.load(shared / one) for one in (BAD, MENDED))
    saving = [one.advice_combined(["data_loader"])["saving"][0] or 0 for one in (bad, mended)]
    assert saving[0] > 2 * saving[1]
    assert bad.advice_combined(["data_loader"])["step_saving"][0] == pytest.approx(59.1e6, rel=0.01)
