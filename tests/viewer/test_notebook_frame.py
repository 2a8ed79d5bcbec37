"""What a notebook shows for a profile: a glance; asked for, a frame that may do nothing but run its scripts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import opscope
from opscope.profile import Profile
from opscope.viewer import notebook, single
from opscope.viewer.glance import MOST
from opscope.viewer.notebook import Shown

assert opscope.load  # profiles are shown by the viewer from the first use of opscope.load on


class Tags(HTMLParser):
    """The attributes of the frames, and the text outside of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.frames: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "iframe":
            self.frames.append(dict(attrs))

    def handle_data(self, data):
        self.text += data


def test_the_frame_runs_scripts_and_reaches_nothing(small):
    shown = Tags(Shown(small)._repr_html_())
    [frame] = shown.frames
    assert frame["sandbox"] == "allow-scripts"
    assert "src" not in frame
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', frame["srcdoc"] or "")
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert set(shown.tags) <= {"iframe", "details", "summary", "p", "table", "tr", "th", "td"}


def test_the_page_in_the_frame_is_the_file_to_the_byte(small):
    [frame] = Tags(Shown(small)._repr_html_()).frames
    page, _ = single.page(single_view(small), most=notebook.MOST)
    assert frame["srcdoc"] == page.decode()


def single_view(profile):
    from opscope.viewer.viewed import Viewed

    return Viewed(profile, notebook._names(profile))


def test_where_no_frame_is_allowed_the_table_is_seen(small):
    untrusted = re.sub(r"<iframe.*?</iframe>", "", Shown(small)._repr_html_(), flags=re.S)
    text = Tags(untrusted).text
    assert "time of the GPU" in text
    assert "aten::mm" in text
    assert "script" not in untrusted


def test_an_output_is_bounded_and_more_is_shown_when_asked_for(trace_of):
    rng = [(n * 7_919) % 1_000_003 for n in range(30_000)]
    ranges = [
        {"id": n, "process": 0, "thread": 0, "start": 2_000_000 * n, "end": 2_000_000 * n + 5 + late,
         "domain": "opscope.torch", "category": "forward", "kind": "pushpop",
         "text": f"aten::op{late % 997}(f32[{late},{n}])"}
        for n, late in enumerate(rng)
    ]  # fmt: skip
    profile = Profile(trace_of(ranges=ranges))
    assert len(profile._repr_html_().encode()) <= MOST
    assert len(repr(profile).encode()) < 1_000
    shown, more = (Shown(profile, **size)._repr_html_() for size in ({}, {"megabytes": 1.2}))
    assert 400_000 < len(shown.encode()) < 520_000
    assert 1_000_000 < len(more.encode()) < 1_250_000


def test_pages_that_take_long_are_shown_when_asked_for_only(small, monkeypatch):
    monkeypatch.setattr(notebook, "_AT_ONCE", 3)
    shown = Tags(small._repr_html_())
    assert shown.frames == []
    assert "6 kernels" in shown.text
    assert "notebook.Shown(profile)" in shown.text
    assert len(Tags(Shown(small, height=300)._repr_html_()).frames) == 1


def test_a_glance_has_the_verdict_a_step_and_the_ops_and_no_script(small):
    text = small._repr_html_()
    shown = Tags(text)
    assert shown.frames == []
    assert set(shown.tags) <= {"p", "br", "strong", "code", "div", "table", "tr", "th", "td"}
    [finding, *_] = small.diagnosis()["finding"]
    assert finding in shown.text
    assert "the nearest to the median" in shown.text
    assert "linear-gradient" in text
    assert "aten::mm" in shown.text
    assert "notebook.Shown(profile)" in shown.text


def test_long_names_do_not_make_a_cell_large(trace_of):
    ranges = [
        {"id": n, "process": 0, "thread": 0, "start": 10 * n, "end": 10 * n + 5, "domain": "opscope.torch",
         "category": "forward", "kind": "pushpop", "text": f'aten::op{n}(f32[4]) @"{"<&>" * 3_000}.py":{n}'}
        for n in range(40)
    ]  # fmt: skip
    text = Profile(trace_of(ranges=ranges))._repr_html_()
    assert len(text.encode()) <= MOST
    assert "<&>" not in text


@pytest.mark.parametrize("megabytes", [0, -1, 101, float("nan")])
def test_a_size_that_makes_no_sense_is_refused(small, megabytes):
    with pytest.raises(ValueError, match="megabytes is"):
        Shown(small, megabytes=megabytes)


def test_only_the_names_of_files_are_shown_not_where_they_lie(small, tmp_path):
    small.save(tmp_path / "run.opscope")
    shown = opscope.load(tmp_path / "run.opscope")
    assert notebook._names(shown) == ("run.opscope",)
