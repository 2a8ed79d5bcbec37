"""Put an engine's layer info beside a trace in which the engine ran: TensorRT's ranges carry only names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.rangetext import format_call
from opscope.core.tables.columns import distinct_values
from opscope.core.tables.trace import Trace, conform
from opscope.core.tensorrt_layers import FRAMEWORK
from opscope.readers.errors import BadInput

from .belonging import stem
from .decoding import decode

#: The NVTX domain of TensorRT's own ranges.
DOMAIN: Final = "TensorRT"


def with_layers(trace: Trace, path: Path) -> Trace:
    """Return ``trace`` with the layers that ``path`` describes as specs of the processes that ran them.

    Raises BadInput if the file describes no layers, or none that ran in the trace.
    """
    part = decode(path)
    if not part.layers:
        raise BadInput(path, "it does not describe the layers of an engine")
    ranges = trace["ranges"]
    if DOMAIN not in distinct_values(ranges["domain"]).cast(pl.String).to_list():
        raise BadInput(
            path,
            "the trace has no ranges of TensorRT (NVTX domain TensorRT), so nothing says when a layer ran",
        )
    ran = ranges.filter(pl.col("domain").cast(pl.String) == DOMAIN).select(
        "process", pl.col("text").cast(pl.String)
    )
    call_of_layer = {layer.name: layer.call for layer in part.layers}
    matched = ran.filter(pl.col("text").is_in(list(call_of_layer))).unique()
    if matched.is_empty():
        raise BadInput(
            path,
            f"not the layers of the engine that ran: none of its {len(call_of_layer)} layers is among the"
            " trace's"
            f" {ran['text'].n_unique()} ranges of TensorRT",
        )
    calls = {
        name: None if call is None else format_call(call, None)
        for name, call in call_of_layer.items()
    }
    processes = matched["process"].unique().to_list()
    rows = [
        {"process": process, "framework": FRAMEWORK, "graph": stem(path), "key": name, "text": text}
        for process in processes
        for name, text in calls.items()
        if text is not None
    ]
    schema = {
        "process": pl.Int32,
        **dict.fromkeys(("framework", "graph", "key", "text"), pl.String),
    }
    added = conform("specs", pl.DataFrame(rows, schema=schema))
    joined = trace.replace(specs=pl.concat([trace["specs"], added]))
    bare = sum(call is None for call in call_of_layer.values())
    if bare:
        joined.note(
            "warning",
            f"layers of {path.name} that tell only their names: no shapes, formats, FLOPs",
            bare,
        )
    ran_names = set(matched["text"])
    joined.note("info", f"layers of {path.name} that ran in the trace", len(ran_names))
    if len(call_of_layer) > len(ran_names):
        joined.note(
            "info",
            f"layers of {path.name} without a range in the trace (TensorRT marks none that runs nothing)",
            len(call_of_layer) - len(ran_names),
        )
    return joined
