"""The static site of the documentation: its menu has every page, and links out of docs/ lead to the repository."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.script import module_at

HOOKS = vars(module_at("scripts/site_hooks.py"))


def pages(menu) -> list[str]:
    found = []
    for entry in menu:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for below in entry.values():
                found += [below] if isinstance(below, str) else pages(below)
    return found


def test_the_menu_has_every_page_once():
    docs = HOOKS["DOCS"]
    every = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    assert sorted(pages(HOOKS["nav"]())) == every


@pytest.mark.parametrize(
    ("page", "link", "leads"),
    [
        ("index.md", "../README.md#start", "/blob/main/README.md#start"),
        ("reference/advice.md", "../../CONTRIBUTING.md", "/blob/main/CONTRIBUTING.md"),
        ("decisions/cli.md", "../../opscope/cli/app.py", "/blob/main/opscope/cli/app.py"),
    ],
)
def test_a_link_out_of_the_documentation_leads_to_the_repository(page, link, leads):
    made = HOOKS["rewritten"](f"see [it]({link})", page)
    assert made == f"see [it]({HOOKS['repository']()}{leads})"


@pytest.mark.parametrize("link", ["memory.md", "../memory.md#x", "https://example.org/x", "#here"])
def test_other_links_stay(link):
    text = f"see [it]({link})"
    assert HOOKS["rewritten"](text, "reference/index.md") == text


def test_a_fence_keeps_its_language_alone():
    assert HOOKS["rewritten"]("```bash torch\nls\n```", "index.md") == "```bash\nls\n```"


def test_from_a_disk_the_page_of_results_needs_no_file_and_no_worker(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    worker = """
      let data;
      onmessage = (e) => {
        if (e.data.query) return postMessage({ results: `${e.data.query}: ${data}, ${lunr}` });
        const asked = new XMLHttpRequest();
        asked.addEventListener("load", function () { importScripts("lunr.js"); data = this.responseText; });
        asked.open("GET", "search_index.json");
        asked.send();
      };"""
    page = HOOKS["searching_page"](worker, 'const lunr = "lunr";', '{"docs": "</script>"}')
    script = tmp_path / "page.js"
    script.write_text(f"""globalThis.window = globalThis;
      {page}
      const search = new Worker("search/worker.js");
      search.postMessage({{ init: true }});
      search.onmessage = (e) => console.log(e.data.results);
      search.postMessage({{ query: "mm" }});""")
    said = subprocess.run([node, script], capture_output=True, text=True, timeout=30)
    assert said.stdout == 'mm: {"docs": "</script>"}, lunr\n', said.stderr
