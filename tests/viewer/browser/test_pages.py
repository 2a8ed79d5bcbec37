"""What each page is for: the search, columns that fit, names of kernels, the verdict, the timeline, five questions."""

from __future__ import annotations

import json
import re
import shutil
from urllib.parse import parse_qs

import pytest

from opscope.profile import Profile
from tests.viewer.browser.traces import DATA


@pytest.fixture(scope="module")
def training(viewing, made):
    return viewing(made("training"))


@pytest.fixture(scope="module")
def cpu(viewing, made):
    return viewing(made("cpu"))


def asked(seen):
    return parse_qs(seen.place.partition("?")[2])


def typed(seen, text):
    """The results of a search, by the titles of their groups."""
    seen.page.fill("#search", text)
    seen.settle()
    groups = seen.page.locator("#search-results [role=group]")
    return {
        group.get_attribute("aria-label"): [
            hit.locator(".mid").inner_text().replace("\n", "")
            for hit in group.locator("[role=option]").all()
        ]
        for group in groups.all()
    }


@pytest.mark.parametrize("width", [700, 1400])
def test_the_search_has_results_of_every_kind_under_its_box(look, training, width):
    seen = look(training, "memory", width=width)
    assert "aten::mm" in typed(seen, "mm")["Ops"]
    assert typed(seen, "step 2")["Steps"] == ["step 2"]
    assert "Idle time by device" in typed(seen, "idle")["Reports"]
    assert typed(seen, "timel")["Pages"] == ["Timeline"]
    kinds = typed(seen, "e")
    assert {"Ops", "Kernels", "Layers", "Source lines", "Files", "Reports"} <= set(kinds)
    assert all(0 < len(hits) <= 5 for hits in kinds.values())
    assert set(typed(seen, "no such name")) == {"On the timeline"}
    assert "Nothing has" in seen.page.locator("#search-results").inner_text()
    typed(seen, "e")
    seen.narrow()
    box, results = (seen.page.locator(one).bounding_box() for one in ("#search", "#search-results"))
    assert results["y"] >= box["y"] + box["height"] - 1
    seen.fine()


def test_a_report_that_was_found_is_a_page_of_its_own(look, training):
    seen = look(training, "overview")
    typed(seen, "kernel_lengths")
    seen.page.locator("#search-results [role=option]").first.click()
    seen.settle()
    assert seen.place.startswith("reports?")
    assert asked(seen)["report"] == ["kernel_lengths"]
    assert seen.page.get_by_role("grid").count() == 1
    seen.fine()


def test_a_table_has_a_field_that_leaves_other_tables_alone(look, training):
    seen = look(training, "operators")
    whole = seen.page.locator(".under").first.inner_text()
    seen.page.locator("input.filter").first.fill("mm")
    seen.settle()
    assert asked(seen)["operators_q"] == ["mm"]
    assert re.match(r"\d+ of \d+ rows", seen.page.locator(".under").first.inner_text())
    seen.page.locator("input.filter").first.fill("")
    seen.settle()
    assert seen.page.locator(".under").first.inner_text() == whole
    seen.fine()


@pytest.mark.parametrize("page", ["operators", "kernels", "layers", "source", "notes"])
def test_the_search_leaves_the_rows_of_every_table(look, training, page):
    seen = look(training, page)
    rows = seen.page.locator("main [role=row]")
    before = rows.count()
    typed(seen, "no such name")
    assert before == rows.count() > 1
    seen.fine()


def test_modules_have_a_field_of_their_own(look, training):
    seen = look(training, "layers")
    rows = seen.page.locator(".modules tbody tr")
    names, before = seen.page.locator(".modules tbody th span").all_inner_texts(), rows.count()
    seen.page.fill(".modules input.filter", names[-1])
    seen.settle()
    assert asked(seen)["modules_q"] == [names[-1]]
    assert 0 < seen.page.locator(".modules tr.hit").count() < before
    seen.fine()


def test_the_range_of_steps_fits_its_field_however_long_its_numbers_are(
    look, viewing, trace_of, tmp_path
):
    place = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "step"}
    for name, numbers in (("long", (10_000_009, 10_000_014)), ("single", (6, 6))):
        rows = [
            {**place, "text": f"step {number}", "start": at * 1000, "end": at * 1000 + 900}
            for at, number in enumerate(range(numbers[0], numbers[1] + 1))
        ]
        Profile(trace_of(ranges=rows)).save(tmp_path / f"{name}.opscope")
        seen = look(viewing(tmp_path / f"{name}.opscope"), "steps")
        field = seen.page.locator("input.steps")
        text = field.get_attribute("placeholder")
        assert text == "-".join(map(str, dict.fromkeys(numbers)))
        field.fill(text)
        assert field.evaluate("(one) => one.scrollWidth <= one.clientWidth")
        seen.fine()


def test_a_cpu_profile_has_no_columns_of_devices(look, cpu):
    seen = look(cpu, "overview")
    for page in ("operators", "layers", "source", "memory", "roofline", "steps"):
        seen.go(page)
        heads = seen.page.locator("[role=columnheader], th").all_inner_texts()
        words = " ".join(heads).lower().split()
        assert not {"device", "kernels", "tensor", "tc", "copy", "runtime"} & set(words), (
            page,
            heads,
        )
        seen.fine()


def test_what_does_not_apply_is_blank_and_what_is_unknown_says_why(look, training):
    seen = look(training, "overview")
    unknown = 0
    for page in ("operators", "kernels", "notes"):
        seen.go(page)
        for one in seen.page.locator(".cell .unknown").all():
            unknown += 1
            assert len(one.get_attribute("title")) > len("unknown: ")
        for row in seen.page.locator(".body [role=row]").all():
            if row.locator(".cell").first.inner_text().startswith("("):
                assert row.locator(".unknown").count() == 0
    assert unknown
    seen.fine()


@pytest.mark.skipif(not DATA.exists(), reason="the shared traces are not there")
@pytest.mark.parametrize("width", [700, 1400])
def test_no_two_kernels_look_alike_and_the_whole_name_is_on_hover(look, viewing, width):
    viewer = viewing(DATA / "kineto/resnet50_nw0_step_span1.pt.trace.json.gz")
    seen = look(viewer, "kernels", width=width)
    cells = seen.page.get_by_role("grid").first.locator(".body .cell:first-child .mid")
    shown = [one.inner_text().replace("\n", "") for one in cells.all()]
    whole = [one.get_attribute("title") for one in cells.all()]
    assert len(shown) > 15
    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= 44 < max(map(len, whole))
    assert len(set(whole)) == len(whole)
    # the text has room: nothing more is cut away by the browser
    cut = seen.page.evaluate(
        "() => [...document.querySelectorAll('[role=grid] .body .cell:first-child .head')].slice(0, 15)"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert cut <= 2
    seen.fine()


@pytest.mark.parametrize("width", [700, 1400])
def test_the_overview_begins_with_the_verdict_drawn_on_a_step(look, training, width):
    seen = look(training, "overview", width=width)
    top = [
        seen.page.locator(one).first.bounding_box()["y"]
        for one in ("section[aria-label=Verdict]", ".step-picture", ".cards")
    ]
    assert top == sorted(top)
    assert top[1] < 800
    lanes = seen.page.locator(".step-lane")
    assert lanes.count() >= 2
    wide = lanes.first.bounding_box()
    for piece in lanes.first.locator("i").all():
        box = piece.bounding_box()
        assert wide["x"] - 1 <= box["x"] <= box["x"] + box["width"] <= wide["x"] + wide["width"] + 1
    assert "ran nothing for" in seen.page.locator(".step-picture").inner_text()
    seen.narrow()
    seen.fine()


def window(seen):
    return tuple(map(int, seen.page.locator(".tl-board").get_attribute("data-drawn").split()))


def test_the_timeline_opens_on_the_steps_and_all_is_a_key_away(look, cpu):
    seen = look(cpu, "timeline")
    low, high = map(int, seen.page.locator(".tl-board").get_attribute("data-window").split())
    first, last = window(seen)
    assert last - first < (high - low) * 0.95
    seen.page.keyboard.press("f")
    seen.settle()
    assert window(seen)[0] <= low
    folded = seen.page.get_by_role("button", name="sampled curve")
    if folded.count():
        assert folded.get_attribute("aria-expanded") == "false"
    seen.fine()


def test_curves_of_several_devices_differ_where_their_titles_are_not_cut(look, training):
    seen = look(training, "timeline")
    titles = seen.page.locator(".tl-curve span:first-child").all_inner_texts()
    assert len(titles) > 6
    assert len({text[:22] for text in titles}) == len(titles), titles
    seen.fine()


def test_dragging_measures_and_shift_moves_and_w_zooms_at_the_mouse(look, training):
    seen = look(training, "timeline", width=1400)
    box = seen.page.locator("canvas.tl-canvas").bounding_box()
    y = box["y"] + 8
    before = window(seen)
    seen.page.mouse.move(box["x"] + 400, y)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 600, y, steps=4)
    seen.page.mouse.up()
    seen.settle()
    assert "mark" in asked(seen)
    assert seen.page.locator(".tl-sums").count() == 1
    assert window(seen) == before
    seen.page.keyboard.press("Escape")
    seen.settle()
    assert seen.page.locator(".tl-sums").count() == 0
    seen.page.mouse.move(box["x"] + 600, y)
    seen.page.keyboard.press("w")
    seen.settle()
    before = window(seen)
    seen.page.keyboard.down("Shift")
    seen.page.mouse.move(box["x"] + 600, y)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 500, y, steps=4)
    seen.page.mouse.up()
    seen.page.keyboard.up("Shift")
    seen.settle()
    assert window(seen)[0] > before[0]
    seen.page.keyboard.press("f")
    seen.settle()
    whole = window(seen)
    seen.page.mouse.move(box["x"] + box["width"] - 5, y)
    seen.page.keyboard.press("w")
    seen.settle()
    near = window(seen)
    # what was at the mouse, near the end, stays there
    assert abs(near[1] - whole[1]) < (whole[1] - whole[0]) * 0.02
    assert near[0] > whole[0] + (whole[1] - whole[0]) * 0.2
    seen.fine()


@pytest.mark.parametrize(("width", "beside"), [(1400, True), (700, False)])
def test_what_is_selected_stands_beside_the_lanes_where_there_is_room(
    look, training, width, beside
):
    seen = look(training, "timeline?sel=d0:0:5", width=width)
    board, details = (seen.page.locator(one).bounding_box() for one in (".tl-board", ".tl-details"))
    assert (details["x"] >= board["x"] + board["width"]) is beside
    assert (details["y"] >= board["y"] + board["height"]) is not beside
    text = seen.page.locator(".tl-details").inner_text()
    assert "waited" in text
    assert "from its launch to its start" in text or "behind" in text
    seen.narrow()
    seen.fine()


def test_same_goes_to_the_next_slice_with_just_that_name_and_back(look, training):
    seen = look(training, "timeline?sel=d0:0:5", width=1400)
    name = seen.page.locator(".tl-details h2").inner_text()
    first = asked(seen)["sel"]
    seen.page.keyboard.press("b")
    seen.settle()
    assert seen.page.locator(".tl-details h2").inner_text() == name
    assert asked(seen)["sel"] != first
    seen.page.get_by_role("button", name="Previous of the same name").click()
    seen.settle()
    assert asked(seen)["sel"] == first
    # an address reopens the view
    again = look(training, seen.place, width=1400)
    assert asked(again) == asked(seen)
    again.fine()
    seen.fine()


def test_memory_says_what_grows_and_what_holds_the_peak(look, training):
    seen = look(training, "memory")
    words = seen.page.locator(".memory-words").inner_text()
    assert re.search(r"It grows:|It does not grow from step to step|is not known", words)
    assert re.search(r"The peak of .* is held most by ", words)
    for cell in seen.page.locator("[role=gridcell]").all_inner_texts():
        assert cell.strip() != "-1"
    seen.fine()


@pytest.mark.parametrize("width", [700, 1400])
def test_distributed_is_five_questions(look, training, width):
    seen = look(training, "distributed", width=width)
    tabs = seen.page.get_by_role("group", name="Questions about the job").get_by_role("button")
    assert tabs.count() == 5
    for number in range(5):
        tabs.nth(number).click()
        seen.settle()
        assert tabs.nth(number).get_attribute("aria-pressed") == "true"
        assert seen.page.locator("section.table").count() >= 2
        seen.narrow()
        seen.fine()
    # an address of before leads to the question that the table belongs to
    seen.go("distributed?table=rank_pairs")
    assert tabs.nth(3).get_attribute("aria-pressed") == "true"
    seen.fine()


@pytest.mark.parametrize("dark", [False, True])
def test_the_first_click_on_the_theme_changes_it(look, training, dark):
    seen = look(training, "notes", dark=dark)
    colour = "getComputedStyle(document.body).backgroundColor"
    colours = [seen.page.evaluate(colour)]
    for _ in range(3):
        seen.page.get_by_role("button", name="Theme:").click()
        seen.settle()
        colours.append(seen.page.evaluate(colour))
    assert colours[0] == colours[2] != colours[1] == colours[3]
    seen.fine()


def test_no_bar_lies_under_its_number(look, training):
    seen = look(training, "overview")
    for page in ("overview", "operators", "layers", "source"):
        seen.go(page)
        over = seen.page.evaluate(
            """() => [...document.querySelectorAll(".shared")].map((one) => {
              const [bar, number] = [one.querySelector(".bar"), one.lastElementChild].map((part) => part.getBoundingClientRect());
              return bar.right - number.left;
            })"""
        )
        assert over, page
        assert max(over) <= 0, page
        seen.fine()


@pytest.mark.skipif(not (DATA / "xplane").exists(), reason="the shared traces are not there")
def test_a_folder_of_runs_is_listed_and_each_opens(look, viewing, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for run in ("2026_01_01_10_00_00", "2026_01_02_10_00_00"):
        place = folder / "plugins/profile" / run
        place.mkdir(parents=True)
        shutil.copy(DATA / "xplane/jax_conv_mi300.xplane.pb", place / "host.xplane.pb")
    viewer = viewing(folder)
    seen = look(viewer)
    links = seen.page.locator("table a")
    names = links.all_inner_texts()
    assert sorted(names) == ["2026_01_01_10_00_00", "2026_01_02_10_00_00"]
    for number, name in enumerate(names):
        links.nth(number).click()
        seen.settle()
        assert seen.page.locator("h1").inner_text() == "Overview"
        assert f"/run/{number}/" in seen.page.url
        assert name in seen.page.title()
        assert not seen.faults
        seen.page.get_by_role("link", name="all runs").click()
        seen.settle()
    assert links.count() == 2


def test_a_measured_cpu_has_roofs_and_a_part_of_a_step_no_unknown_counts(
    look, viewing, trace_of, tmp_path
):
    roofs = "CPU 2 cores f32 64 GFLOP/s f64 32 GFLOP/s 20 GB/s 32 MB of EPYC"
    end = 0
    place = {"process": 0, "thread": 1, "domain": "opscope.torch"}
    rows = [{**place, "category": "step", "text": "step 0", "start": 0, "end": 40_000_000}]
    for n in (8, 64, 512):
        begin, end = end, end + 10_000_000
        text = f"aten::mm(f32[{n},{n}], f32[{n},{n}])"
        rows.append({**place, "category": "forward", "text": text, "start": begin, "end": end})
    versions = json.dumps({"cpu": "EPYC", "cpu_roofs": roofs})
    run = tmp_path / "measured.opscope"
    Profile(trace_of(ranges=rows, processes=[{"process": 0, "versions": versions}])).save(run)
    seen = look(viewing(run), "roofline")
    assert seen.page.locator(".chart-title").first.inner_text().endswith("against 2 cores of EPYC")
    assert "No roofs are drawn" not in seen.page.inner_text("main")
    seen.go("steps")
    for row in seen.page.locator(".body [role=row]").all():
        if "phase:" in row.inner_text():
            assert row.locator(".unknown").count() == 0
    seen.fine()


#: The short texts of a page's tables that are cut all the same: cells, headings, reasons in an op's place.
CUT = """() => [...document.querySelectorAll('.grid [role=gridcell] .head:only-child, .grid [role=gridcell] .none, .grid [role=columnheader] span')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth && one.textContent.length < 16)
  .map((one) => one.textContent)"""


@pytest.mark.parametrize("width", [700, 1400])
def test_a_short_text_of_a_table_is_never_cut(look, training, width):
    seen = look(training, "overview", width=width)
    drawn = 0
    for page in ("operators", "kernels", "steps", "roofline", "notes"):
        seen.go(page)
        drawn += seen.page.locator("[role=gridcell] .head").count()
        assert not seen.page.evaluate(CUT), page
    assert drawn > 40
    seen.fine()


def test_a_column_in_which_nothing_happened_is_not_shown_and_a_reason_of_all_rows_is_a_sentence(
    look, viewing, trace_of, tmp_path
):
    place = {"process": 0, "thread": 1, "domain": "opscope.torch"}
    rows = []
    for step in range(3):
        begin = step * 10_000_000
        rows.append(
            {
                **place,
                "category": "step",
                "text": f"step {step}",
                "start": begin,
                "end": begin + 9_000_000,
            }
        )
        rows.append({**place, "category": "forward", "text": "aten::mm(f32[8,8], f32[8,8])", "start": begin + 1, "end": begin + 5_000_000})  # fmt: skip
    Profile(trace_of(ranges=rows)).save(tmp_path / "steps.opscope")
    seen = look(viewing(tmp_path / "steps.opscope"), "steps")
    heads = seen.page.get_by_role("grid", name="Each step").locator("[role=columnheader]")
    names = [text.replace("\n", " ") for text in heads.all_inner_texts()]
    assert any(name.startswith("op part") for name in names), names
    assert not any(name.startswith("communication part") for name in names), names
    section = seen.page.locator("section.table", has_text="Input of each step")
    assert section.get_by_role("grid").count() == 0
    assert "no data loader" in section.locator(".no-rows").inner_text()
    seen.go("roofline")
    heads = seen.page.get_by_role("grid").first.locator("[role=columnheader]").all_inner_texts()
    assert not any(text.startswith("rated") for text in heads), heads
    seen.fine()


def test_source_lines_are_shown_without_their_folders_and_stay_apart(
    look, viewing, trace_of, tmp_path
):
    folder = "/home/somebody/projects/a_long_name_of_a_project/training"
    place = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward"}
    rows = [
        {**place, "start": n * 1_000, "end": n * 1_000 + 900,
         "text": f"aten::add(f32[4], f32[4]) @{folder}/net.py:{n + 10} < {folder}/train.py:70"}
        for n in range(5)
    ]  # fmt: skip
    Profile(trace_of(ranges=rows)).save(tmp_path / "lines.opscope")
    seen = look(viewing(tmp_path / "lines.opscope"), "source", width=700)
    cells = seen.page.get_by_role("grid").first.locator(".body .cell:first-child .mid")
    shown = [one.inner_text().replace("\n", "") for one in cells.all()]
    assert sorted(shown) == [f"net.py:{n + 10} < train.py:70" for n in range(5)]
    assert all(folder in one.get_attribute("title") for one in cells.all())
    files = seen.page.locator(".files-table tbody tr")
    assert files.count() == 2
    assert all(row.bounding_box()["height"] < 40 for row in files.all())
    seen.narrow()
    seen.fine()


def test_pages_have_the_words_of_the_vendor_of_the_devices(look, viewing, trace_of, tmp_path):
    at = {"process": 0, "device": 0}
    kernels = [{**at, "stream": 7, "start": 230, "end": 290, "name": "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_MI16x16x16", "correlation": 1, "graph": 3, "graph_node": 9}]  # fmt: skip
    calls = [{"process": 0, "thread": 1, "start": 210, "end": 220, "name": "hipGraphLaunch", "correlation": 1}]  # fmt: skip
    devices = [{**at, "name": "AMD Instinct MI300X"}]
    Profile(trace_of(kernels=kernels, calls=calls, devices=devices)).save(tmp_path / "amd.opscope")
    seen = look(viewing(tmp_path / "amd.opscope"), "overview")
    texts = []
    for page in ("overview", "operators", "kernels", "notes", "timeline?sel=d0:0:0"):
        seen.go(page)
        texts.append(seen.page.inner_text("main").replace("\n", " "))
        assert not re.search("tensor core|CUDA graph", texts[-1], re.IGNORECASE), page
        seen.fine()
    assert "replayed from a HIP graph" in texts[0]
    assert "Kernel time on matrix cores" in texts[2]
    assert "matrix core" in texts[2].replace("Kernel time on matrix cores", "")


def test_a_reason_of_all_rows_is_said_once_below_the_table(look, viewing, trace_of, tmp_path):
    at = {
        "process": 0,
        "device": 0,
        "stream": 7,
        "grid": (8, 1, 1),
        "block": (64, 1, 1),
        "registers": 32,
    }
    kernels = [{**at, "start": n * 100, "end": n * 100 + 90, "name": f"kernel_{n}", "correlation": n} for n in range(3)]  # fmt: skip
    Profile(trace_of(kernels=kernels)).save(tmp_path / "unnamed.opscope")
    seen = look(viewing(tmp_path / "unnamed.opscope"), "kernels")
    table = seen.page.locator("section.table", has_text="Kernels by name")
    heads = " ".join(table.locator("[role=columnheader]").all_inner_texts()).replace("\n", " ")
    assert "reason" not in heads
    assert "grid and block were not recorded" in table.locator(".chart-note").inner_text()
    seen.fine()


def test_no_name_of_a_report_lies_over_the_next_column(look, training):
    seen = look(training, "reports", width=1400)
    wide = "() => [...document.querySelectorAll('.reports li')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert seen.page.locator(".reports li").count() > 50
    assert seen.page.evaluate(wide) == 0
    seen.fine()


@pytest.mark.parametrize("width", [700, 1400])
def test_two_runs_are_told_apart_by_their_names_and_so_are_the_bars(
    look, viewing, trace_of, tmp_path, width
):
    long = "a_framework::an_op_of_a_long_name_whose_{}_part_differs_from_the_other_s"
    runs = []
    for at, run in enumerate(("before_the_change", "after_the_change")):
        rows = []
        for step in range(6):
            place = {"process": 0, "thread": 1, "domain": "opscope.torch"}
            begin = step * 10_000
            rows.append({**place, "category": "step", "text": f"step {step}", "start": begin, "end": begin + 9_000 - 2_000 * at})  # fmt: skip
            for n, part in enumerate(("first", "second")):
                text = f"{long.format(part)}(f32[4])"
                rows.append({**place, "category": "forward", "text": text, "start": begin + n * 4_000, "end": begin + n * 4_000 + 3_000 - 1_500 * at})  # fmt: skip
        runs.append(tmp_path / f"training_{run}.opscope")
        Profile(trace_of(ranges=rows)).save(runs[-1])
    seen = look(viewing(runs[0], "--compare", runs[1]), "compare", width=width)
    names = seen.page.locator(".files .mid")
    assert [one.inner_text().replace("\n", "") for one in names.all()] == [run.name for run in runs]
    if width == 1400:
        fits = (
            "(one) => [...one.children].every((part) => part.scrollWidth <= part.clientWidth + 1)"
        )
        assert all(one.evaluate(fits) for one in names.all())
    bars = seen.page.locator(".bar-name .mid").all_inner_texts()
    apart = [text for text in bars if "differs_from" in text.replace("\n", "")]
    assert {text.replace("\n", "")[:6] for text in apart} == {"…first", "…secon"}
    seen.narrow()
    seen.fine()
