"""The user's own ranges, layers and functions: they are in every frame, and gaps go by their names."""

from __future__ import annotations

import polars as pl
import pytest

import opscope
from opscope.core.analysis.summary.summary_table import summary_table
from opscope.core.schema import OpCall
from opscope.profile import Profile


class Sized:
    """What a tensor of any framework looks like."""

    shape, dtype = (2, 3), "float32"


class Library:
    @staticmethod
    def blend(one, other, weight=0.5, mode="soft"):
        return weight

    def method(self, one):
        return one


@pytest.fixture
def recorded(unobserved, tmp_path):
    """``recorded(work)``: the profile of what ``work`` does."""

    def run(work):
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            work()
        return opscope.load(tmp_path / "run.opscope")

    return run


def text(frame: pl.DataFrame, *names: str) -> list[tuple[str | None, ...]]:
    return frame.select(pl.col(names).cast(pl.String)).rows()


def test_a_wrapped_function_is_an_op_with_its_arguments(recorded):
    opscope.wrap(Library, "blend")
    opscope.wrap(Library, "method")

    def work():
        Library.blend(Sized(), Sized(), 0.25, mode="hard")
        Library().method(Sized())

    frame = recorded(work).ops()
    assert text(frame, "op", "inputs", "params", "dtypes") == [
        ("Library.blend", "f32[2,3], f32[2,3]", 'weight=0.25, mode="hard"', "f32"),
        ("Library.method", "f32[2,3]", None, "f32"),
    ]


def test_ranges_around_a_wrapped_function_are_its_range_and_its_layer(recorded):
    opscope.wrap(Library, "blend")

    def work():
        with opscope.annotate("outer"), opscope.annotate("layer:block1"):
            with opscope.annotate("inner", domain="mine"), opscope.annotate("layer:mix"):
                Library.blend(Sized(), Sized())
            Library.blend(Sized(), None)
        Library.blend(None, None)

    profile = recorded(work)
    assert text(profile.ops(), "op", "range", "layer") == [
        ("Library.blend", "inner", "block1.mix"),
        ("Library.blend", "outer", "block1"),
        ("Library.blend", None, None),
    ]
    domains = dict(text(profile.trace["ranges"], "text", "domain"))
    assert (domains["inner"], domains["outer"]) == ("mine", "opscope.user")


@pytest.mark.parametrize("domain", ["opscope.torch", "NCCL", "TSL", "kineto", ""])
def test_a_framework_s_domain_is_no_place_for_a_range_of_one_s_own(domain):
    with pytest.raises(ValueError, match="domain"):
        opscope.annotate("x", domain=domain)


def test_a_category_goes_with_opscope_s_domain_only():
    with pytest.raises(ValueError, match="category"):
        opscope.annotate("x", "layer", domain="mine")


# ------------------------------------------------------------------------ texts of other tools


def row(what: str, start: int, end: int, **more: object) -> dict:
    base = {"process": 0, "thread": 1, "domain": "", "kind": "pushpop"}
    return {**base, "text": what, "start": start, "end": end, **more}


MARKER = "{'mod': 'torch', 'op': 'mm', 'args': []}"
NUMBERED = "aten::mm, seq = 3, op_id = 7"
OWN = "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]"


@pytest.mark.parametrize(
    ("op", "domain", "layers"),
    [
        (MARKER, "", ("layer:net", "layer:conv")),  # PyProf, DLProf, nvprof
        (NUMBERED, "", ("layer:net, op_id = 5", "layer:conv, op_id = 6")),  # emit_nvtx
        (OWN, "opscope.torch", ("layer:net", "layer:conv")),
        ("aten::mm()", "kineto", ("layer:net", "layer:conv")),
    ],
)
def test_layers_of_the_user_s_own_nest_in_every_dialect(trace_of, op, domain, layers):
    where = {"domain": "user" if domain == "kineto" else ""}
    trace = trace_of(
        ranges=[
            row(layers[0], 0, 100, **where),
            row(op, 5, 8, domain=domain),
            row(layers[1], 10, 50, **where),
            row(op, 20, 30, domain=domain),
        ]
    )
    assert Profile(trace).ops()["layer"].cast(pl.String).to_list() == ["net", "net.conv"]


def test_a_module_inside_a_layer_of_the_user_s_goes_on_from_the_module_around_it(trace_of):
    layer = {"domain": "opscope.torch", "category": "layer"}
    op = {"domain": "opscope.torch"}
    trace = trace_of(
        ranges=[
            row("Net", 0, 100, **layer),
            row("layer:attention", 10, 60, domain="opscope.user"),
            row("Net.query", 20, 30, **layer),
            row(OWN, 22, 24, **op),
            row(OWN, 40, 42, **op),
            row("Network.other", 45, 55, **layer),
            row(OWN, 46, 47, **op),
            row("Net.head", 70, 80, **layer),
            row(OWN, 72, 74, **op),
        ]
    )
    assert Profile(trace).ops()["layer"].cast(pl.String).to_list() == [
        "Net.attention.query",
        "Net.attention",
        "Net.attention.Network.other",
        "Net.head",
    ]


def test_where_nothing_else_is_an_op_a_layer_of_the_user_s_has_its_kernels(trace_of):
    trace = trace_of(
        ranges=[row("layer:net", 0, 100)],
        calls=[{"process": 0, "thread": 1, "start": 5, "end": 6, "correlation": 1}],
        kernels=[{"process": 0, "device": 0, "start": 7, "end": 9, "correlation": 1}],
    )
    (kernel,) = text(Profile(trace).kernels(), "op", "layer", "reason")
    assert kernel == ("layer:net", "net", None)


# ------------------------------------------------------------------------------- on a device


@pytest.fixture
def on_gpu(trace_of) -> Profile:
    """Forward and backward on two threads, inside and outside of the user's ranges."""
    op = {"domain": "opscope.torch"}
    ranges = [
        row("train", 0, 1000, domain="opscope.user"),
        row("loss", 10, 40, domain="opscope.user"),
        row(OWN, 20, 30, category="forward", seq=1, fwd_thread=1, **op),
        row("aten::mm(f32[4,2], f32[2,3])", 60, 70, category="backward", thread=2, seq=1,
            fwd_thread=1, **op),
        row("backward", 100, 200, domain="opscope.torch", category="phase"),
    ]  # fmt: skip
    at = {1: (25, 1), 2: (65, 2), 3: (45, 1), 4: (150, 1), 5: (155, 1)}
    calls = [
        {"process": 0, "thread": thread, "start": start, "end": start + 1, "correlation": number}
        for number, (start, thread) in at.items()
    ]
    ran = {"process": 0, "device": 0, "stream": 7}
    kernels = [
        {**ran, "start": 300 + 10 * n, "end": 300 + 11 * n, "name": f"k{n}", "correlation": n}
        for n in (1, 2, 3, 4)
    ]
    memops = [
        {**ran, "start": 500, "end": 600, "kind": "HtoD", "correlation": 5},
        {**ran, "start": 600, "end": 630, "kind": "HtoD", "correlation": 99},
    ]
    return Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels, memops=memops))


def test_every_frame_of_ops_and_kernels_has_the_innermost_user_range(on_gpu):
    """The backward op's thread has none of its own: it works while the forward op's thread waits."""
    assert text(on_gpu.ops(), "direction", "range") == [("forward", "loss"), ("backward", "train")]
    assert text(on_gpu.kernels(), "name", "range") == [
        ("k1", "loss"),
        ("k2", "train"),
        ("k3", "train"),
        ("k4", "train"),
    ]
    assert text(on_gpu.memops(), "range") == [("train",), (None,)]


def test_reports_group_by_user_range(on_gpu):
    frame = on_gpu.range_totals()
    assert frame.select("range", "device_time", "calls", "kernels", "copies").rows() == [
        ("train", 109, 4, 3, 1),
        (None, 30, 1, 0, 1),
        ("loss", 1, 1, 1, 0),
    ]
    assert frame["device_time"].sum() == on_gpu.summary()["device_time"].item()
    assert "loss" in on_gpu.efficiency("range")["range"].cast(pl.String).to_list()


def test_what_no_op_has_is_split_by_user_range_and_phase(on_gpu):
    frame = on_gpu.gaps().select("reason", "range", "phase", "kernels", "copies", "time")
    outside = "launched outside any op range"
    assert frame.rows() == [
        (outside, "train", "backward", 1, 1, 104),
        ("no launch record", None, None, 0, 1, 30),
        (outside, "train", None, 1, 0, 3),
    ]
    assert frame["time"].sum() == on_gpu.summary()["device_unattributed_time"].item()
    lines = [one["what"].strip() for one in summary_table(on_gpu).rows]
    assert "in 'train', backward" in lines


def test_kernels_of_a_compiler_s_own_threads_are_in_the_phase_compile(trace_of):
    """XLA runs kernels on threads of its own to choose among them, while the program's thread compiles."""
    op = {"domain": "opscope.jax"}
    ranges = [
        row("jit_step", 0, 90, category="graph", **op),
        row("compile", 10, 50, category="phase", **op),
        row("hlo::dot(f32[4,2], f32[2,3]) -> f32[4,3]", 60, 70, **op),
    ]
    at = {1: (20, 7), 2: (49, 8), 3: (50, 8), 4: (65, 1)}
    calls = [
        {"process": 0, "thread": thread, "start": start, "end": start + 1, "correlation": number}
        for number, (start, thread) in at.items()
    ]
    kernels = [
        {"process": 0, "device": 0, "stream": 7, "start": 300 + 10 * n, "end": 305 + 10 * n, "name": "k",
         "correlation": n}
        for n in at
    ]  # fmt: skip
    frame = Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels)).gaps()
    assert frame.select("reason", "phase", "kernels").sort("kernels").rows() == [
        ("the launching thread has no op ranges", None, 1),
        ("the launching thread has no op ranges", "compile", 2),
    ]


# ------------------------------------------------------------------------------- on a CPU


def test_the_gaps_of_a_step_have_names_and_add_up(trace_of):
    """A step of 100: user range, phase and what the scheduler recorded."""
    own = {"domain": "opscope.torch"}
    ranges = [
        row("step 0", 0, 100, domain="opscope.step", category="step"),
        row(OWN, 10, 20, **own),
        row("load", 20, 50, domain="opscope.user"),
        row("forward", 40, 70, category="phase", **own),
        row("Optimizer.step#SGD.step", 80, 90),
        row("compile 0/0", 92, 96, category="phase", **own),
    ]
    states = [
        {"process": 0, "thread": 1, "start": 60, "end": 64, "state": "off the CPU: poll"},
        {"process": 0, "thread": 1, "start": 25, "end": 30, "state": "off the CPU: futex"},
        {"process": 0, "thread": 2, "start": 0, "end": 100, "state": "running"},
    ]
    profile = Profile(trace_of(ranges=ranges, thread_states=states))
    frame = profile.gaps().select("reason", "range", "phase", "state", "time")
    rest = "inside steps, outside any op"
    assert sorted(frame.rows(), key=str) == sorted(
        [
            (rest, None, None, None, 10 + 10 + 2 + 4),
            (rest, "load", None, None, 5 + 10),
            (rest, "load", None, "off the CPU: futex", 5),
            (rest, "load", "forward", None, 10),
            (rest, None, "forward", None, 10 + 6),
            (rest, None, "forward", "off the CPU: poll", 4),
            (rest, None, "optimizer", None, 10),
            ("inside steps, compiling a program", None, "compile 0/0", None, 4),
        ],
        key=str,
    )
    assert frame["time"].sum() == profile.summary()["device_unattributed_time"].item() == 90
    by_reason = dict(profile.unattributed().select("reason", "time").rows())
    assert by_reason == dict(frame.group_by("reason").agg(pl.col("time").sum()).rows())


def test_the_call_of_a_wrapped_builtin_has_unnamed_arguments():
    from opscope.wrapping import _describe

    assert _describe("f", (), (3, Sized()), {}) == OpCall(
        "f", (_describe("f", (), (Sized(),), {}).inputs[0],), None, (("arg0", 3),)
    )
