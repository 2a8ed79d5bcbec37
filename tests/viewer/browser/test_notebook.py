"""Profiles in a notebook that was exported to HTML: the pages are in its frames, and nothing leaves them."""

from __future__ import annotations

import html

import pytest

import opscope
from opscope.viewer.notebook import Shown
from tests.viewer.browser.figures import equal
from tests.viewer.browser.looking import PAGES


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function that writes a page with cells and their outputs, as exporters of notebooks do."""
    folder = tmp_path_factory.mktemp("notebooks")

    def write(name, *outputs):
        cells = [
            f"<pre>cell {n}</pre><div class=output>{one}</div>" for n, one in enumerate(outputs)
        ]
        path = folder / f"{name}.html"
        path.write_text(
            f"<!doctype html><meta charset=utf-8><title>n</title><main><h1>Notebook</h1>{''.join(cells)}</main>"
        )
        return path.as_uri()

    return write


def frame_of(seen, number=0):
    """The frame of a cell, when its page is drawn."""
    frame = seen.page.frame_locator("iframe").nth(number)
    frame.locator("a.card").first.wait_for()
    return frame


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_each_frame_shows_the_overview_and_the_notebook_stays_where_it_is(
    look, made, exported, width, dark
):
    first, second = (Shown(opscope.load(made(name)))._repr_html_() for name in ("training", "cpu"))
    seen = look(exported(f"two-{width}-{dark}", "above", first, second), width=width, dark=dark)
    for number in range(2):
        assert frame_of(seen, number).locator("h1").inner_text() == "Overview"
    assert seen.page.evaluate("scrollY") == 0
    seen.narrow()
    seen.fine()
    assert {url for url in seen.asked if not url.startswith(("blob:", "about:"))} == {seen.base}


def test_every_page_opens_in_the_frame_and_the_address_of_the_notebook_stays(look, made, exported):
    seen = look(exported("pages", Shown(opscope.load(made("training")))._repr_html_()))
    frame = frame_of(seen)
    for link in frame.locator(".nav a").all():
        link.click()
        assert frame.locator("h1").count() == 1
        assert frame.locator(".failed").count() == 0
    assert frame.locator(".nav a").count() >= len(PAGES) - 1
    assert seen.page.url == seen.base
    seen.fine()


def test_the_figures_in_the_frame_are_those_of_the_report(look, made, exported, printed):
    path = made("training")
    seen = look(exported("figures", Shown(opscope.load(path))._repr_html_()))
    titles = [one.get_attribute("title") or "" for one in frame_of(seen).locator("a.card").all()]
    compared = 0
    for title in titles:
        name, _, exact = title.partition(" = ")
        report, column = name.split(".", 1)
        rows = printed(path, report)
        rows = [rows] if isinstance(rows, dict) else rows
        if len(rows) == 1 and ", as a share" not in column:
            assert equal((exact or "unknown", exact), rows[0][column]), title
            compared += 1
    assert compared >= 3
    seen.fine()


def test_hostile_texts_in_a_notebook_are_text(look, made, exported):
    profile = opscope.load(made("hostile"))
    seen = look(
        exported("hostile", Shown(profile)._repr_html_(), f"<p>{html.escape(repr(profile))}</p>")
    )
    frame = frame_of(seen)
    for link in frame.locator(".nav a").all():
        link.click()
        assert frame.locator("h1").count() == 1
    seen.fine()


def test_without_scripts_the_frame_and_the_notebook_show_the_summary(look, made, exported):
    profile = opscope.load(made("training"))
    still = Shown(profile)._repr_html_().replace('sandbox="allow-scripts"', 'sandbox=""')
    uri = exported("still", still)
    seen = look(uri, allowed=("Blocked script execution",))
    frame = seen.page.frame_locator("iframe")
    assert "wall time" in frame.locator("body").inner_text()
    assert "drawn by JavaScript" in frame.locator("body").inner_text()
    assert seen.page.locator("details").count() == 1
