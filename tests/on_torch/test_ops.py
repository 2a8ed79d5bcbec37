"""What the adapter tells of each op: arguments, results, direction, thread, sequence, layer, line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

# An optimizer imports it; PyTorch 2.6 multiplies tensors as it does.
import torch._dynamo  # noqa: E402

from opscope.core.schema import SameAs, TensorSpec  # noqa: E402


def f32(*shape, strides=None):
    return TensorSpec("f32", shape, None, strides)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.head = torch.nn.Linear(4 * 6 * 6, 10)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).flatten(1))


def train(model, steps=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.ones(2, 1, 8, 8)), torch.tensor([1, 2])).backward()
        optimizer.step()


def test_arguments_results_and_parameters(emitter):
    torch.addmm(torch.ones(4), torch.ones(2, 3), torch.ones(4, 3).t(), beta=0.5)
    (op,) = emitter.named("aten::addmm")
    assert op.call.inputs == (f32(4), f32(2, 3), f32(3, 4, strides=(1, 3)))
    assert op.call.outputs == (f32(2, 4),)
    assert op.call.params == (("beta", 0.5), ("alpha", 1))
    assert op.call.device == "cpu"


def test_second_call_is_complete_when_pushed_and_equal(emitter):
    x = torch.ones(3)
    for _ in range(2):
        x.cumsum(0)
    first, second = emitter.named("aten::cumsum")
    assert first.text == second.text
    assert second.call.outputs == (f32(3),)


def test_equal_keys_of_different_types_are_different_calls(emitter):
    x = torch.ones(3, dtype=torch.int32)
    for value in (1, 1.0, True):
        torch.add(x, value)
    found = [op.call.param("other") for op in emitter.named("aten::add.Tensor")]
    assert [type(value) for value in found] == [int, float, bool]
    assert [op.call.outputs[0].dtype for op in emitter.named("aten::add.Tensor")] == [
        "i32",
        "f32",
        "i32",
    ]


def test_overloads_lists_absent_and_inplace(emitter):
    x = torch.ones(2, 3)
    x.sum(dim=1)
    torch.cat([x, x])
    F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2))
    x.add_(x)
    x.max(dim=0)
    assert emitter.named("aten::sum.dim_IntList")[0].call.param("dim") == (1,)
    assert emitter.named("aten::cat")[0].call.inputs == ((f32(2, 3), f32(2, 3)),)
    assert emitter.named("aten::convolution")[0].call.inputs[2] is None
    assert emitter.named("aten::add_.Tensor")[0].call.outputs == (SameAs(0),)
    assert emitter.named("aten::max.dim")[0].call.outputs == (f32(3), TensorSpec("i64", (3,)))


def test_outputs_that_depend_on_data_are_those_of_each_call(emitter):
    for values in ([0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]):
        torch.tensor(values).nonzero()
    sizes = [op.call.outputs[0].shape for op in emitter.named("aten::nonzero")]
    assert sizes == [(2, 1), (1, 1), (3, 1), (2, 1)]


def test_numbers_that_always_change_make_no_endless_texts(emitter, watched):
    x = torch.ones(3)
    for number in range(200):
        x.mul(number + 0.5)
    found = [op.call.param("other") for op in emitter.named("aten::mul.Tensor")]
    assert found[0] == 0.5
    assert set(found[100:]) == {"varies"}
    assert all(op.call.outputs == (f32(3),) for op in emitter.named("aten::mul.Tensor"))
    rows = torch.arange(300).view(100, 3)
    for number in range(100):
        rows[:number]
    sizes = [op.call.outputs[0].shape for op in emitter.named("aten::slice.Tensor")]
    assert sizes == [(number, 3) for number in range(100)]


def test_every_op_of_training_is_described_and_lies_in_its_direction(emitter):
    train(Net(), 2)
    assert {op.category for op in emitter.ops} == {"forward", "backward", "optimizer"}
    for op in emitter.ops:
        assert op.call.outputs is not None, op
    for op in emitter.named("aten::convolution_backward"):
        assert op.category == "backward"
        assert op.phase == "backward"
        assert op.call.outputs[0] is None  # the images need no gradient
    assert {op.category for op in emitter.named("aten::mul_.Tensor")} == {"optimizer"}


def test_forward_and_backward_share_sequence_number_and_thread(emitter):
    model = Net()
    out = model(torch.ones(2, 1, 8, 8))
    loss = out.sum()
    assert emitter.named("aten::sum")[0].seq == loss.grad_fn._sequence_nr()
    assert emitter.named("aten::addmm")[0].seq == out.grad_fn._sequence_nr()
    loss.backward()
    for forward, backward in (
        ("aten::convolution", "aten::convolution_backward"),
        ("aten::addmm", "aten::mm"),
        ("aten::relu", "aten::threshold_backward"),
    ):
        (one,) = emitter.named(forward, "forward")
        assert one.seq >= 0
        assert one.fwd_thread >= 1
        for other in emitter.named(backward, "backward"):
            assert (other.seq, other.fwd_thread) == (one.seq, one.fwd_thread)
            assert other.call.frames == one.call.frames
    # a node is made by one op: nothing else claims its number
    made = [
        (op.fwd_thread, op.seq) for op in emitter.ops if op.category == "forward" and op.seq >= 0
    ]
    assert len(made) == len(set(made))


def test_view_written_in_place_keeps_its_source(emitter):
    x = torch.ones(3, 3, requires_grad=True)
    y = x * 2
    y[0].mul_(3)
    y.sum().backward()
    (forward,) = emitter.named("aten::mul_.Tensor")
    backward = [op for op in emitter.named("aten::new_empty_strided") if op.category == "backward"]
    assert backward
    assert {op.call.frames for op in backward} == {forward.call.frames}
    assert {(op.seq, op.fwd_thread) for op in backward} == {(forward.seq, forward.fwd_thread)}


def test_layers_are_paths_of_the_model(emitter):
    train(Net())
    assert emitter.named("aten::convolution")[0].layer == "Net.conv"
    assert emitter.named("aten::addmm")[0].layer == "Net.head"
    assert emitter.named("aten::relu")[0].layer == "Net"
    assert emitter.named("aten::mul_.Tensor") == []
    assert all(one.closed for one in emitter.ranges)


def test_a_layer_added_later_and_a_layer_that_raises(emitter):
    class Grows(torch.nn.Module):
        def forward(self, x):
            if not hasattr(self, "late"):
                self.late = torch.nn.Linear(3, 3)
            return self.late(x)

    model = Grows()
    model(torch.ones(1, 3))
    assert emitter.named("aten::addmm")[0].layer == "Grows.late"
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 7))
    assert emitter.stack() == [one for one in emitter.stack() if one.category == "phase"]
    model(torch.ones(1, 3))
    assert emitter.named("aten::addmm")[-1].layer == "Grows.late"


def test_source_is_the_innermost_user_lines(emitter):
    def helper(x):
        return torch.exp(x)

    here = Path(__file__).name
    helper(torch.ones(1))
    (op,) = emitter.named("aten::exp")
    first = helper.__code__.co_firstlineno
    assert [Path(file).name for file, _ in op.call.frames][:2] == [here, here]
    assert op.call.frames[0][1] == first + 1
    assert op.call.frames[1][1] == first + 4


def test_models_of_one_class_have_names_of_their_own(emitter):
    generator, critic = (torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(2))
    for _ in range(2):
        critic(generator(torch.ones(1, 2)))
    assert [op.layer for op in emitter.named("aten::addmm")] == [
        "Sequential.0",
        "Sequential#2.0",
    ] * 2
    del generator
    torch.nn.Sequential(torch.nn.Linear(2, 2))(torch.ones(1, 2))  # the name that went is free
    critic(torch.ones(1, 2))
    layers = [op.layer for op in emitter.named("aten::addmm")[-2:]]
    assert layers == ["Sequential.0", "Sequential#2.0"]


def test_many_models_of_one_class_share_the_last_name(emitter):
    from opscope.adapters.shared.roots import MAX_ROOTS

    models = [torch.nn.Linear(2, 2) for _ in range(MAX_ROOTS + 2)]
    for model in models:
        model(torch.ones(1, 2))
    layers = [op.layer for op in emitter.named("aten::addmm")]
    assert layers[:2] == ["Linear", "Linear#2"]
    assert layers[-3:] == [f"Linear#{MAX_ROOTS}"] * 3


@pytest.mark.parametrize(
    ("option", "lost"), [("shapes", "inputs"), ("source", "frames"), ("layers", "layer")]
)
def test_what_is_not_asked_for_is_not_told(watched, option, lost):
    emitter = watched.install(**{option: False})
    torch.nn.Linear(2, 2)(torch.ones(1, 2))
    (op,) = emitter.named("aten::addmm")
    for aspect in ("inputs", "frames"):
        assert bool(getattr(op.call, aspect)) == (aspect != lost)
    assert (op.layer is None) == (lost == "layer")


def test_threads_have_numbers_of_their_own_and_keep_their_nodes(emitter):
    """Two threads make nodes with the same numbers; each backward op finds its own thread."""
    weights = [torch.ones(2, 2, requires_grad=True) for _ in range(2)]
    losses = {}

    def forward(which, function):
        losses[which] = function(weights[which]).sum()

    jobs = [
        threading.Thread(target=forward, args=(0, torch.exp)),
        threading.Thread(target=forward, args=(1, torch.sin)),
    ]
    for job in jobs:
        job.start()
        job.join()
    (exp,), (sin,) = emitter.named("aten::exp"), emitter.named("aten::sin")
    assert exp.seq == sin.seq == 0
    assert exp.fwd_thread != sin.fwd_thread

    back = threading.Thread(target=lambda: [losses[0].backward(), losses[1].backward()])
    back.start()
    back.join()
    cos = emitter.named("aten::cos")
    assert [(op.seq, op.fwd_thread, op.category) for op in cos] == [(0, sin.fwd_thread, "backward")]
    products = [op for op in emitter.named("aten::mul.Tensor", "backward") if op.seq == 0]
    assert {op.fwd_thread for op in products} == {exp.fwd_thread, sin.fwd_thread}


def test_same_model_on_two_threads_is_told_apart_by_stamps(emitter):
    results = {}

    def forward(which):
        results[which] = torch.nn.Linear(2, 2)(torch.ones(1, 2))

    for which in range(3):
        job = threading.Thread(target=forward, args=(which,))
        job.start()
        job.join()
    for which in (1, 2):
        del emitter.ranges[:]
        results[which].sum().backward()
        # the first thread's nodes were made when there was no other yet
    (op,) = emitter.named("aten::mm", "backward")
    assert op.fwd_thread > 1


def test_create_graph_links_both_backwards(emitter):
    x = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    assert {op.category for op in emitter.ops if op.phase == "backward"} == {"backward"}
    grad.sum().backward()
    assert all(op.fwd_thread for op in emitter.ops if op.phase == "backward" and op.seq >= 0)
    forward = emitter.named("aten::pow.Tensor_Scalar", "forward")
    assert len(forward) == 1


def test_a_storage_is_not_read(emitter):
    class Unread(
        torch.UntypedStorage
    ):  # its text is its bytes, one by one: slow, and the user's data
        def __repr__(self):
            raise AssertionError("looked at")

        __str__ = __repr__

    torch.empty(0).set_(Unread(24), 0, (2, 3), (3, 1))
    (op,) = emitter.named("aten::set_.source_Storage_storage_offset")
    assert op.call.param("source") == "object"
