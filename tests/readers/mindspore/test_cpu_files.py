"""The files of MindSpore's profiler about operators on the CPU, and what a graph and an adapter add to them."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope
from opscope.backends.mindspore_graphs import _Node, forward_nodes
from opscope.core.dialects.mindspore import node_name, read
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall, TensorSpec
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.mindspore import cpu_files, gradients
from opscope.readers.mindspore.graph_nodes import known_calls, load
from opscope.readers.mindspore.known import Known
from opscope.readers.recording import with_mindspore

NOW = 1_795_404_971_000_000_000
CELL = "network-WithLossCell/_backbone-LeNet/c1-Conv2d"
FORWARD = f"Default/{CELL}/Conv2D-op0"
BACKWARD = f"Gradients/Default/{CELL}/Grad_Conv2D/Conv2DBackpropFilter-op0"
#: As MindSpore 2.10 writes them, shortened.
TIMES = f"""{BACKWARD};HostCpuOps;{NOW + 5000},0.002,0 {NOW + 25000},0.003,0 \n\
{FORWARD};HostCpuOps;{NOW},0.001,0 {NOW + 20000},0.0015,1 \n\
ReLU;HostCpuOps;{NOW + 2000},0.0005,0 \n"""
SHAPES = """Conv2D;Conv2D-op0;704;input_1:[32, 1, 32, 32];input_2:[6, 1, 5, 5];
;;704;
Conv2DBackpropFilter;Conv2DBackpropFilter-op0;704;input_1:[32, 6, 28, 28];input_2:[32, 1, 32, 32];input_3:[4];
Conv2D;Conv2D-op0;704;input_1:[32, 1, 32, 32];input_2:[6, 1, 5, 5];
Conv2DBackpropFilter;Conv2DBackpropFilter-op0;704;input_1:[32, 6, 28, 28];input_2:[32, 1, 32, 32];input_3:NoShape;
"""
DETAIL = f"""op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),\
total_proportion,subgraph,pid
Host,Conv2D,Conv2D-op0,{FORWARD},2,0.0025,0.00125,0.3,Default,77
Host,Conv2DBackpropFilter,Conv2DBackpropFilter-op0,{BACKWARD},2,0.005,0.0025,0.6,Default,77
Host,ReLU,ReLU,ReLU,1,0.0005,0.0005,0.1,Default,77
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text(TIMES)
    (tmp_path / "cpu_framework_0.txt").write_text(SHAPES)
    (tmp_path / "cpu_op_detail_info_0.csv").write_text(DETAIL)
    return tmp_path


def texts(trace):
    return trace["ranges"].sort("start")["text"].cast(pl.String).to_list()


def test_executions_have_times_threads_and_the_shapes_of_their_row(folder):
    trace = cpu_files.tables_of(folder)
    ranges = trace["ranges"].sort("start")
    assert (ranges["start"] - NOW).to_list() == [0, 2000, 5000, 20000, 25000]
    assert (ranges["end"] - ranges["start"]).to_list() == [1000, 500, 2000, 1500, 3000]
    assert ranges["thread"].to_list() == [0, 0, 0, 1, 0]
    first, second, third, _, last = texts(trace)
    assert first == f"{FORWARD}(?[32,1,32,32], ?[6,1,5,5])"
    assert second == "ReLU"
    assert third == f"{BACKWARD}(?[32,6,28,28], ?[32,1,32,32], ?[4])"
    assert last == f"{BACKWARD}(?[32,6,28,28], ?[32,1,32,32])"
    assert trace["processes"]["pid"].to_list() == [77]
    assert trace["clocks"]["kind"].to_list() == ["unix"]
    assert not trace["notes"]["severity"].is_in(["warning"]).any()


def test_operators_of_pynative_mode_are_read_and_a_note_says_who_records_their_shapes(folder):
    profile = opscope.load(folder)
    assert profile.op_totals().filter(op="ReLU").select("calls", "self_time").rows() == [(1, 500)]
    noted = profile.trace["notes"].filter(pl.col("what").str.contains("PyNative mode runs without"))
    assert noted["how_many"].to_list() == [1]
    assert noted["what"][0].endswith("opscope run does")


def test_shapes_are_paired_by_name_where_the_order_differs(folder):
    lines = SHAPES.splitlines()
    (folder / "cpu_framework_0.txt").write_text("\n".join([*lines[2:], *lines[:2]]) + "\n")
    assert texts(cpu_files.tables_of(folder))[0] == f"{FORWARD}(?[32,1,32,32], ?[6,1,5,5])"


def test_shapes_that_may_be_anothers_are_not_known(folder):
    (folder / "cpu_framework_0.txt").write_text("\n".join(SHAPES.splitlines()[:3]) + "\n")
    trace = cpu_files.tables_of(folder)
    assert set(texts(trace)) == {FORWARD, BACKWARD, "ReLU"}
    noted = trace["notes"].filter(pl.col("what").str.contains("cpu_framework has other"))
    assert noted["how_many"].to_list() == [4]


def test_totals_that_are_not_the_sum_of_the_executions_are_noted(folder):
    (folder / "cpu_op_detail_info_0.csv").write_text(DETAIL.replace(",2,0.005,", ",3,0.009,"))
    noted = cpu_files.tables_of(folder)["notes"]
    assert noted.filter(pl.col("what").str.contains("cpu_op_detail_info"))[
        "how_many"
    ].to_list() == [1]


def test_each_rank_is_a_process(folder):
    (folder / "cpu_op_execute_timestamp_3.txt").write_text(f"ReLU;HostCpuOps;{NOW},1,0 \n")
    trace = cpu_files.tables_of(folder)
    assert trace["processes"]["rank"].to_list() == [0, 3]
    assert trace["ranges"].group_by("process").len().sort("process")["len"].to_list() == [5, 1]


def test_a_steady_clock_is_not_taken_for_unix_time(tmp_path):
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text("ReLU;HostCpuOps;5000,1,0 \n")
    trace = cpu_files.tables_of(tmp_path)
    assert trace["clocks"]["kind"].to_list() == ["monotonic"]
    assert trace["clocks"]["to_unix_ns"].to_list() == [None]


def test_without_other_files_the_trace_view_is_read_to_the_nanosecond(tmp_path):
    events = [
        {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "CPU OP"}},
        {"ph": "X", "name": "ReLU", "pid": 2, "tid": 0, "ts": "1795404971000000.123", "dur": "2.5"},
        {
            "ph": "X",
            "name": "c1-Conv2d",
            "pid": 3,
            "tid": 1,
            "ts": "1795404971000000.0",
            "dur": "9",
        },
    ]
    (tmp_path / "trace_view.json").write_text(json.dumps(events))
    ranges = cpu_files.tables_of(tmp_path)["ranges"]
    assert ranges["start"].to_list() == [NOW + 123]
    assert ranges["end"].to_list() == [NOW + 2623]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("cpu_op_execute_timestamp_0.txt", "ReLU\n", "not a line of operator times"),
        (
            "cpu_op_execute_timestamp_0.txt",
            f"ReLU;HostCpuOps;{NOW},x,0 \n",
            "start,duration,thread",
        ),
        (
            "cpu_op_execute_timestamp_0.txt",
            f"ReLU;HostCpuOps;{NOW},-1,0 \n",
            "start,duration,thread",
        ),
        ("cpu_op_execute_timestamp_0.txt", f"ReLU;H;{NOW},inf,0 \n", "start,duration,thread"),
        (
            "cpu_op_execute_timestamp_0.txt",
            f"A;H;{NOW},1,0 5,1,0 \n",
            "its times are of two clocks",
        ),
        ("cpu_framework_0.txt", "Conv2D\n", "not a line of an operator's inputs"),
        ("cpu_op_detail_info_0.csv", "a,b\n1,2\n", "no column full_op_name"),
        (
            "cpu_op_detail_info_0.csv",
            DETAIL.replace(",2,0.005", ",two,0.005"),
            "a number is missing",
        ),
    ],
)
def test_a_damaged_file_is_named_in_one_line(folder, name, text, what):
    (folder / name).write_text(text)
    with pytest.raises(BadInput, match=what) as caught:
        cpu_files.tables_of(folder)
    assert caught.value.path.endswith(name)


def test_a_folder_without_the_files_says_so(tmp_path):
    with pytest.raises(BadInput, match="cpu_op_execute_timestamp"):
        cpu_files.tables_of(tmp_path)


def test_files_of_a_run_without_operators_are_read(tmp_path):
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text("")
    assert not len(cpu_files.tables_of(tmp_path)["ranges"])


# ------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "op", "layer", "direction"),
    [
        (FORWARD, "Conv2D", "LeNet.c1", "forward"),
        (BACKWARD, "Conv2DBackpropFilter", "LeNet.c1", "backward"),
        ("Default/optimizer-Momentum/ApplyMomentum-op3", "ApplyMomentum", "Momentum", "optimizer"),
        ("Default/c1-Conv2d/Conv2D-op0", "Conv2D", "c1", "forward"),
        ("Default/Conv2D-op0", "Conv2D", None, None),
        ("Default/BiasAddGrad-op0", "BiasAddGrad", None, "backward"),
        ("Default/ApplyMomentum-op0", "ApplyMomentum", None, "optimizer"),
        ("Expand/_SoftmaxBackward/Mul-op0", "Mul", None, "backward"),
        ("Expand/_Muls/Mul-op0", "Mul", None, None),
        ("MatMul", "MatMul", None, None),
    ],
)
def test_a_name_tells_kind_layer_and_direction(name, op, layer, direction):
    said = node_name(name)
    assert (said.op, said.layer, said.direction) == (op, layer, direction)


def test_a_layers_path_begins_with_the_class_that_the_run_names():
    assert node_name("Default/network-LeNet/c1-Conv2d/X-op0").layer_in("Mine") == "Mine.network.c1"
    assert node_name(FORWARD).layer_in("TrainOneStepCell") == "LeNet.c1"


def test_a_ranges_text_is_the_operators_call_with_what_the_name_tells():
    reading = read("mindspore", f'{BACKWARD}(f32[2,3]) {{layer="Mine.c1", pad_mode="same"}}')
    assert reading.call == OpCall(
        "Conv2DBackpropFilter",
        (TensorSpec("f32", (2, 3)),),
        params=(("pad_mode", "same"), ("node", BACKWARD)),
    )
    assert (reading.direction, reading.layer) == ("backward", "Mine.c1")
    assert read("TSL", FORWARD) is None


# ---------------------------------------------------------------- what graphs and ranges tell


def graphs_of(folder, *graphs):
    lines = [json.dumps({"graph": name, "nodes": nodes}) + "\n" for name, nodes in graphs]
    (folder / "graphs.jsonl").write_text("".join(lines))
    return load(folder)


CONV = "Conv2D(f32[32,1,32,32], f32[6,1,5,5]) -> f32[32,6,28,28]"
FILTER = "Conv2DBackpropFilter(f32[32,6,28,28], f32[32,1,32,32]) -> f32[6,1,5,5]"


def test_an_execution_has_the_call_that_its_graph_tells(folder):
    nodes = [[FORWARD, CONV, None, "forward", None], [BACKWARD, FILTER, None, "backward", FORWARD]]
    captured = graphs_of(folder, ("train", nodes))
    table, known, ambiguous = known_calls(captured.executions.table, captured.nodes)
    calls = {known[one].call for one in table.filter(pl.col("node") == FORWARD)["known"]}
    assert calls == {parse(CONV)}
    assert not ambiguous


def test_graphs_that_disagree_leave_the_dtypes_unknown(folder):
    half = CONV.replace("f32", "f16")
    captured = graphs_of(
        folder,
        ("a", [[FORWARD, CONV, None, None, None]]),
        ("b", [[FORWARD, half, None, None, None]]),
    )
    table, known, ambiguous = known_calls(captured.executions.table, captured.nodes)
    (one,) = {known[place] for place in table.filter(pl.col("node") == FORWARD)["known"]}
    assert [tensor.dtype for tensor in one.call.inputs] == ["?", "?"]
    assert ambiguous == 2


def test_a_graph_of_other_sizes_is_not_the_executions(folder):
    other = CONV.replace("[32,", "[64,")
    captured = graphs_of(
        folder,
        ("a", [[FORWARD, CONV, None, None, None]]),
        ("b", [[FORWARD, other, None, None, None]]),
    )
    table, known, ambiguous = known_calls(captured.executions.table, captured.nodes)
    assert {known[one].call for one in table.filter(pl.col("node") == FORWARD)["known"]} == {
        parse(CONV)
    }
    assert not ambiguous


def test_a_graph_of_which_a_part_did_not_run_gives_way(folder):
    half = CONV.replace("f32", "f16")
    nodes = [
        [FORWARD, half, None, None, None],
        [FORWARD.replace("c1", "c9"), half, None, None, None],
    ]
    captured = graphs_of(folder, ("a", [[FORWARD, CONV, None, None, None]]), ("b", nodes))
    table, known, ambiguous = known_calls(captured.executions.table, captured.nodes)
    (one,) = {known[place] for place in table.filter(pl.col("node") == FORWARD)["known"]}
    assert one.call == parse(CONV)
    assert not ambiguous


def test_a_damaged_graph_is_named(folder):
    (folder / "graphs.jsonl").write_text("[]\n")
    with pytest.raises(BadInput, match="not a graph"):
        load(folder)


def test_an_input_has_the_dtype_of_the_tensors_of_its_sizes():
    around = parse(
        'Conv2DBackward(f16[4,6], f16[4,1], f32[6,1]) -> (_, f32[6,1]) {pad_mode="same"}'
    )
    one = Known("Default/Conv2DBackpropFilter-op0", parse("X(?[4,6], ?[4,1], ?[2])"))
    call = gradients.completed(one, around).call
    assert [tensor.dtype for tensor in call.inputs] == ["f16", "f16", "i64"]
    assert call.outputs == (TensorSpec("f32", (6, 1)),)
    assert call.param("pad_mode") == "same"


def test_an_input_of_sizes_with_two_dtypes_stays_unknown():
    around = parse("SubBackward(f16[4,6], f32[4,6])")
    call = gradients.completed(Known("Mul", parse("Mul(?[4,6], ?[4,6])")), around).call
    assert [tensor.dtype for tensor in call.inputs] == ["?", "?"]


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_gradients_of_a_product_multiply_to_the_sizes_of_its_operands(ta, tb):
    a, b = ((5, 3) if ta else (3, 5)), ((7, 5) if tb else (5, 7))
    specs = [TensorSpec("f32", shape) for shape in ((3, 7), a, b)]
    around = OpCall(
        "MatMulBackward",
        tuple(specs),
        tuple(specs[1:]),
        (("transpose_a", ta), ("transpose_b", tb)),
    )
    for turn in (0, 1):
        call = gradients.product_gradient(around, turn, 2)
        left, right = (one.shape for one in call.inputs)
        left = left[::-1] if call.param("transpose_a") else left
        right = right[::-1] if call.param("transpose_b") else right
        assert left[1] == right[0]
        assert (left[0], right[1]) == call.outputs[0].shape == (a, b)[turn]
    assert gradients.product_gradient(around, 0, 1) is None  # nobody knows which of the two it is


def node(name, ids, call, output):
    specs = [one for one in call.inputs if isinstance(one, TensorSpec)]
    return _Node(name, call.name, list(ids), call, output, list(ids), specs)


def test_a_gradient_is_paired_by_its_data_and_not_by_its_path():
    """MindSpore gives the gradients of both products the path of the second."""
    path = "Gradients/Default/f2-Dense/Grad_MatMul"
    nodes = [
        node(
            "Default/f1-Dense/MatMul-op0",
            ("x", "w1"),
            parse("MatMul(f32[4,5], f32[5,5]) -> f32[4,5]"),
            "1",
        ),
        node(
            "Default/f2-Dense/MatMul-op0",
            ("1", "w2"),
            parse("MatMul(f32[4,5], f32[5,5]) -> f32[4,5]"),
            "2",
        ),
        node(
            f"{path}/MatMul-op0", ("g", "w2"), parse("MatMul(f32[4,5], f32[5,5]) -> f32[4,5]"), "3"
        ),
        node(
            f"{path}/MatMul-op1", ("x", "3"), parse("MatMul(f32[4,5], f32[4,5]) -> f32[5,5]"), "4"
        ),
    ]
    assert forward_nodes(nodes) == {
        f"{path}/MatMul-op0": "Default/f2-Dense/MatMul-op0",
        f"{path}/MatMul-op1": "Default/f1-Dense/MatMul-op0",
    }


def test_a_gradient_without_data_of_its_own_follows_the_gradient_of_a_sum():
    nodes = [
        node("Default/f1-Dense/MatMul-op0", ("x", "w1"), parse("MatMul(f32[4,5], f32[5,6]) -> f32[4,6]"), "1"),
        node("Default/f1-Dense/BiasAdd-op0", ("1", "b1"), parse("BiasAdd(f32[4,6], f32[6]) -> f32[4,6]"), "2"),
        node("Default/f2-Dense/MatMul-op0", ("2", "w2"), parse("MatMul(f32[4,6], f32[6,6]) -> f32[4,6]"), "3"),
        node("Default/f2-Dense/BiasAdd-op0", ("3", "b2"), parse("BiasAdd(f32[4,6], f32[6]) -> f32[4,6]"), "4"),
        node("Gradients/Default/f2-Dense/Grad_MatMul/MatMul-op0", ("g", "w2"), parse("MatMul(f32[4,6], f32[6,6]) -> f32[4,6]"), "5"),
        node("Gradients/Default/f2-Dense/Grad_BiasAdd/BiasAddGrad-op0", ("g",), parse("BiasAddGrad(f32[4,6]) -> f32[6]"), "6"),
        node("Gradients/Default/f2-Dense/Grad_BiasAdd/BiasAddGrad-op1", ("5",), parse("BiasAddGrad(f32[4,6]) -> f32[6]"), "7"),
    ]  # fmt: skip
    found = forward_nodes(nodes)
    path = "Gradients/Default/f2-Dense/Grad_BiasAdd/BiasAddGrad"
    assert found[f"{path}-op0"] == "Default/f2-Dense/BiasAdd-op0"
    assert found[f"{path}-op1"] == "Default/f1-Dense/BiasAdd-op0"


# ------------------------------------------------------------------- the join with a recording


def recording(rows):
    """A recorder's part whose clock began at the Unix time NOW: (start, end, domain, category, text)."""
    ranges = pl.DataFrame(
        {
            "id": list(range(len(rows))),
            "process": [0] * len(rows),
            "thread": [9] * len(rows),
            "start": [row[0] for row in rows],
            "end": [row[1] for row in rows],
            "domain": [row[2] for row in rows],
            "category": [row[3] for row in rows],
            "text": [row[4] for row in rows],
            "kind": ["pushpop"] * len(rows),
        }
    )
    clocks = pl.DataFrame({"clock_domain": [0], "to_unix_ns": [NOW], "error_ns": [50]})
    threads = pl.DataFrame({"process": [0], "thread": [9], "name": ["main"]})
    tables = {"ranges": ranges, "clocks": clocks, "threads": threads, "notes": pl.DataFrame()}
    return Trace.of(tables, {"recorded": (0, 100_000)})


def test_an_operator_that_both_recorded_is_counted_once_with_the_profilers_time(folder):
    part = recording(
        [(1500, 3000, "opscope.mindspore", "forward", "ReLU(f32[4]) -> f32[4] @a.py:3")]
    )
    merged = with_mindspore.merge(part, load(folder))
    ranges = merged["ranges"].with_columns(pl.col("domain", "text").cast(pl.String))
    relu = ranges.filter(pl.col("text").str.starts_with("ReLU"))
    asked = relu.filter(pl.col("domain") == "runtime")
    ran = relu.filter(pl.col("domain") == "mindspore")
    assert len(asked) == len(ran) == 1
    assert ran.select("start", "end", "thread").rows() == [(2000, 2500, 9)]
    assert ran["text"].item().startswith("ReLU(f32[4]) -> f32[4]")
    assert ran["text"].item().endswith("@a.py:3")


def test_operators_of_a_graph_lie_in_its_run_and_gradients_have_the_number_of_their_operator(
    folder,
):
    nodes = [[FORWARD, CONV, None, "forward", None], [BACKWARD, FILTER, None, "backward", FORWARD]]
    graphs_of(folder, ("train", nodes))
    part = recording([(-500, 10_000, "opscope.mindspore", "graph", "TrainOneStepCell")])
    merged = with_mindspore.merge(part, load(folder))
    ran = merged["ranges"].filter(pl.col("domain").cast(pl.String) == "mindspore").sort("start")
    assert ran["thread"].to_list()[:3] == [9, with_mindspore.FIRST_THREAD, 9]
    assert ran["seq"].to_list() == [0, None, 0, 3, 3]
    assert "LeNet" not in ran["text"].cast(pl.String)[1]


def test_a_backward_product_in_a_range_of_two_threads_is_that_of_its_name(folder):
    rows = [
        (1500, 3000, "opscope.mindspore", "forward", "ReLU(f32[4]) -> f32[4]"),
        (1600, 2900, "opscope.mindspore", "forward", "Abs(f16[4]) -> f16[4]"),
    ]
    part = recording(rows)
    ranges = part["ranges"].with_columns(pl.Series("thread", [9, 10]))
    merged = with_mindspore.merge(part.replace(ranges=ranges), load(folder))
    text = merged["ranges"]["text"].cast(pl.String)
    domain = merged["ranges"]["domain"].cast(pl.String)
    assert "ReLU(f32[4]) -> f32[4]" in text.filter(domain == "mindspore").str.slice(0, 22).to_list()
    assert "Abs(f16[4]) -> f16[4]" in text.filter(domain == "opscope.mindspore").to_list()
