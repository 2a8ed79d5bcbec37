"""How pages look: dark, narrow, and to who cannot see them well (axe-core's rules)."""

from __future__ import annotations

import pytest

from tests.viewer.browser.looking import PAGES

#: Rules of axe-core that say how bad they are.
BAD = ("serious", "critical")


@pytest.fixture(scope="module")
def viewer(viewing, made):
    return viewing(made("training"), "--compare", made("slower"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["training", "cpu", "empty", "hostile"])
def test_at_320_px_no_page_scrolls_sideways(name, dark, look, viewing, made):
    seen = look(viewing(made(name)), width=320, dark=dark)
    for page in PAGES:
        seen.go(page).narrow()
        seen.fine()


def test_dark_is_dark_and_light_is_light(look, viewer):
    def brightness(seen):
        colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        channels = colour.partition("(")[2].rstrip(")").split(",")[:3]
        return sum(float(one) for one in channels) / 3

    assert brightness(look(viewer, "overview", dark=True)) < 64
    assert brightness(look(viewer, "overview", dark=False)) > 192


def test_the_theme_is_chosen_and_kept(look, viewer):
    seen = look(viewer, "overview")
    button = seen.page.get_by_role("button", name="Theme:")
    for wanted in ("dark", "light", "dark"):
        button.click()
        assert f"Theme: {wanted}" in (button.get_attribute("aria-label") or "")
    seen.page.reload()
    seen.settle()
    assert "Theme: dark" in (seen.page.get_by_role("button", name="Theme:").get_attribute("aria-label") or "")  # fmt: skip
    background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background != "rgb(255, 255, 255)"
    seen.fine()


@pytest.fixture(scope="module")
def axe(web):
    return (web / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_no_serious_fault_of_accessibility(page, dark, look, viewer, axe):
    seen = look(viewer, page, dark=dark, bypass_csp=True)
    seen.page.evaluate(axe)
    found = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [
        f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:150] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in BAD
    ]
    assert not faults, "\n".join(faults)
    assert found["passes"], "nothing was checked"
    seen.fine()
