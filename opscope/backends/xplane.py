"""The ``xplane`` backend: JAX's profiler beside the recorder, for the operations of JAX programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import begins
from .base import Auto, Availability, Backend
from .machine import Machine
from .window import Bounds

if TYPE_CHECKING:
    from .xplane_capture import XPlaneCapture


class XPlaneBackend(Backend):
    """JAX's profiler beside the recorder, for the operations and kernels of JAX programs."""

    name = "xplane"
    gives = "operations"
    rank = 60
    sample = """
import jax.numpy
one = jax.numpy.ones((64, 64))
(one @ one).block_until_ready()
"""

    def missing(self, trace: Any) -> str | None:
        domains = trace["ranges"]["domain"].unique().to_list()
        if "xla" in domains or (trace.has("kernels") and len(trace["kernels"])):
            return None
        return "no operation of a product of matrices arrived"

    def available(self, machine: Machine) -> Availability:
        if not machine.has("jax"):
            return Availability(
                False, "JAX is not installed", "pip install jax in this environment"
            )
        if machine.simple and machine.gpu is None:
            why = f"simple mode records kernels only, and {machine.no_gpu}"
            return Availability(True, why, auto=Auto.NEVER)
        if machine.loaded("jax") is None:
            return Availability(
                True, "its profiler begins once a program uses JAX", auto=Auto.LATER
            )
        if machine.loaded("torch") is not None:
            return Availability(
                True, "the program has imported PyTorch too, and not JAX alone", auto=Auto.LATER
            )
        return Availability(
            True,
            "the program uses JAX, whose profiler records its operations",
        )

    def capture(self, folder: Path, bounds: Bounds) -> XPlaneCapture:
        from .xplane_capture import XPlaneCapture  # lazy: all are asked

        return XPlaneCapture(folder, bounds=bounds)

    def in_use(self) -> bool:
        return begins.jax_in_use()

    def when_used(self, function: Callable[[], None]) -> None:
        begins.when_jax_begins(function)


XPLANE_BACKEND: Final = XPlaneBackend()
