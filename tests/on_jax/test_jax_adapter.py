"""What the JAX adapter emits, heard by a tool of its own, and what it leaves behind."""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import weakref
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope import adapters
from opscope.adapters.jax import calls
from opscope.adapters.shared.compiled import BuildError
from opscope.adapters.shared.reads import REFUSED
from opscope.core.capture import session
from opscope.core.rangetext import parse, parse_spec
from opscope.core.schema import READ_DOMAIN, UNHEARD_READS
from tests.nvtx_tool import build, hear

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

PROGRAM = """
import opscope
opscope.init()
import jax, jax.numpy as jnp

@jax.jit
def scaled(x, w):
    with jax.named_scope("dense"):
        return jnp.tanh(x @ w)

x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
for number in range(3):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        with jax.profiler.TraceAnnotation("mine"):
            scaled(x, w).block_until_ready()
result = {"traced": str(jax.make_jaxpr(scaled)(x, w))}
"""


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvtx")
    return hear(PROGRAM, build(folder), folder)


def test_each_jitted_call_is_a_range_in_its_step(heard):
    events = heard.of("push", "pop", domain="opscope.jax")
    calls = [event for event in events if event.kind == "push" and event.text == "jit_scaled"]
    assert len(calls) == 3
    kinds = [event.kind for event in events]
    assert kinds.count("push") == kinds.count("pop")
    steps = heard.of("push", domain="opscope.step")
    assert [(event.text, event.payload) for event in steps] == [("step", n) for n in range(3)]
    assert [event.text for event in heard.of("push", domain="opscope.user")] == ["mine"] * 3
    told = ("step", "mine", "jit_scaled")
    order = [event.text for event in heard.events if event.kind == "push" and event.text in told]
    assert order == [text for _ in range(3) for text in ("step", "mine", "jit_scaled")]


def test_specs_tell_the_compiled_operations(heard):
    marks = [parse_spec(event.text) for event in heard.of("mark", domain="opscope.jax")]
    calls = {key: parse(text) for graph, key, text in marks if graph == "jit_scaled"}
    products = [call for call in calls.values() if call.name.endswith("dot")]
    assert len(products) == 1
    shapes = [(leaf.dtype, leaf.shape) for leaf in products[0].input_leaves()]
    assert shapes[:2] == [("f32", (8, 16)), ("f32", (16, 4))]
    assert "/dense/" in products[0].param("op_name")


def attributes() -> dict[str, object]:
    """Every attribute that the adapter exchanges, as it stands."""
    found = {}
    for module, names in {
        "jax._src.pjit": ["_cpp_pjit"],
        "jax._src.compiler": ["compile_or_get_cached"],
    }.items():
        for name in names:
            found[f"{module}.{name}"] = vars(importlib.import_module(module))[name]
    profiler = importlib.import_module("jax._src.profiler")
    for kind in (profiler.TraceAnnotation, profiler.StepTraceAnnotation):
        for name in ("__init__", "__enter__", "__exit__"):
            found[f"{kind.__name__}.{name}"] = vars(kind).get(name)
    return found


def test_shutdown_restores_every_attribute():
    before = attributes()
    opscope.init("jax")
    during = attributes()
    opscope.shutdown()
    assert attributes() == before
    changed = [name for name in before if during[name] is not before[name]]
    assert len(changed) == 6


def test_functions_jitted_under_it_work_in_every_way():
    opscope.init("jax")
    try:
        function = jax.jit(lambda x, n: x**n, static_argnums=1)

        class Model:
            @jax.jit
            def double(self, x):
                return 2 * x

            __hash__ = object.__hash__

        jax.tree_util.register_pytree_node(Model, lambda m: ((), None), lambda _, __: Model())
        x = jnp.arange(3.0)
        assert function(x, 2).tolist() == [0, 1, 4]
        assert function.lower(x, 2).compile()(x).tolist() == [0, 1, 4]
        assert jax.grad(lambda x: function(x, 3).sum())(x).tolist() == [0, 3, 12]
        assert jax.vmap(lambda x: function(x, 2))(x).tolist() == [0, 1, 4]
        assert jax.jit(function, static_argnums=1)(x, 2).tolist() == [0, 1, 4]
        assert Model().double(x).tolist() == [0, 2, 4]
        assert jax.eval_shape(lambda x: function(x, 2), x).shape == (3,)
        function.clear_cache()
        assert isinstance(function, type(jax.jit(abs)))
        with pytest.raises(TypeError):
            function()
    finally:
        opscope.shutdown()
    assert function(x, 2).tolist() == [0, 1, 4]


def test_a_function_jitted_before_init_has_its_calls_from_the_profiler(tmp_path: Path):
    @jax.jit
    def early(x):
        return jnp.tanh(x @ x)

    x = jnp.ones((8, 8))
    early(x)
    opscope.init("jax")
    try:

        @jax.jit
        def late(x):
            return x @ x

        with opscope.capture(tmp_path / "a.opscope", backend="xplane"):
            for number in range(3):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    early(x)
                    late(x).block_until_ready()
    finally:
        opscope.shutdown()
    trace = opscope.load(tmp_path / "a.opscope").trace
    ranges = trace["ranges"].with_columns(pl.col("category", "text").cast(pl.String))
    calls = ranges.filter(pl.col("category") == "graph").sort("start")
    names = calls["text"].to_list()
    assert names == ["jit_early", "jit_late"] * 3
    # the profiler numbers threads by itself; they are the system's here
    steps = ranges.filter(pl.col("category") == "step")
    assert calls["thread"].unique().to_list() == steps["thread"].unique().to_list()
    assert "MainThread" in trace["threads"]["name"].cast(pl.String).to_list()


def test_a_gradient_outside_of_jit_runs_its_jitted_parts(tmp_path: Path):
    """``jax.grad`` of a function that is not jitted traces, but what is jitted in it runs."""
    opscope.init("jax")
    try:

        @jax.jit
        def inner(x):
            return jnp.sin(x).sum()

        @jax.jit
        def outer(x):
            return inner(x) * 2

        x = jnp.ones(4)
        with opscope.capture(tmp_path / "a.opscope", backend="recorder"):
            jax.grad(lambda x: inner(x) * 2)(x)
            jax.vmap(inner)(jnp.ones((2, 4)))
            outer(x)  # traces inner, which runs nothing
            jax.eval_shape(inner, x)
    finally:
        opscope.shutdown()
    ranges = opscope.load(tmp_path / "a.opscope").trace["ranges"]
    calls = ranges.filter(pl.col("category").cast(pl.String) == "graph")["text"].cast(pl.String)
    mine = [name for name in calls if name in ("jit_inner", "jit_outer")]
    assert mine == ["jit_inner", "jit_inner", "jit_outer"]


def test_jaxs_own_annotations_are_no_user_ranges(tmp_path: Path):
    opscope.init("jax")
    try:
        with opscope.capture(tmp_path / "a.opscope", backend="recorder"):
            with jax.profiler.TraceAnnotation("mine"):
                jax.jit(lambda x: x + 1)(jnp.ones(5)).block_until_ready()
            with pytest.raises(ZeroDivisionError), jax.profiler.TraceAnnotation("raises"):
                raise ZeroDivisionError
    finally:
        opscope.shutdown()
    ranges = opscope.load(tmp_path / "a.opscope").trace["ranges"]
    user = ranges.filter(ranges["domain"].cast(str) == "opscope.user")
    assert user["text"].cast(str).to_list() == ["mine", "raises"]


def test_steps_are_counted_with_nothing_listening_and_left_to_the_user_who_tells_them(fresh_steps):
    opscope.init("jax")
    try:
        with jax.profiler.StepTraceAnnotation("train", step_num=7):
            assert session.current_step() == 7
        opscope.step(100)
        with jax.profiler.StepTraceAnnotation("train", step_num=8):
            assert session.current_step() == 100
    finally:
        session.end_step()
        opscope.shutdown()


def test_one_profile_at_a_time(tmp_path: Path):
    jax.profiler.start_trace(str(tmp_path / "theirs"))
    try:
        with (
            pytest.raises(session.SessionError, match=r"jax\.profiler cannot start"),
            opscope.capture(tmp_path / "ours.opscope", backend="xplane"),
        ):
            pass
    finally:
        jax.profiler.stop_trace()
        opscope.shutdown()
    assert not (tmp_path / "ours.opscope").exists()


def test_an_adapter_that_is_shut_down_is_gone(tmp_path):
    gone, kept = [], []
    for number in range(3):
        opscope.init("jax")
        with opscope.capture(tmp_path / f"{number}.opscope", backend="recorder"):
            kept.append(jax.jit(lambda x: x * 2))
            kept[-1](jnp.ones(3))
        gone.append(weakref.ref(adapters._installed["jax"]))
        opscope.shutdown()
    gc.collect()
    assert [one() for one in gone] == [None] * 3
    assert float(kept[0](2.0)) == 4.0


def test_jax_that_cannot_tell_whether_it_is_traced_goes_on_unobserved(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(calls, "runs", lambda: lambda: 1 / 0)
    try:
        opscope.init("jax")
        double = jax.jit(lambda x: 2 * x)
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            assert double(jnp.ones(())) == 2
            assert double(jnp.ones(())) == 2
    finally:
        opscope.shutdown()
    assert caplog.text.count("JAX is no longer observed") == 1


def recorded_in(folder, program):
    opscope.init(frameworks="jax")
    with opscope.capture(folder / "run.opscope", backend="recorder"):
        program()
    opscope.shutdown()
    return opscope.load(folder / "run.opscope")


def test_each_read_of_values_is_a_range_with_its_line_once(tmp_path):
    x = jnp.arange(3.0)

    def program():
        return float(x[0]), x[1].item(), jax.block_until_ready(x), jax.device_get(x)

    ranges = recorded_in(tmp_path, program).trace["ranges"].cast({"text": str, "domain": str})
    reads = ranges.filter(pl.col("domain") == READ_DOMAIN)["text"].to_list()
    assert [text.split("(")[0] for text in reads] == [
        "jax.Array",
        "jax.Array.item",
        "jax.block_until_ready",
        "jax.device_get",
    ]
    assert all("test_jax_adapter.py:" in text for text in reads)


def buffer_of_arrays():
    """The function by which NumPy gets an array's memory."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    return slot(type(jnp.ones(1)), 1)


def test_numpys_reads_of_an_arrays_memory_are_reads_and_change_nothing(tmp_path):
    x, half, before = jnp.arange(3.0), jnp.ones(2, jnp.bfloat16), buffer_of_arrays()

    def program():
        assert buffer_of_arrays() != before
        for _ in range(2):
            assert np.asarray(x).tolist() == [0, 1, 2]
        assert np.asarray(x).ctypes.data == np.asarray(x).ctypes.data  # no copy
        assert memoryview(x).nbytes == 12
        assert np.from_dlpack(x).tolist() == [0, 1, 2]
        # no buffer has this dtype: NumPy asks for its values another way
        assert np.array(half).tolist() == [1, 1]
        with pytest.raises(TypeError, match="read-write"):
            io.BytesIO(bytes(16)).readinto(x)  # memory to write to is refused

    profile = recorded_in(tmp_path, program)
    assert buffer_of_arrays() == before
    ranges = profile.trace["ranges"].cast({"text": str, "domain": str})
    texts = ranges.filter(pl.col("domain") == READ_DOMAIN)["text"].to_list()
    reads = [text for text in texts if text != REFUSED]
    names = ["np.array"] * 5 + ["jax.Array.__dlpack__", "jax.Array"]
    assert [text.split("(")[0] for text in reads] == names
    assert all("test_jax_adapter.py:" in text for text in reads)
    (count,) = profile.counts().filter(count="reads").to_dicts()
    assert (count["value"], count["reason"]) == (len(names), None)


def test_reads_are_not_known_where_those_of_memory_are_not_heard(tmp_path, monkeypatch):
    def nowhere():
        raise BuildError("no C compiler found")

    monkeypatch.setattr("opscope.adapters.shared.reads._library", nowhere)
    x = jnp.ones(2)
    profile = recorded_in(tmp_path, lambda: np.asarray(jax.jit(jnp.tanh)(x)))
    (count,) = profile.counts().filter(count="reads").to_dicts()
    assert (count["value"], count["reason"]) == (None, UNHEARD_READS)
