"""Write docs/first-screens.md: what `opscope report FILE` says first of ten traces of different tools.

Usage: python scripts/make_first_screens.py [--check]

It reads the shared traces in OPSCOPE_SHARED.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "first-screens.md"
#: What each trace is of → its place among the shared traces.
TRACES = {
    "A video transformer on an H100, by torch.profiler": "kineto/timesformer_h100.json.gz",
    "A training step of eight ranks on A100s, one rank's file": "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "A step of a vLLM server, replayed from a graph, on an MI300": "kineto/vllm_decode_cudagraph.json.gz",
    "FSDP on two GPUs, by Nsight Systems": "nsys/fsdp_h100x2_2026.sqlite",
    "DLProf's recording": "dlprof/nsys_profile.sqlite",
    "A graph program, by rocprof": "rocm/rocprofv1_mi300_gunrock",
    "JAX on eight devices, by XLA's profiler": "xplane/jax_conv_mi300.xplane.pb",
    "ONNX Runtime without a GPU, by its own profiler": "onnxruntime/resnet_inference_gemmini.json",
    "A TensorRT engine, by trtexec's logs": "tensorrt/cookbook_trt10.16",
    "MindSpore on an Ascend 910": "mindspore/mindinsight_run2_ascend910",
}  # fmt: skip
_WIDTH = 100
_HEAD = """# The first screen of ten traces

<!-- scripts/make_first_screens.py writes this page -->

What `opscope report FILE` prints of real traces of different tools, in a terminal of 100 columns: the verdict, the wall
time, the kinds of work, the ops with the most time, and what to ask next. The same of any file of yours is one command
away. [reports.md](reports.md) says what each column means.
"""


def page(shared: Path) -> str:
    """Return the page's text."""
    screens = [
        f"## {title}\n\n```text\n{screen(shared, trace)}```\n" for title, trace in TRACES.items()
    ]
    return "\n".join([_HEAD, *screens])


def screen(shared: Path, trace: str) -> str:
    """Return what the command prints of a trace, named as its file alone."""
    from opscope.cli import start

    path, out = shared / trace, io.StringIO()
    words = ["opscope", "report", path.name, "-w", str(_WIDTH)]
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "argv", words):
            start.run()
    finally:
        os.chdir(before)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def main() -> None:
    """Write the page, or say that it is not current."""
    text = page(Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data")
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text("utf-8") != text:
        sys.exit("docs/first-screens.md is not current: run scripts/make_first_screens.py")


if __name__ == "__main__":
    main()
