"""PyProf's table of small traces: layers, wrapped functions, several threads, what is not known."""

from __future__ import annotations

import pytest

from opscope.core.pyprof.table import COLUMNS
from opscope.profile import Profile

MM = "aten::mm(f16[64,32], f16[32,16]) -> f16[64,16]"
RELU = "aten::relu(f16[64,16]) -> f16[64,16]"


@pytest.fixture
def table(trace_of):
    """The rows of a trace of ranges (text, start, end, and more) and launches (time, thread)."""

    def build(ranges, launches, where=None, **more):
        base = {"process": 0, "kind": "pushpop", "thread": 1, "domain": ""}
        rows = [{**base, "text": text, "start": start, "end": end, **extra}
                for text, start, end, extra in ranges]  # fmt: skip
        calls = [{"process": 0, "thread": thread, "start": time, "end": time + 1, "correlation": number,
                  "name": "cudaLaunchKernel"} for number, (time, thread) in enumerate(launches)]  # fmt: skip
        kernels = [{"process": 0, "device": 0, "stream": 7, "start": 10_000 + 10 * number,
                    "end": 10_005 + 10 * number, "name": "void k<float>(int)", "correlation": number,
                    "grid": "4,1,1", "block": "32,1,1"} for number in range(len(launches))]  # fmt: skip
        profile = Profile(trace_of(ranges=rows, calls=calls, kernels=kernels, **more))
        return profile.pyprof(**(where or {})).to_dicts()

    return build


def test_nested_layers_of_the_user_are_joined_by_colons(table):
    rows = table(
        [("layer:Conv2_x", 0, 90, {}), ("layer:Bottleneck_1", 10, 50, {}), ("layer:ReLU 6", 20, 40, {}),
         ("aten::relu, seq = 4", 30, 35, {})],
        [(31, 1), (45, 1), (60, 1), (95, 1)],
    )  # fmt: skip
    assert [row["layer"] for row in rows] == [
        "Conv2_x:Bottleneck_1:ReLU_6", "Conv2_x:Bottleneck_1", "Conv2_x", None,
    ]  # fmt: skip


def test_a_module_s_path_is_the_layer_where_the_user_named_none(table):
    own = {"domain": "opscope.torch"}
    rows = table(
        [
            ("Net.block", 0, 90, {**own, "category": "layer"}),
            (MM, 10, 20, {**own, "category": "forward"}),
        ],
        [(11, 1)],
    )
    assert rows[0]["layer"] == "Net.block"


def test_a_backward_kernel_has_its_forward_s_layer_and_call(table):
    linear = str({"mod": "torch.nn.functional", "op": "linear", "args": [
        {"name": "", "type": "tensor", "shape": (8, 16), "dtype": "float32"},
        {"name": "", "type": "tensor", "shape": (32, 16), "dtype": "float32"}]})  # fmt: skip
    rows = table(
        [("layer:head", 0, 50, {}), (linear, 10, 40, {}), ("addmm, seq = 5", 20, 30, {}),
         ("AddmmBackward, seq = 5", 100, 200, {"thread": 2}), ("mm, seq = 0", 110, 120, {"thread": 2}),
         ("mm, seq = 0", 130, 140, {"thread": 2})],
        [(21, 1), (111, 2), (131, 2)],
    )  # fmt: skip
    assert [
        (row["layer"], row["mod"], row["op"], row["dir"], row["sub"], row["params"]) for row in rows
    ] == [
        ("head", "torch.nn.functional", "linear", "fprop", 0, "M=32,N=8,K=16,fp32,"),
        ("head", "torch.nn.functional", "linear", "bprop", 0, "M=16,N=8,K=32,fp32,"),
        ("head", "torch.nn.functional", "linear", "bprop", 1, "M=16,N=32,K=8,fp32,"),
    ]


def test_the_last_forward_kernel_before_it_gives_a_backward_kernel_its_call(table):
    """As when a model is called twice before the numbers begin anew: PyProf looks backwards."""
    rows = table(
        [("aten::relu, seq = 5", 0, 10, {}), ("ReluBackward0, seq = 5", 20, 30, {"thread": 2}),
         ("aten::tanh, seq = 5", 40, 50, {}), ("TanhBackward0, seq = 5", 60, 70, {"thread": 2})],
        [(1, 1), (21, 2), (41, 1), (61, 2)],
    )  # fmt: skip
    assert [row["op"] for row in rows] == ["relu", "relu", "tanh", "tanh"]


def test_a_node_without_a_forward_kernel_is_named_after_what_it_differentiates(table):
    rows = table(
        [("view, seq = 5", 0, 10, {}), ("ViewBackward, seq = 5", 20, 30, {"thread": 2}),
         ("contiguous, seq = 0", 22, 28, {"thread": 2})],
        [(23, 2)],
    )  # fmt: skip
    assert (rows[0]["mod"], rows[0]["op"], rows[0]["dir"], rows[0]["params"]) == (
        "na", "View", "bprop", "na=na,",
    )  # fmt: skip


def test_a_forward_kernel_inside_a_composite_op_has_the_outer_number_first(table):
    rows = table(
        [("aten::linear, seq = 4", 0, 50, {}), ("aten::t, seq = 4", 5, 10, {}),
         ("aten::mm, seq = 6", 20, 40, {})],
        [(21, 1), (30, 1), (35, 1)],
    )  # fmt: skip
    assert [(row["seq"], row["altseq"], row["sub"]) for row in rows] == [
        (4, "6", 0), (6, "4", 0), (6, "4", 1),
    ]  # fmt: skip


def test_threads_do_not_disturb_each_other_s_numbers(table):
    """PyProf takes the previous kernel of the file: thread 2's 3 after thread 1's 50 had no number."""
    rows = table(
        [("aten::relu, seq = 50", 0, 10, {}), ("aten::relu, seq = 3", 5, 15, {"thread": 2}),
         ("aten::tanh, seq = 51", 20, 30, {}), ("aten::tanh, seq = 4", 25, 35, {"thread": 2})],
        [(1, 1), (6, 2), (21, 1), (26, 2)],
    )  # fmt: skip
    assert [row["seq"] for row in rows] == [50, 3, 51, 4]
    assert {row["altseq"] for row in rows} == {None}


def test_two_threads_forward_ops_with_one_number_keep_their_own_backward(table):
    own = {"domain": "opscope.torch"}

    def op(text, start, thread, number, category, seq=5):
        return (text, start, start + 10,
                {**own, "thread": thread, "category": category, "seq": seq, "fwd_thread": number})  # fmt: skip

    rows = table(
        [op(MM, 0, 1, 1, "forward"), op(RELU, 0, 2, 2, "forward"),
         op("aten::mm(f16[32,64], f16[64,16])", 20, 3, 1, "backward"),
         op("aten::threshold_backward(f16[64,16], f16[64,16])", 40, 3, 2, "backward")],
        [(1, 1), (2, 2), (21, 3), (41, 3)],
    )  # fmt: skip
    assert [(row["op"], row["dir"]) for row in rows] == [
        ("mm", "fprop"), ("relu", "fprop"), ("mm", "bprop"), ("relu", "bprop"),
    ]  # fmt: skip


def test_a_wrapped_function_is_module_and_op_of_the_kernels_inside_it(table):
    rows = table(
        [("mylib.norms.rms(f16[64,16])", 0, 50, {"domain": "opscope.wrap"}),
         (RELU, 10, 20, {"domain": "opscope.torch", "category": "forward"})],
        [(11, 1), (30, 1)],
    )  # fmt: skip
    assert {(row["mod"], row["op"]) for row in rows} == {("mylib.norms", "rms")}
    assert rows[0]["params"] == "T=[(64,16)],['float16']"


def test_the_outermost_python_call_names_the_kernel(table):
    inner = str({"mod": "torch", "op": "matmul", "args": []})
    outer = str({"mod": "torch.nn.functional", "op": "multi_head_attention_forward", "args": []})
    rows = table([(outer, 0, 90, {}), (inner, 10, 50, {}), ("mm, seq = 1", 20, 30, {})], [(21, 1)])
    assert rows[0]["op"] == "multi_head_attention_forward"


def test_a_range_of_the_user_s_own_is_the_op_where_there_is_no_other(table):
    rows = table([("read the table", 0, 90, {})], [(21, 1), (95, 1)])
    assert [row["op"] for row in rows] == ["read_the_table", "na"]


def test_what_is_not_known_of_a_kernel_is_null_or_na(table):
    row = table([], [(5, 1)])[0]
    assert list(row) == list(COLUMNS)
    assert row == {
        "idx": 1, "seq": None, "altseq": None, "tid": 1, "layer": None, "trace": None, "dir": None, "sub": 0,
        "mod": "na", "op": "na", "kernel": "k", "params": "na=na,", "sil": 5, "tc": "na", "device": 0,
        "stream": 7, "grid": "4,1,1", "block": "32,1,1", "flops": None, "bytes": None,
    }  # fmt: skip


def test_a_kernel_without_a_launch_has_no_thread(trace_of):
    kernel = {"process": 0, "device": 0, "stream": 7, "start": 1, "end": 2, "name": "k"}
    row = Profile(trace_of(kernels=[kernel])).pyprof().row(0, named=True)
    assert (row["tid"], row["op"], row["grid"], row["sil"]) == (None, "na", None, 1)


def test_the_system_s_number_of_a_thread_is_preferred(table):
    threads = [{"process": 0, "thread": 1, "os_tid": 4711}, {"process": 0, "thread": 2}]
    rows = table([], [(5, 1), (6, 2)], threads=threads)
    assert [row["tid"] for row in rows] == [4711, 2]


def test_tensor_cores_are_told_by_1_0_a_dash_or_na(trace_of):
    names = [
        "volta_fp16_s884gemm_fp16_128x64_tn",
        "volta_sgemm_32x128_tn",
        "elementwise_kernel",
        "mystery",
    ]
    ops = ["aten::mm", "aten::mm", "aten::relu", "aten::mm"]
    where = {"process": 0, "thread": 1}
    profile = Profile(trace_of(
        ranges=[{**where, "kind": "pushpop", "domain": "", "text": f"{op}, seq = {n}", "start": 10 * n,
                 "end": 10 * n + 9} for n, op in enumerate(ops)],
        calls=[{**where, "name": "cudaLaunchKernel", "start": 10 * n + 1, "end": 10 * n + 2, "correlation": n}
               for n in range(4)],
        kernels=[{"process": 0, "device": 0, "stream": 7, "start": 100 + n, "end": 101 + n, "name": name,
                  "correlation": n} for n, name in enumerate(names)],
        devices=[{"process": 0, "device": 0, "name": "Tesla V100-SXM2-16GB", "cc": "7.0"}],
    ))  # fmt: skip
    assert profile.pyprof()["tc"].to_list() == ["1", "0", "-", "na"]


def test_a_selection_keeps_the_numbers_of_the_whole(table):
    own = {"domain": "opscope.step", "category": "step"}
    ranges = [("step 0", 0, 100, own), ("aten::relu, seq = 1", 10, 20, {}), ("step 1", 100, 200, own),
              ("aten::tanh, seq = 2", 110, 120, {}),
              ("TanhBackward0, seq = 2", 130, 140, {"thread": 2})]  # fmt: skip
    rows = table(ranges, [(11, 1), (111, 1), (131, 2)], {"steps": 1})
    assert [(row["idx"], row["op"], row["dir"]) for row in rows] == [
        (2, "tanh", "fprop"), (3, "tanh", "bprop"),
    ]  # fmt: skip


def test_columns_are_chosen_and_ordered(table):
    rows = table([], [(5, 1)], {"columns": ["sil", "idx"]})
    assert rows == [{"sil": 5, "idx": 1}]
    with pytest.raises(KeyError, match="no column named 'nothing'"):
        table([], [(5, 1)], {"columns": ["nothing"]})


def test_thousands_of_nested_ranges_end_in_time(table):
    """A hostile trace: each kernel is inside 5,000 ranges."""
    many = 5_000
    ranges = [(f"aten::relu, seq = {n}", n, 30_000 - n, {}) for n in range(many)]
    rows = table(ranges, [(many + n, 1) for n in range(1_000)])
    assert len(rows) == 1_000
    assert rows[0]["seq"] is not None


def test_a_linear_layer_s_kernels_are_products_or_the_bias(trace_of):
    """By the kernel's op, and by its name where one op launches both; an unknown op is no bias."""
    linear = str({"mod": "torch.nn.functional", "op": "linear", "args": [
        {"name": "", "type": "tensor", "shape": (8, 16), "dtype": "float32"},
        {"name": "", "type": "tensor", "shape": (32, 16), "dtype": "float32"}]})  # fmt: skip
    ops = ["aten::addmm", "aten::addmm", "aten::addmm", "aten::add_", "mine::fast_gemm"]
    kernels = ["unrolled_elementwise_kernel", "volta_sgemm_32x32_tn", "splitKreduce_kernel",
               "elementwise_kernel", "my_kernel"]  # fmt: skip
    where = {"process": 0, "thread": 1}
    ranges = [{**where, "kind": "pushpop", "domain": "", "text": linear, "start": 0, "end": 100}]
    ranges += [{**where, "kind": "pushpop", "domain": "", "text": f"{op}, seq = 4", "start": 10 * n + 1,
                "end": 10 * n + 9} for n, op in enumerate(ops)]  # fmt: skip
    profile = Profile(trace_of(
        ranges=ranges,
        calls=[{**where, "name": "cudaLaunchKernel", "start": 10 * n + 2, "end": 10 * n + 3, "correlation": n}
               for n in range(5)],
        kernels=[{"process": 0, "device": 0, "stream": 7, "start": 200 + n, "end": 201 + n, "name": name,
                  "correlation": n} for n, name in enumerate(kernels)],
    ))  # fmt: skip
    found = profile.pyprof()
    assert found["op"].to_list() == ["bias", "linear", "linear", "bias", "linear"]
    assert found["params"][0] == "M=32,N=8,fp32,"
    assert found["params"][4] == "M=32,N=8,K=16,fp32,"
    assert found["tc"].to_list()[:4] == ["-", "0", "0", "-"]
