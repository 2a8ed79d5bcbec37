"""Draw the pictures of the viewer that README.md and docs/viewer.md show, from a made training.

Usage: python scripts/make_screenshots.py [folder]     (docs/pictures; needs Chromium and the Playwright package)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# the server, a process of its own, is of this folder too
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

#: file → page, dark or not, width and height in pixels
PICTURES = {
    "viewer-overview.png": ("overview", False, 1280, 800),
    "viewer-timeline.png": ("timeline", True, 1280, 800),
    "viewer-operators.png": ("operators", False, 1280, 800),
}


def main(folder: Path) -> None:
    """Write every picture into ``folder``."""
    from playwright.sync_api import sync_playwright

    from opscope.profile import Profile
    from tests.viewer.browser import looking
    from tests.viewer.made_training import made_training

    program = looking.chromium()
    if program is None:
        sys.exit(
            "make_screenshots.py: needs Chromium: install it, or name its program in OPSCOPE_CHROMIUM"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        run = Path(made) / "training.opscope"
        Profile(made_training(steps=5)).save(run)
        with looking.viewing(Path(made), run) as viewer, sync_playwright() as driver:
            options = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = driver.chromium.launch(executable_path=program, args=options)
            for name, (page, dark, width, height) in PICTURES.items():
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if dark else "light",
                    reduced_motion="reduce",
                )
                seen = looking.Looking(context, viewer.url).start().go(page)
                seen.fine(name)
                seen.page.screenshot(path=folder / name)
                context.close()
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures")
