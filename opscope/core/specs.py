"""Specs: what the names in a prepared graph mean, joined to the ranges that carry only the names.

A spec is a mark (category ``spec``, text ``graph/key = call``) or a row of the trace table ``specs``
(whose ``text`` is the call alone). It is looked up by (process, framework, graph, key).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import Reading, hlo, tsl
from opscope.core.graph_pairs import forward_graph, is_hlo, number_pairs
from opscope.core.interpret import ROLE, Meaning
from opscope.core.intervals import NONE, Ints
from opscope.core.rangetext import RangeTextError, format_call, parse, parse_spec
from opscope.core.runs import runs_of
from opscope.core.schema import Arg, Dim, OpCall, TensorSpec
from opscope.core.trace import Trace

#: Frameworks whose ranges come in domains that do not tell them apart.
_FAMILY: Final = {"tensorflow": "xla", "keras": "xla", "jax": "xla", "TSL": "xla", "XLA": "xla"}
#: Ops whose results have as many rows as their inputs.
_KEEPS_ROWS: Final = re.compile(
    r"Conv|MatMul|Pool|BiasAdd(?!Grad)|Relu|Elu|Gelu|Sigmoid|Tanh|Softmax|BatchNorm|LayerNorm|Dropout|"
    r"\A_?(Cast|Identity|Add|AddV2|Sub|Mul|Div|RealDiv|DivNoNan|Maximum|Minimum|Select|SelectV2|Neg|"
    r"Square|Bitcast|Bitwise\w+|Sqrt|Rsqrt|Exp|Log|Abs|Pow|Less|LessEqual|Greater|GreaterEqual|Equal|NotEqual|Logical\w+)\Z"
)
#: What the names of functions that tf.data runs have in them.
_DATASET: Final = "_Dataset_"
_SCHEMA: Final = {
    "process": pl.Int32,
    "family": pl.String,
    "graph": pl.String,
    "key": pl.String,
    "time": pl.Int64,
    "text": pl.String,
}
_WHERE: Final = ("process", "family")


def family(framework: str | None) -> str:
    """The name under which specs and ranges of a framework, or of an NVTX domain, meet."""
    name = (framework or "").removeprefix("opscope.")
    return _FAMILY.get(name, name)


@dataclass(slots=True)
class Specs:
    """The specs of a trace.

    ``table``: process, family, graph, key, short, time (ns), text (the call's), by time; ``calls``:
    the call of each row, ``None`` where its text is none.
    """

    table: pl.DataFrame
    calls: list[OpCall | None]

    @classmethod
    def of(cls, trace: Trace, meaning: Meaning) -> Specs:
        """All specs of ``trace``: its table's, and those that ranges are."""
        ranges, named = trace["ranges"], trace["specs"]
        rows = np.flatnonzero(meaning.role == ROLE["spec"])
        parts: list[pl.DataFrame] = []
        if len(rows):
            reading = meaning.reading[rows]
            split = {int(number): _split(meaning.texts[number]) for number in np.unique(reading)}
            columns = zip(*(split[int(number)] for number in reading), strict=True)
            domain = ranges["domain"].gather(rows).cast(pl.String)
            graph, key, text = (list(column) for column in columns)
            parts.append(
                pl.DataFrame(
                    {
                        "process": ranges["process"].gather(rows),
                        "family": [family(name) for name in domain],
                        "graph": graph,
                        "key": key,
                        "time": ranges["start"].gather(rows),
                        "text": text,
                    },
                    schema=_SCHEMA,
                )
            )
        if len(named):
            parts.append(
                named.select(
                    "process",
                    pl.Series("family", [family(f) for f in named["framework"].cast(pl.String)]),
                    *(pl.col(name).cast(pl.String) for name in ("graph", "key")),
                    "time",
                    pl.col("text").cast(pl.String),
                ).cast(_SCHEMA)  # type: ignore[arg-type]
            )
        table = pl.concat([pl.DataFrame(schema=_SCHEMA), *parts])
        table = table.with_columns(
            pl.col("process").fill_null(NONE),
            pl.col("graph").fill_null(""),
            *_keys(table["family"], table["key"]),
        )
        table = table.filter(pl.col("text").is_not_null() & pl.col("key").is_not_null())
        # of two functions' nodes of one name in one graph nothing tells which it is
        within = [*_WHERE, "graph", "short"]
        clash = pl.min_horizontal(pl.col(name).n_unique().over(within) for name in ("key", "text"))
        table = table.with_columns(pl.when(clash == 1).then("short").alias("short"))
        table = table.sort("time", nulls_last=False, maintain_order=True)
        known = {text: _call(text) for text in table["text"].unique()}
        return cls(table, [known[text] for text in table["text"]])

    def find(
        self,
        process: Ints,
        time: Ints,
        framework: pl.Series,
        graph: pl.Series,
        key: pl.Series,
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """For each thing asked for the row of its spec (-1: none), and whether that is inferred.

        Of several specs of one (process, framework, graph, key) it is the latest at ``time`` (ns),
        else the first after it. Where ``graph`` (null: not known) has none, that of the latest
        graph of the process that has such a key: that is inferred. ``framework`` may be the
        range's domain.
        """
        asked = pl.DataFrame(
            {
                "process": pl.Series(process, dtype=pl.Int32),
                "family": _mapped(framework, family),
                "graph": graph.cast(pl.String),
                "key": key.cast(pl.String),
                "time": time,
            }
        ).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("asked"))
        found = np.full(len(asked), NONE, np.int64)
        named = asked.with_columns(_keys(asked["family"], asked["key"]))
        plain = asked.with_columns(_keys(asked["family"], _mapped(asked["key"], tsl.plain_key)))
        for graph_known in (True, False):
            unsure = found < 0
            for keys in (named, plain):
                for name in ("key", "short"):
                    left = pl.Series(found < 0)
                    if graph_known:
                        left &= asked["graph"].is_not_null()
                    by = [*_WHERE, *(("graph",) if graph_known else ()), name]
                    self._look_up(keys.filter(left), by, found)
        return found, unsure & (found >= 0)

    def keys_of(self, process: int, graph: str) -> dict[str, str]:
        """Key and text of each spec of a graph, as ranges of XLA's family name them."""
        mine = self.table.filter((pl.col("process") == process) & (pl.col("graph") == graph))
        return dict(mine.select("key", "text").rows())

    def _look_up(self, asked: pl.DataFrame, by: list[str], found: Ints) -> None:
        """Write the spec rows of what is ``asked`` for into ``found``."""
        if asked.is_empty() or self.table.is_empty():
            return
        specs = self.table.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
        # One text for a key is the rule: then no time need be looked at.
        single = specs.group_by(by).agg(pl.col("row").last(), pl.col("text").n_unique())
        joined = asked.join(single, on=by, how="inner")
        plain = joined.filter(pl.col("text") == 1)
        found[plain["asked"].to_numpy()] = plain["row"].to_numpy()
        several = joined.filter(pl.col("text") > 1).drop("row", "text").sort("time")
        if several.is_empty():
            return
        specs = specs.select(*by, pl.col("time").fill_null(-(1 << 62)), "row").sort("time")
        for strategy in ("backward", "forward"):
            hit = several.join_asof(
                specs, on="time", by=by, strategy=strategy, check_sortedness=False
            )
            at = hit["asked"].to_numpy()
            row = hit["row"].fill_null(NONE).to_numpy()
            found[at] = np.where(found[at] < 0, row, found[at])


def _keys(families: pl.Series, keys: pl.Series) -> tuple[pl.Series, pl.Series]:
    """``key`` without what a runtime adds to it, and ``short``: within its own function."""
    xla = families == "xla"
    if not xla.any():
        return keys.alias("key"), keys.alias("short")
    normal = _mapped(keys, tsl.normal_key)
    short = _mapped(normal, tsl.short_key)
    return normal.zip_with(xla, keys).alias("key"), short.zip_with(xla, keys).alias("short")


def _mapped(column: pl.Series, function: Callable[[str], str]) -> pl.Series:
    """``function`` of each distinct text, spread over the column."""
    text = column.cast(pl.String)
    distinct = text.unique()
    made = [None if one is None else function(one) for one in distinct]
    mapped: pl.Series = text.replace_strict(distinct, pl.Series(made, dtype=pl.String))
    return mapped


def merge_specs(trace: Trace, meaning: Meaning) -> None:
    """Give each range that carries only a name the call that its spec tells, and pair them.

    A range's graph is the one that it names itself, else that of the innermost run range (category
    ``graph``) open at its start, on its thread or else in its process. What was inferred from the
    latest spec alone is noted. Backward ops of a graph get their forward op's number in ``seq``.
    """
    wanted = np.array([_is_bare(reading) for reading in meaning.readings], bool)
    rows = np.flatnonzero(wanted[meaning.reading]) if wanted.any() else np.empty(0, np.int64)
    if not len(rows) or not (trace.has("specs") or (meaning.role == ROLE["spec"]).any()):
        return
    specs = Specs.of(trace, meaning)
    ranges = trace["ranges"]
    run, unsure = runs_of(ranges, meaning, rows, specs.keys_of)
    process = ranges["process"].gather(rows).fill_null(NONE).to_numpy()
    time = ranges["start"].gather(rows).to_numpy()
    names = pl.Series([reading.graph for reading in meaning.readings], dtype=pl.String)
    keys = pl.Series([reading.key for reading in meaning.readings], dtype=pl.String)
    own = meaning.reading[rows]
    of_run = np.where(run >= 0, meaning.reading[np.maximum(run, 0)], own)
    graph = names.gather(own).zip_with(names.gather(own).is_not_null(), names.gather(of_run))
    spec, inferred = specs.find(
        process, time, ranges["domain"].gather(rows), graph, keys.gather(own)
    )
    inferred &= ~unsure
    known = np.flatnonzero((spec >= 0) & ~unsure)
    if unsure.any():
        trace.note(
            "warning",
            "ops on threads of their own while several graphs with a node of that name ran: whose "
            "they are is not known, and so are their shapes",
            int(unsure.sum()),
        )
    if not len(known):
        return
    number_pairs(specs, meaning, ranges, rows[known], spec[known], run[known])
    pairs = np.stack((own[known], spec[known]), axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    made = np.array([_explained(meaning, specs, *pair) for pair in distinct.tolist()], np.int32)
    meaning.reading[rows[known]] = made[inverse.reshape(-1)]
    if inferred.any():
        trace.note(
            "info",
            "ranges with no run of their graph around them were explained by the latest spec "
            "of their name",
            int(inferred.sum()),
        )


def _is_bare(reading: Reading) -> bool:
    return reading.key is not None and (reading.call is None or reading.call.outputs is None)


def _explained(meaning: Meaning, specs: Specs, old: int, spec: int) -> int:
    """The place of the reading that has the spec's call; made once per pair."""
    reading, call = meaning.readings[old], specs.calls[spec]
    if call is None:
        return old
    layer, direction = call.param("layer"), reading.direction
    if isinstance(layer, str):
        params = tuple(param for param in call.params if param[0] != "layer")
        call, reading = replace(call, params=params), replace(reading, layer=layer or None)
    if is_hlo(call):  # the operation's path tells what the range's name cannot
        told = hlo.reading(call)
        direction = told.direction
        if not isinstance(layer, str):
            reading = replace(reading, layer=told.layer or reading.layer)
    elif reading.call is not None and not call.truncated:
        # the name of what ran: a fused kernel has that of its last op, which the spec tells of
        call = _as_ran(replace(call, name=reading.call.name), reading.call.inputs)
    if forward_graph(call) is not None:  # it differentiates a function, or calls what does
        direction = direction or "backward"
    if _DATASET in specs.table["graph"][spec]:
        direction = "input"
    meaning.readings.append(replace(reading, role="op", call=call, direction=direction))
    meaning.texts.append(format_call(call, None))
    return len(meaning.readings) - 1


def _as_ran(call: OpCall, inputs: tuple[Arg, ...]) -> OpCall:
    """The spec's call with the inputs that the range itself tells, sizes that vary filled in.

    The leading size of a result is that of the inputs where the graph knows neither.
    """
    if not any(inputs):
        return call
    planned = (*call.inputs, *(None,) * len(inputs))
    found = tuple(now or was for now, was in zip(inputs, planned, strict=False))
    outputs = call.outputs
    if outputs is not None and _KEEPS_ROWS.search(call.name):
        leading = {
            now.shape[0]
            for now, was in zip(found, call.inputs, strict=False)
            if isinstance(now, TensorSpec) and isinstance(was, TensorSpec)
            if was.shape[:1] == ("?",) and now.shape
        }
        outputs = tuple(_with_rows(one, found, leading) for one in outputs)
    return replace(call, inputs=found, outputs=outputs)


def _with_rows(result: Arg, inputs: tuple[Arg, ...], leading: set[Dim]) -> Arg:
    if not isinstance(result, TensorSpec) or result.shape[:1] != ("?",):
        return result
    # Grappler orders the operands of sums and products anew: then the sizes tell which one it is
    alike = {
        one.shape[0]
        for one in inputs
        if isinstance(one, TensorSpec) and one.shape and one.shape[1:] == result.shape[1:]
    }
    rows = leading or alike
    return replace(result, shape=(*rows, *result.shape[1:])) if len(rows) == 1 else result


def _split(text: str) -> tuple[str | None, str | None, str | None]:
    try:
        return parse_spec(text)
    except RangeTextError:
        return None, None, None


def _call(text: str) -> OpCall | None:
    try:
        return parse(text)
    except RangeTextError:
        return None
