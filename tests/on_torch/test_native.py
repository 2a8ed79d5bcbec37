"""The native observer sees what the dispatch mode sees, in equal texts, and more; and it costs no leak."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.adapters.base import Options
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.core.rangetext import parse
from opscope.core.schema import DIRECTIONS
from opscope.profile import Profile
from opscope.readers.recording.reader import collect

torch = pytest.importorskip("torch")

from opscope.adapters.torch import TorchAdapter, state
from opscope.adapters.torch.call import tensor_spec
from opscope.adapters.torch.dispatch import OpMode
from opscope.adapters.torch.native import build, plan
from tests.nvtx_tool import build as build_tool
from tests.nvtx_tool import hear
from tests.on_torch.torch_programs import PROGRAMS, TEN, Exponential, warm_up

pytestmark = pytest.mark.usefixtures("binary")


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    monkeypatch.delenv("OPSCOPE_TORCH_LEVELS", raising=False)


#: The part of our own cost that layers are in.
LAYERS = {"native": "layers and phases", "dispatch": "layers"}


class Recording:
    """Ops recorded natively inside the block: a frame of ranges, in the order of their start."""

    def __init__(self, folder, **options):
        self.folder, self.options = folder, options

    def __enter__(self):
        opscope.init(frameworks="torch", **self.options)
        session.start(RecorderCapture(self.folder))
        return self

    def __exit__(self, *error):
        session.stop()
        opscope.shutdown()
        self.trace = collect(self.folder)
        text = pl.col("category", "text").cast(pl.String)
        self.ranges = self.trace.tables["ranges"].with_columns(text).sort("start")
        self.ops = self.ranges.filter(pl.col("category").is_in(DIRECTIONS))

    def named(self, name):
        return [row for row in self.ops.to_dicts() if parse(row["text"]).name == name]


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_a_capture_that_ends_within_an_optimizer_leaves_the_next_nothing(
    tmp_path, monkeypatch, mode
):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    opscope.init(frameworks="torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        session.stop()
        return torch.zeros(())

    try:
        session.start(RecorderCapture(tmp_path / "first"))
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step(closure)
        session.start(RecorderCapture(tmp_path / "second"))
        with torch.no_grad():
            torch.ones(3).exp()
        session.stop()
    finally:
        opscope.shutdown()
    ranges = collect(tmp_path / "second")["ranges"].select(
        pl.col("category", "text").cast(pl.String)
    )
    assert [row["category"] for row in ranges.to_dicts() if "exp" in row["text"]] == ["forward"]


#: Programs whose graph several threads make. Their numbers for nodes are the same, and where a
#: dispatch mode cannot tell whose a node is, it names no source; native knows the thread.
_THREADED = ("reinforcement",)


def texts(ops, without=(), name=None):
    return [
        (c, t.partition(" @")[0] if c == "backward" and name in _THREADED else t)
        for c, t in ops
        if not t.startswith(without)
    ]


# ------------------------------------------------------------------ native against dispatch


def both(program, folder, emitter):
    """One run seen by both at once: PyTorch itself runs other ops where a dispatch mode is there."""
    adapter = TorchAdapter()
    with Recording(folder) as recording:
        adapter.install(emitter, Options())
        try:
            program()
        finally:
            adapter.uninstall()
    assert not adapter.broken
    dispatch = [(op.category, op.text) for op in emitter.ops]
    return dispatch, list(recording.ops.select("category", "text").iter_rows())


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_op_of_the_dispatch_mode_has_a_native_range_of_equal_text(
    name, native, memory_emitter, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPSCOPE_TORCH_LEVELS", "all")
    warm_up()
    dispatch, seen = both(PROGRAMS[name](), tmp_path, memory_emitter)
    # Under a mode PyTorch detaches what it saves for backward by a call of its own to the mode.
    missing = Counter(texts(dispatch, "aten::detach(", name)) - Counter(texts(seen, (), name))
    assert not missing
    assert len(seen) > len(dispatch) / 2 > 0


#: Saving a tensor that is about to be overwritten clones it inside the op: native tells it is within.
_CLONE_WITHIN = ("aten::detach", "aten::clone(")
#: A wait for a loader is a range beside the ops: the emitter of the test, which keeps ops, does not have it.
_WAIT = "DataLoader("
#: What ``torch.tensor()`` does out of the sight of dispatch modes: a native range more.
_HIDDEN = {"aten::empty.memory_format", "aten::to.device"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_canonical_level_is_exactly_the_dispatch_modes(name, native, memory_emitter, tmp_path):
    warm_up()
    dispatch, seen = both(PROGRAMS[name](), tmp_path, memory_emitter)
    dispatch = texts(dispatch, _CLONE_WITHIN, name)
    left, extra = iter(dispatch), []
    expected = next(left, None)
    for one in texts(seen, (*_CLONE_WITHIN, _WAIT), name):
        if one == expected:
            expected = next(left, None)
        else:
            extra.append(one)
    assert expected is None
    assert {parse(text).name for _, text in extra} <= _HIDDEN


# ------------------------------------------------------------------ what it sees


def test_there_are_twenty_models_and_the_ten_that_are_trained_whole():
    assert len(PROGRAMS) >= 20
    assert (
        *("CNN", "transformer", "LSTM", "GAN", "GRU", "experts", "U-Net", "ViT"),
        *("reinforcement", "accumulation"),
    ) == TEN


@pytest.mark.parametrize("name", TEN)
def test_every_op_has_shapes_dtypes_layer_and_source_and_its_forward_op(name, native, tmp_path):
    path = tmp_path / "run.opscope"
    program = PROGRAMS[name]()
    opscope.init(frameworks="torch")
    try:
        with opscope.capture(path):
            program()
    finally:
        opscope.shutdown()
    profile = opscope.load(path)
    ops = profile.ops().with_columns(pl.col("op", "direction").cast(pl.String))
    model = ops.filter(pl.col("direction").is_in(["forward", "backward"]))
    for column in ("inputs", "outputs", "dtypes"):
        assert ops[column].null_count() <= 0.001 * len(ops), column
    backward = model.filter(pl.col("direction") == "backward")
    # AccumulateGrad is no op's: it detaches the gradient, or adds to what is there; nor is the first one
    own = backward.filter(pl.col("seq").is_null())["op"].unique().to_list()
    accumulated = {"aten::detach", "aten::add_.Tensor", "aten::add.Tensor"}
    assert set(own) <= accumulated | {"aten::ones_like"}
    linked = backward.filter(pl.col("seq").is_not_null())
    assert len(linked) > 10
    assert linked["forward_op_id"].null_count() == 0
    assert linked["source"].null_count() == 0
    assert ops.filter(pl.col("direction") != "backward")["source"].null_count() == 0
    forward = ops.select(forward_op_id="op_id", forward_layer="layer")
    layers = linked.join(forward, on="forward_op_id").select("layer", "forward_layer")
    assert layers.filter(pl.col("layer").ne_missing(pl.col("forward_layer"))).is_empty()
    without = ops.filter((pl.col("direction") == "forward") & pl.col("layer").is_null())
    assert not any(inside_a_layer(profile, op) for op in without.to_dicts())
    assert linked["layer"].drop_nulls().n_unique() > 1


def inside_a_layer(profile, op):
    """By brute force: whether a layer's range on the op's thread holds it."""
    layers = profile.trace.tables["ranges"].filter(pl.col("category").cast(pl.String) == "layer")
    around = (pl.col("start") <= op["start"]) & (pl.col("end") >= op["end"])
    return layers.filter(around & (pl.col("thread") == op["thread"])).height > 0


def test_both_levels_of_a_nest_are_kept_where_asked_and_one_counts(native, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_LEVELS", "all")
    linear = torch.nn.Linear(4, 3)
    with Recording(tmp_path) as recording:
        linear(torch.ones(2, 4))
    (outer,), (inner,) = recording.named("aten::linear"), recording.named("aten::addmm")
    numbered = [parse(op["text"]).name for op in recording.ops.to_dicts() if op["seq"] is not None]
    assert numbered[-1] == "aten::addmm"
    assert "aten::linear" not in numbered
    assert outer["start"] <= inner["start"] <= inner["end"] <= outer["end"]


def test_autocasts_two_levels_have_their_own_dtypes(native, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_LEVELS", "all")
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    with Recording(tmp_path) as recording, torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(a, b)
    outer, inner = recording.named("aten::mm")
    assert [t.dtype for t in parse(outer["text"]).inputs] == ["f32", "f32"]
    assert [t.dtype for t in parse(inner["text"]).inputs] == ["bf16", "bf16"]
    assert inner["end"] <= outer["end"]


def test_backward_of_a_function_of_the_users_is_linked_to_its_forward(native, tmp_path):
    x = torch.ones(3, requires_grad=True)
    with Recording(tmp_path) as recording:
        Exponential.apply(x).sum().backward()
    forward = recording.named("aten::exp")[0]
    backward = [op for op in recording.named("aten::exp") if op["category"] == "backward"]
    assert forward["seq"] is not None
    assert [(op["seq"], op["fwd_thread"]) for op in backward] == [
        (forward["seq"], forward["fwd_thread"])
    ]


def test_higher_order_ops_have_the_text_that_the_dispatch_mode_gives_them(
    native, tmp_path, monkeypatch
):
    from torch._higher_order_ops.while_loop import while_loop
    from torch.nn.attention.flex_attention import flex_attention

    def run():
        x = torch.ones(3)
        torch.cond(torch.tensor(True), lambda x: x.sin(), lambda x: x.cos(), (x,))
        while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x.sin()), (torch.tensor(0), x))
        flex_attention(*[torch.ones(1, 2, 16, 8)] * 3)

    def patched():
        kind = torch._ops.HigherOrderOperator
        ruled = [
            op.name()
            for op in torch._ops._higher_order_ops.values()
            if OpMode in op.python_key_table
        ]
        return kind.__call__, kind.dispatch, ruled

    before = patched()
    seen = {}
    for mode in ("native", "dispatch"):
        monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
        torch._dynamo.reset()
        with Recording(tmp_path / mode) as recording:
            run()
        assert patched() == before
        text = recording.ops.filter(pl.col("text").str.starts_with("higher_order::"))
        seen[mode] = set(text["text"].to_list())
        if mode == "native":
            sines = recording.named("aten::sin")
            outer = text.filter(pl.col("text").str.contains("cond.*->"))
            assert any(
                op["start"] <= sines[0]["start"] and sines[0]["end"] <= op["end"]
                for op in outer.to_dicts()
            )
    assert {parse(text).name for text in seen["native"]} >= {
        "higher_order::cond",
        "higher_order::while_loop",
    }
    complete = {one for one in seen["dispatch"] if parse(one).outputs is not None}
    assert complete <= seen["native"]


def test_without_shapes_and_source_only_names_are_told(native, tmp_path):
    with Recording(tmp_path, shapes=False, source=False) as recording:
        torch.ones(3) * 2
    assert "aten::mul.Tensor()" in recording.ops["text"].to_list()


def test_an_op_that_raises_is_closed(native, tmp_path):
    with Recording(tmp_path) as recording:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        -torch.ones(1)
    (failed,) = recording.named("aten::mm")
    (after,) = recording.named("aten::neg")
    assert failed["end"] <= after["start"]


def test_what_a_call_that_raised_lacks_the_next_one_has(native, tmp_path):
    index = torch.tensor([7])  # the same call by its text, whatever the numbers in the tensor
    with Recording(tmp_path) as recording:
        for number in (7, 1):
            index.fill_(number)
            try:
                torch.ones(3).index_select(0, index)
            except IndexError:
                assert number == 7
    failed, done = recording.named("aten::index_select")
    assert parse(failed["text"]).outputs is None
    assert format(parse(done["text"]).outputs[0].dtype) == "f32"


def test_of_torchscripts_stack_an_op_has_what_is_its_own(native, tmp_path):
    @torch.jit.script
    def f(x, n: int):
        for i in range(n):
            x = x * 2 + i
        return x

    with Recording(tmp_path) as recording:
        f(torch.ones(3), 2)
    ops = [parse(row["text"]) for row in recording.ops.to_dicts()]
    told = {(op.name, op.inputs, op.outputs, op.param("other")) for op in ops}
    spec = tensor_spec(torch.ones(3))
    assert told >= {
        ("aten::mul.Scalar", (spec,), (spec,), 2),
        ("aten::add.Scalar", (spec,), (spec,), 0),
        ("aten::add.Scalar", (spec,), (spec,), 1),
    }


def test_compiling_is_not_recorded_and_not_changed(native, tmp_path):
    import torch._dynamo as dynamo

    def run():
        dynamo.reset()
        dynamo.utils.counters.clear()
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        compiled = torch.compile(model, backend="aot_eager")
        for rows in (3, 3, 3, 5):  # the last compiles again, with a size that is a symbol
            compiled(torch.ones(rows, 4)).sum().backward()
        return {name: dict(dynamo.utils.counters[name]) for name in ("stats", "graph_break")}

    without = run()
    with Recording(tmp_path) as recording:
        assert run() == without
    assert without["stats"]["unique_graphs"] == 2
    assert not any("?" in text for text in recording.ops["text"])
    meta = {parse(text).name for text in recording.ops["text"] if " on meta" in text}
    assert meta <= {"aten::detach"}  # a fake tensor being made, in no mode of the tracer's
    assert len(recording.named("aten::addmm")) == 2 * 4
    assert len(recording.named("aten::relu")) == 4


def test_frames_read_as_they_lie_tell_what_python_tells(native, tmp_path, monkeypatch):
    """Generators, recursion, callbacks from C, a line run from two places: with and without the API."""
    from opscope.adapters.torch.native import observer

    x = torch.ones(3)

    def deep(number):
        return deep(number - 1) if number else x.sin()

    def each():
        for _ in range(2):
            yield x.cos()

    class Made:
        def __init__(self):
            x.tanh()

    def run():
        deep(3), deep(150)
        list(each())
        for _ in range(40):  # Python 3.13 then has a frame of its own between these
            Made()
        sorted([3, 1, 2], key=lambda number: (x * number).sum().item())
        for _ in range(2):
            deep(0)
        deep(0)
        [x.exp() for _ in range(2)]
        exec(compile("x.tan()", "made.py", "exec"), {"x": x})

    seen = []
    for version in (observer._PYTHON, 0):
        monkeypatch.setattr(observer, "_PYTHON", version)
        with Recording(tmp_path / str(version)) as recording:
            reads = observer.load(build(plan())).call.opscope_reads_frames()
            for _ in range(2):
                run()
        assert reads == (version >> 8 == 3 and 11 <= version & 0xFF <= 13)
        seen.append(recording.ops["text"].to_list())
    assert seen[0] == seen[1]
    assert len({text.partition(" @")[2] for text in seen[0]}) >= 7


def test_frames_are_read_wherever_we_are_begun(native, tmp_path):
    """In a constructor that was often called Python 3.13 has a frame that its API does not tell of."""
    from opscope.adapters.torch.native import observer

    read = set()

    class Begins:
        def __init__(self, number):
            with Recording(tmp_path / str(number)):
                read.add(observer.load(build(plan())).call.opscope_reads_frames())

    for number in range(12):
        Begins(number)
    assert read == {int(observer._PYTHON >> 8 == 3 and 11 <= observer._PYTHON & 0xFF <= 13)}


def test_ops_on_a_pool_of_pytorchs_are_seen(native, tmp_path):
    """What ``torch.jit.fork`` runs has no Python frames, and is there all the same."""

    @torch.jit.script
    def work(x):
        return torch.sin(x)

    @torch.jit.script
    def two(x):
        future = torch.jit.fork(work, x)
        return torch.cos(x) + torch.jit.wait(future)

    two(torch.ones(3))
    with Recording(tmp_path) as recording:
        two(torch.ones(3))
    (sine,) = recording.named("aten::sin")
    (cosine,) = recording.named("aten::cos")
    assert sine["thread"] != cosine["thread"]


# ------------------------------------------------------------------ threads, forks, captures


def test_threads_train_apart_and_each_backward_finds_its_own_forward(native, tmp_path):
    def work(size):
        x = torch.ones(size, requires_grad=True)
        for _ in range(20):
            x.sin().sum().backward()

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 5)]
    with Recording(tmp_path) as recording:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    forward = {(op["fwd_thread"], op["seq"]): op for op in recording.named("aten::sin")}
    cosines = [op for op in recording.named("aten::cos") if op["category"] == "backward"]
    assert len(cosines) == 40
    assert len({op["fwd_thread"] for op in cosines}) == 2
    for op in cosines:
        made = forward[op["fwd_thread"], op["seq"]]
        assert parse(made["text"]).inputs == parse(op["text"]).inputs
        assert made["start"] < op["start"]
        assert made["thread"] == op["thread"]


def test_a_forked_child_records_into_its_own_part(native, tmp_path):
    x = torch.ones(4)
    with Recording(tmp_path) as recording:
        x * 3
        child = os.fork()
        if child == 0:
            try:
                x * 5
                session.stop()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        x * 7
    numbers = {
        process: [parse(op).param("other") for op in group["text"] if "aten::mul.Tensor" in op]
        for (process,), group in recording.ops.group_by("process")
    }
    assert sorted(numbers.values()) == [[3, 7], [5]]


def test_a_second_capture_is_whole_and_has_nothing_of_the_first(native, tmp_path):
    x = torch.ones(4)
    for number in (2, 3):
        with Recording(tmp_path / str(number)) as recording:
            x * number
        assert [parse(op["text"]).param("other") for op in recording.named("aten::mul.Tensor")] == [
            number
        ]
        assert not recording.trace.tables["notes"].filter(pl.col("severity") == "warning").height


def test_workers_of_a_data_loader_are_input(native, tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    with Recording(tmp_path) as recording:
        for _ in torch.utils.data.DataLoader(data, 2, num_workers=1):
            pass
    stacks = recording.named("aten::stack.out")
    assert len(stacks) == 4
    assert {op["category"] for op in stacks} == {"input"}
    assert recording.ops["process"].n_unique() == 2


MODES = pytest.mark.parametrize("mode", ["native", "dispatch"])


@MODES
def test_no_tensor_lives_longer_because_of_us(mode, native, tmp_path, monkeypatch):
    """Each goes when the program lets it go, at once: nothing waits for the garbage collector."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)

    def run():
        model = torch.nn.Linear(10, 4)
        x = torch.ones(3, 10, requires_grad=True)
        made = [x, model(x), *model.parameters()]
        made += [made[1].relu(), *made[1].split(2, 1), made[1].nonzero(), torch.stack(made[1:2])]
        sum(one.sum() for one in made if one.requires_grad).backward()
        with contextlib.suppress(RuntimeError):
            torch.mm(x, x)
        made += [x.grad, *(one.grad for one in model.parameters())]
        if session.recorder() is not None:
            session.recorder().flush()
        return [weakref.ref(one) for one in (*made, model)]

    run()  # what PyTorch imports in a first backward pass leaves its frames behind, and their tensors
    with Recording(tmp_path, memory=True) as recording:
        gc.disable()  # what is in a cycle would stay
        try:
            gone = run()
            assert len(gone) > 10
            assert {one() for one in gone} == {None}
        finally:
            gc.enable()
    parts = set(recording.trace.tables["own_costs"]["part"])
    assert parts >= {f"ops, {mode}", "memory, CPU", LAYERS[mode]}


class Allocated(ctypes.Structure):
    """What glibc's mallinfo2 tells."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
            *("fordblks", "keepcost"),
        )
    )


def held():
    """What this process holds: bytes by malloc, blocks of Python's, objects with references, bytes in all."""
    gc.collect()
    libc = ctypes.CDLL(None)
    malloc = 0
    if hasattr(libc, "mallinfo2"):  # glibc 2.33
        libc.mallinfo2.restype = Allocated
        told = libc.mallinfo2()
        malloc = told.uordblks + told.hblkhd
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return malloc, sys.getallocatedblocks(), len(gc.get_objects()), resident


@MODES
def test_captures_on_and_off_hold_memory_flat(mode, native, tmp_path, monkeypatch):
    """10,000 steps, half of them observed, ops, layers, steps and memory: over the last 4,000 nothing
    may grow with the steps (of which 2,000 are observed) or the captures (40)."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    monkeypatch.setattr(state, "MAX_NODES", 1000)  # else it is reached after a hundred thousand
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4)

    def steps():
        for _ in range(50):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    opscope.init(frameworks="torch", memory=True)
    try:
        for number in range(100):
            if number == 60:
                before = held()
            session.start(RecorderCapture(tmp_path / "run"))
            steps()
            session.stop()
            steps()
            if number == 0:
                costs = set(collect(tmp_path / "run").tables["own_costs"]["part"])
                assert costs >= {f"ops, {mode}", "memory, CPU"}
            shutil.rmtree(tmp_path / "run")
    finally:
        grown = [now - then for now, then in zip(held(), before, strict=True)]
        opscope.shutdown()
    malloc, blocks, objects, resident = grown
    assert malloc < 100_000
    assert blocks < 1000
    assert objects < 30
    assert resident < 4 << 20


@pytest.mark.parametrize("mode", ["native", "dispatch"])
def test_a_recording_tells_what_it_cost(mode, native, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    monkeypatch.setenv("OPSCOPE_SAMPLES", "0")
    model = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with Recording(tmp_path) as recording:
        for _ in range(200):
            model(x)
    costs = {row.pop("part"): row for row in recording.trace.tables["own_costs"].to_dicts()}
    assert set(costs) == {f"ops, {mode}", LAYERS[mode], "other ranges", "writing"}
    ops, layers = costs[f"ops, {mode}"], costs[LAYERS[mode]]
    # forward and the layer's two hooks; the callback is also called for what it does not record
    assert ops["calls"] >= len(recording.ops) >= 400
    assert ops["one_in"] == 64
    assert (layers["calls"], layers["one_in"]) == (400, 17 if mode == "native" else 16)
    assert all(row["time"] > 0 for part, row in costs.items() if part != "other ranges")
    spans = {row["span"] for row in costs.values()}
    assert len(spans) == 1
    assert sum(row["time"] for row in costs.values()) < spans.pop()
    profile = Profile(recording.trace)
    summary = profile.summary().row(0, named=True)
    assert summary["own_time"] == sum(row["time"] for row in costs.values())
    assert 0 < summary["own_share"] < 1
    assert profile.own_costs().height == 4


def test_a_second_recording_tells_its_own_cost_alone(native, tmp_path):
    x = torch.ones(4)
    calls = []
    for number, ops in enumerate((500, 5)):
        with Recording(tmp_path / str(number)) as recording:
            for _ in range(ops):
                x * 2
        costs = recording.trace.tables["own_costs"]
        calls.append(costs.filter(pl.col("part") == "ops, native")["calls"].item())
    assert calls[0] >= 500 > 100 > calls[1] >= 5


# ------------------------------------------------------------------ NVTX


def test_a_tool_hears_native_ranges_with_category_payload_and_results(binary, tmp_path):
    heard = hear(
        """
import torch, opscope
opscope.init(frameworks="torch")
x = torch.ones(3, requires_grad=True)
for _ in range(2):
    x.sin().sum().backward()
opscope.shutdown()
x.sin()
""",
        build_tool(tmp_path),
        tmp_path,
        OPSCOPE_TORCH_OPS="native",
    )
    events = heard.of("push", "mark", "pop", domain="opscope.torch")
    sines = [e for e in events if e.text.startswith("aten::sin(")]
    assert len(sines) == 2  # none after shutdown
    first, second = sines
    assert " -> " not in first.text
    assert " -> f32[3]" in second.text
    after = events[events.index(first) + 1]
    assert (after.kind, after.text) == ("mark", "-> f32[3]")
    cosines = [e for e in events if e.text.startswith("aten::cos(")]
    assert [e.payload for e in cosines] == [e.payload for e in sines]
    assert all(e.payload is not None and e.payload >> 48 >= 1 for e in sines)
    depth = Counter(e.kind for e in events)
    assert depth["push"] == depth["pop"]


def test_the_cost_of_a_recording_is_reckoned_from_its_own_samples():
    """Not from those of a recording before it, in which calls took a thousand times as long."""
    from opscope.adapters.torch.native.observer import _COUNTS, NativeMode

    before = dict.fromkeys(_COUNTS, 0) | {"calls": 640, "timed": 10, "timed_ns": 10_000_000}
    now = before | {"calls": 1280, "timed": 20, "timed_ns": 10_010_000, "slow_ns": 5}

    class Library:
        @staticmethod
        def opscope_counts(out):
            out[:] = [now[name] for name in _COUNTS]

    mode = object.__new__(NativeMode)
    mode._out, mode._before, mode._call = (ctypes.c_int64 * len(_COUNTS))(), before, Library
    spent = mode.spent()
    assert (spent.time, spent.calls) == (640 * 1000 + 5, 640)


LONG = """
import torch, opscope
opscope.init(frameworks="torch")
torch.manual_seed(0)
for count in (10, 400):
    many = [torch.ones(1 + n % 97, 7) for n in range(count)]
    for _ in range(2):
        torch._foreach_add(many, 1)
        torch.cat(many)
for _ in range(2):
    torch.ones(3)
opscope.shutdown()
"""


RUN_LONG = f"exec(compile({LONG!r}, 'train.py', 'exec'))"


@pytest.mark.parametrize("ops", ["native", "dispatch"])
def test_a_text_that_is_cut_keeps_its_place(binary, tmp_path, ops):
    heard = hear(RUN_LONG, build_tool(tmp_path), tmp_path, OPSCOPE_TORCH_OPS=ops)
    events = heard.of("push", "mark", "pop", domain="opscope.torch")
    pushed = [e.text for e in events if e.kind == "push" and "_foreach_add" in e.text]
    calls = [parse(text) for text in pushed]
    assert [call.truncated for call in calls] == [False, False, True, True]
    assert all(len(text.encode()) <= 4096 for text in pushed)
    assert {call.device for call in calls} == {"cpu"}
    assert all(call.frames for call in calls)


def test_native_cuts_where_python_does(binary, tmp_path):
    texts = []
    for ops in ("native", "dispatch"):
        heard = hear(RUN_LONG, build_tool(tmp_path), tmp_path, OPSCOPE_TORCH_OPS=ops)
        told = heard.of("push", "mark", domain="opscope.torch")
        texts.append({e.text for e in told if "foreach" in e.text or e.text.startswith("-> (")})
    assert texts[0] == texts[1]
    assert any("<cut> on cpu @" in text for text in texts[0])
    assert any(text.startswith("-> ([") and text.endswith("<cut>") for text in texts[0])


def test_a_forked_child_has_its_native_texts_registered_anew(binary, tmp_path):
    heard = hear(
        """
import os, torch, opscope
opscope.init(frameworks="torch")
x = torch.ones(3)
for _ in range(3):
    x.sin()
child = os.fork()
if child:
    os.waitpid(child, 0)
x.sin()
if not child:
    os._exit(0)
""",
        build_tool(tmp_path),
        tmp_path,
        OPSCOPE_TORCH_OPS="native",
    )
    sines = [e.text for e in heard.of("push") if e.text.startswith("aten::sin(")]
    assert len(sines) == 5
    strings = heard.of("string")
    threads = {e.thread for e in strings if e.text == sines[-1]}
    assert len(threads) == 2, "by each process"
    named = [e for e in heard.of("domain") if e.domain == "opscope.torch"]
    assert {e.thread for e in named} >= threads
