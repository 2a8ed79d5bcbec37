"""The twenty runs for agents: made traces, and live trainings in four frameworks on a CPU and on ONNX Runtime.

``scripts/agent_set.py`` writes them, drives a tool through them, and scores what a tool claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.planted_truths import live, made
from tests.planted_truths.truth import CANNOT_TELL, HEALTHY, Truth

#: The causes of made traces; each is written in its smallest size.
MADE = (
    "slow loader", "synchronising reads", "recompiling shapes", "late rank", "lost kernels", "memory growth",
    "unfused optimizer", "precision", "padding", "tiny ops", "pageable copies", HEALTHY, CANNOT_TELL,
)  # fmt: skip
#: The programs that are recorded: PyTorch, JAX, Keras on TensorFlow, MindSpore, ONNX Runtime.
LIVE = (
    "live-torch_host-sleep-8", "live-torch_model-attention-8", "live-torch_model-casts-8",
    "live-jax_training-recompiling-8", "live-keras_fit-sleep-8", "live-mindspore_training-8",
    "live-onnxruntime_runs-healthy-8",
)  # fmt: skip
#: What a tool is asked to find out of each run.
QUESTION = (
    "What bounds this run? Say the verdict (cause, healthy, cannot tell), the cause, and where it is: op, source line, rank,"
    " loader or the figure that shows it."
)


def truths() -> list[Truth]:
    """Return what is true of each live program of the set; of made traces ``make`` returns it."""
    return [truth for truth in live.truths() if truth.name in LIVE]


def make(folder: Path) -> Iterator[Truth]:
    """Write the made traces, with a truth beside each."""
    for cause in MADE:
        yield made.make(cause, 0, folder)


def files_of(truth: Truth) -> str:
    """Return how a run of the set is opened: its file, a pattern of its ranks, or its profile."""
    if truth.made == "program":
        return f"{truth.name}.opscope"
    return truth.what[0] if truth.ranks == 1 else f"{truth.name}-rank?.json"
