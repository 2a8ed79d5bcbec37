"""The rules of attribution: each returns what it finds, alters nothing it is given, and says what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from opscope import readers
from opscope.core.attribution import attribute as attribution
from opscope.core.attribution.attribute import attribute
from opscope.core.attribution.known import Known
from opscope.core.attribution.order import RULES, Rule
from opscope.core.tables.trace import Trace
from tests.core.attribution.test_step_bodies import program

REAL = (
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/nccl_meta.json.gz",
    "kineto/vllm_decode_cudagraph_capture.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nsys/cudf_2020.sqlite",
    "nvprof/language_model.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
)


def on(domain: str, text: str, start: int, end: int, **more: object) -> dict:
    row = {"process": 0, "thread": 1, "kind": "pushpop", "domain": domain, "text": text}
    return {**row, "start": start, "end": end, **more}


def op(text: str, start: int, end: int, **more: object) -> dict:
    return on("opscope.torch", text, start, end, category="forward", **more)


def call(start: int, correlation: int, name: str = "cudaLaunchKernel") -> dict:
    return {"process": 0, "thread": 1, "name": name, "start": start, "end": start + 1,
            "correlation": correlation}  # fmt: skip


def kernel(start: int, correlation: int | None, **more: object) -> dict:
    return {"process": 0, "device": 0, "stream": 7, "name": "k", "start": start, "end": start + 5,
            "correlation": correlation, **more}  # fmt: skip


def of_launches() -> dict[str, list[dict]]:
    """Ops, a start/end range, a launch that nothing holds, a copy."""
    later = op("late(f32[2])", 100, 200, kind="startend")
    copy = {"process": 0, "device": 0, "kind": "DtoD", "start": 60, "end": 65, "correlation": 4}
    return {
        "ranges": [op("outer(f32[2])", 0, 50), op("inner(f32[2])", 10, 20), later],
        "calls": [call(12, 1), call(110, 2), call(300, 3), call(30, 4)],
        "kernels": [kernel(50, 1), kernel(150, 2), kernel(350, 3), kernel(400, 9)],
        "memops": [copy],
    }


def of_results() -> dict[str, list[dict]]:
    result = on("opscope.torch", "-> f32[2,4]", 18, 18, category="result", kind="mark")
    return {"ranges": [op("mm(f32[2,3], f32[3,4])", 10, 20), result]}


def of_a_prepared_graph() -> dict[str, list[dict]]:
    """Specs as marks; a node in its run, what differentiates it, and a node that no run holds."""
    names = ("x/MatMul = MatMul(f32[2,3], f32[3,4])",
             "gradients/x/MatMul_grad/MatMul = MatMul(f32[2,4], f32[3,4])")  # fmt: skip
    marks = [
        on("opscope.tensorflow", f"f/{name}", 0, 0, category="spec", kind="mark") for name in names
    ]
    run = on("opscope.tensorflow", "f", 10, 40, category="graph")
    nodes = [
        on("TSL", text, start, start + 2)
        for text, start in (
            ("x/MatMul:MatMul", 12),
            ("gradients/x/MatMul_grad/MatMul:MatMul", 20),
            ("x/MatMul:MatMul", 60),
        )
    ]
    return {"ranges": [*marks, run, *nodes]}


def of_collectives() -> dict[str, list[dict]]:
    """A group of two calls, one with a payload, and a collective that its kernel describes."""
    nccl = [
        on("NCCL", "ncclGroupStart", 0, 1),
        on("NCCL", "ncclSend", 2, 3, attrs='{"Message size [bytes]":64,"Peer rank":1}'),
        on("NCCL", "ncclRecv", 4, 5, attrs='{"Message size [bytes]":64,"Peer rank":1}'),
        on("NCCL", "ncclGroupEnd", 6, 9),
    ]
    own = on("opscope.torch", "c10d::allreduce_()", 20, 30, category="communication")
    told = '{"collective":"allreduce","dtype":"Float","in_nelems":8,"out_nelems":8,"group_size":2}'
    return {
        "ranges": [*nccl, own],
        "calls": [call(7, 1), call(22, 2)],
        "kernels": [kernel(50, 1), kernel(60, 2, attrs=told)],
        "processes": [{"process": 0, "rank": 0, "world_size": 2}],
    }


def of_cuda_graphs() -> dict[str, list[dict]]:
    """A node with a creation event, and a region whose capture is not in the trace."""
    region = op('"Torch-Compiled Region: 0/0"()', 200, 210)
    return {
        "ranges": [op("mm(f32[2])", 10, 20), op("replay()", 100, 110), region],
        "calls": [call(101, 50, "cudaGraphLaunch"), call(201, 51, "cudaGraphLaunch")],
        "kernels": [kernel(150, 50, graph_node=7), kernel(250, 51)],
        "graph_nodes": [{"process": 0, "graph": 1, "node": 7, "thread": 1, "time": 12}],
    }


def of_named_kernels() -> dict[str, list[dict]]:
    text = "hlo::dot(f32[8,4], f32[4,2]) -> f32[8,2]"
    spec = {"process": 0, "framework": "xla", "graph": "jit_f", "key": "dot.1", "text": text}
    return {
        "specs": [spec],
        "ranges": [op("run(f32[2])", 0, 50)],
        "calls": [call(12, 1), call(14, 2)],
        "kernels": [kernel(50, 1, op_key="jit_f/dot.1"), kernel(60, 2, name="other")],
    }


def of_repeating_steps() -> dict[str, list[dict]]:
    ranges = []
    for step in range(5):
        for place, name in enumerate(("forward", "backward", "optimizer")):
            start = step * 100 + place * 20
            ranges.append(
                {**op(f"x::{name}(f32[2])", start, start + 10, seq=step, fwd_thread=1),
                 "category": name}
            )  # fmt: skip
    return {"ranges": ranges}


def of_marked_steps():
    return {"ranges": program("| -load L f1 b1 o " * 4)}


MADE = (
    of_launches,
    of_results,
    of_a_prepared_graph,
    of_collectives,
    of_cuda_graphs,
    of_named_kernels,
    of_repeating_steps,
    of_marked_steps,
)


#: What rules find. ``mapped`` tells only where they keep it.
KNOWN = [one.name for one in fields(Known) if one.name != "mapped"]


class Hidden:
    """A column that a rule does not say it needs: any use of it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: object, **__: object) -> Any:
        raise AssertionError(f"{self._name} is read and not in needs")

    __getattr__ = __getitem__ = __len__ = __iter__ = __bool__ = __contains__ = _refuse
    __add__ = __radd__ = __and__ = __rand__ = __invert__ = _refuse


def arrays(value: object) -> list[np.ndarray]:
    """Every array that a record holds, however deep."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        return [array for one in value.values() for array in arrays(one)]
    if isinstance(value, tuple):
        return [array for one in value for array in arrays(one)]
    if is_dataclass(value) and not isinstance(value, Trace):
        return [array for one in fields(value) for array in arrays(getattr(value, one.name))]
    return []


class Watched:
    """Applies rules to what they say they need, all arrays read-only, and holds them to what they say.

    ``changed``: the rules (places in RULES) that found something.
    """

    def __init__(self) -> None:
        self.changed: set[int] = set()

    def rules(self) -> tuple[Rule, ...]:
        return tuple(
            replace(rule, apply=lambda known, rule=rule, place=place: self._apply(rule, place, known))
            for place, rule in enumerate(RULES)
        )  # fmt: skip

    def _apply(self, rule: Rule, place: int, known: Known) -> Known:
        names = KNOWN
        seen = replace(known, **{name: Hidden(name) for name in names if name not in rule.needs})
        for array in arrays(seen):
            array.flags.writeable = False
        tables = {name: frame.clone() for name, frame in known.trace.tables.items()}
        columns = {
            name: getattr(known.meaning, name).column.clone() for name in ("seq", "fwd_thread")
        }
        found = rule.apply(seen)
        changed = {name for name in names if getattr(found, name) is not getattr(seen, name)}
        assert changed <= set(rule.gives), f"{rule.finds}: {changed - set(rule.gives)}"
        for name, frame in tables.items():
            assert known.trace[name].equals(frame), f"{rule.finds} altered {name}"
        for name, column in columns.items():
            assert getattr(known.meaning, name).column.equals(column), (
                f"{rule.finds} altered {name}"
            )
        if any(not same(getattr(found, name), getattr(known, name)) for name in changed):
            self.changed.add(place)
        return replace(known, **{name: getattr(found, name) for name in changed})


def same(one: object, other: object) -> bool:
    if isinstance(one, Trace) and isinstance(other, Trace):
        return all(one[name].equals(other[name]) for name in one.tables)
    if isinstance(one, pl.DataFrame) or isinstance(other, pl.DataFrame):
        return (
            isinstance(one, pl.DataFrame) and isinstance(other, pl.DataFrame) and one.equals(other)
        )
    ours, theirs = arrays(one), arrays(other)
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))


def held(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Attribute ``trace`` watched; the same must come out as unwatched. The rules that found something."""
    plain = attribute(trace)
    watched = Watched()
    with monkeypatch.context() as patched:
        patched.setattr(attribution, "RULES", watched.rules())
        again = attribute(trace)
    assert all(map(np.array_equal, arrays(plain), arrays(again)))
    assert plain.meaning.texts == again.meaning.texts
    assert plain.trace["ranges"].equals(again.trace["ranges"])
    return watched.changed


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_a_rule_alters_nothing_that_it_is_given(made, trace_of, monkeypatch):
    held(trace_of(**made()), monkeypatch)


def test_every_rule_finds_something_in_the_traces_made_here(trace_of, monkeypatch):
    found = set().union(*(held(trace_of(**made()), monkeypatch) for made in MADE))
    assert [rule.finds for place, rule in enumerate(RULES) if place not in found] == []


@pytest.mark.parametrize("name", REAL)
def test_a_rule_alters_nothing_of_a_real_trace(name, shared: Path, monkeypatch):
    held(readers.open(shared / name), monkeypatch)


def test_what_a_rule_needs_was_given_by_one_before():
    given = {"trace", "notes"}
    for rule in RULES:
        assert set(rule.needs) <= given, rule.finds
        given |= set(rule.gives)
    assert given == set(KNOWN)


def test_every_rule_says_why_it_comes_where_it_does():
    assert all(rule.after and rule.finds and rule.number for rule in RULES)
    numbers = [rule.number for rule in RULES if rule.number[0].isdigit()]
    documented = Path(__file__).parents[3] / "docs" / "decisions" / "attribution.md"
    rows = {
        line.split("|")[1].strip()
        for line in documented.read_text().splitlines()
        if "|" in line[:1]
    }
    assert set(numbers) <= rows


def test_a_note_on_specs_is_said_once_however_often_a_trace_is_attributed(trace_of):
    trace = trace_of(**of_a_prepared_graph())
    for _ in range(2):
        attribute(trace)
    assert trace["notes"]["how_many"].to_list() == [1]


def test_a_note_on_specs_is_said_where_kernels_name_ops_too(trace_of):
    tables = of_a_prepared_graph()
    trace = trace_of(**tables, kernels=[kernel(50, None, op_key="y/Relu:Relu")])
    attribute(trace)
    assert trace["notes"]["severity"].cast(pl.String).to_list() == ["info"]
