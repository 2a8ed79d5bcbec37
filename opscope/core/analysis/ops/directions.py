"""The direction of each op, from its text, the ranges around it, and the ops that autograd differentiated.

Forward ops are those run by a model's call or differentiated by a backward pass, and the ops between two of
these. An op that reads a value back to the host (``.item()``) and the ops around it do not count as such a
link: a loop that counts right answers is not a forward pass. These ops have no direction, nor do ops that
prepare a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opscope.core.analysis.ops.autograd_threads import AutogradThreads
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.enclosing import Context
from opscope.core.dialects import Reading
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import at, gather, pieces
from opscope.core.tables.intervals import NONE, Ints, merge, subtract
from opscope.core.tables.lanes import lanes_of

Codes: TypeAlias = NDArray[np.int8]
Flags: TypeAlias = NDArray[np.bool_]
Spans: TypeAlias = tuple[Ints, Ints]
FORWARD, BACKWARD, OPTIMIZER = (
    DIRECTIONS.index(name) for name in ("forward", "backward", "optimizer")
)
#: The phases that give a direction to their ops, if an op's own text has none.
_GIVING: Final = ("backward", "optimizer", "input")
#: PyTorch's own range around an optimizer's step. If it calls a closure, that runs inside.
_STEP: Final = "Optimizer.step"
#: The op that gets a batch from ``tf.data``, and the range that MindSpore's iterator opens when its profiler
#: records ranges (``mstx``).
TENSORFLOW_LOADER: Final = "IteratorGetNext"
MINDSPORE_LOADER: Final = "dataloader"
#: Ops that wait for a value on the host.
_READS: Final = frozenset(
    {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"}
)
#: The domain of forward phases that last, including the loss, until the backward pass or the next batch
#: begins.
_OPEN: Final = "opscope.torch"


@dataclass(slots=True)
class Settled:
    """``codes``: the direction of each range row, a place in DIRECTIONS, -1 for none. ``cuts``: per process
    and thread, the time within its forward phases in which no forward pass ran."""

    codes: Codes
    cuts: dict[tuple[int, int], Spans] = field(default_factory=dict)


def own_directions(attribution: Attribution) -> Codes:
    """Return for each reading the direction that its text or category states, -1 for none."""

    def code(reading: Reading) -> int:
        if (
            reading.role == "op"
            and reading.call
            and reading.call.name.startswith(TENSORFLOW_LOADER)
        ):
            return DIRECTIONS.index("input")
        return DIRECTIONS.index(reading.direction) if reading.direction in DIRECTIONS else NONE

    return attribution.meaning.each(code, np.int8)


def stated(attribution: Attribution, context: Context) -> Codes:
    """Return the direction of each range row from its text and the ranges around it.

    It is the op's own, else that of the nearest op around it, else that of the phase around it, else forward,
    or backward on a thread of autograd's engine. If autograd numbers an op inside an optimizer's step, the op
    belongs to the step's closure, because autograd is off during the optimizer's own work.
    """
    reading = attribution.meaning.reading
    own = own_directions(attribution)
    codes: Codes = own[reading]
    has_own = attribution.kept(codes != NONE)
    is_call = attribution.meaning.each(lambda r: r.call is not None)
    is_call &= ~_unmarked(attribution, own)
    engine = AutogradThreads(attribution, codes)
    phases = _giving_phases(context)
    none_above = not has_own.any()
    for part in pieces(len(reading)):
        rows = part.start + np.flatnonzero(~has_own[part])
        otherwise = np.where(is_call[reading[rows]], FORWARD, NONE)  # a user range has no direction
        owner = np.full(len(rows), NONE, np.int64)
        if not none_above:
            owner = attribution.climb(rows, has_own)
        free = np.flatnonzero((owner < 0) & (otherwise == FORWARD))
        if phases is not None and len(free):
            around = at(phases, context.numbers("phase", *_places(attribution, rows[free])))
            otherwise[free] = np.where(around >= 0, around, FORWARD)
        codes[rows] = np.where(owner >= 0, at(codes, owner), otherwise)
        if not none_above:
            engine.without(rows[(owner < 0) & (otherwise == FORWARD)])
    if engine.lanes:
        for part in pieces(len(reading)):
            rows = part.start + np.flatnonzero(~has_own[part] & (codes[part] == FORWARD))
            codes[rows[engine.has(rows)]] = BACKWARD
    _closures(attribution, codes, has_own)
    return attribution.kept(codes)


def _unmarked(attribution: Attribution, own: Codes) -> Flags:
    """Return per reading whether it is a JAX operation whose path marks no pass although other paths mark
    a gradient: it may be an update, or prepare a batch. (PyTorch/XLA marks no forward pass.)"""

    def path(reading: Reading) -> object:
        return None if reading.call is None else reading.call.param("op_name")

    each = attribution.meaning.each
    of_path = each(lambda reading: isinstance(path(reading), str))
    of_jax = of_path & each(lambda reading: "jvp(" in str(path(reading)))
    unmarked: Flags = of_path & (own == NONE) & (of_jax & (own == BACKWARD)).any()
    return unmarked


def _giving_phases(context: Context) -> Codes | None:
    """Return per phase text the direction that it gives, -1 for none; None if no phase gives one."""
    texts = context.texts("phase")
    codes = np.array(
        [DIRECTIONS.index(text) if text in _GIVING else NONE for text in texts], np.int8
    )
    return codes if (codes >= 0).any() else None


def _places(attribution: Attribution, rows: Ints) -> tuple[Ints, Ints, Ints]:
    ranges = attribution.trace["ranges"]
    process, thread = (
        ranges[name].gather(rows).fill_null(NONE).to_numpy().astype(np.int64)
        for name in ("process", "thread")
    )
    return process, thread, ranges["start"].gather(rows).to_numpy()


def closures(attribution: Attribution, codes: Codes) -> Ints:
    """Return the rows of PyTorch's ranges around optimizer steps in which a backward pass ran."""
    readings, texts = attribution.meaning.readings, attribution.meaning.texts
    is_step = np.array(
        [
            r.direction == "optimizer"
            and (r.call.name if r.call is not None else text).startswith(_STEP)
            for r, text in zip(readings, texts, strict=True)
        ],
        bool,
    )
    if not is_step.any():
        return np.empty(0, np.int64)
    rows = np.flatnonzero(is_step[attribution.meaning.reading])
    back = np.flatnonzero((codes == BACKWARD) & attribution.is_op)
    process, _, start = _places(attribution, rows)
    theirs, _, begins = _places(attribution, back)
    end = attribution.trace["ranges"]["end"].gather(rows).to_numpy()
    holds = np.zeros(len(rows), bool)
    for number in np.unique(process).tolist():
        times = np.sort(begins[theirs == number])
        mine = np.flatnonzero(process == number)
        holds[mine] = np.searchsorted(times, start[mine]) < np.searchsorted(times, end[mine])
    return rows[holds]


def _closures(attribution: Attribution, codes: Codes, has_own: Flags) -> None:
    """Make the ops of closures forward: those that autograd numbers, and the ops they run."""
    steps = closures(attribution, codes)
    if not len(steps):
        return
    inside = np.flatnonzero((codes == OPTIMIZER) & ~has_own & attribution.is_op)
    numbered = np.zeros(len(codes), bool)
    numbered[inside] = attribution.meaning.seq.at_least(0, inside)
    giver = attribution.climb(inside, numbered)
    inside = inside[(giver >= 0) & holders(attribution, steps, giver)]
    codes[inside] = FORWARD


def holders(attribution: Attribution, around: Ints, rows: Ints) -> Flags:
    """Return for each row (-1: none) whether it begins within one of the rows ``around`` of its thread."""
    ends = attribution.trace["ranges"]["end"]
    is_inside = np.zeros(len(rows), bool)
    present = np.flatnonzero(rows >= 0)
    where, of = _places(attribution, around), _places(attribution, rows[present])
    for key in set(zip(where[0].tolist(), where[1].tolist(), strict=True)):
        theirs = np.flatnonzero((where[0] == key[0]) & (where[1] == key[1]))
        first, last = merge(where[2][theirs], ends.gather(around[theirs]).to_numpy())
        mine = np.flatnonzero((of[0] == key[0]) & (of[1] == key[1]))
        is_inside[present[mine]] = _index(first, last, of[2][mine]) >= 0
    return is_inside


def _index(first: Ints, last: Ints, time: Ints) -> Ints:
    """Return which of the disjoint intervals in order contains each time, -1 for none."""
    index = np.searchsorted(first, time, side="right") - 1
    return np.where((index >= 0) & (time < at(last, index, NONE)), index, NONE)


# ---------------------------------------------------------------------------- what is forward


def settle(
    attribution: Attribution,
    context: Context,
    codes: Codes,
    differentiated: Callable[[], Ints],
    in_backward: Callable[[Ints], Flags],
) -> Settled:
    """Return the directions, where ops that are not shown to belong to a forward pass have none. This is
    judged only if something shows forward passes: opscope's own phases, or ops that autograd differentiated
    (``differentiated``: their rows). Otherwise every op without a direction is forward. ``in_backward``:
    whether ops begin in a backward phase of their process. Where phases show the calls of models, an op
    outside them and their losses has no direction. Where only autograd shows the pass, an op has no direction
    if it comes after the last differentiated op of its step, or reads a value back."""
    phases = _Passes(attribution)
    if not phases.any and not (codes == BACKWARD).any():
        return Settled(codes)
    return _Settling(attribution, context, codes, phases, differentiated(), in_backward).settled()


class _Passes:
    """The open-ended forward phases of each thread, and when its backward phases begin."""

    def __init__(self, attribution: Attribution) -> None:
        meaning, ranges = attribution.meaning, attribution.trace["ranges"]
        self.by_lane: dict[tuple[int, int], Spans] = {}
        self.backwards: dict[tuple[int, int], Ints] = {}
        for name in ("forward", "backward"):
            is_phase = meaning.phases(name)
            rows = np.flatnonzero(is_phase[meaning.reading]) if is_phase.any() else NO_ROWS
            rows = rows[(gather(ranges["domain"], rows) == _OPEN).fill_null(False).to_numpy()]
            process, thread, start = _places(attribution, rows)
            end = ranges["end"].gather(rows).to_numpy()
            for key, here in lanes_of(process, thread).rows(np.ones(len(rows), bool)):
                if name == "forward":
                    self.by_lane[key] = merge(start[here], end[here])
                else:
                    self.backwards[key] = np.sort(start[here])
        self.any = bool(self.by_lane)

    def followed(self, key: tuple[int, int]) -> Flags:
        """Return whether each forward phase of a thread is followed by a backward phase, not by another."""
        first, last = self.by_lane[key]
        begins = self.backwards.get(key, NO_ROWS)
        index = np.searchsorted(begins, last)
        after = np.where(index < len(begins), at(np.append(begins, NONE), index), _NEVER)
        following: Flags = (after < _NEVER) & (after <= np.append(first[1:], _NEVER))
        return following


NO_ROWS: Final = np.empty(0, np.int64)
_NEVER: Final = np.iinfo(np.int64).max


class _Settling:
    """Settles a trace's ops, thread by thread. A *top* is an op that is in no other op of its direction."""

    def __init__(
        self,
        attribution: Attribution,
        context: Context,
        codes: Codes,
        phases: _Passes,
        differentiated: Ints,
        in_backward: Callable[[Ints], Flags],
    ) -> None:
        self._attribution, self._context, self._phases = attribution, context, phases
        self._codes = codes
        parent = attribution.parent
        is_op = attribution.is_op
        self._is_top = np.zeros(len(codes), bool)
        for part in pieces(len(codes)):
            rows = part.start + np.flatnonzero(is_op[part])
            above = parent[rows].astype(np.int64)
            self._is_top[rows] = (above < 0) | (at(codes, above) != codes[rows])
        self._tops = np.flatnonzero(self._is_top)
        self._gradient = np.zeros(len(codes), bool)
        self._gradient[self._roots(differentiated)] = True
        self._reads = self._of_reads()
        self._in_backward = in_backward
        process = _places(attribution, self._tops)[0]
        marked = {number for number, _ in phases.by_lane}
        paired = np.unique(process[self._gradient[self._tops]]).tolist()
        self._judged = marked | set(paired)
        self._marked = marked

    def _roots(self, rows: Ints) -> Ints:
        tops = self._attribution.climb(rows, self._is_top)
        return np.unique(tops[tops >= 0])

    def _of_reads(self) -> Flags:
        """Return per reading whether it is of an op that reads a value back."""
        return self._attribution.meaning.each(
            lambda r: r.call is not None and r.call.name.partition(".")[0] in _READS
        )

    def settled(self) -> Settled:
        result = Settled(self._codes.copy())
        tops = self._tops
        process, thread, start = _places(self._attribution, tops)
        chosen = np.isin(process, sorted(self._judged))
        if not chosen.any():
            return Settled(self._codes)
        end = self._attribution.trace["ranges"]["end"].gather(tops).to_numpy()
        forward = result.codes[tops] == FORWARD
        layered = self._layered(process, thread, start)
        gradient = self._gradient[tops]
        evident = forward & (layered | gradient)
        free = np.flatnonzero(forward & ~evident & chosen)
        evident[free] = self._in_backward(tops[free])
        following = self._later_in_step(process, start, gradient)
        lost = np.zeros(len(tops), bool)
        for key, here in lanes_of(process, thread).rows(chosen):
            here = here[np.argsort(start[here], kind="stable")]
            doubtful = forward[here] & ~evident[here]
            linked = ~self._read_in_run(tops[here], doubtful, evident[here] | ~forward[here])
            if key[0] in self._marked:
                keep, cuts = self._in_phases(
                    key, start[here], end[here], evident[here], gradient[here], linked, doubtful
                )
                if cuts is not None:
                    result.cuts[key] = cuts
            else:
                keep = linked & following[here]
            lost[here] = doubtful & ~keep
        self._forget(result.codes, tops[lost])
        return result

    def _layered(self, process: Ints, thread: Ints, time: Ints) -> Flags:
        """Return whether a layer is open at each time; computed piece by piece to limit memory."""
        layered = np.empty(len(time), bool)
        for part in pieces(len(time)):
            number = self._context.numbers("layer", process[part], thread[part], time[part])
            layered[part] = number >= 0
        return layered

    def _read_in_run(self, tops: Ints, doubtful: Flags, breaks: Flags) -> Flags:
        """Return for each op whether the run of doubtful ops that contains it reads a value back."""
        run = np.cumsum(breaks, dtype=np.int32)
        reads = self._reads[self._attribution.meaning.reading[tops]] & doubtful
        has_read = np.zeros(int(run[-1]) + 1 if len(run) else 1, bool)
        has_read[run[reads]] = True
        return has_read[run]

    def _later_in_step(self, process: Ints, start: Ints, gradient: Flags) -> Flags:
        """Return for each op whether a differentiated op of its step follows, or its step has no
        differentiated op at all.

        True also for an op outside steps, because its step is unknown.
        """
        kept = np.ones(len(start), bool)
        for number in np.unique(process[gradient]).tolist():
            those = np.flatnonzero(gradient & (process == number))
            those = those[np.argsort(start[those], kind="stable")]
            begins, steps = start[those], self._steps(process[those], start[those])
            trained = np.unique(steps)
            for part in pieces(len(start)):
                mine = part.start + np.flatnonzero(process[part] == number)
                index = np.searchsorted(begins, start[mine], side="left")
                step = self._steps(process[mine], start[mine])
                follows = at(np.append(steps, -2), index) == step
                kept[mine] = (step < 0) | ~np.isin(step, trained) | follows
        return kept

    def _steps(self, process: Ints, time: Ints) -> NDArray[np.int32]:
        """Return the number of the step at each time, NONE outside steps; computed piece by piece."""
        steps = np.empty(len(time), np.int32)
        for part in pieces(len(time)):
            anywhere = np.zeros_like(process[part])
            steps[part] = self._context.numbers("step", process[part], anywhere, time[part])
        return steps

    def _in_phases(
        self,
        key: tuple[int, int],
        start: Ints,
        end: Ints,
        evident: Flags,
        gradient: Flags,
        linked: Flags,
        doubtful: Flags,
    ) -> tuple[Flags, Spans | None]:
        """Return which doubtful ops of a thread are forward, and the cuts of its forward phases."""
        if key not in self._phases.by_lane:
            return np.zeros(len(start), bool), None
        first, last = self._phases.by_lane[key]
        phase = _index(first, last, start)
        inside = phase >= 0
        count = len(first)
        trains = np.bincount(phase[inside], gradient[inside], count) > 0
        calls = self._context.outermost_layers().get(key, (NO_ROWS, NO_ROWS))
        shown = np.zeros(count, bool)
        shown[phase[inside & evident]] = True
        shown[[number for number in _index(first, last, calls[0]).tolist() if number >= 0]] = True
        # a phase followed by a backward pass without any paired op shows nothing
        open_ended = shown & (trains | ~self._phases.followed(key))
        latest = np.full(count, NONE, np.int64)
        np.maximum.at(latest, phase[inside & evident], start[inside & evident])
        keep = inside & at(~open_ended, phase, False)
        keep |= inside & at(trains, phase, False) & linked & (start < at(latest, phase))
        kept = inside & (evident | (doubtful & keep))
        passes = merge(np.append(start[kept], calls[0]), np.append(end[kept], calls[1]))
        return keep, _cuts(
            (first, last), open_ended, trains, passes, start[inside & doubtful & ~keep]
        )

    def _forget(self, codes: Codes, tops: Ints) -> None:
        """Remove the direction of these ops, and of the forward ops inside them."""
        if not len(tops):
            return
        gone = np.zeros(len(codes), bool)
        gone[tops] = True
        for part in pieces(len(codes)):
            rows = part.start + np.flatnonzero(
                (codes[part] == FORWARD) & self._attribution.is_op[part]
            )
            top = self._attribution.climb(rows, self._is_top)
            codes[rows[at(gone, top, False)]] = NONE


def _cuts(
    phases: Spans, open_ended: Flags, trains: Flags, passes: Spans, others: Ints
) -> Spans | None:
    """Return the time in phases that is not part of a forward pass.

    In a phase that no backward pass follows, this is all time except the ``passes``. In other phases, it is
    the time around each of the ``others`` (starts of ops that are not forward), from the pass before it to
    the pass after it.
    """
    first, last = phases
    idle = np.flatnonzero(open_ended & ~trains)
    begin, finish = subtract((first[idle], last[idle]), passes)
    index = _index(first, last, others)
    before = np.searchsorted(passes[0], others, side="right") - 1
    since = np.maximum(at(passes[1], before, NONE), first[index])
    until = np.minimum(at(np.append(passes[0], _NEVER), before + 1), last[index])
    begin, finish = np.append(begin, since), np.append(finish, until)
    longer = finish > begin
    return merge(begin[longer], finish[longer]) if longer.any() else None
