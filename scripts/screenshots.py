"""Draw pages of the viewer of any files, wide and narrow, to compare what a change does to them.

Usage: python scripts/screenshots.py FOLDER FILE... [--pages overview,timeline] [--dark] [--search TEXT] [--tall]

Run it before a change and after it, with another FOLDER each time; a page has the same name in both. It prints how
far each page scrolls sideways, which it must not. Needs Chromium and the Playwright package.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# the server, a process of its own, is of this folder too
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

#: Width and height in pixels: a screen, and half of a small one.
SIZES = ((1400, 900), (700, 900))
#: A style of the page's own kind, which its content policy lets in.
_TALL = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("html, body, #viewer, .main { height: auto !important; overflow: visible !important }");
  document.adoptedStyleSheets = [sheet];
}"""


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("file", nargs="+", type=Path, help="what opscope view is given")
    parser.add_argument("--pages", help="comma-separated, with parameters if any; all if not given")
    parser.add_argument("--dark", action="store_true", help="the dark theme")
    parser.add_argument("--search", help="a text that is typed into the search on each page")
    parser.add_argument(
        "--tall", action="store_true", help="the page to its end, not a screen of it"
    )
    return parser.parse_args()


def main() -> None:
    """Write a picture of each page at each size."""
    from playwright.sync_api import sync_playwright

    from tests.viewer.browser import looking

    asked = arguments()
    program = looking.chromium()
    if program is None:
        sys.exit(
            "screenshots.py: needs Chromium: install it, or name its program in OPSCOPE_CHROMIUM"
        )
    pages = asked.pages.split(",") if asked.pages else looking.PAGES
    asked.folder.mkdir(parents=True, exist_ok=True)
    files = [path.resolve() for path in asked.file]
    with tempfile.TemporaryDirectory() as scratch, looking.viewing(Path(scratch), *files) as viewer, sync_playwright() as driver:  # fmt: skip
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=program, args=options)
        for width, height in SIZES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if asked.dark else "light",
                reduced_motion="reduce",
            )
            seen = looking.Looking(context, viewer.url).start()
            for page in pages:
                picture(seen.go(page), asked, asked.folder / f"{name_of(page)}-{width}.png")
            context.close()
        browser.close()


def picture(seen: Any, asked: argparse.Namespace, path: Path) -> None:
    """Write one page's picture, and say what is wrong with the page."""
    if asked.search:
        seen.page.fill("#search", asked.search)
        seen.settle()
    if asked.tall:  # the page scrolls in its main part, not in the window
        seen.page.evaluate(_TALL)
    seen.page.screenshot(path=path, full_page=asked.tall)
    sideways = seen.page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    print(path, f"is {sideways} px too wide" if sideways > 0 else "", *seen.faults)
    seen.faults.clear()


def name_of(page: str) -> str:
    """Return a page's address as a file's name."""
    return "".join(letter if letter.isalnum() else "_" for letter in page)


if __name__ == "__main__":
    main()
