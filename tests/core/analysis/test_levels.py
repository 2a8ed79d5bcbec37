"""One level of a nest of PyTorch's ops counts, for its time and its cost; what did nothing costs nothing."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope

MARKER = "PythonSubclass"
MODE = "PythonDispatchMode"


def op(name, *inputs, inside=(), values=None, kernel=None):
    """An op of a Kineto trace: its tensors, the ops that it calls, and a kernel that it launches (ns)."""
    return {
        "name": name,
        "inputs": inputs,
        "inside": inside,
        "values": values,
        "kernel": kernel,
    }


def f32(*shape):
    return "float", list(shape)


NUMBER = ("double", [])
#: What PyTorch runs for a number beside a tensor on the CPU: it casts the number to the tensor's type.
CAST = op(
    "aten::to",
    NUMBER,
    inside=[op("aten::_to_copy", NUMBER, inside=[op("aten::copy_", f32(), NUMBER)])],
)
#: What a fake tensor's mode runs beside the op.
FAKE = (op("aten::empty_strided"), op("aten::detach", f32(8, 8)))


def write(path, ops):
    """Write ops one after the other; each takes 10 µs, and what is inside it before that."""
    events = []
    number = 0

    def add(one, begin):
        nonlocal number
        number += 1
        mine = number
        end = begin
        for inner in one["inside"]:
            end = add(inner, end + 1)
        end += 10
        args = {"External id": mine, "Record function id": 0, "Ev Idx": mine}
        args["Input type"] = [kind for kind, _ in one["inputs"]]
        args["Input Dims"] = [shape for _, shape in one["inputs"]]
        args["Concrete Inputs"] = one["values"] or [""] * len(one["inputs"])
        common = {"ph": "X", "pid": 1, "tid": 1}
        if one["kernel"] is not None:
            call = {"External id": mine, "correlation": mine, "cbid": 211}
            events.append(
                {
                    **common,
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "ts": end - 6,
                    "dur": 2,
                    "args": call,
                }
            )
            events.append(
                {
                    "ph": "X", "cat": "kernel", "name": f"kernel_{mine}", "pid": 0, "tid": 7, "ts": end,
                    "dur": one["kernel"],
                    "args": {"External id": mine, "correlation": mine, "device": 0, "stream": 7},
                }
            )  # fmt: skip
        events.append(
            {
                **common,
                "cat": "cpu_op",
                "name": one["name"],
                "ts": begin,
                "dur": end - begin,
                "args": args,
            }
        )
        return end

    time = 100
    for one in ops:
        time = add(one, time) + 5
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return opscope.load(path)


def counted(profile):
    """(op, FLOPs, bytes) of the ops that count."""
    ops = profile.ops().filter("canonical")
    return ops.select(pl.col("op").cast(pl.String), "flops", "bytes").rows()


def test_an_op_counts_and_not_what_its_kernel_calls(tmp_path):
    profile = write(
        tmp_path / "t.json",
        [
            op(
                "aten::add",
                f32(64, 64),
                NUMBER,
                ("Scalar", []),
                values=["", "", "1"],
                inside=[CAST],
            ),
            op(
                "aten::sum",
                f32(64, 64),
                ("ScalarList", []),
                ("Scalar", []),
                ("", []),
                values=["", "[0]", "False", ""],
                inside=[op("aten::as_strided", f32(64)), op("aten::fill_", f32(1, 64))],
            ),
            op("aten::max", f32(64, 64), inside=[op("aten::fill_", f32())]),
        ],
    )
    assert counted(profile) == [
        ("aten::add", 4096, 2 * 4 * 4096),
        ("aten::sum", 4096 - 64, 4 * (4096 + 64)),
        ("aten::max", 4095, 4 * 4097),
    ]
    ops = profile.ops()
    assert ops["device_time"].sum() == ops["self_time"].sum()
    # add and the three ops in it took 10 µs each, and began 1 µs after each other
    assert ops.filter(pl.col("op") == "aten::add")["device_time"].to_list() == [43_000]
    totals = profile.op_totals().filter(pl.col("op").cast(pl.String) == "aten::add")
    assert totals.select("device_time", "flops").rows() == [(43_000, 4096)]
    rated = profile.efficiency().filter(pl.col("op").cast(pl.String) == "aten::add")
    assert rated["duration"].to_list() == [43_000]


def test_all_flops_are_known_where_each_op_or_those_inside_it_have_a_cost(tmp_path):
    product = op("aten::addmm", f32(8), f32(4, 16), f32(16, 8))
    profile = write(
        tmp_path / "t.json",
        [
            op(
                "aten::linear",
                f32(4, 16),
                f32(8, 16),
                f32(8),
                inside=[op("aten::t", f32(8, 16)), product],
            ),
            op(
                "autograd::engine::evaluate_function: AddmmBackward0",
                inside=[op("AddmmBackward0", inside=[op("aten::mm", f32(8, 4), f32(4, 16))])],
            ),
        ],
    )
    assert [row[:2] for row in counted(profile)] == [("aten::addmm", 1024), ("aten::mm", 1024)]
    row = profile.summary().row(0, named=True)
    assert (row["flops_share"], row["bytes_share"]) == (1.0, 1.0)
    assert profile.missing_costs().is_empty()


def test_a_composite_op_is_not_counted_beside_what_it_calls(tmp_path):
    outer = op(
        "aten::layer_norm",
        f32(4, 8),
        inside=[op("aten::native_layer_norm", f32(4, 8), f32(8), f32(8))],
    )
    again = op(
        "aten::where",
        ("bool", [4, 8]),
        f32(4, 8),
        NUMBER,
        inside=[op("aten::where", ("bool", [4, 8]), f32(4, 8), f32())],
    )
    names = [
        (name, inputs)
        for name, inputs in write(tmp_path / "t.json", [outer, again])
        .ops()
        .filter("canonical")
        .select(pl.col("op", "inputs").cast(pl.String))
        .rows()
    ]
    assert names == [
        ("aten::native_layer_norm", "f32[4,8], f32[8], f32[8]"),
        ("aten::where", "bool[4,8], f32[4,8], f32[]"),
    ]


def test_on_a_device_the_op_that_launched_counts(tmp_path):
    profile = write(
        tmp_path / "t.json",
        [op("aten::relu", f32(8, 8), inside=[op("aten::clamp_min", f32(8, 8), kernel=5)])],
    )
    assert [name for name, *_ in counted(profile)] == ["aten::clamp_min"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_dtensors_op_has_the_shapes_of_its_rank(tmp_path, marked):
    """The op around it has the shapes of the whole mesh; a version of PyTorch without markers too."""
    local = op("aten::mm", f32(8, 4), f32(4, 8))
    fake = op("aten::mm", f32(8, 8), f32(8, 8), inside=[op("aten::new_empty", f32(8, 8))])
    if marked:
        fake = op("aten::mm", f32(8, 8), f32(8, 8), inside=[op(MODE, inside=[fake, *FAKE])])
        inside = [op(MARKER, inside=[fake, local])]
    else:
        inside = [fake, local]
    added = op("aten::add", f32(8, 4), f32(8, 4))
    around = op(
        "aten::add",
        f32(8, 8),
        f32(8, 8),
        inside=[op(MARKER, inside=[added])] if marked else [added],
    )
    profile = write(
        tmp_path / "t.json", [op("aten::mm", f32(8, 8), f32(8, 8), inside=inside), around]
    )
    ops = profile.ops().with_columns(pl.col("op", "inputs").cast(pl.String))
    assert ops.filter("canonical").select("op", "inputs", "flops").rows() == [
        ("aten::mm", "f32[8,4], f32[4,8]", 512),
        ("aten::add", "f32[8,4], f32[8,4]", 32),
    ]
    assert "f32[8,8], f32[8,8]" in ops["inputs"].to_list()  # the mesh's shapes are beside
    assert profile.summary()["flops_share"][0] == 1.0


def test_runs_with_fake_tensors_are_no_work(tmp_path):
    inner = op("aten::mm", f32(8, 8), f32(8, 8), inside=[op("aten::new_empty", f32(8, 8))])
    compiled = op(
        "aten::matmul",
        f32(8, 8),
        f32(8, 8),
        inside=[op("aten::mm", f32(8, 8), f32(8, 8), inside=[op(MODE, inside=[inner, *FAKE])])],
    )
    decomposed = op(
        "aten::add", f32(8, 8), f32(8, 8), inside=[op("prims::add", f32(8, 8), f32(8, 8))]
    )
    profile = write(tmp_path / "t.json", [compiled, decomposed])
    assert counted(profile) == []
    assert profile.ops()["flops"].sum() == profile.ops()["bytes"].sum() == 0


def test_a_mode_of_the_user_runs_the_op(tmp_path):
    run = op("aten::mm", f32(8, 8), f32(8, 8), inside=[op("aten::resolve_conj", f32(8, 8))])
    profile = write(
        tmp_path / "t.json", [op("aten::mm", f32(8, 8), f32(8, 8), inside=[op(MODE, inside=[run])])]
    )
    assert counted(profile) == [("aten::mm", 1024, 3 * 256)]


def test_a_copy_that_was_not_needed_moves_nothing(tmp_path):
    cast = op("aten::to", f32(8, 8), inside=[op("aten::_to_copy", f32(8, 8))])
    profile = write(
        tmp_path / "t.json",
        [op("aten::to", f32(8, 8)), op("aten::contiguous", f32(8, 8)), cast],
    )
    bytes_of = profile.ops().filter(pl.col("depth") == 0)["bytes"].to_list()
    assert bytes_of[:2] == [0, 0]
    assert [name for name, *_ in counted(profile)] == ["aten::_to_copy"]


def test_a_power_has_its_own_bytes(tmp_path):
    profile = write(
        tmp_path / "t.json",
        [
            op(
                "aten::pow",
                f32(8, 8),
                ("Scalar", []),
                values=["", "2"],
                inside=[op("aten::to", f32(8, 8))],
            )
        ],
    )
    assert counted(profile) == [("aten::pow", 64, 512)]


def test_the_ops_of_a_list_count_where_pytorch_calls_one_for_each_tensor(tmp_path):
    """A list has no element types; the ops inside have."""
    tensors = ("TensorList", [[8, 4], [6]])
    slow = op(
        "aten::_foreach_add_",
        tensors,
        ("Scalar", []),
        values=["", "1.0"],
        inside=[
            op("aten::add_", f32(8, 4), NUMBER, inside=[CAST]),
            op("aten::add_", f32(6), NUMBER),
        ],
    )
    profile = write(tmp_path / "t.json", [slow])
    assert counted(profile) == [("aten::add_", 32, 256), ("aten::add_", 6, 48)]
    assert profile.summary()["bytes_share"][0] == 1.0
