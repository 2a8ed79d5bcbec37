"""Every page on every real trace, on made ones and on live runs: no error, no request outside, nothing blank.

On the real traces the rows that are drawn, and the cards of the overview, are those that
``opscope report --json`` prints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import opscope
from opscope.core.question.registry import reports
from opscope.reports import files
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests.made_ranks import rank_files
from tests.viewer.browser import figures
from tests.viewer.browser.conftest import ROOT
from tests.viewer.browser.looking import PAGES, served, viewing
from tests.viewer.browser.traces import DATA, traces


def every_page(seen):
    """Open each page, and yield its name once it is found fine."""
    for page in PAGES:
        seen.go(page)
        seen.fine()
        assert seen.page.locator("h1").count() == 1, page
        assert seen.page.locator("nav [aria-current=page]").count() == 1, page
        yield page


@pytest.mark.parametrize("name", traces() or [pytest.param(None, id="none")])
def test_real_traces(name, browser, look):
    if name is None:
        pytest.skip(f"no real traces at {DATA} (set OPSCOPE_SHARED)")
    profile = opscope.load(DATA / name)

    def printed(report):
        """The rows of a report as ``opscope report --json`` prints them."""
        made = json.loads(files.as_json("report", {report: reports()[report].frame(profile)}))[
            report
        ]
        return made if isinstance(made, list) else [made]

    compared = 0
    with served(profile, name) as viewer:
        seen = look(viewer)
        for _ in every_page(seen):
            for grid in seen.page.evaluate(figures.READ):
                report = grid["id"].replace("-", "_")
                # what is asked notes more; a sorted table is in an order of its own
                if report in reports() and report != "notes" and not grid["sorted"]:
                    rows = figures.of_device(grid, printed(report))
                    compared += figures.check(grid, rows, figures.units(report))
        cards = figures.cards(seen.go("overview"), printed)
    ran = not (profile.ops().is_empty() and profile.kernels().is_empty())
    # the smallest of them shows 47 cells
    assert (compared > 20 and cards >= 3) or not ran, (compared, cards)


def test_there_are_real_traces_of_every_kind():
    if not DATA.is_dir():
        pytest.skip(f"no real traces at {DATA} (set OPSCOPE_SHARED)")
    kinds = {name.partition("/")[0] for name in traces()}
    # of ncu there are counters, which go beside a trace
    assert kinds == {path.name for path in DATA.iterdir() if path.is_dir()} - {"ncu"}
    assert len(traces()) >= 40


def test_a_merged_job(tmp_path, browser, look):
    """Pages that are drawn from events say that a merged job has none; the others have its tables."""
    files = rank_files(tmp_path, 3, slow=1)
    for one in files:
        write_partial(one, tmp_path / "parts")
    told = {}
    with served(merge(tmp_path / "parts"), "job.opscope") as viewer:
        seen = look(viewer)
        for page in every_page(seen):
            told[page] = seen.text
    without = {page for page, text in told.items() if "events are not in a merged job" in text}
    assert without == {"timeline", "roofline", "layers", "memory", "serving", "source"}
    assert "aten::mm" in told["operators"]
    assert "Kernels of 3 of 3 ranks" in told["kernels"]
    assert "rank 1" in told["distributed"]


@pytest.mark.parametrize("name", ["training", "cpu", "empty", "hostile"])
def test_made_profiles(name, look, viewing, made):
    assert list(every_page(look(viewing(made(name))))) == list(PAGES)


@pytest.mark.parametrize("script", ["torch_lenet.py", "torch_ranks.py", "onnxruntime_cnn.py"])
def test_a_live_run(script, browser, look, tmp_path):
    """An example, recorded as people record their own programs."""
    pytest.importorskip(script.partition("_")[0])
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        "live.opscope",
        "--memory",
        "--",
        sys.executable,
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, str(ROOT / "examples" / script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with viewing(tmp_path, tmp_path / "live.opscope") as viewer:
        assert list(every_page(look(viewer))) == list(PAGES)


def test_several_files_are_one_job(look, viewing):
    if not DATA.is_dir():
        pytest.skip(f"no real traces at {DATA} (set OPSCOPE_SHARED)")
    files = [DATA / "kineto" / f"sampled_rank{rank}.json.gz" for rank in (0, 1)]
    seen = look(viewing(*files))
    assert list(every_page(seen)) == list(PAGES)
    assert seen.page.get_by_label("rank").locator("option").count() == 3


def test_two_runs_side_by_side(look, viewing, made):
    seen = look(viewing(made("training"), "--compare", made("slower")))
    assert list(every_page(seen)) == list(PAGES)
