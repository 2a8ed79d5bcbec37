"""The ``mindspore`` backend: MindSpore's profiler beside the recorder, for operators on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import begins
from .base import Auto, Availability, Backend
from .machine import Machine
from .window import Bounds

if TYPE_CHECKING:
    from .mindspore_capture import MindSporeCapture


class MindSporeBackend(Backend):
    """MindSpore's profiler beside the recorder, for the operators of MindSpore programs on a CPU."""

    name = "mindspore"
    gives = "operators"
    rank = 50
    sample = """
import mindspore
one = mindspore.ops.ones((64, 64), mindspore.float32)
mindspore.ops.matmul(one, one).asnumpy()
"""

    def missing(self, trace: Any) -> str | None:
        texts = trace["ranges"].filter(domain="mindspore")["text"].unique().to_list()
        if any(text.startswith("MatMul") for text in texts):
            return None
        return "no operator of a product of matrices arrived"

    def available(self, machine: Machine) -> Availability:
        if not machine.has("mindspore"):
            return Availability(
                False,
                "MindSpore is not installed",
                "pip install mindspore 'numpy<2' in an environment of its own",
            )
        if machine.simple and machine.gpu is None:
            why = f"simple mode records kernels only, and {machine.no_gpu}"
            return Availability(True, why, auto=Auto.NEVER)
        others = [name for name in ("torch", "jax") if machine.loaded(name) is not None]
        if others or not hasattr(machine.loaded("mindspore"), "nn"):
            why = "its profiler begins once a program uses MindSpore, without PyTorch and JAX"
            return Availability(True, why, auto=Auto.LATER)
        return Availability(
            True,
            "the program uses MindSpore, whose profiler records its operators",
        )

    def capture(self, folder: Path, bounds: Bounds) -> MindSporeCapture:
        from .mindspore_capture import MindSporeCapture  # lazy: all are asked

        return MindSporeCapture(folder, bounds=bounds)

    def in_use(self) -> bool:
        return begins.mindspore_in_use()

    def when_used(self, function: Callable[[], None]) -> None:
        begins.when_mindspore_begins(function)


MINDSPORE_BACKEND: Final = MindSporeBackend()
