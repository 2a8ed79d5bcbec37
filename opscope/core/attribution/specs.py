"""Look up specs: the calls behind the node names of a prepared graph.

A spec is a mark (category ``spec``, text ``graph/key = call``) or a row of the trace table ``specs`` (with
the call alone as ``text``). Specs are looked up by (process, framework, graph, key).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import node_names
from opscope.core.rangetext import RangeTextError, call_of, parse_spec
from opscope.core.schema import OpCall
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

#: Framework or domain → family. Frameworks of one family use the same domains for their ranges.
_FAMILY: Final = {
    **{"tensorflow": "xla", "keras": "xla", "jax": "xla", "TSL": "xla", "XLA": "xla"},
    "TensorRT": "tensorrt",
}
_SCHEMA: Final = {
    "process": pl.Int32,
    "family": pl.String,
    "graph": pl.String,
    "key": pl.String,
    "time": pl.Int64,
    "text": pl.String,
}
_WHERE: Final = ("process", "family")
#: Columns that identify a spec.
SAME: Final = [*_WHERE, "graph", "key"]


def is_hlo(call: OpCall | None) -> TypeGuard[OpCall]:
    """Return whether it is an HLO operation, named by XLA's compiler."""
    return call is not None and call.name.startswith("hlo::")


def family(framework: str | None) -> str:
    """Return the family of a framework or NVTX domain, by which specs and ranges are matched."""
    name = (framework or "").removeprefix("opscope.")
    return _FAMILY.get(name, name)


@dataclass(slots=True)
class Specs:
    """The specs of a trace.

    ``table``: process, family, graph, key, short, time (ns), text (the call's), by time. ``calls``: the
    call of each row, None if its text is not a call.
    """

    table: pl.DataFrame
    calls: list[OpCall | None]

    @classmethod
    def of(cls, trace: Trace, meaning: Meaning) -> Specs:
        """Return all specs of ``trace``: those in its table, and its marks."""
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
        # if two functions of one graph have a node with the same short name, the name identifies neither
        within = [*_WHERE, "graph", "short"]
        clash = pl.min_horizontal(pl.col(name).n_unique().over(within) for name in ("key", "text"))
        table = table.with_columns(pl.when(clash == 1).then("short").alias("short"))
        table = table.sort("time", nulls_last=False, maintain_order=True)
        call_of_text = {text: call_of(text) for text in table["text"].unique()}
        return cls(table, [call_of_text[text] for text in table["text"]])

    def find(
        self,
        process: Ints,
        time: Ints,
        framework: pl.Series,
        graph: pl.Series,
        key: pl.Series,
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Return for each key the row of its spec (-1: none), and whether that is inferred.

        Among several specs of one (process, framework, graph, key), it is the latest at ``time`` (ns),
        else the first after it. If ``graph`` (null: unknown) has no such spec, it is the spec of the latest
        graph of the process with such a key (inferred). ``framework`` may be the range's domain.
        """
        queries = pl.DataFrame(
            {
                "process": pl.Series(process, dtype=pl.Int32),
                "family": _map(framework, family),
                "graph": graph.cast(pl.String),
                "key": key.cast(pl.String),
                "time": time,
            }
        ).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("query"))
        spec_of_query = np.full(len(queries), NONE, np.int64)
        named = queries.with_columns(_keys(queries["family"], queries["key"]))
        plain = queries.with_columns(
            _keys(queries["family"], _map(queries["key"], node_names.plain_key))
        )
        for graph_known in (True, False):
            unsure = spec_of_query < 0
            for keys in (named, plain):
                for name in ("key", "short"):
                    left = pl.Series(spec_of_query < 0)
                    if graph_known:
                        left &= queries["graph"].is_not_null()
                    by = [*_WHERE, *(("graph",) if graph_known else ()), name]
                    self._look_up(keys.filter(left), by, spec_of_query)
        return spec_of_query, unsure & (spec_of_query >= 0)

    def keys_of(self, process: int, graph: str) -> dict[str, str]:
        """Return key → text of the specs of a graph, with keys in the form that ranges of XLA's family
        have."""
        mine = self.table.filter((pl.col("process") == process) & (pl.col("graph") == graph))
        return dict(mine.select("key", "text").rows())

    def _look_up(self, queries: pl.DataFrame, by: list[str], ints: Ints) -> None:
        """Write the spec rows for ``queries`` into ``ints``."""
        if queries.is_empty() or self.table.is_empty():
            return
        specs = self.table.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
        # mostly a key has only one text: then the time does not matter
        single = specs.group_by(by).agg(pl.col("row").last(), pl.col("text").n_unique())
        joined = queries.join(single, on=by, how="inner")
        plain = joined.filter(pl.col("text") == 1)
        ints[plain["query"].to_numpy()] = plain["row"].to_numpy()
        several = joined.filter(pl.col("text") > 1).drop("row", "text").sort("time")
        if several.is_empty():
            return
        specs = specs.select(*by, pl.col("time").fill_null(-(1 << 62)), "row").sort("time")
        for strategy in ("backward", "forward"):
            hit = several.join_asof(
                specs, on="time", by=by, strategy=strategy, check_sortedness=False
            )
            at = hit["query"].to_numpy()
            row = hit["row"].fill_null(NONE).to_numpy()
            ints[at] = np.where(ints[at] < 0, row, ints[at])


def _keys(families: pl.Series, keys: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return ``key`` without additions by the runtime, and ``short``, the name within its function."""
    xla = families == "xla"
    if not xla.any():
        return keys.alias("key"), keys.alias("short")
    normal = _map(keys, node_names.normal_key)
    short = _map(normal, node_names.short_key)
    return normal.zip_with(xla, keys).alias("key"), short.zip_with(xla, keys).alias("short")


def _map(column: pl.Series, function: Callable[[str], str]) -> pl.Series:
    """Return ``column`` with ``function`` applied, once per distinct text."""
    text = column.cast(pl.String)
    distinct = text.unique()
    values = [None if value is None else function(value) for value in distinct]
    mapped: pl.Series = text.replace_strict(distinct, pl.Series(values, dtype=pl.String))
    return mapped


def _split(text: str) -> tuple[str | None, str | None, str | None]:
    try:
        return parse_spec(text)
    except RangeTextError:
        return None, None, None
