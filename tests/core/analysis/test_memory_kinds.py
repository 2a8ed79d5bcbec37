"""Kinds of memory: each rule where it holds, and unknown with a reason where a fact is missing."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.memory.memory_passes import PASSES, passes
from opscope.core.analysis.ops.ops import op_index
from opscope.profile import Profile

#: Two steps of a training: forward, backward and optimizer of each, and the next forward pass.
LOOP = (
    ("forward", 100, 200), ("backward", 200, 300), ("optimizer", 310, 390),
    ("forward", 500, 600), ("backward", 600, 700), ("optimizer", 710, 790),
    ("forward", 900, 990),
)  # fmt: skip


def phase(name: str, start: int, end: int, thread: int = 1) -> dict:
    return {"process": 0, "thread": thread, "domain": "opscope.torch", "category": "phase",
            "kind": "pushpop", "text": name, "start": start, "end": end}  # fmt: skip


def op(text: str, start: int, end: int, category: str = "forward", thread: int = 1) -> dict:
    return {**phase(text, start, end, thread), "category": category}


def block(
    address: int, size: int, start: int, end: int | None = None, **more: object
) -> list[dict]:
    one = {"process": 0, "device": -1, "thread": 1, "time": start, "address": address, "bytes": size,
           **more}  # fmt: skip
    return [one] if end is None else [one, {**one, "time": end, "bytes": -size}]


def kinds(trace_of, blocks, ranges=(), loop=LOOP) -> list[tuple]:
    """The kind and its reason of each block, by address."""
    trace = trace_of(
        ranges=[*(phase(*one) for one in loop), *ranges],
        allocations=[change for one in blocks for change in one],
    )
    frame = Profile(trace).memory_events().sort("address")
    return frame.select("kind", "kind_reason").rows()


def only(trace_of, one, ranges=(), loop=LOOP) -> str:
    return kinds(trace_of, [one], ranges, loop)[0][0]


def test_what_the_optimizer_keeps_to_its_next_step_is_its_state(trace_of):
    assert only(trace_of, block(1, 8, 320)) == "optimizer state"
    assert only(trace_of, block(1, 8, 320, 720)) == "optimizer state"
    assert only(trace_of, block(1, 8, 720)) == "optimizer state"
    assert only(trace_of, block(1, 8, 320, 380)) == "temporary"
    assert only(trace_of, block(1, 8, 320, 700)) == "unknown"  # it is gone before the next step


def test_what_a_backward_pass_leaves_for_the_optimizer_until_the_next_is_a_gradient(trace_of):
    assert only(trace_of, block(1, 8, 250, 450)) == "gradient"
    assert only(trace_of, block(1, 8, 250, 290)) == "temporary"
    assert only(trace_of, block(1, 8, 250, 305)) == "unknown"  # no optimizer's step has seen it
    assert only(trace_of, block(1, 8, 250)) == "unknown"  # a workspace of a library is kept, too
    assert only(trace_of, block(1, 8, 250, 650)) == "unknown"


def test_a_gradient_that_is_never_released_is_known_by_a_size_that_the_optimizer_works_on(trace_of):
    works = [op("aten::add_.Tensor(f32[3,5], f32[3,5]) -> =0", 320, 330, "optimizer")]
    assert only(trace_of, block(1, 60, 250), works) == "gradient"
    assert only(trace_of, block(1, 64, 250), works) == "unknown"
    assert only(trace_of, block(1, 60, 250, 305), works) == "unknown"  # gone before the step
    # a GPU's allocator may have rounded it up
    assert only(trace_of, block(1, 512, 250, device=0, thread=None), works) == "gradient"


def test_a_gradient_of_the_last_pass_is_known_by_the_sizes_that_were_accumulated(trace_of):
    node = [op('"torch::autograd::AccumulateGrad"(f32[3,5])', 260, 270, "backward")]
    loop = LOOP[:2]
    assert only(trace_of, block(1, 60, 250), node, loop) == "gradient"
    assert only(trace_of, block(1, 61, 250), node, loop) == "unknown"


def test_the_first_gradient_is_made_just_before_the_pass_begins(trace_of):
    seed = [op("aten::ones_like(f32[])", 190, 195, "backward")]
    ((kind, reason),) = kinds(trace_of, [block(1, 4, 192, 299)], seed)
    assert kind == "temporary"
    assert "backward pass" in reason


def test_what_a_forward_pass_leaves_for_the_backward_pass_is_an_activation(trace_of):
    found = kinds(
        trace_of,
        [
            block(1, 8, 150, 250),
            block(2, 8, 150, 520),  # an output that the program holds until it has the next
            block(3, 8, 150, 180),
            block(4, 8, 150, 650),  # a backward pass releases it, if a later one
            block(5, 8, 150, 750),
            block(6, 8, 150),
        ],
    )
    assert [kind for kind, _ in found] == ["activation"] * 4 + ["unknown"] * 2
    assert len({reason for _, reason in found[:3]}) == 3


def test_what_an_op_releases_before_it_ends_is_temporary(trace_of):
    inner = [op("aten::linear()", 110, 190), op("aten::empty()", 120, 130)]
    assert only(trace_of, block(1, 8, 125, 185), inner) == "temporary"
    assert only(trace_of, block(1, 8, 125, 195), inner) == "activation"
    # a module of PyTorch's is no op of a library: what it releases may be an activation
    module = [op('"DistributedDataParallel.forward"()', 105, 195), *inner]
    assert only(trace_of, block(1, 8, 125, 192), module) == "activation"


def test_parameters_are_as_many_of_a_size_as_gradients(trace_of):
    gradients = [block(10, 8, 250, 450), block(11, 8, 251, 450), block(12, 24, 252, 450)]
    model = [block(1, 8, 10), block(2, 8, 11), block(3, 24, 12), block(4, 100, 13)]
    found = [kind for kind, _ in kinds(trace_of, [*model, *gradients])[:4]]
    assert found == ["parameter", "parameter", "parameter", "unknown"]
    # a buffer of a parameter's size: any two of the three may be the parameters
    more = [kind for kind, _ in kinds(trace_of, [*model, block(5, 8, 14), *gradients])[:5]]
    assert more == ["unknown", "unknown", "parameter", "unknown", "unknown"]
    # where one is missing, the others may be anything: the model was made before the trace
    fewer = [kind for kind, _ in kinds(trace_of, [*model[1:], *gradients])[:3]]
    assert fewer == ["unknown"] * 3
    # what is released before the last pass is no parameter of it
    early = [kind for kind, _ in kinds(trace_of, [*model[1:], block(1, 8, 10, 400), *gradients])]
    assert "parameter" not in early


def test_of_blocks_of_one_size_those_are_parameters_from_which_one_was_made(trace_of):
    gradients = [block(10, 8, 250, 450), block(11, 8, 251, 450)]
    model = [block(1, 8, 11), block(2, 8, 31), block(3, 8, 51)]
    made = [
        op("aten::empty() -> f32[2]", 10, 15), op("aten::detach(f32[2]) -> f32[2]", 20, 25),
        op("aten::zeros() -> f32[2]", 30, 35), op("aten::zero_(f32[2])", 40, 45),
        op("aten::empty() -> f32[2]", 50, 55), op("aten::detach(f32[2]) -> f32[2]", 60, 65),
    ]  # fmt: skip
    found = [kind for kind, _ in kinds(trace_of, [*model, *gradients], made)[:3]]
    assert found == ["parameter", "unknown", "parameter"]


def test_a_gradient_that_several_backward_passes_add_to_is_one(trace_of):
    loop = (
        ("backward", 100, 200), ("backward", 300, 400), ("optimizer", 410, 490), ("backward", 600, 700),
    )  # fmt: skip
    found = kinds(trace_of, [block(1, 8, 150, 550), block(2, 8, 350, 390)], loop=loop)
    assert [kind for kind, _ in found] == ["gradient", "temporary"]


def test_passes_inside_an_optimizers_step_are_passes_of_their_own(trace_of):
    """An optimizer's closure computes the loss and its gradients: LBFGS, and every step under Lightning."""
    loop = [
        one
        for begin in (100, 500, 900)
        for one in (
            ("optimizer", begin, begin + 300),
            ("forward", begin + 20, begin + 60),
            ("backward", begin + 60, begin + 100),
        )
    ]
    blocks = [
        block(1, 8, 130, 180),
        block(2, 8, 170, 510),
        block(3, 8, 250),
        block(4, 8, 250, 260),
        block(5, 8, 10),
    ]
    found = [kind for kind, _ in kinds(trace_of, blocks, loop=loop)]
    assert found == ["activation", "gradient", "optimizer state", "temporary", "parameter"]


def test_a_thread_that_takes_no_part_in_the_passes_makes_no_activations(trace_of):
    ((kind, reason),) = kinds(trace_of, [block(1, 8, 150, 250, thread=7)])
    assert (kind, "thread" in reason) == ("unknown", True)
    # a GPU's history names no threads
    assert only(trace_of, block(1, 8, 150, 250, thread=None, device=0)) == "activation"


def test_what_is_prepared_as_input_is_input(trace_of):
    assert only(trace_of, block(1, 8, 95, 450), loop=(("input", 90, 99), *LOOP)) == "input"


def test_without_passes_only_what_an_op_or_a_layer_proves_is_known(trace_of):
    layer = op("Net.fc", 10, 100, "layer")
    ops = [layer, op("aten::mm()", 20, 30), op("aten::add()", 120, 130)]
    blocks = [block(1, 8, 25, 29), block(2, 8, 26, 90), block(3, 8, 27), block(4, 8, 125, 180)]
    found = [kind for kind, _ in kinds(trace_of, blocks, ops, loop=())]
    assert found == ["temporary", "activation", "unknown", "unknown"]


def test_kinds_at_the_peak_add_up_and_name_layers(trace_of):
    trace = trace_of(
        ranges=[
            *(phase(*one) for one in LOOP),
            op("Net.fc", 110, 190, "layer"),
            op("aten::mm()", 120, 130),
        ],
        allocations=[
            {**one, "total": total}
            for one, total in zip(
                [*block(1, 100, 125), *block(2, 7, 250, 290), *block(1, 100, 295, 296)[1:]],
                [1100, 1107, 1100, 1000],
                strict=True,
            )
        ],
    )
    rows = Profile(trace).memory_kinds().select("kind", "layer", "at_peak", "held_blocks").rows()
    assert rows == [
        ("unknown", None, 1000, None),
        ("activation", "Net.fc", 100, 1),
        ("temporary", None, 7, 1),
    ]


# ------------------------------------------------------------------------------------- passes


def passes_of(trace) -> dict:
    return {
        number: [
            (PASSES[kind], start, end)
            for kind, start, end in zip(
                one.kind.tolist(), one.start.tolist(), one.end.tolist(), strict=True
            )
        ]
        for number, one in passes(Profile(trace).of(op_index))
    }


def test_a_forward_pass_inside_a_backward_pass_is_part_of_it(trace_of):
    trace = trace_of(
        ranges=[phase("forward", 0, 50), phase("backward", 50, 100), phase("forward", 60, 70)]
    )
    assert passes_of(trace) == {0: [("forward", 0, 50), ("backward", 50, 100)]}


def test_where_no_phase_is_marked_the_ops_tell_the_passes(trace_of):
    """As in PyTorch's profiler: autograd has a thread of its own, and its nodes name what they differentiate."""

    def node(name, seq, start, end):
        return {
            **op(f'"{name}Backward0"()', start, end, "backward", 2),
            "seq": seq,
            "fwd_thread": 1,
        }

    step = [
        op("aten::randn()", 0, 5),
        {**op("aten::mm()", 10, 20), "seq": 4, "fwd_thread": 1},
        {**op("aten::sum()", 20, 30), "seq": 5, "fwd_thread": 1},
        node("Sum", 5, 40, 50),
        node("Mm", 4, 55, 70),
        op('"Optimizer.step#SGD.step"()', 80, 90, "optimizer"),
        op('"Optimizer.zero_grad#SGD.zero_grad"()', 91, 95, "optimizer"),
    ]
    later = [
        {**one, "start": one["start"] + 100, "end": one["end"] + 100,
         **({"seq": one["seq"] + 10} if "seq" in one else {})}
        for one in step
    ]  # fmt: skip
    wanted = [("forward", 10, 40), ("backward", 40, 70), ("optimizer", 80, 90)]
    more = [(kind, start + 100, end + 100) for kind, start, end in wanted]
    assert passes_of(trace_of(ranges=[*step, *later])) == {0: [*wanted, *more]}


def test_what_zeroes_gradients_is_no_step_and_each_step_is_a_pass(trace_of):
    trace = trace_of(
        ranges=[
            op('"Optimizer.step#SGD.step"()', 10, 20, "optimizer"),
            op('"Optimizer.step#Adam.step"()', 20, 30, "optimizer"),
            op('"Optimizer.zero_grad#SGD.zero_grad"()', 40, 50, "optimizer"),
        ]
    )
    assert passes_of(trace) == {0: [("optimizer", 10, 20), ("optimizer", 20, 30)]}
    ops = [op("aten::add_()", 10, 20, "optimizer"), op("aten::add_()", 22, 30, "optimizer")]
    zero = op('"Optimizer.zero_grad#SGD.zero_grad"()', 40, 50, "optimizer")
    assert passes_of(trace_of(ranges=[*ops, zero])) == {0: [("optimizer", 10, 30)]}


def test_a_forward_op_parts_two_backward_passes_and_a_loaders_does_not(trace_of):
    def backward(start):
        return op("aten::mm()", start, start + 5, "backward", 2)

    def forward(start, thread=1):
        return {**op("aten::mm()", start, start + 5, thread=thread)}

    main = [{**forward(0), "seq": 1, "fwd_thread": 1}, {**backward(10), "seq": 1, "fwd_thread": 1}]
    loader = forward(18, thread=3)
    trace = trace_of(ranges=[*main, loader, backward(20), forward(30), backward(40)])
    found = [one for one in passes_of(trace)[0] if one[0] == "backward"]
    assert found == [("backward", 10, 25), ("backward", 40, 45)]


def test_processes_have_passes_of_their_own(trace_of):
    other = {**phase("backward", 20, 30), "process": 1}
    trace = trace_of(ranges=[phase("backward", 0, 10), other])
    assert passes_of(trace) == {0: [("backward", 0, 10)], 1: [("backward", 20, 30)]}


def test_a_trace_without_any_has_no_passes(trace_of):
    assert passes_of(trace_of(ranges=[op("aten::mm()", 0, 5)])) == {}
    assert pl.DataFrame(passes_of(trace_of(ranges=[]))).is_empty()
