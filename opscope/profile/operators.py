"""The operators, modules and call tree of a Profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.memory.memory import BY_OP, memory_by_op
from opscope.core.analysis.ops import call_tree, modules, operator_statistics
from opscope.core.analysis.ops import operators as by_name
from opscope.core.analysis.ops.op_analyse import op_analyse
from opscope.core.once import once

from .base import selectable
from .memory import Memory
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Operators(Memory, Work):
    """Operators, modules, and the tree of calls."""

    @selectable
    def operators(self, *by: str, **where: Unpack[Where]) -> pl.DataFrame:
        """Operators by name, as the PyTorch profiler's operator view and ``key_averages`` list them.

        Every level of a nest of ops is a row: ``device_total`` and ``host_total`` contain the ops inside,
        ``device_self`` and ``host_self`` do not, and add up to the whole; time without an op is a row for
        each reason. An op inside another of the same row is counted once in the totals. With ``inputs``
        each shape is a row, with ``source`` each call stack of the user's lines. ``op_totals()`` gives a
        nest's time to the one op that counts instead. Raises ValueError for any other ``by``.
        """
        for word in by:
            if word not in by_name.BY:
                raise ValueError(f"unknown by {word!r}; choose of {', '.join(by_name.BY)}")
        keys = tuple(word for word in by_name.BY if word in by)
        return self._given(
            f"operators {' '.join(keys)}",
            lambda: by_name.operators(
                self._ops, self._inclusive, self._cached("unattributed"), keys
            ),
        )

    @once
    def _inclusive(self) -> by_name.Inclusive:
        return by_name.inclusive(self._ops, self._executed)

    @selectable
    def modules(self, *, depth: int | None = None, **where: Unpack[Where]) -> pl.DataFrame:
        """The tree of modules: a row for each, after the one around it, siblings by device time.

        The first row is the whole profile. ``device_self`` and ``host_self`` are times of the ops that a
        module called itself; over all rows they add up to the first row's totals. What ran outside any
        module, and device time without an op, have rows of their own. Modules below ``depth`` are part of
        those around them. ``parent_module`` makes the tree; ``layer`` is the path by which other frames
        name the module. Raises ValueError if ``depth`` is below 1.
        """
        if depth is not None and depth < 1:
            raise ValueError("depth must be at least 1")
        return self._given(f"modules {depth}", lambda: self._modules(depth))

    def _modules(self, depth: int | None) -> pl.DataFrame:
        readings = self.attribution.meaning.readings
        return modules.modules(
            self._passing_sums(modules.NEEDED),
            self._cached("unattributed"),
            self._of_memory("memory_by_op", BY_OP, memory_by_op),
            modules.module_calls(self._ops.context),
            modules.names_classes(one.layer for one in readings if one.role == "layer"),
            depth,
        )

    @selectable
    def call_tree(
        self, *, depth: int = call_tree.DEPTH, nodes: int = call_tree.NODES, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """The data of a flame graph: steps, layers, ranges, ops and kernels, merged by their path.

        Each row follows the row around it (``parent_path``), siblings by time. Steps, threads and processes
        are merged. ``device_self`` is the time of kernels and copies, which are the leaves; without a GPU
        that of ops. ``device_self`` and ``host_self`` add up to the first row's totals. At most ``depth``
        frames are above one another, and at most ``nodes`` rows are given, the ones with most time; what is
        left out is summed in rows ``(other)`` beside them. Raises ValueError if a bound is below 1.

        Folded stacks are the columns ``stack`` and ``device_self`` of the rows with a ``device_self``.
        """
        if depth < 1 or nodes < 1:
            raise ValueError("depth and nodes must be at least 1")
        return self._given(f"call_tree {depth} {nodes}", lambda: self._call_tree(depth, nodes))

    def _call_tree(self, depth: int, nodes: int) -> pl.DataFrame:
        outside = self._cached("unattributed")["time"].sum() if self.cpu_only else 0
        return call_tree.call_tree(self._ops, int(outside), depth, nodes)

    @selectable
    def operator_statistics(
        self, by: str = "type", *, search: str | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """MindSpore's operator statistics: by ``type`` (op name) or ``operator`` (op at one place), by time.

        A nest's time stands at the op that counts, as in ``op_totals()``. ``search`` keeps the rows whose
        op, family, layer or node has this text, in any case; shares stay shares of all. Raises ValueError
        for any other ``by``.
        """
        if by not in operator_statistics.BY:
            raise ValueError(
                f"unknown by {by!r}; choose one of {', '.join(operator_statistics.BY)}"
            )
        frame = self._given(
            f"operator_statistics {by}",
            lambda: operator_statistics.operator_statistics(
                self._passing_sums(operator_statistics.NEEDED), self._cached("unattributed"), by
            ),
        )
        return frame if search is None else operator_statistics.having(frame, search)

    @selectable
    def kernel_activities(
        self, *, search: str | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """MindSpore's kernel activities: kernels by name and the op that launched them, by time.

        ``search`` keeps the rows whose kernel or op has this text, in any case.
        """
        frame = self._given(
            "kernel_activities", lambda: operator_statistics.kernel_activities(self._executed)
        )
        return frame if search is None else operator_statistics.having(frame, search)

    def op_analyse(self, op_name: str | Sequence[str], device_id: int = 0) -> str:
        """Return the times of operators by the shapes of their inputs, as JSON in MindSpore's form.

        ``{"Conv2D": [{"op_side": "gpu", "input_shape": "input_1:[8, 1, 32, 32],input_2:[6, 1, 5, 5]",
        "op_occurrences": 4, "op_total_time(us)": 56.6, "op_avg_time(us)": 14.2}], "device_id": 0}``.
        ``op_name``: an op's name, a node's (``Conv2D-op0``), or a list. On the side ``gpu`` the time is
        that of the kernels on ``device_id``, of the ops inside too; on the side ``cpu`` the host's. Raises
        TypeError for a name that is no text and a device that is no number, ValueError if the profile has
        no such operator or device.
        """
        names = [op_name] if isinstance(op_name, str) else list(op_name)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError("op_name must be a name or a list of names")
        if not isinstance(device_id, int) or isinstance(device_id, bool):
            raise TypeError(f"device_id must be an int, not {type(device_id).__name__}")
        found = op_analyse(self._ops, names, device_id)
        return json.dumps({**found, "device_id": device_id}, ensure_ascii=False)
