"""Hooks of mkdocs for the site of the documentation: the menu of docs/index.md, links out of docs/, search.

The search works from a disk too, and tables wrap their texts.

Usage: tox -e site, or: mkdocs build
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
#: A fence's language and what it needs (```bash torch), of which a site knows the language alone.
FENCE = re.compile(r"^```(\w+) [\w, ]+$", re.MULTILINE)

#: Before the search's own script. From a disk no script may read a file, nor start a worker: there the page of
#: results has the worker and the index as a script, and other pages have no worker.
BEFORE_SEARCH = """if (location.protocol === "file:") {
  window.Worker = function () { this.postMessage = function () {}; };
  if (/search\\.html$/.test(location.pathname)) document.write('<script src="' + base_url + '/search/on_disk.js"></' + 'script>');
}
"""
STYLE = """
.wy-table-responsive table td, .wy-table-responsive table th { white-space: normal; }
.wy-nav-content { max-width: 1000px; }
"""


def repository() -> str:
    """The address of the repository, which stands in pyproject.toml alone."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Repository"])


def pages_of(index: Path) -> list[str]:
    """The pages that a page links, in order and once, by their paths below docs/."""
    found = []
    for _, link, _ in LINK.findall(index.read_text("utf-8")):
        path = normpath(str(PurePosixPath(index.parent.relative_to(DOCS).as_posix()) / link))
        if link.endswith(".md") and not path.startswith(".."):
            found.append(path)
    return list(dict.fromkeys(found))


def nav() -> list[dict[str, Any]]:
    """The menu: the sections of docs/index.md with their pages, each page where it is first named."""
    text = (DOCS / "index.md").read_text("utf-8")
    sections = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    menu: list[dict[str, Any]] = [{"opscope": "index.md"}]
    seen = {"index.md"}
    folders = {
        name: pages_of(DOCS / name / "index.md") for name in ("cookbook", "reference", "decisions")
    }
    apart = {
        page.relative_to(DOCS).as_posix() for name in folders for page in (DOCS / name).glob("*.md")
    }
    menu.append({"Cookbook": ["cookbook/index.md", *_below("cookbook", folders)]})
    for title, body in zip(sections[1::2], sections[2::2], strict=True):
        here = [
            link for _, link, _ in LINK.findall(body) if link.endswith(".md") and ".." not in link
        ]
        pages = [page for page in dict.fromkeys(here) if page not in seen | apart]
        seen |= set(pages)
        if title == "Reference":
            pages = ["reference/index.md", *_below("reference", folders), *pages]
        if title == "Contributing":
            pages += [{"Decisions": ["decisions/index.md", *_below("decisions", folders)]}]  # type: ignore[list-item]
        if pages:
            menu.append({title: pages})
    return menu


def _below(name: str, folders: dict[str, list[str]]) -> list[str]:
    return [
        page for page in folders[name] if page.startswith(f"{name}/") and page != f"{name}/index.md"
    ]


def rewritten(markdown: str, page: str) -> str:
    """The page's text with links out of docs/ to the repository, and fences of which a site knows the language."""
    folder = PurePosixPath(page).parent

    def change(found: re.Match[str]) -> str:
        begin, link, end = found.groups()
        path = normpath(str(folder / link))
        if re.match(r"\w+:", link) or not path.startswith("../"):
            return found[0]
        return f"{begin}{repository()}/blob/main/{path.removeprefix('../')}{end}"

    return FENCE.sub(r"```\1", LINK.sub(change, markdown))


def searching_page(worker: str, lunr: str, index: str) -> str:
    """The script of the page of results on a disk: the search's worker in the page itself, with its index."""
    return f"""{lunr}
window.Worker = function () {{
  const page = this, text = {json.dumps(index)};
  const Request = function () {{
    this.open = () => {{}};
    this.addEventListener = (_, loaded) => (this.loaded = loaded);
    this.send = () => this.loaded.call({{ responseText: text }});
  }};
  (function (importScripts, XMLHttpRequest, postMessage, onmessage) {{
{worker}
    page.postMessage = (data) => setTimeout(() => onmessage({{ data }}));
  }})(() => {{}}, Request, (data) => page.onmessage({{ data }}));
}};
"""


def on_config(config: Any) -> Any:
    """Give mkdocs the menu and the repository's address."""
    config.nav = nav()
    config.repo_url = repository()
    config.extra_javascript.insert(0, "search/before.js")
    return config


def on_post_build(config: Any, **_: Any) -> None:
    """Write the search for a disk, and the style of tables."""
    folder = Path(config.site_dir) / "search"
    parts = [
        (folder / name).read_text("utf-8") for name in ("worker.js", "lunr.js", "search_index.json")
    ]
    (folder / "on_disk.js").write_text(searching_page(*parts), "utf-8")
    (folder / "before.js").write_text(BEFORE_SEARCH, "utf-8")
    with (Path(config.site_dir) / "css" / "theme_extra.css").open("a", encoding="utf-8") as style:
        style.write(STYLE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite what leads out of docs/."""
    return rewritten(markdown, page.file.src_uri)
