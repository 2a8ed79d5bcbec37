"""One file to send: the same pages from disk, without a server and without any request."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.viewer.browser.looking import PAGES
from tests.viewer.browser.profiles import HOSTILE_NAME

DRAG = "Drag over steps to select them for all pages; click one to see its phases."
CLICK = "Click a step to see its phases."


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")

    def write(path, name):
        out = folder / name
        command = [sys.executable, "-m", "opscope", "report", str(path), "--html", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return out

    return write


@pytest.mark.parametrize("name", ["training", "cpu", "empty", "hostile"])
def test_every_page_from_disk(name, made, written, look):
    seen = look(written(made(name), f"{name}.html").as_uri())
    for page in PAGES:
        seen.go(page).fine()
        assert seen.page.locator("h1").count() == 1
    assert {url.partition("#")[0] for url in seen.asked if not url.startswith("blob:")} == {
        seen.base
    }


def test_a_file_with_a_hostile_name_of_a_hostile_file(made, written, look):
    out = written(made.hostile_file(), HOSTILE_NAME.replace("json", "html"))
    seen = look(out.as_uri())
    for page in PAGES:
        seen.go(page).fine()


def test_a_file_shows_what_the_server_shows(made, written, look, viewing):
    served = look(viewing(made("training")))
    file = look(written(made("training"), "same.html").as_uri())
    for page in (
        "overview",
        "operators",
        "kernels",
        "steps",
        "notes",
        "operators?operators_q=mm&operators_sort=calls",
    ):
        one, other = (seen.go(page).page.locator("main").inner_text() for seen in (served, file))
        if page == "steps":  # a file cannot select steps for all pages, and does not offer it
            assert DRAG in one
            one = one.replace(DRAG, CLICK)
        assert one == other, page


def test_what_only_a_server_can_do_is_said(made, written, look):
    seen = look(written(made("training"), "fixed.html").as_uri(), "overview")
    assert seen.page.locator("input.steps").is_disabled()
    assert "opscope view" in (
        seen.page.locator("label:has(input.steps)").get_attribute("title") or ""
    )
    seen.fine()


def test_a_file_whose_script_is_damaged_says_so_and_shows_its_summary(made, written, look):
    path = written(made("training"), "damaged.html")
    begin = '<script type="application/octet-stream" id="opscope-script">'
    before, after = path.read_text(encoding="utf-8").split(begin)
    path.write_text(f"{before}{begin}H4sIAAAA{after[400:]}", encoding="utf-8")
    seen = look(path.as_uri())
    seen.page.get_by_role("alert").wait_for()
    assert "damaged" in seen.page.get_by_role("alert").inner_text()
    assert "wall time" in seen.text
    assert not seen.faults
