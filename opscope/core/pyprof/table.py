"""PyProf's table: a row for each kernel, in the order in which they began, with its twenty columns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops, first
from opscope.core.attribution.attribute import Attribution
from opscope.core.dialects import LAYER
from opscope.core.perf.tensorcore import MATRIX_FAMILIES
from opscope.core.pyprof import names
from opscope.core.pyprof.calls import Calls, calls
from opscope.core.pyprof.params import NONE as NO_PARAMS
from opscope.core.pyprof.params import Use, text
from opscope.core.tables.columns import at, compact, gather, pieces, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.row_numbers import Numbering

#: PyProf's columns, in its order.
COLUMNS: Final = (
    "idx", "seq", "altseq", "tid", "layer", "trace", "dir", "sub", "mod", "op", "kernel", "params", "sil",
    "tc", "device", "stream", "grid", "block", "flops", "bytes",
)  # fmt: skip
#: The columns that PyProf writes by default.
DEFAULT: Final = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
#: Families whose kernels may run on Tensor Cores, so that the table shows if they do not.
_PRODUCTS: Final = MATRIX_FAMILIES | {"moe", "linalg"}
#: From this many kernels of one op on, all further kernels get the same description.
_MOST_SUB: Final = 3


class PyprofTable:
    """The table of a trace; data for all columns is computed once, each column for a piece of rows."""

    def __init__(self, ops: Ops, executed: pl.DataFrame) -> None:
        """``executed``: ``executed_kernels(ops)``."""
        self._ops = ops
        self._executed = executed
        self._calls: Calls = calls(ops)
        self._kernels = ops.attribution.trace["kernels"]
        self._about: pl.DataFrame | None = None

    @property
    def order(self) -> Ints:
        """The kernels' rows in the trace, in the table's order."""
        return self._calls.order

    @property
    def attribution(self) -> Attribution:
        """The attribution from which the table is made."""
        return self._ops.attribution

    def forward_of(self, place: int) -> int:
        """Return the position of the forward kernel that gave a backward kernel its call; -1: none."""
        return int(self._calls.forward[place])

    def rows_of(self, place: int) -> tuple[int, int]:
        """Return the rows of ``ranges`` of a kernel's op, and of the call that PyProf names; -1: none."""
        return int(self._calls.op[place]), int(self._calls.subject[place])

    def kernel_names(self, places: Ints) -> list[str]:
        """Return the kernels' whole names."""
        names_of_kernels = self._kernels["name"][self._calls.order[places]]
        return [name or "" for name in names_of_kernels.cast(pl.String).to_list()]

    def rows(self, columns: Collection[str], places: Ints) -> pl.DataFrame:
        """Return some rows of the table; texts are Categorical, unknown values are null.

        Units: ``sil`` ns, ``flops`` FLOP, ``bytes`` bytes.
        """
        columns_by_name = {
            name: series
            for group, make in self._GROUPS.items()
            if not set(group).isdisjoint(columns)
            for name, series in zip(group, make(self, places), strict=True)
        }
        return pl.DataFrame([columns_by_name[name].alias(name) for name in columns])

    def _plain(self, places: Ints) -> list[pl.Series]:
        kernels = self._kernels[self._calls.order[places]]
        device, stream, grid, block = (
            kernels[name] for name in ("device", "stream", "grid", "block")
        )
        return [
            pl.Series(places + 1),
            kernels["end"] - kernels["start"],
            device.cast(pl.Int64),
            stream.cast(pl.Int64),
            grid,
            block,
        ]

    def _costs(self, places: Ints) -> list[pl.Series]:
        executed = self._executed[self._calls.order[places]]
        matrix, vector = executed["matrix_flops"], executed["vector_flops"]
        used, product = executed["tensor_core"].alias("used"), self._products(places)
        core = (
            pl.DataFrame([used, product])
            .select(
                pl.when("used")
                .then(pl.lit("1"))
                .when(~pl.col("product") & pl.col("used").is_not_null())
                .then(pl.lit("-"))
                .when(pl.col("product") & ~pl.col("used"))
                .then(pl.lit("0"))
                .otherwise(pl.lit("na"))
            )
            .to_series()
        )
        return [core.cast(pl.Categorical), matrix + vector, executed["bytes"]]

    def _products(self, places: Ints) -> pl.Series:
        """Return whether each kernel's op is a matrix product, except kernels that certainly only add to one;
        null for ops of an unknown kind."""
        executed = self._executed[self._calls.order[places]]
        codes, families = compact(executed["op_type"])
        kinds = [None if family is None else family in _PRODUCTS for family in families]
        product = gather(pl.Series(kinds, dtype=pl.Boolean), codes)
        codes, kernels = compact(executed["name"])
        proven = [names.adds_bias(kernel or "") for kernel in kernels]
        adds = gather(pl.Series(proven, dtype=pl.Boolean), codes)
        is_product: pl.Series = product.set(adds & product.fill_null(False), False).alias("product")
        return is_product

    def _names(self, places: Ints) -> list[pl.Series]:
        codes, texts = compact(self._kernels["name"][self._calls.order[places]])
        return [spread("kernel", [names.kernel_name(text or "") for text in texts], codes)]

    def _sequence(self, places: Ints) -> list[pl.Series]:
        own = self._calls
        seq = pl.Series(own.seq[places])
        directed = np.where(own.op[places] < 0, NONE, own.backward[places])
        return [
            seq.set(seq < 0, None),
            own.altseq.gather(places),
            spread("dir", ("fprop", "bprop"), directed),
            pl.Series(own.sub[places]),
        ]

    def _thread(self, places: Ints) -> list[pl.Series]:
        trace = self._ops.attribution.trace
        call = self._ops.attribution.kernels.call[self._calls.order[places]]
        thread = gather(trace["calls"]["thread"], call)
        process = gather(trace["calls"]["process"], call)
        system_threads = (
            trace["threads"].select("process", "thread", "os_tid").unique(["process", "thread"])
        )
        frame = pl.DataFrame([process.alias("process"), thread.alias("thread")])
        system = frame.join(
            system_threads, ["process", "thread"], how="left", maintain_order="left"
        )
        return [first(system["os_tid"], thread)]

    def _called(self, places: Ints) -> list[pl.Series]:
        """Return module, op and parameters, made once for each distinct use of a call."""
        own, meaning = self._calls, self._ops.attribution.meaning
        reading = at(meaning.reading, own.subject[places]).astype(np.int64)
        product = self._products(places).fill_null(True).to_numpy()
        numbering = Numbering(6)
        use = numbering.of(
            reading,
            own.marker[places].astype(np.int64),
            own.node[places].astype(np.int64),
            own.backward[places].astype(np.int64),
            np.minimum(own.sub[places], _MOST_SUB),
            product.astype(np.int64),
        )
        distinct, one_of = np.unique(use, return_index=True)
        number = np.zeros(numbering.many, np.int64)
        number[distinct] = np.arange(len(distinct))
        texts = [self._described(int(places[index]), bool(product[int(index)])) for index in one_of]
        return [
            spread(name, [each[column] for each in texts], number[use])
            for column, name in enumerate(("mod", "op", "params"))
        ]

    def _described(self, index: int, product: bool) -> tuple[str, str, str]:
        own, meaning = self._calls, self._ops.attribution.meaning
        subject = int(own.subject[index])
        if subject < 0:
            return "na", "na", NO_PARAMS
        reading = int(meaning.reading[subject])
        call = meaning.readings[reading].call
        if call is None:  # a range of the user's own
            return "na", names.word(meaning.texts[reading]), NO_PARAMS
        if own.node[index]:
            return "na", names.node_op(call.name), NO_PARAMS
        marker = bool(own.marker[index])
        mod, op = names.mod_and_op(call.name, marker)
        if marker and op == "linear" and not product:
            op = "bias"
        sub = min(int(own.sub[index]), _MOST_SUB)
        return mod, op, text(Use(call, marker, bool(own.backward[index]), sub, product))

    def _where(self, places: Ints) -> list[pl.Series]:
        """Return layer and trace; for a backward kernel, those of its forward kernel's launch."""
        own = self._calls
        here = self._launch(places)
        forward = own.forward[places]
        there = tuple(
            column.copy() for column in self._launch(np.where(forward >= 0, forward, places))
        )
        # the forward op of a node that launched no kernel in its forward
        op = self._ops.forward_of(own.op[places])
        bare = np.flatnonzero((forward < 0) & own.backward[places] & (op >= 0))
        for column, value in zip(there, self._ops.places(op[bare]), strict=True):
            column[bare] = value
        layer, stack = self._layers(), self._stacks()
        about = self._lines()
        code = np.searchsorted(self._distinct, own.op[places])
        code = np.where(own.op[places] >= 0, code, NONE)
        users = first(layer(*here), layer(*there))
        stacks = first(stack(*here), stack(*there))
        return [
            first(users.cast(pl.String), gather(about["layer"], code)),
            first(stacks.cast(pl.String), gather(about["trace"], code)),
        ]

    def _launch(self, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Return process, thread and time (ns) of the kernels' launches."""
        attribution = self._ops.attribution
        return called(
            attribution.trace["calls"], attribution.kernels.call[self._calls.order[places]]
        )

    def _lines(self) -> pl.DataFrame:
        """Return layer and source lines of each distinct op, as ``Profile.kernels`` has them."""
        if self._about is None:
            rows = np.unique(self._calls.op)
            self._distinct = rows[rows >= 0]
            parts = []
            for part in pieces(len(self._distinct)):
                identity = self._ops.identify(self._distinct[part], inherit=True)
                parts.append(
                    pl.DataFrame(
                        [
                            identity.layer.cast(pl.String).str.replace_all(" ", "_"),
                            _outermost_first(identity.source.cast(pl.Categorical)),
                        ]
                    )
                )
            self._about = pl.concat(parts)
        return self._about

    def _layers(self) -> Callable[[Ints, Ints, Ints], pl.Series]:
        """Return a function that finds the user's own layers around a launch, joined as PyProf joins them."""
        readings = self._ops.attribution.meaning.readings
        layers = [
            _layer_name(reading.layer)
            if reading.role == "layer" and reading.layer is not None
            else None
            for reading in readings
        ]
        return self._ops.context.named(layers, lambda outer, inner: f"{outer}:{inner}")

    def _stacks(self) -> Callable[[Ints, Ints, Ints], pl.Series]:
        """Return a function that finds the innermost call stack around a launch that one marker holds
        completely."""
        meaning = self._ops.attribution.meaning
        stacks = [
            _stack(reading.frames)
            if reading.role == "source" and reading.frames and text_.startswith("{")
            else None
            for reading, text_ in zip(meaning.readings, meaning.texts, strict=True)
        ]
        return self._ops.context.named(stacks)

    _GROUPS: Final = {
        ("idx", "sil", "device", "stream", "grid", "block"): _plain,
        ("tc", "flops", "bytes"): _costs,
        ("kernel",): _names,
        ("seq", "altseq", "dir", "sub"): _sequence,
        ("tid",): _thread,
        ("mod", "op", "params"): _called,
        ("layer", "trace"): _where,
    }


def _layer_name(layer: str) -> str | None:
    """Return the text between the first two colons of ``layer:NAME``; None for a framework's layer."""
    if not layer.startswith(LAYER):
        return None
    return "_".join(layer.split(":")[1].split()) or None


def _stack(frames: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{'_'.join(file.split())}:{line}" for file, line in reversed(frames))


def _outermost_first(source: pl.Series) -> pl.Series:
    """Return ``b.py:2 < a.py:1`` as ``a.py:1,b.py:2``."""
    codes, texts = compact(source)
    turned = [
        None
        if text is None
        else ",".join("_".join(part.split()) for part in text.split(" < ")[::-1])
        for text in texts
    ]
    trace: pl.Series = spread("trace", turned, codes).cast(pl.String)
    return trace
