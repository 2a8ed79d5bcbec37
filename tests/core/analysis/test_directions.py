"""Which ops are forward, backward or the optimizer's where their texts do not say so."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import Profile

NODE = "AddmmBackward0(f32[4,5])"


def op(thread: int, start: int, text: str, seq: int | None = None, end: int | None = None) -> dict:
    category = "backward" if "Backward" in text else "optimizer" if "adam" in text else None
    return {
        "process": 0, "thread": thread, "start": start, "end": end or start + 5, "domain": "kineto",
        "category": category, "kind": "pushpop", "text": text, "seq": seq,
        "fwd_thread": None if seq is None else 1,
    }  # fmt: skip


def directions(trace_of, *ranges: dict) -> dict[str, str]:
    ops = Profile(trace_of(ranges=list(ranges))).ops()
    return dict(ops.select("op", "direction").rows())


def test_what_the_engine_does_between_its_nodes_is_backward(trace_of):
    found = directions(
        trace_of, op(1, 0, "aten::addmm(f32[4,5])", 7), op(2, 100, NODE, 7),
        op(2, 110, "aten::add(f32[4], f32[4])"),
    )  # fmt: skip
    assert found["aten::add"] == "backward"
    assert found["aten::addmm"] == "forward"


@pytest.mark.parametrize(
    "more",
    [
        op(2, 50, "aten::mul(f32[4])", 3),  # it makes nodes of its own
        op(2, 200, "aten::_fused_adam_(f32[4])"),  # it says of an op that it is the optimizer's
        op(3, 100, "aten::relu(f32[4])"),  # another thread is no part of it
    ],
)
def test_a_thread_that_does_more_than_differentiate_is_not_the_engines(trace_of, more):
    ranges = [op(1, 0, "aten::addmm(f32[4,5])", 7), op(2, 100, NODE, 7), more]
    ranges.append(op(3 if more["thread"] == 3 else 2, 300, "aten::add(f32[4], f32[4])"))
    assert directions(trace_of, *ranges)["aten::add"] == "forward"


def test_a_thread_of_another_frameworks_pool_is_not_the_engines(trace_of):
    gradient = {**op(2, 100, "ReluGrad(f32[4])"), "category": "backward"}
    assert directions(trace_of, gradient, op(2, 110, "Exp(f32[4])"))["Exp"] == "forward"


@pytest.mark.parametrize(("number", "expected"), [(0, "forward"), (228, "backward")])
def test_a_zero_is_no_number_unless_a_node_has_it(trace_of, number, expected):
    """``emit_nvtx`` writes the number that the thread's next node would have: 0 on one that makes none."""
    found = directions(trace_of, op(2, 100, NODE, number), op(2, 110, "aten::sum(f32[4])", 0))
    assert found["aten::sum"] == expected


def test_kernels_of_the_engines_thread_are_backward(shared):
    from opscope import load

    kernels = load(shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz").kernels()
    added = kernels.filter((pl.col("op") == "aten::add") & (pl.col("direction") == "backward"))
    assert len(added) == 96


def live(
    start: int, end: int, text: str, category: str = "forward", seq: int | None = None
) -> dict:
    return {
        "process": 0, "thread": 1, "start": start, "end": end, "domain": "opscope.torch",
        "category": category, "kind": "pushpop", "text": text, "seq": seq,
        "fwd_thread": None if seq is None else 1,
    }  # fmt: skip


def a_step(number: int, start: int, end: int) -> dict:
    step = live(start, end, f"step {number}", "step")
    return {**step, "domain": "opscope.step"}


def training(*more: dict) -> list[dict]:
    """A step of opscope's own recording: a model's call, its loss, the backward pass, an update."""
    return [
        a_step(0, 0, 200),
        live(10, 100, "forward", "phase"),
        live(10, 30, "Net", "layer"),
        live(12, 28, "aten::addmm(f32[4,5])", seq=1),
        live(40, 45, "aten::mse_loss(f32[4,5])", seq=2),
        live(100, 140, "backward", "phase"),
        live(102, 110, "aten::mse_loss_backward(f32[4,5])", "backward", 2),
        live(112, 130, "aten::mm(f32[4,5])", "backward", 1),
        live(150, 160, "optimizer", "phase"),
        live(152, 158, "aten::add_(f32[4,5])", "optimizer"),
        *more,
    ]


def placed(trace_of, ranges: list[dict]) -> tuple[dict, dict]:
    """The direction of each op, and the time in each phase."""
    profile = Profile(trace_of(ranges=sorted(ranges, key=lambda row: (row["start"], -row["end"]))))
    phases = profile.step_phases()
    ops = profile.ops()
    by_op = dict(ops.select("op", "direction").rows())
    assert phases["op_time"].sum() == ops["self_time"].sum()
    return by_op, dict(phases.group_by("phase").agg(pl.col("time").sum()).rows())


def test_a_loop_that_reads_values_is_no_forward_wherever_it_runs(trace_of):
    after = [live(165, 170, "aten::select(f32[4,5])"), live(170, 180, "aten::item(f32[])")]
    before = [
        live(60, 65, "aten::argmax(f32[4,5])"),
        live(66, 90, "aten::_local_scalar_dense(f32[])"),
    ]
    between = [live(32, 34, "aten::argmax(f32[4,5])"), live(34, 38, "aten::item(f32[])")]
    _, plain = placed(trace_of, training())
    assert plain == {"input": 0, "forward": 90, "backward": 40, "optimizer": 10, "outside": 60}
    for loop, forward in ((after, 90), (before, 35), (between, 80)):
        by_op, phases = placed(trace_of, training(*loop))
        assert phases == plain | {"forward": forward, "outside": 150 - forward}
        for row in loop:
            assert by_op[row["text"].partition("(")[0]] is None
        assert by_op["aten::addmm"] == by_op["aten::mse_loss"] == "forward"


def test_what_lies_between_a_model_and_its_loss_is_forward(trace_of):
    by_op, phases = placed(trace_of, training(live(32, 36, "aten::one_hot(i64[4])")))
    assert by_op["aten::one_hot"] == "forward"
    assert phases["forward"] == 90


def test_a_model_in_training_mode_that_nothing_differentiates_is_forward_while_it_runs(trace_of):
    by_op, phases = placed(
        trace_of,
        [
            a_step(0, 0, 100),
            live(5, 95, "forward", "phase"),  # nothing ended it
            live(5, 20, "Net", "layer"),
            live(6, 19, "aten::addmm(f32[4,5])"),
            live(30, 40, "aten::softmax(f32[4,5])"),
            live(50, 60, "Net", "layer"),
            live(51, 59, "aten::addmm(f32[4,5])"),
        ],
    )
    assert by_op == {"aten::addmm": "forward", "aten::softmax": None}
    assert (phases["forward"], phases["outside"]) == (25, 75)


def test_a_phase_whose_pairs_are_unknown_stays_whole(trace_of):
    ranges = [{**row, "seq": None, "fwd_thread": None} for row in training()]
    by_op, phases = placed(trace_of, ranges)
    assert by_op["aten::mse_loss"] == "forward"
    assert phases["forward"] == 90


def test_gradients_set_to_zero_between_forward_and_backward_are_the_optimizers(trace_of):
    _, phases = placed(trace_of, training(live(70, 80, "aten::zero_(f32[4])", "optimizer")))
    assert (phases["forward"], phases["optimizer"]) == (80, 20)


def test_what_a_backward_pass_recomputes_is_forward_in_the_backward_phase(trace_of):
    by_op, phases = placed(trace_of, training(live(131, 135, "aten::relu(f32[4])", seq=9)))
    assert by_op["aten::relu"] == "forward"
    assert phases["backward"] == 40


def closure(domain: str, engine: int) -> list[dict]:
    """PyTorch's own ranges of an optimizer's step that runs a closure; the backward pass on ``engine``."""
    label = '"Optimizer.step#LBFGS.step"()' if domain == "kineto" else "Optimizer.step#LBFGS.step"
    step = live(10, 110, label, "optimizer") | {"category": "optimizer" if domain else None}
    made = lambda *row, **more: live(*row, **more) | {"category": None}  # noqa: E731
    nodes = [
        live(50, 58, "LossBackward0()", "backward", 2),
        live(60, 70, "MmBackward0()", "backward", 1),
    ]
    ranges = [
        step,
        made(20, 30, "aten::mm(f32[4,5])", seq=1),
        made(32, 40, "aten::loss(f32[4])", seq=2),
        *({**node, "thread": engine} for node in nodes),
        made(80, 90, "aten::dot(f32[4])"),
    ]
    return [a_step(0, 0, 120), *({**row, "domain": domain} for row in ranges)]


@pytest.mark.parametrize("engine", [1, 2])
@pytest.mark.parametrize("domain", ["kineto", ""])
def test_a_closure_in_an_optimizer_s_step_is_forward_and_backward(trace_of, domain, engine):
    ranges = closure(domain, engine)
    if not domain:  # as ``emit_nvtx`` writes them
        ranges = [
            row | {"text": f"{row['text'].partition('(')[0]}, seq = *"}
            if row["text"].startswith(("aten", "Loss", "Mm"))
            else row
            for row in ranges
        ]
    by_op, phases = placed(trace_of, ranges)
    assert by_op["aten::mm"] == by_op["aten::loss"] == "forward"
    assert by_op["aten::dot"] == "optimizer"
    # on one thread the time from forward to backward is seen to be forward's; another's begins by itself
    assert phases["forward"] == (30 if engine == 1 else 20)
    assert phases["backward"] == 20
    assert phases["outside"] == 20


def test_in_a_trace_what_follows_the_last_differentiated_op_of_a_step_is_no_forward(trace_of):
    ranges = [
        a_step(0, 0, 200),
        op(1, 5, "aten::arange(i64[4])"),
        op(1, 10, "aten::addmm(f32[4,5])", 7),
        op(1, 50, NODE, 7),
        op(1, 100, "aten::log2(f32[4])"),
        a_step(1, 200, 400),
        op(1, 210, "aten::ones(i64[4])"),  # nothing is differentiated in this step
    ]
    by_op, _ = placed(trace_of, ranges)
    assert by_op["aten::arange"] == by_op["aten::addmm"] == by_op["aten::ones"] == "forward"
    assert by_op["aten::log2"] is None


def test_an_operation_of_xla_has_the_pass_that_its_path_names_and_else_none(trace_of):
    def operation(start: int, name: str, path: str) -> dict:
        text = f'hlo::{name}(f32[4]) {{op_name="{path}"}}'
        return live(start, start + 5, text, "x") | {"domain": "xla", "category": None}

    update = operation(30, "subtract", "jit(step)/sub")
    passes = [
        operation(10, "dot", "jit(step)/jvp(net)/dot_general"),
        operation(20, "transpose", "jit(step)/transpose(jvp(net))/dot_general"),
    ]
    by_op, _ = placed(trace_of, [a_step(0, 0, 50), *passes, update])
    assert by_op == {"hlo::dot": "forward", "hlo::transpose": "backward", "hlo::subtract": None}
    by_op, _ = placed(trace_of, [a_step(0, 0, 50), update])
    assert by_op == {"hlo::subtract": "forward"}  # no path names a gradient


def test_a_wait_for_a_batch_of_tensorflow_or_mindspore_is_the_phase_input(trace_of):
    get = {**live(10, 30, "IteratorGetNext(_)"), "domain": "opscope.tensorflow"}
    by_op, phases = placed(trace_of, [a_step(0, 0, 50), get])
    assert (by_op["IteratorGetNext"], phases["input"]) == ("input", 20)
    loader = {**live(10, 30, "dataloader"), "domain": "user", "category": None}
    _, phases = placed(trace_of, [a_step(0, 0, 50), loader, live(35, 40, "aten::mm(f32[4])")])
    assert phases["input"] == 20


@pytest.mark.parametrize("name", ["vision_transformer_rank0", "ddp_memory_v100", "nccl_meta"])
def test_phases_and_directions_of_real_traces_agree_to_the_nanosecond(shared, name):
    from tests import traces

    profile = traces.load(shared / "kineto" / f"{name}.json.gz")
    by_phase = dict(profile.step_phases().group_by("phase").agg(pl.col("op_time").sum()).rows())
    by_direction = dict(profile.ops().group_by("direction").agg(pl.col("self_time").sum()).rows())
    assert sum(by_phase.values()) == sum(by_direction.values())
    assert by_phase["optimizer"] == by_direction["optimizer"]
    assert by_phase["outside"] >= by_direction[None]
    rest = by_direction["communication"]  # belongs to the phase around it
    for pass_name in ("forward", "backward"):
        assert by_direction[pass_name] <= by_phase[pass_name] <= by_direction[pass_name] + rest
