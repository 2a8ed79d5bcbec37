"""The sizes that calls of an inference server lack: the lengths of the requests in the step around them.
|| The arguments of attention over a cache are only the new tokens. The number of keys that they attend to
is in the name of the engine's step (``dialects.serving``), or unknown. An op that was captured into a CUDA
graph runs in the steps that replay it; if these differ, it gets the mean of their sums.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.served_steps import PHASES, SHARE, engine_of
from opscope.core.perf.cached import HEAD, WINDOW
from opscope.core.perf.model_config import EXPERTS, Weights, model_config
from opscope.core.schema import OpCall, ParamValue, TensorSpec
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.row_numbers import Numbering
from opscope.core.tables.trace import MODEL_CONFIG, Trace

Params: TypeAlias = "tuple[tuple[str, ParamValue], ...]"
#: The sums in the order of the parameter: of the prefill, then of the decode.
_SUMS: Final = tuple(f"{phase}_{name}" for phase in PHASES for name in SHARE)
_NO_SUMS: Final[Ints] = np.empty((0, len(_SUMS)), np.int64)
#: An op that writes new keys into the cache. The tensors of this rank among its arguments are the cache.
_WRITES: Final = ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache")
_CACHE_RANK: Final = 4
#: Attention whose queries are [T, heads, d].
_ATTENTION: Final = ("vllm::unified_attention", "vllm::unified_attention_with_output")


def lengths_and_windows(
    attribution: Attribution, served: pl.DataFrame | None, calls: list[OpCall], rows: Ints
) -> tuple[Ints, list[Params], Ints]:
    """Return the distinct sums of steps (a row of ``LENGTHS`` each), the distinct further parameters of
    attention over a cache, and for each op row the number of its pair: by sums, then by parameters."""
    cache = _cache_params(attribution.trace, calls)
    if served is None:
        return _NO_SUMS, [cache], np.full(len(rows), NONE, np.int64)
    sums, numbers = lengths_of_steps(attribution, served, rows)
    windows = _windows_of(attribution, rows)
    if windows is None:
        return sums, [cache], numbers
    kinds, which = np.unique(windows, return_inverse=True)
    more: list[Params] = [(*cache, (WINDOW, int(window))) for window in kinds.tolist()]
    return sums, more, np.where(numbers >= 0, numbers * len(kinds) + which.reshape(-1), NONE)


def _windows_of(attribution: Attribution, rows: Ints) -> Ints | None:
    """Return the sliding window of each op's layer (0: none), from the model's configuration; None if it
    has none, or if the number of ops is not a multiple of its layers."""
    raw = attribution.trace.origin.get(MODEL_CONFIG)
    windows = model_config(raw).windows if isinstance(raw, dict) else None
    if not windows or not len(rows) or len(rows) % len(windows):
        return None
    if len(set(windows)) == 1:
        return np.full(len(rows), windows[0], np.int64)
    ranges = attribution.trace["ranges"]
    order = np.lexsort(
        (
            ranges["start"].gather(rows).to_numpy(),
            ranges["process"].gather(rows).fill_null(NONE).to_numpy(),
        )
    )
    by_row = np.empty(len(rows), np.int64)
    by_row[order] = np.resize(np.array(windows, np.int64), len(rows))
    return by_row


def experts_of_model(trace: Trace, calls: list[OpCall]) -> list[Params]:
    """Return the parameter that prices a layer of experts, if the model's configuration and the trace have
    all the sizes; otherwise none."""
    raw = trace.origin.get(MODEL_CONFIG)
    if not isinstance(raw, dict):
        return []
    config = model_config(raw)
    ranks = _sharing(trace, calls, config.heads)
    sizes = (config.hidden, config.inner, config.experts, config.active)
    if None in sizes or ranks is None or (config.inner or 0) % ranks:
        return []
    hidden, inner, experts, active = sizes
    stored = config.weights or Weights(NONE)
    facts = (
        *(hidden, (inner or 0) // ranks, experts, active, config.shared // ranks),
        *(3 if config.gated else 2, stored.bits, stored.block, stored.scale_bytes, ranks),
        stored.products,
    )
    return [((EXPERTS, facts),)]


def _sharing(trace: Trace, calls: list[OpCall], heads: int | None) -> int | None:
    """Return the number of ranks that share each layer: the model's heads divided by those of an attention
    here; None if unknown, as in a job of several ranks whose attention is not split."""
    queries = [
        call.inputs[0].shape
        for call in calls
        if call.name in _ATTENTION and call.inputs and isinstance(call.inputs[0], TensorSpec)
    ]
    here = {shape[1] for shape in queries if len(shape) == 3 and isinstance(shape[1], int)}
    alone = trace["processes"]["world_size"].drop_nulls().max() in (None, 1)
    if heads is None or len(here) != 1:
        return 1 if alone else None
    ranks, rest = divmod(heads, max(here.pop(), 1))
    return ranks if ranks and not rest and (ranks > 1 or alone) else None


def lengths_of_steps(
    attribution: Attribution, served: pl.DataFrame, rows: Ints
) -> tuple[Ints, Ints]:
    """Return the distinct rows of the sums of a step's requests, and for each op row the number of its row,
    -1 if no step shows it. ``served`` is ``served_steps``."""
    if served.is_empty() or not len(rows):
        return _NO_SUMS, np.full(len(rows), NONE, np.int64)
    steps = _Steps(served)
    ranges = attribution.trace["ranges"]
    process, thread = (
        ranges[name].gather(rows).fill_null(NONE).to_numpy() for name in ("process", "thread")
    )
    own = steps.at(process, thread, ranges["start"].gather(rows).to_numpy())
    sums = _sums_of(served, own)
    captured, means = _replayed(attribution, steps, served, rows)
    sums[captured] = means[captured]
    is_known = ~np.isnan(sums).any(axis=1)
    known, numbering = sums[is_known].astype(np.int64), Numbering(len(_SUMS))
    which = numbering.of(*known.T)  # to sort the rows takes ten times as long
    numbers = np.full(len(rows), NONE, np.int64)
    numbers[is_known] = which
    distinct = np.empty((numbering.many, len(_SUMS)), np.int64)
    distinct[which] = known
    return distinct, numbers


class _Steps:
    """Finds the step that runs at a time; steps of an engine do not overlap."""

    def __init__(self, served: pl.DataFrame) -> None:
        self._served, self._engines = served, 1 + int(served["engine"].max() or 0)  # type: ignore[arg-type]
        self._lane = (
            served["process"].fill_null(NONE) * self._engines + served["engine"]
        ).to_numpy()
        self._start, self._end = (served[name].to_numpy() for name in ("start", "end"))

    def at(self, process: Ints, thread: Ints, time: Ints) -> Ints:
        """Return the place of the step around each time (ns) of a thread, -1 for none."""
        places = np.full(len(time), NONE, np.int64)
        lane = process * self._engines + engine_of(self._served, process, thread)
        for number in np.unique(lane).tolist():
            mine = np.flatnonzero(self._lane == number)
            if not len(mine):
                continue
            here = np.flatnonzero(lane == number)
            index = np.searchsorted(self._start[mine], time[here], side="right") - 1
            inside = (index >= 0) & (time[here] <= self._end[mine[np.maximum(index, 0)]])
            places[here[inside]] = mine[index[inside]]
        return places


def _sums_of(served: pl.DataFrame, places: Ints) -> NDArray[np.float64]:
    """Return a row of ``_SUMS`` for each place in ``served``; NaN where one is not known."""
    table = served.select(pl.col(_SUMS).cast(pl.Float64)).to_numpy()
    sums = np.full((len(places), len(_SUMS)), np.nan)
    sums[places >= 0] = table[places[places >= 0]]
    return sums


def _replayed(
    attribution: Attribution, steps: _Steps, served: pl.DataFrame, rows: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return whether each op was captured and replayed, and the mean sums of the steps that replayed it."""
    launched = attribution.kernels
    kernels = np.flatnonzero(launched.replay >= 0)
    captured = np.zeros(len(rows), bool)
    means = np.full((len(rows), len(_SUMS)), np.nan)
    if not len(kernels):
        return captured, means
    wanted = np.zeros(len(attribution.is_op), bool)
    wanted[rows] = True
    owner = attribution.climb(launched.op[kernels].astype(np.int64), wanted)
    kernels, owner = kernels[owner >= 0], owner[owner >= 0]
    replay = launched.replay[kernels].astype(np.int64)
    pairs = np.unique(np.stack((owner, replay)), axis=1)
    order = np.argsort(rows)
    which = order[np.searchsorted(rows[order], pairs[0])]
    calls = attribution.trace["calls"]
    process, thread = (
        at(calls[name].fill_null(NONE).to_numpy(), pairs[1]) for name in ("process", "thread")
    )
    places = steps.at(process, thread, at(calls["start"].to_numpy(), pairs[1]))
    sums = _sums_of(served, places)
    count = np.bincount(which, minlength=len(rows))
    captured = count > 0
    total = np.zeros((len(rows), len(_SUMS)))
    np.add.at(total, which, sums)
    means[captured] = np.rint(total[captured] / count[captured, None])
    return captured, means


def _cache_params(trace: Trace, calls: list[OpCall]) -> Params:
    """Return the dtype of the cache's keys and the size of a head, if all ops that write new keys [T, H, d]
    have the same one; without such ops the size is the model's configuration's."""
    writes = [
        (len(tensor.shape), tensor)
        for call in calls
        if call.name in _WRITES
        for tensor in call.inputs
        if isinstance(tensor, TensorSpec)
    ]
    dtypes = {tensor.dtype for rank, tensor in writes if rank >= _CACHE_RANK}
    dims = {tensor.shape[-1] for rank, tensor in writes if rank == _CACHE_RANK - 1}
    raw = trace.origin.get(MODEL_CONFIG)
    if not dims and isinstance(raw, dict):
        dims = {model_config(raw).head or 0}
    common = (("cache_dtype", dtypes), (HEAD, dims))
    return tuple((name, next(iter(values))) for name, values in common if len(values) == 1)
