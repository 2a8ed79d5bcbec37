"""The pages of a merged job: the tables that it has, and why the others are empty."""

from __future__ import annotations

import json

import pytest

import opscope
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from opscope.viewer.question import Asked
from opscope.viewer.questions.about import NO_EVENTS
from opscope.viewer.registry import questions
from opscope.viewer.tables import kinds
from opscope.viewer.viewed import Viewed
from tests.made_ranks import rank_files

#: Tables of the pages that a merged job has.
SHOWN = (
    "detail", "by_op", "kernel", "kernel_lengths", "steps", "step_summary", "communication", "collectives",
    "stragglers", "late_causes", "slowest_ranks", "clocks", "notes", "summary", "diagnosis",
)  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    files = rank_files(folder, 3, slow=1)
    for one in files:
        write_partial(one, folder / "parts")
    return merge(folder / "parts"), opscope.load(files)


def ask(profile, question, **given):
    found = questions()[question].answer(Asked(Viewed(profile, ("job",)), given))
    return json.loads(json.dumps(found, allow_nan=False))


def test_every_table_is_that_of_the_report_or_says_why_it_is_empty(job):
    merged, loaded = job
    for name in kinds():
        if name.startswith("diff_"):
            continue
        page = ask(merged, "table", name=name)
        assert [one["name"] for one in page["columns"]]
        if name in SHOWN and name not in ("diagnosis", "notes"):
            wanted = ask(loaded, "table", name=name)
            assert (page["total"], page["values"]) == (wanted["total"], wanted["values"]), name
        if "made from partials" in page["empty"]:
            assert name not in SHOWN
            assert page["total"] == page["matching"] == 0
    assert "open the rank's own file" in ask(merged, "table", name="each_kernel")["empty"]
    assert ask(merged, "table", name="each_kernel", sort="-duration")["total"] == 0


def test_the_frame_says_which_pages_have_no_events(job):
    merged, loaded = job
    about, other = ask(merged, "about"), ask(loaded, "about")
    assert about["merged"] == "3 of 3 ranks"
    assert other["merged"] is None
    for name in ("steps", "ranks", "cpu_only"):
        assert about[name] == other[name], name
    for page in ("timeline", "roofline", "layers", "memory", "serving", "source"):
        assert about["empty"][page] == NO_EVENTS
    assert not {"overview", "operators", "kernels", "steps", "distributed", "notes"} & {
        *about["empty"]
    }


def test_the_first_page_has_the_figures_of_the_files(job):
    merged, loaded = job
    figures, other = ask(merged, "overview"), ask(loaded, "overview")
    for name in ("cards", "top", "ops", "unattributed", "device"):
        assert figures[name] == other[name], name
    assert figures["diagnosis"]
    assert ask(merged, "waits") == ask(loaded, "waits")
    assert "advice" in ask(merged, "overview", part="advice")


def test_the_server_answers_in_words_what_needs_events(job, asking):
    answer = asking(Viewed(job[0], ("job",))).ask("flame")
    assert answer.status_code == 404, answer.text
    assert "made from partials" in answer.text
