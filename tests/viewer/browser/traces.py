"""The shared real traces, each as what `opscope view` is given."""

from __future__ import annotations

import os
from pathlib import Path

from tests.viewer.browser.conftest import ROOT

DATA = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"
#: Files and folders that are a run of their own.
PATTERNS = (
    "kineto/*.json.gz", "nsys/*.sqlite", "nsys_more/*.sqlite", "dlprof/*.sqlite", "nvprof/*.sqlite", "xplane/*.pb",
    "onnxruntime/*.json", "mindspore/*/", "rocm/*/", "tensorrt/cookbook*/", "tensorrt/trex/*.profile.json",
)  # fmt: skip


def traces() -> list[str]:
    """Their places under ``DATA``; none where the traces are not shared."""
    return [
        str(path.relative_to(DATA))
        for pattern in PATTERNS
        for path in sorted(DATA.glob(pattern))
        if path.is_dir() or not pattern.endswith("/")
    ]
