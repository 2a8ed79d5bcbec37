"""Using the pages: by keyboard alone, by addresses that are sent, by the global selection, after the server has gone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from urllib.parse import parse_qs, quote

import numpy as np
import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.viewer.timeline.op_kinds import AT_ONCE
from tests.viewer.browser.looking import PAGES, Looking, viewing


@pytest.fixture(scope="module")
def viewer(viewing, made):
    return viewing(made("training"))


def asked(place):
    return parse_qs(place.partition("?")[2])


def focused(seen):
    return seen.page.evaluate(
        "(document.activeElement?.getAttribute('aria-label') ?? '') + ' ' + (document.activeElement?.textContent ?? '').slice(0, 80)"
    )


def launched(count):
    """So many spans one after another, and a launch and an elementwise kernel in each."""
    start = np.arange(count, dtype=np.int64) * 10_000
    plain = pl.DataFrame({"start": start, "end": start + 4_000}).with_columns(process=0)
    called = plain.with_columns(
        thread=1, correlation=pl.int_range(pl.len()), name=pl.lit("cudaLaunchKernel")
    )
    kernels = plain.with_columns(
        device=0, stream=7, correlation=pl.int_range(pl.len()), name=pl.lit("elementwise_kernel")
    )
    return plain, called, kernels


def test_tab_reaches_the_pages_the_search_and_the_table(look, viewer):
    seen = look(viewer, "operators")
    met = []
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        met.append(
            (seen.page.evaluate("document.activeElement?.getAttribute('role')"), focused(seen))
        )
    assert any("Skip" in text for _, text in met)
    assert any("Kernels" in text for _, text in met)
    assert any("Search" in text for _, text in met)
    assert any(role == "grid" for role, _ in met)
    seen.fine()


def test_g_and_a_letter_goes_to_each_page(look, viewer):
    seen = look(viewer, "overview")
    seen.page.keyboard.press("?")
    keys = seen.page.locator("dialog[open]")
    assert keys.count() == 1
    letters = [
        key.split()[1] for key in keys.locator("kbd").all_inner_texts() if key.startswith("g ")
    ]
    assert len(letters) == len(set(letters)) == len(PAGES)
    seen.page.keyboard.press("Escape")
    assert seen.page.locator("dialog[open]").count() == 0
    for page, letter in zip(PAGES, letters, strict=True):
        seen.page.keyboard.press("g")
        seen.page.keyboard.press(letter)
        seen.settle()
        assert seen.place.partition("?")[0] == page
    seen.fine()


def test_a_letter_alone_goes_nowhere_however_young_the_page_is(look, viewer):
    seen = look(viewer, "overview")
    # the age of the page when the key is pressed, in ms
    press = """() => {
      const event = new KeyboardEvent("keydown", { key: "n", bubbles: true });
      Object.defineProperty(event, "timeStamp", { value: 900 });
      document.body.dispatchEvent(event);
    }"""
    seen.page.evaluate(press)
    assert seen.settle().place.startswith("overview")
    seen.fine()


def test_a_search_from_the_keyboard_finds_an_op_and_goes_along(look, viewer):
    seen = look(viewer, "operators")
    rows = seen.page.locator(".under").first.inner_text()
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("layer_norm")
    seen.settle()
    results = seen.page.locator("#search-results")
    assert "layer_norm" in results.inner_text()
    # the tables stay as they are
    assert seen.page.locator(".under").first.inner_text() == rows
    assert asked(seen.place)["q"] == ["layer_norm"]
    seen.page.keyboard.press("ArrowDown")
    [chosen] = results.locator("[aria-selected=true]").all()
    name = chosen.locator(".mid").inner_text().replace("\n", "")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert results.count() == 0
    assert asked(seen.place)["op"] == [name]
    seen.page.keyboard.press("Escape")
    seen.page.keyboard.press("g")
    seen.page.keyboard.press("k")
    seen.settle()
    assert asked(seen.place)["q"] == ["layer_norm"]
    seen.fine()


def test_a_row_is_selected_with_the_keyboard_and_fills_the_next_tables(look, viewer):
    seen = look(viewer, "operators")
    grid = seen.page.get_by_role("grid").first
    grid.focus()
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert grid.locator("[aria-selected=true]").count() == 1
    op = grid.locator("[aria-selected=true] [role=gridcell]").first.inner_text()
    assert op.split("\n")[0][:10] in seen.place.replace("%3A", ":")
    assert seen.page.get_by_role("grid").count() >= 2
    again = look(viewer, seen.place)
    assert again.page.get_by_role("grid").count() >= 2
    again.fine()
    seen.fine()


def test_a_heading_sorts_with_the_keyboard(look, viewer):
    seen = look(viewer, "operators")
    grid = seen.page.get_by_role("grid").first
    before = grid.locator(".body [role=row]").first.inner_text()
    grid.focus()
    for key in ("Home", "ArrowUp", "Enter"):
        seen.page.keyboard.press(key)
    seen.settle()
    ordered = grid.locator("[role=columnheader]").first.get_attribute("aria-sort")
    assert ordered in ("ascending", "descending")
    names = [row.split("\n")[0] for row in grid.locator(".body [role=row]").all_inner_texts()]
    # a row of no op shows its reason in brackets, and is sorted as unknown: last
    names = [name for name in names if not name.startswith("(")]
    assert names == sorted(names, reverse=ordered == "descending")
    assert grid.locator(".body [role=row]").first.inner_text() != before
    seen.fine()


def test_the_timeline_moves_by_keys_and_its_window_is_in_the_address(look, viewer):
    seen = look(viewer, "timeline")
    seen.page.locator("canvas").first.focus()
    windows = []
    for key in ("w", "w", "d", "a", "s"):
        seen.page.keyboard.press(key)
        seen.settle()  # the address follows when it has come to rest, by a timer that this waits for
        given = asked(seen.place)
        windows.append((int(given["start"][0]), int(given["end"][0])))
    widths = [end - start for start, end in windows]
    assert widths[1] < widths[0]
    assert windows[2][0] > windows[1][0]
    assert windows[3][0] < windows[2][0]
    assert widths[4] > widths[3]
    again = look(viewer, seen.place)
    assert asked(again.place)["start"] == asked(seen.place)["start"]
    again.fine()
    seen.fine()


def test_the_timeline_is_asked_for_once_and_a_kept_picture_is_drawn_before_its_lanes_are_made(
    look, viewing, made, tmp_path
):
    copy = tmp_path / "run.opscope"
    shutil.copytree(made("training"), copy, ignore=shutil.ignore_patterns("kept.*"))
    drawn, asked_for, lanes = [], [], "api/timeline_lanes?"
    for words in ((), ("--host", "localhost")):  # two servers, one after the other
        seen = look(viewing(copy, *words), "timeline")
        asked_for.append([url.partition(lanes)[2] for url in seen.asked if lanes in url])
        seen.asked.clear()
        seen.page.reload()  # the page's head has the timeline's address, as if it was sent
        seen.settle()
        asked_for.append([url.partition(lanes)[2] for url in seen.asked if lanes in url])
        drawn.append(seen.page.locator("button.tl-title").all_inner_texts())
        seen.fine()
    plain = ["part=device", "part=host"]
    assert asked_for == [plain, plain, ["part=device", "made=1&part=device", "part=host"], plain]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 2


def test_colours_that_are_provisional_are_said_to_be_so_and_end_when_the_ops_are_known(
    browser, viewing, tmp_path, request
):
    """Kernels named as elementwise, whose ops are an optimizer's: more of them than are linked at once."""
    many = 150_000
    assert 3 * many > AT_ONCE
    plain, called, kernels = launched(many)
    ranges = plain.with_columns(
        pl.col("start") - 100, thread=1, id=pl.int_range(pl.len()), text=pl.lit("aten::add_(f32[4])"),
        domain=pl.lit("opscope.torch"), category=pl.lit("optimizer"),
    )  # fmt: skip
    trace = Trace.of({"kernels": kernels, "calls": called, "ranges": ranges})
    Profile(trace).save(tmp_path / "run.opscope")
    viewer, held = viewing(tmp_path / "run.opscope"), []
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    request.addfinalizer(context.close)
    seen = Looking(context, viewer.url)  # the home page needs the ops: after it they are known
    seen.page.route(
        "**/api/timeline_settled*", lambda one: held.append(one)
    )  # the answer waits until it is let on
    seen.page.goto(f"{viewer.url}#/timeline")
    board, words = seen.page.locator(".tl-board"), seen.page.locator("#tl-words")
    legend = seen.page.locator(".tl-legend")
    seen.page.locator(".tl-board[data-colours=names]").wait_for()
    words.get_by_text("the colours of their ops follow").wait_for()
    assert "elementwise" in legend.inner_text().split()
    seen.page.wait_for_function("() => document.querySelectorAll('button.tl-title').length > 2")
    assert board.get_attribute("data-colours") == "names"
    assert len(held) == 1
    assert not list(tmp_path.glob("run.opscope/kept.first_pictures.*"))
    held.pop().continue_()
    seen.page.locator(".tl-board[data-colours=ops]").wait_for()
    words.get_by_text("the colours of their ops follow").wait_for(state="detached")
    assert "optimizer" in legend.inner_text().split()
    assert "elementwise" not in legend.inner_text().split()
    seen.fine()


def test_a_span_in_the_address_is_added_up_over_threads_and_streams(look, viewer):
    """The streams come first, whose first start is later than that of the threads."""
    seen = look(viewer, "timeline")
    whole = seen.page.locator(".tl-board").get_attribute("data-window")
    low, high = (int(one) for one in whole.split(" "))
    middle = (low + high) // 2
    seen = look(viewer, f"timeline?mark={middle}:{high}")
    titles = seen.page.locator("button.tl-title").all_inner_texts()
    lanes = seen.page.locator(".tl-sums table").first.locator("tbody tr").all_inner_texts()
    assert any("stream" in one for one in lanes), lanes
    assert any("stream" not in one for one in lanes), (lanes, titles)
    seen.page.wait_for_timeout(700)  # the address follows when it has come to rest
    assert asked(seen.place)["mark"] == [f"{middle}:{high}"]
    seen.fine()


def test_a_selected_kernel_tells_its_op_in_a_file_as_from_a_server(look, viewer, made, tmp_path):
    out = tmp_path / "run.html"
    command = [sys.executable, "-m", "opscope", "report", str(made("training")), "--html", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    place = "timeline?sel=d0:0:5"
    told = []
    for seen in (look(viewer, place), look(out.as_uri(), place)):
        details = seen.page.locator(".tl-details")
        details.locator("dt:text-is('tied to')").wait_for()
        told.append(details.inner_text())
        assert details.locator("button:text-is('op')").count() == 1
        seen.fine()
    assert told[0].replace("\ncorrelation", "") == told[1].replace("\ncorrelation", "")


@pytest.mark.parametrize("page", PAGES)
def test_an_address_with_the_token_opens_the_same_place_elsewhere(page, look, viewer):
    place = f"{page}?steps=1-3&device=0&rank=0&q=mm"
    seen = look(f"{viewer.url}#/{place}")
    assert "token" not in seen.page.url
    assert {key: value for key, value in asked(seen.place).items() if key in ("steps", "device", "rank", "q")} == {
        "steps": ["1-3"], "device": ["0"], "rank": ["0"], "q": ["mm"],
    }  # fmt: skip
    assert (
        seen.page.locator("nav [aria-current=page]").get_attribute("href").startswith(f"#/{page}")
    )
    assert seen.page.locator("input.steps").input_value() == "1-3"
    assert seen.page.locator("#search").input_value() == "mm"
    seen.fine()


def test_back_and_forward_go_where_one_was(look, viewer):
    seen = look(viewer, "operators")
    for page in ("kernels", "steps"):
        seen.page.locator("nav").get_by_role("link", name=page.title()).click()
        seen.settle()
    seen.page.go_back()
    assert seen.settle().page.locator("h1").inner_text() == "Kernels"
    seen.page.go_back()
    assert seen.settle().page.locator("h1").inner_text() == "Operators"
    seen.page.go_forward()
    assert seen.settle().page.locator("h1").inner_text() == "Kernels"
    seen.fine()


OF_NOTHING = re.compile(r"/api/(about|working|kernel_names|reports)\?")


def test_steps_and_devices_apply_to_every_page(look, viewer):
    seen = look(viewer, "overview")
    for page in PAGES:
        seen.asked.clear()
        seen.go(f"{page}?steps=1-2&device=1")
        # what is viewed, and what a slow answer is at, are of no selection
        wanted = [url for url in seen.asked if "/api/" in url and not OF_NOTHING.search(url)]
        if page == "steps":  # a range is chosen on its chart, which has all steps
            [chart] = [url for url in wanted if "name=steps&rows=1000" in url]
            assert "device=1" in chart
            wanted.remove(chart)
        off = [url for url in wanted if "steps=1-2" not in url or "device=1" not in url]
        assert not off, (page, off)
        seen.fine()
    seen.go("operators")
    whole = seen.page.locator(".sums").first.inner_text()
    seen.page.locator("input.steps").fill("1-2")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert asked(seen.place)["steps"] == ["1-2"]
    assert seen.page.locator(".sums").first.inner_text() != whole
    seen.page.locator("nav").get_by_role("link", name="Layers").click()
    assert asked(seen.settle().place)["steps"] == ["1-2"]
    seen.fine()


@pytest.mark.parametrize(
    "place", ["nothing", "operators?steps=x", "operators?steps=90-95", "timeline?start=x&end=-1", "timeline?start=9&end=3",
              "operators?operators_sort=nothing", "operators?operators_where=[", "kernels?device=99", "layers?rank=-1",
              "operators?q=" + "x" * 900, "%", "operators?%", "__proto__", "constructor?toString=1"]
)  # fmt: skip
def test_a_wrong_address_says_so_in_words(place, look, viewer):
    # the server's refusal is an error to the browser's console, and words on the page
    seen = look(viewer, place, allowed=("the server responded with a status of 4",))
    assert not seen.faults, seen.faults
    assert len(seen.text.split()) > 20
    assert seen.page.locator("nav a").count() == len(PAGES)
    assert "could not be drawn" not in seen.text


def test_a_server_that_went_away_is_said_in_words(browser, look, made, tmp_path):
    with viewing(tmp_path, made("training")) as viewer:
        seen = look(viewer, "overview", allowed=("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE"))
        assert viewer.stop() == 0
        for page in ("operators", "timeline", "notes"):
            seen.go(page)
            assert seen.page.locator("nav a").count() == len(PAGES)
            text = seen.page.locator("main").inner_text()
            assert "opscope view" in text, (page, text)
        assert not seen.faults, seen.faults


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A profile of one op whose lines are those of a file on this disk, a shared folder, and no whole path."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "model.py").write_text("a = 1\nb = a\nc = b\n")
    places = (f"{folder}/model.py:2", "//host/share/model.py:3", "model.py:4")
    plain, called, kernels = launched(len(places))
    ranges = plain.with_columns(
        pl.col("start") - 100, thread=1, id=pl.int_range(pl.len()), domain=pl.lit("opscope.torch"),
        text=pl.Series([f"aten::add(f32[{n + 4}], f32[{n + 4}]) @{place}" for n, place in enumerate(places)]),
        category=pl.lit("forward"),
    )  # fmt: skip
    Profile(Trace.of({"kernels": kernels, "calls": called, "ranges": ranges})).save(
        folder / "run.opscope"
    )
    return folder


def test_a_line_opens_in_the_chosen_editor_from_every_view(look, viewing, lines):
    seen = look(viewing(lines / "run.opscope"), "source")
    jumps = seen.page.locator("a.jump")
    jumps.first.wait_for()
    places = {jump.get_attribute("href") for jump in jumps.all()}
    # neither a file of another machine nor one that is only a name
    assert places == {f"vscode://file{lines}/model.py:2"}
    clicked = seen.page.evaluate("""() => new Promise(done => {
        const jump = document.querySelector("a.jump");
        document.addEventListener("click", event => { event.preventDefault(); done(event.target.href) }, {once: true, capture: true});
        jump.click();
    })""")
    assert clicked == f"vscode://file{lines}/model.py:2"
    seen.go(f"source?file={lines}/model.py")
    seen.page.get_by_label("The editor that lines open in").select_option("PyCharm")
    expected = f"pycharm://open?file={quote(f'{lines}/model.py', safe='')}&line=2"
    assert expected in [jump.get_attribute("href") for jump in jumps.all()]
    seen.go("source")  # the choice stays
    jumps.first.wait_for()
    assert {jump.get_attribute("href") for jump in jumps.all()} == {expected}
    seen.go("timeline?sel=d0:0:0")
    seen.page.locator(".tl-details a.jump").wait_for()
    seen.fine()


def test_a_line_opens_by_the_command_that_the_server_was_given(look, viewing, lines):
    told = lines / "told"
    editor = lines / "editor"
    editor.write_text(f'#!/bin/sh\necho "$@" > {told}.part && mv {told}.part {told}\n')
    editor.chmod(0o755)
    words = ("--source-root", lines, "--editor", f"{editor} +{{line}} {{file}}")
    seen = look(viewing(lines / "run.opscope", *words), f"source?file={lines}/model.py")
    seen.page.locator("tr.timed button.jump").click()
    seen.page.locator("button.jump[title=opened]").wait_for()
    for _ in range(500):
        if told.exists():
            break
        seen.page.wait_for_timeout(10)
    assert told.read_text() == f"+2 {lines}/model.py\n"
    seen.fine()
