"""The attribution rules in the order in which they are applied, and why each has its position.

A rule takes the knowledge so far and returns it with the fields in ``gives`` changed. ``number`` is the
rule's number in docs/decisions/attribution.md. Results of ``stored`` rules are stored with a profile, because
these rules take most of the time; the other rules are applied anew. Rules 3, 4 and 6 (what encloses an op,
its direction, compiled regions) need no kernels: analysis applies them to the ops that it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.collectives import add_parameters
from opscope.core.attribution.cuda_graph_ops import captured_ops, compiled_regions
from opscope.core.attribution.cuda_graphs import replayed
from opscope.core.attribution.inferred_steps import (
    in_words,
    inferred_steps,
    with_steps,
    without_marks,
)
from opscope.core.attribution.innermost_op import open_ops, used_calls, with_open_ranges
from opscope.core.attribution.known import Flags, Known, Launched, NamedOps, Note, Rows
from opscope.core.attribution.launching_calls import launching_calls
from opscope.core.attribution.named_kernels import named_ranges
from opscope.core.attribution.nccl_groups import name_groups
from opscope.core.attribution.op_ranges import op_ranges
from opscope.core.attribution.reasons import (
    HAS_OP,
    NO_LAUNCH,
    NO_RANGES,
    SHARED,
    UNNAMED,
    launched_by,
    why_calls_have_none,
)
from opscope.core.attribution.result_marks import merge_results
from opscope.core.dialects.launches import SHARED_IDS
from opscope.core.schema import OPTIMIZER_STEPS
from opscope.core.sizes import NO_SIZES, has_other
from opscope.core.tables.columns import at, pieces
from opscope.core.tables.interpret import ROLE, interpret
from opscope.core.tables.intervals import NONE
from opscope.core.tables.mapped import zeros


def take_named(
    ranges: pl.DataFrame, named: NamedOps, kernels: Launched, memops: Launched, is_op: Flags
) -> tuple[Launched, Launched, Flags]:
    """Return kernels, copies and sets with the op that each one names, unless an op launched it.

    An inferred name never replaces the op that launched the kernel.
    """
    copied = named.copied if len(named.copied) else np.full(len(memops.op), NONE, np.int32)
    if max(named.op.max(initial=NONE), copied.max(initial=NONE)) < 0:
        return kernels, memops, is_op
    text = ranges["text"].to_physical().cast(pl.Int64).fill_null(NONE).to_numpy()
    ops = is_op.copy()

    def take(launched: Launched, theirs: Rows) -> Launched:
        same = (launched.op >= 0) & (at(text, launched.op) == at(text, theirs))
        taken = (theirs >= 0) & ~same
        unnamed = (theirs < 0) & (launched.reason == NO_RANGES)
        ops[theirs[taken]] = True
        reason = np.where(taken, HAS_OP, np.where(unnamed, UNNAMED, launched.reason))
        op = np.where(taken, theirs, launched.op)
        return replace(launched, op=op, reason=reason.astype(np.uint8))

    theirs = np.where(named.inferred & (kernels.op >= 0), NONE, named.op)
    kernels_named = take(kernels, theirs)
    kernels_named = replace(
        kernels_named, inferred=kernels.inferred | (named.inferred & (theirs >= 0))
    )
    return kernels_named, take(memops, copied), ops


#: Notes on kernels of CUDA graphs whose op was found without an identifier of their node.
GIVEN_TO_REGION: Final = (
    "kernels, copies and sets of CUDA graphs without node ids were given to the compiled region that "
    "replayed the CUDA graph (inferred): the trace does not show which op of the region each belongs to"
)
GIVEN_BY_ORDER: Final = (
    "kernels, copies and sets of CUDA graphs without node ids were matched to ops by the order of the "
    "captured launches (inferred)"
)
MARKS_LATE: Final = (
    "steps whose next mark came late or never: by their ops they ended as the other steps (inferred); what "
    "follows belongs to no step"
)
STEPS_INFERRED: Final = (
    "steps inferred from {by} (confidence {confidence:.2f}), because the program marks none: "
    "call opscope.step() at the beginning of each iteration to mark them"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``apply`` reads only the fields ``needs`` of the knowledge and changes only the fields
    ``gives``."""

    number: str
    finds: str
    apply: Callable[[Known], Known]
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    after: str
    #: Its time in ms, on a trace of 400,000 kernels and 1.2 million ranges.
    weight: int = 1
    stored: bool = False


def _launches(state: Known) -> Known:
    trace, calls = state.trace, state.trace["calls"]
    links = {
        name: launching_calls(trace[name], calls, state.mapped) for name in ("kernels", "memops")
    }
    return replace(state, links=links)


def _name_ops(state: Known) -> Known:
    trace, named = named_ranges(state.trace, state.links)
    return replace(state, trace=trace, named=named)


def _read_texts(state: Known) -> Known:
    meaning = interpret(state.trace, state.mapped)
    odd = np.flatnonzero([has_other(text) for text in meaning.texts])
    number = int(np.isin(meaning.reading, odd).sum()) if len(odd) else 0
    specs = state.trace["specs"]["text"].cast(pl.String).drop_nulls().to_list()
    number += sum(map(has_other, specs))
    notes = (Note("warning", NO_SIZES, number),) if number else ()
    return replace(state, meaning=meaning, notes=state.notes + notes)


def _explain_nodes(state: Known) -> Known:
    marked = state.meaning.each(lambda reading: reading.role == "spec").any()
    if not marked and not state.trace.has("specs"):
        return state
    # lazy: only traces of prepared graphs have specs
    from opscope.core.attribution.compiled_regions import with_lines
    from opscope.core.attribution.named_ranges import merge_specs

    meaning, notes = merge_specs(state.trace, state.meaning)
    meaning = with_lines(state.trace, meaning)
    return replace(state, meaning=meaning, notes=state.notes + notes)


def _choose_ops(state: Known) -> Known:
    ranges, first = state.trace["ranges"], state.named.first
    is_op, nested = op_ranges(ranges, state.meaning, first, state.mapped)
    return replace(state, is_op=is_op, nested=nested)


def _find_captures(state: Known) -> Known:
    replays = replayed(state.trace, state.links)
    used = used_calls(len(state.trace["calls"]), state.links, replays, state.mapped)
    return replace(state, replays=replays, used=used)


def _find_innermost(state: Known) -> Known:
    ranges, calls = state.trace["ranges"], state.trace["calls"]
    keep = any(bool(replay.has_node.any()) for replay in state.replays.values())
    parent, call_op, nests = open_ops(ranges, state.nested, calls, state.used, keep, state.mapped)
    return replace(state, parent=parent, call_op=call_op, nests=nests)


def _find_start_end(state: Known) -> Known:
    ranges, calls = state.trace["ranges"], state.trace["calls"]
    chosen = zeros(state.mapped, len(state.is_op), bool)
    for part in pieces(len(chosen)):
        chosen[part] = state.is_op[part] & ~state.nested[part]
    return replace(
        state, call_op=with_open_ranges(ranges, chosen, calls, state.used, state.call_op)
    )


def _give_reasons(state: Known) -> Known:
    calls, any_ops = state.trace["calls"], bool(state.is_op.any())
    why = why_calls_have_none(
        calls, state.used, state.call_op, state.nests.keys(), any_ops, state.mapped
    )
    launched = {
        name: launched_by(link, state.call_op, why, state.mapped)
        for name, link in state.links.items()
    }
    if state.trace.origin.get(SHARED_IDS):  # rows whose launch the reader could not determine
        for name, rows in launched.items():
            without_id = state.trace[name]["correlation"].is_null().to_numpy()
            rows.reason[without_id & (rows.reason == NO_LAUNCH)] = SHARED
    return replace(state, why=why, launched=launched)


def _add_results(state: Known) -> Known:
    return replace(state, meaning=merge_results(state.trace["ranges"], state.meaning, state.nested))


def _add_collectives(state: Known) -> Known:
    op = state.launched["kernels"].op
    return replace(state, meaning=add_parameters(state.trace, state.meaning, state.is_op, op))


def _name_groups(state: Known) -> Known:
    return replace(state, meaning=name_groups(state.trace["ranges"], state.meaning, state.is_op))


def _follow_graphs(state: Known) -> Known:
    if not state.replays:
        return state
    is_region = compiled_regions(state.meaning)
    launched, by_region, by_order = dict(state.launched), 0, 0
    for name, replay in state.replays.items():
        launched[name], regions = captured_ops(
            replay, launched[name], state.call_op, state.why, state.nests, is_region
        )
        by_region += regions
        by_order += int(replay.inferred.sum())
    notes = (Note("warning", GIVEN_TO_REGION, by_region), Note("info", GIVEN_BY_ORDER, by_order))
    counted = tuple(note for note in notes if note.how_many)
    return replace(state, launched=launched, notes=state.notes + counted)


def _take_named(state: Known) -> Known:
    kernels, memops, is_op = take_named(
        state.trace["ranges"],
        state.named,
        state.launched["kernels"],
        state.launched["memops"],
        state.is_op,
    )
    return replace(state, launched={"kernels": kernels, "memops": memops}, is_op=is_op)


def _end_steps(state: Known) -> Known:
    if OPTIMIZER_STEPS in state.trace["notes"]["what"].unique().to_list():
        return state  # each mark follows an optimizer's step, so no step begins at the last mark
    if not (state.meaning.role == ROLE["step"]).any():
        return state
    from opscope.core.attribution.marked_steps import with_ends  # lazy: few traces have such marks

    trace, count = with_ends(state.trace, state.meaning, state.is_op)
    notes = (Note("info", MARKS_LATE, count),) if count else ()
    return replace(state, trace=trace, notes=state.notes + notes)


def _infer_steps(state: Known) -> Known:
    hooked = OPTIMIZER_STEPS in state.trace["notes"]["what"].unique().to_list()
    steps = inferred_steps(state.trace["ranges"], state.meaning, state.is_op, hooked)
    return replace(state, steps=steps)


def _add_steps(state: Known) -> Known:
    steps = state.steps
    if steps is None:
        return state
    trace, meaning = with_steps(*without_marks(state.trace, state.meaning, steps), steps)
    by = ", ".join(in_words(by) for by in steps["by"].unique().sort())
    message = STEPS_INFERRED.format(by=by, confidence=float(steps["confidence"].to_numpy().min()))
    return replace(
        state,
        trace=trace,
        meaning=meaning,
        is_op=np.append(state.is_op, np.zeros(len(steps), bool)),
        parent=np.append(state.parent, np.full(len(steps), NONE, state.parent.dtype)),
        notes=(*state.notes, Note("info", message, len(steps))),
    )


#: The rules in order; ``after`` says why a rule comes after the one before it.
RULES: Final = (
    Rule(
        "1",
        "the call that launched each kernel, copy and set",
        _launches,
        needs=("trace",),
        gives=("links",),
        after="it comes first: it needs only ids",
        weight=30,
        stored=True,
    ),
    Rule(
        "0",
        "a range for each execution of an op that kernels name",
        _name_ops,
        needs=("trace", "links"),
        gives=("trace", "named"),
        after="the range spans the launches of its kernels, which rule 1 finds",
    ),
    Rule(
        "texts",
        "what each range means",
        _read_texts,
        needs=("trace", "notes"),
        gives=("meaning", "notes"),
        after="the ranges of rule 0 have texts too; the next rule that adds ranges adds the steps",
        weight=100,
    ),
    Rule(
        "4a",
        "the calls of ranges that carry only the name of a prepared graph's node",
        _explain_nodes,
        needs=("trace", "meaning", "notes"),
        gives=("meaning", "notes"),
        after="texts show which ranges carry only a name, and contain the specs that are marks",
    ),
    Rule(
        "ops",
        "which ranges are ops",
        _choose_ops,
        needs=("trace", "meaning", "named"),
        gives=("is_op", "nested"),
        after="a range that gets its call from a spec becomes an op",
        weight=12,
    ),
    Rule(
        "5",
        "the calls that captured what CUDA graphs ran",
        _find_captures,
        needs=("trace", "links"),
        gives=("replays", "used"),
        after="it needs no op; it comes before rule 2, which also looks up the ops of captured calls",
        weight=6,
        stored=True,
    ),
    Rule(
        "2",
        "the innermost op open when each call starts",
        _find_innermost,
        needs=("trace", "nested", "replays", "used"),
        gives=("parent", "call_op", "nests"),
        after="it looks up only calls that launched something or were captured",
        weight=90,
        stored=True,
    ),
    Rule(
        "2",
        "the op of calls that only a start/end range encloses",
        _find_start_end,
        needs=("trace", "is_op", "nested", "used", "call_op"),
        gives=("call_op",),
        after="a start/end range may end on another thread, so it counts only outside push/pop ranges",
        stored=True,
    ),
    Rule(
        "8",
        "each kernel's op, or why it has none",
        _give_reasons,
        needs=("trace", "links", "is_op", "used", "call_op", "nests"),
        gives=("why", "launched"),
        after="a call has a reason if no range of either kind encloses it",
        weight=5,
        stored=True,
    ),
    Rule(
        "results",
        "outputs that were unknown when a range was pushed",
        _add_results,
        needs=("trace", "meaning", "nested"),
        gives=("meaning",),
        after="it needs the ops but no kernels; rule 7 adds to the calls that it completes",
    ),
    Rule(
        "5",
        "the op that captured each node of a CUDA graph",
        _follow_graphs,
        needs=("meaning", "replays", "call_op", "why", "nests", "launched", "notes"),
        gives=("launched", "notes"),
        after="until here a replayed kernel has the op that replayed it; that may be a compiled region",
        stored=True,
    ),
    Rule(
        "7",
        "sizes, peers, ranks and communicators of collectives",
        _add_collectives,
        needs=("trace", "meaning", "is_op", "launched"),
        gives=("meaning",),
        after="an op's record may be on its first kernel, which may be a replay of a CUDA graph",
    ),
    Rule(
        "7",
        "the calls that each ncclGroupEnd launched",
        _name_groups,
        needs=("trace", "meaning", "is_op"),
        gives=("meaning",),
        after="a group combines the sizes and peers of its calls, which the rule before adds",
    ),
    Rule(
        "0",
        "the op that a kernel names, in place of any other",
        _take_named,
        needs=("trace", "named", "launched", "is_op"),
        gives=("launched", "is_op"),
        after="the op that a kernel names outranks the op that launched or captured it",
    ),
    Rule(
        "steps",
        "the ends of marked steps after which the program left its loop",
        _end_steps,
        needs=("trace", "meaning", "is_op", "notes"),
        gives=("trace", "notes"),
        after="it compares the ops of steps, also those that only kernels name",
    ),
    Rule(
        "steps",
        "steps that the program does not mark, from what repeats",
        _infer_steps,
        needs=("trace", "meaning", "is_op"),
        gives=("steps",),
        after="it compares all ops, also those that only kernels name",
        weight=100,
        stored=True,
    ),
    Rule(
        "steps",
        "a range for each step that was inferred",
        _add_steps,
        needs=("trace", "meaning", "is_op", "parent", "steps", "notes"),
        gives=("trace", "meaning", "is_op", "parent", "notes"),
        after="the steps must be known; their ranges come after all others",
    ),
)
