"""What is known of a compiled model: its tensors, its runs so far, and how long each node took in a run.

OpenVINO's counters (``PERF_COUNT``) hold for each node the mean of all runs of the model so far, in whole µs.
What a run adds to runs × mean is the node's time in it. As the mean is rounded down, this time is only known
to a µs for each run so far; in these bounds it is taken to be that of the last run with the same sizes. All
times add up to the total, to 1 µs a run. A model with several streams has counters for each, and runs that
overlap share them: neither has node times.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from openvino import ProfilingInfo

from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.schema import Arg, Dim, OpCall, TensorSpec

#: Distinct sizes of a model's tensors to remember.
MAX_SIZES: Final = 64
_MICROSECOND: Final = timedelta(microseconds=1)
#: OpenVINO's names of element types that are not opscope's.
_DTYPES: Final = {"boolean": "bool", "f8e4m3": "f8e4m3fn"}
#: The sizes of a run's tensors, as texts; none for a model whose sizes never change.
Sizes = tuple[str, ...]


class Model:
    """A compiled model. It does not keep OpenVINO's object alive."""

    def __init__(self, compiled: Any) -> None:
        self.name = str(_property(compiled, "NETWORK_NAME") or "model")
        devices = _property(compiled, "EXECUTION_DEVICES") or ()
        self.device = str(devices[0]).lower() if len(devices) == 1 else None
        streams = _property(compiled, "OPTIMAL_NUMBER_OF_INFER_REQUESTS")  # AUTO has no NUM_STREAMS
        counts = _property(compiled, "PERF_COUNT") in (True, "YES")
        #: Whether the nodes of runs can be timed.
        self.timed = counts and self.device == "cpu" and streams == 1
        #: Runs that are going on.
        self.open = 0
        self._runs = 0
        #: The runs before the counters were read last.
        self._read = 0
        sides = (compiled.inputs, compiled.outputs)
        self._varies = any(port.get_partial_shape().is_dynamic for side in sides for port in side)
        self._inputs, self._outputs = map(range, map(len, sides))
        #: The nodes of runs with such sizes, by name.
        self._nodes: dict[Sizes, dict[str, Prepared]] = {}
        #: µs of each node in all runs so far, and in the last run with its sizes.
        self._taken: dict[str, int] = {}
        self._last: dict[Prepared, int] = {}

    def tensors(self, request: Any) -> tuple[list[Any], list[Any]]:
        """Return the inputs and the outputs of the request's last run."""
        inputs = list(map(request.get_input_tensor, self._inputs))
        return inputs, list(map(request.get_output_tensor, self._outputs))

    def sizes(self, request: Any) -> Sizes:
        """Return the sizes of the request's last run: 4 µs a tensor, of 30 µs by ``tuple(tensor.shape)``."""
        if not self._varies:
            return ()
        return tuple(tensor.shape.to_string() for side in self.tensors(request) for tensor in side)

    def ended(self, succeeded: bool, recorded: bool) -> bool:
        """Count a run that has ended. Return whether the times of its nodes can be read."""
        alone = self.open == 1
        self.open -= 1
        self._runs += 1
        self.timed &= succeeded  # else the counters may have a part of it
        return self.timed and alone and recorded

    def times(self, request: Any, sizes: Sizes, room: int, emitter: Emitter) -> dict[Prepared, int]:
        """Return the ns of each node in the run that has just ended, which took ``room`` µs in all.

        Empty if the counters were not read after the run before.
        """
        follows = self._read == self._runs - 1
        self._read = runs = self._runs
        counters = request.profiling_info
        nodes = self._nodes.get(sizes) or self._describe(request, counters, sizes, emitter)
        times: dict[Prepared, int] = {}
        for counter in counters:
            node = nodes.get(counter.node_name)
            if node is None:
                continue
            before = self._taken.get(counter.node_name, 0)
            least = runs * (counter.real_time // _MICROSECOND)
            after = max(least, before + self._last.get(node, 0))
            took = max(0, min(after, least + runs - 1) - before)
            if follows:
                took = self._last[node] = min(took, room)
                room -= took
                times[node] = 1000 * took or 1  # it ran: a range without a length is no call
            self._taken[counter.node_name] = before + took
        return times

    def _describe(
        self, request: Any, counters: Iterable[Any], sizes: Sizes, emitter: Emitter
    ) -> dict[str, Prepared]:
        """Return the nodes that ran, with their tensors: the model has those of its last run.

        Sizes that depend on values are those of the first run whose tensors have these sizes.
        """
        if len(self._nodes) >= MAX_SIZES:
            self._nodes.clear()
            self._last.clear()
        stated = request.get_compiled_model().get_runtime_model().get_ordered_ops()
        ports = {node.get_friendly_name(): node for node in stated}
        nodes = self._nodes[sizes] = {}
        for counter in counters:
            if counter.status != ProfilingInfo.Status.EXECUTED:
                continue
            node = ports.get(counter.node_name)
            call = OpCall(
                f"openvino::{counter.node_type}",
                () if node is None else tuple(map(_stated, node.inputs())),
                None if node is None else tuple(map(_stated, node.outputs())),
                (("name", counter.node_name), ("kernel", counter.exec_type)),
                self.device,
            )
            nodes[counter.node_name] = emitter.prepare(call, "forward")
        return nodes


def specs(tensors: Iterable[Any]) -> tuple[Arg, ...]:
    """Return the tensors of a run as a call has them."""
    return tuple(_spec(tensor.element_type, tuple(tensor.shape)) for tensor in tensors)


def _stated(port: Any) -> Arg:
    return _spec(port.get_element_type(), tuple(map(_length, port.get_partial_shape())))


def _spec(kind: Any, shape: tuple[Dim, ...]) -> Arg:
    name = kind.get_type_name()  # "dynamic": there is no tensor
    return None if name == "dynamic" else TensorSpec(_DTYPES.get(name, name), shape)


def _length(size: Any) -> Dim:
    return int(size.get_length()) if size.is_static else "?"


def _property(compiled: Any, name: str) -> Any:
    """Return a property of a compiled model, None if its device has no such property."""
    try:
        return compiled.get_property(name)
    except RuntimeError:
        return None
