"""A trace is a stranger's data: its texts are text, on every page, and so is a file's name."""

from __future__ import annotations

import pytest

from tests.viewer.browser.looking import PAGES, viewing
from tests.viewer.browser.profiles import HOSTILE

_WATCH = """
globalThis.owned = () => { globalThis.taken = true; console.error("a text of the trace ran"); };
"""


def unowned(seen):
    seen.fine()
    assert seen.page.evaluate("globalThis.taken === undefined")
    # nothing of a text became an element or an attribute that acts
    assert (
        seen.page.locator("main img, main iframe, main object, main embed, main script").count()
        == 0
    )
    assert seen.page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((one) => [...one.attributes]).filter((one) =>"
        " /^on/i.test(one.name) || /^\\s*javascript:/i.test(one.value) && /^(href|src|action)$/i.test(one.name)).length"
    ) == 0  # fmt: skip
    assert seen.page.evaluate(
        "Object.prototype.toString.call({}) === '[object Object]' && !('x' in {})"
    )


@pytest.fixture(params=["columns", "file"])
def viewer(request, made, browser, tmp_path):
    path = made("hostile") if request.param == "columns" else made.hostile_file()
    with viewing(tmp_path, path) as running:
        yield running


def test_no_page_takes_a_text_for_more_than_text(viewer, look):
    seen = look(viewer)
    seen.page.add_init_script(_WATCH)
    seen.page.reload()
    for page in PAGES:
        unowned(seen.go(page))
    text = seen.go("kernels").text
    assert "<script>owned()</script>" in text
    # a direction mark turns nothing around: it is shown as its escape
    assert "\u202e" not in text


def test_hostile_texts_can_be_searched_and_selected(look, viewing, made):
    seen = look(viewing(made("hostile")), "overview")
    seen.page.add_init_script(_WATCH)
    seen.page.reload()
    for text in HOSTILE:
        if text.strip() and len(text) < 200 and "\x00" not in text:
            seen.page.locator("#search").fill(text)
            seen.page.keyboard.press("Enter")
            unowned(seen.settle())
    seen.go("operators")
    rows = seen.page.get_by_role("grid").first.locator(".body [role=row]")
    for number in range(min(rows.count(), 8)):
        rows.nth(number).click()
        unowned(seen.settle())
