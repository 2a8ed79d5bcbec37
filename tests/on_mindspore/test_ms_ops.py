"""What a range says of an op: parameters, strides, dtypes, devices, outputs; threads; layers of all kinds."""

from __future__ import annotations

import threading

import polars as pl
import pytest

ms = pytest.importorskip("mindspore")
import numpy as np  # noqa: E402
from mindspore import Tensor, mint, nn, ops  # noqa: E402

from opscope.adapters.mindspore import dispatch  # noqa: E402
from opscope.adapters.mindspore.call import tensor_spec  # noqa: E402
from opscope.core.rangetext import format_tensor  # noqa: E402
from opscope.core.schema import READ_DOMAIN  # noqa: E402
from tests.on_mindspore.models import LeNet, Residual, made  # noqa: E402


def text(column):
    return pl.col(column).cast(pl.String)


def ones(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


def one(profile, op):
    found = profile.ops().filter(text("op") == op)
    assert len(found) == 1, profile.ops()["op"].to_list()
    return found.to_dicts()[0]


def test_arguments_that_are_no_tensors_are_parameters_by_their_schema_names(recorded):
    profile = recorded(lambda: ops.MatMul(transpose_b=True)(ones(3, 4), ones(5, 4)))
    found = one(profile, "MatMul")
    assert found["inputs"] == "f32[3,4], f32[5,4]"
    assert found["outputs"] == "f32[3,5]"
    assert found["params"] == "transpose_a=false, transpose_b=true"
    assert found["device"] in (None, 0, "cpu") or "cpu" in str(found["device"])


def test_attributes_of_a_primitive_are_parameters(recorded):
    profile = recorded(lambda: ops.Conv2D(6, 5, stride=2)(ones(1, 2, 9, 9), ones(6, 2, 5, 5)))
    found = one(profile, "Conv2D")
    assert 'pad_mode="valid"' in found["params"]
    assert "stride=[1, 1, 2, 2]" in found["params"]
    assert found["outputs"] == "f32[1,6,3,3]"


def test_two_primitives_of_one_shape_and_other_attributes_are_two_calls(recorded):
    x, w = ones(1, 2, 9, 9), ones(6, 2, 3, 3)

    def program():
        ops.Conv2D(6, 3, pad_mode="same")(x, w)
        ops.Conv2D(6, 3, pad_mode="valid")(x, w)

    assert recorded(program).ops()["outputs"].to_list() == ["f32[1,6,9,9]", "f32[1,6,7,7]"]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ms.float16, "f16"), (ms.float32, "f32"), (ms.float64, "f64"), (ms.int32, "i32"),
        (ms.int64, "i64"), (ms.bool_, "bool"), (ms.uint8, "u8"), (ms.complex64, "c64"),
    ],
)  # fmt: skip
def test_dtypes(recorded, dtype, name):
    x = Tensor(np.ones((2, 3)), dtype)
    profile = recorded(lambda: ops.reshape(x, (3, 2)))
    assert profile.ops()["inputs"].to_list()[-1] == f"{name}[2,3]"


@pytest.mark.parametrize("change", ["astype", "to"])
def test_a_changed_dtype_is_a_cast(recorded, change):
    tensor = Tensor(ones(3, 4))
    row = one(recorded(lambda: getattr(tensor, change)(ms.float16)), "Cast")
    assert (row["inputs"], row["outputs"]) == ("f32[3,4]", "f16[3,4]")


def test_a_tensor_that_is_not_contiguous_has_its_strides():
    x = mint.transpose(ones(3, 4), 0, 1)
    assert not x.is_contiguous()
    assert format_tensor(tensor_spec(x)) == "f32[4,3]{s:1,4}"
    assert format_tensor(tensor_spec(ones(3, 4))) == "f32[3,4]"


def test_an_op_whose_result_depends_on_data_has_each_result(recorded):
    def program():
        for many in (1, 3, 1):
            x = np.zeros(5, np.float32)
            x[:many] = 1
            mint.nonzero(Tensor(x))

    found = recorded(program).ops().filter(text("op").str.contains("(?i)nonzero"))
    assert found["outputs"].to_list() == ["i64[1,1]", "i64[3,1]", "i64[1,1]"]


def test_numbers_that_always_differ_make_no_more_than_a_few_texts(recorded):
    x = ones(2)

    def program():
        for number in range(100):
            x * (number + 0.5)

    profile = recorded(program)
    params = profile.ops()["params"].to_list()
    assert len(params) == 100
    assert len(set(params)) <= 34


def test_ops_of_new_threads_are_recorded_and_their_ranges_are_theirs(recorded):
    net, x = made(LeNet), ones(2, 1, 28, 28)
    net.set_train(False)
    out = []

    def program():
        threads = [threading.Thread(target=lambda: out.append(net(x))) for _ in range(3)]
        net(x)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    profile = recorded(program)
    ops_ = profile.ops()
    assert len(out) == 3
    layers = ops_.filter(text("op") == "Conv2D").group_by("thread").agg(text("layer"))
    assert len(layers) == 4
    assert all(sorted(one) == ["LeNet.conv1", "LeNet.conv2"] for one in layers["layer"].to_list())


def test_a_thread_that_runs_already_is_heard_from_its_first_cell(recorded):
    net, x = made(LeNet), ones(2, 1, 28, 28)
    begin, end = threading.Event(), threading.Event()

    def work():
        begin.wait(60)
        net(x)
        end.set()

    thread = threading.Thread(target=work)
    thread.start()

    def program():
        begin.set()
        assert end.wait(60)

    profile = recorded(program)
    thread.join()
    assert profile.ops().filter(text("op") == "Conv2D").height == 2


def test_a_mode_of_the_program_works_within_ours_and_around_it(recorded):
    if dispatch.Mode is None:
        pytest.skip("this version has no dispatch modes")
    seen = []

    class Mine(dispatch.Mode):
        def __ms_dispatch__(self, func, args, kwargs=None):
            seen.append(func.name)
            return func(*args)

    def program():
        with Mine():
            mint.nn.functional.relu(ones(3))
        mint.tanh(ones(3))

    with Mine():
        profile = recorded(lambda: mint.exp(ones(2)))
    assert seen == ["Exp"]
    assert dispatch.stack().depth() == 0
    profile = recorded(program, "again.opscope")
    assert seen == ["Exp", "ReLU"]
    assert profile.ops()["op"].to_list() == ["ReLU", "Tanh"]


def test_layers_in_lists_shared_cells_and_several_models(recorded):
    class Shares(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first = nn.Dense(4, 4)
            self.again = self.first
            self.rest = nn.SequentialCell([nn.Dense(4, 4), nn.ReLU()])

        def construct(self, x):
            return self.rest(self.again(self.first(x)))

    nets = [Shares(), Shares()]

    def program():
        for net in nets:
            net(ones(2, 4))
        Residual(3)(ones(1, 3, 4, 4))

    profile = recorded(program)
    layers = profile.ops().filter(text("op").str.contains("MatMul|Dense"))["layer"].to_list()
    assert layers == [
        "Shares.first", "Shares.first", "Shares.rest.0",
        "Shares#2.first", "Shares#2.first", "Shares#2.rest.0",
    ]  # fmt: skip
    norms = profile.ops().filter(text("op").str.contains("BatchNorm"))["layer"].to_list()
    assert norms == ["Residual.norm"]


def test_the_line_is_the_one_that_called_the_cell_or_the_op(recorded):
    profile = recorded(lambda: ops.tanh(ones(3)))
    (source,) = profile.ops()["source"].to_list()
    assert "test_ms_ops.py" in source


def test_ops_that_mindspore_runs_as_constants_are_no_ops(recorded):
    profile = recorded(lambda: nn.CrossEntropyLoss()(ones(2, 3), Tensor([0, 1], ms.int32)))
    assert "typeof" not in profile.ops()["op"].to_list()


def test_each_read_of_values_is_a_range_with_its_line_once(recorded):
    x = Tensor([1.0, 2.0])

    def program():
        return x.asnumpy(), x[0].item(), float(x[0])

    ranges = recorded(program).trace["ranges"].cast({"text": str, "domain": str})
    reads = ranges.filter(pl.col("domain") == READ_DOMAIN)["text"].to_list()
    assert [text.split("(")[0] for text in reads] == [
        f"mindspore.Tensor.{name}" for name in ("asnumpy", "item", "__float__")
    ]
    assert all("test_ms_ops.py:" in text for text in reads)
