"""Events of host threads that are ops, input or the user's ranges, in made files as TSL's profiler writes them."""

from __future__ import annotations

import polars as pl

import opscope
from opscope.readers.xplane.programs import Programs
from tests.readers.protobuf import event, line, plane, space

US = 1_000_000  # picoseconds

RECORD, BEGUN, OVER = (
    f"ThreadpoolListener::{name}" for name in ("Record", "StartRegion", "StopRegion")
)


def loaded(folder, *lines):
    """The profile of a file with these threads: (name, events of (name, start µs, length µs, statistics))."""
    names = sorted({name for _, events in lines for name, *_ in events})
    numbers = {name: number for number, name in enumerate(names, start=1)}
    made = [
        line(
            number,
            thread,
            1_000,
            *(
                event(numbers[name], start * US, length * US, **stats)
                for name, start, length, stats in rows
            ),
        )
        for number, (thread, rows) in enumerate(lines, start=70)
    ]
    path = folder / "trace.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", {n: name for name, n in numbers.items()}, made)))
    return opscope.load(path)


def eager(op, start, run, **more):
    """One eager call of 20 µs at ``start`` whose kernel runs for ``run`` µs."""
    return [
        ("EagerExecute", start, 20, {"eager_op": op, "is_func": 0, **more}),
        (f"EagerLocalExecute: {op}", start + 1, 18, {}),
        ("EagerKernelExecute", start + 2, 16, {}),
        ("KernelAndDeviceFunc::Run", start + 3, run, {}),
    ]


def test_an_eager_op_takes_the_time_of_its_kernel_and_has_the_name_of_its_call(tmp_path):
    profile = loaded(
        tmp_path,
        ("python", [*eager("MatMul", 0, 5), *eager("Relu", 30, 3), *eager("MatMul", 60, 7)]),
    )
    ops = profile.ops().select("op", "cpu_time").rows()
    assert ops == [("MatMul", 5_000), ("Relu", 3_000), ("MatMul", 7_000)]


def test_an_eager_op_of_a_profiler_that_names_only_the_local_call_is_that_op(tmp_path):
    events = [row for row in eager("MatMul", 0, 5) if row[0] != "EagerExecute"]
    profile = loaded(tmp_path, ("python", events))
    assert profile.ops().select("op", "cpu_time").rows() == [("MatMul", 5_000)]


def test_an_eager_op_that_makes_or_asks_for_input_is_input(tmp_path):
    events = [*eager("PrefetchDataset", 0, 5), *eager("MakeIterator", 30, 3), *eager("Relu", 60, 7)]
    ops = loaded(tmp_path, ("python", events)).ops().select("op", "direction").rows()
    assert ops == [("PrefetchDataset", "input"), ("MakeIterator", "input"), ("Relu", "forward")]


def test_an_eager_op_of_gradients_or_an_optimizer_has_that_direction(tmp_path):
    names = (
        "ReluGrad",
        "FusedBatchNormGradV3",
        "Conv2DBackpropFilter",
        "ResourceApplyAdam",
        "PreventGradient",
    )
    events = [row for number, name in enumerate(names) for row in eager(name, 30 * number, 5)]
    directions = loaded(tmp_path, ("python", events)).ops()["direction"].to_list()
    assert directions == ["backward", "backward", "backward", "optimizer", "forward"]


def test_a_function_that_is_called_eagerly_is_no_op_beside_its_nodes(tmp_path):
    events = [
        *eager("__inference_step_12", 0, 9, is_func=1),
        ("net/MatMul:MatMul", 4, 6, {}),
    ]
    assert loaded(tmp_path, ("python", events)).ops()["op"].to_list() == ["MatMul"]


def test_an_eager_op_that_tensorflow_names_itself_is_counted_once(tmp_path):
    profile = loaded(tmp_path, ("python", [*eager("MatMul", 0, 8), ("MatMul:MatMul", 4, 6, {})]))
    assert profile.ops().select("op", "cpu_time").rows() == [("MatMul", 6_000)]


def test_an_eager_op_that_runs_the_ops_of_a_graph_keeps_its_time(tmp_path):
    """The first iterator over a dataset runs the graph that makes the dataset."""
    inner = ("RangeDataset/_3:RangeDataset", 4, 1, {})
    profile = loaded(tmp_path, ("python", [*eager("MakeIterator", 0, 12), inner]))
    times = profile.op_totals().select("op", "self_time").cast({"op": pl.String}).rows()
    assert sorted(times) == [("MakeIterator", 11_000), ("RangeDataset", 1_000)]


def test_eager_ops_that_run_on_another_thread_are_counted_as_not_known(tmp_path):
    here, there = eager("MatMul", 0, 5)[:1], eager("MatMul", 10, 5)[2:]
    profile = loaded(tmp_path, ("python", [*here, *eager("Relu", 50, 3)]), ("async", there))
    assert profile.ops()["op"].to_list() == ["Relu"]
    notes = profile.trace["notes"].filter(pl.col("what").str.contains("eager ops that ran"))
    assert notes["how_many"].to_list() == [1]


def test_ops_of_tf_data_are_input_on_its_threads_and_where_it_hands_its_work_on(tmp_path):
    profile = loaded(
        tmp_path,
        ("tf_data_private_threadpool", [("GatherV2:GatherV2", 0, 4, {})]),
        (
            "tf_data_iterator_resource",
            [
                ("InstantiatedCapturedFunction::RunAsync", 0, 3, {}),
                ("FunctionRun", 1, 1, {"_pt": 2, "_p": 77}),
            ],
        ),
        (
            "tf_Compute",
            [
                ("ExecutorState::Process", 5, 9, {"_ct": 2, "_c": 77}),
                ("Slice:Slice", 6, 2, {}),
                ("net/MatMul:MatMul", 20, 2, {}),
            ],
        ),
    )
    directions = profile.ops().select("op", "direction").sort("op").rows()
    assert directions == [("GatherV2", "input"), ("MatMul", "forward"), ("Slice", "input")]


def handed():
    """A user's range around a jitted call, whose operation another thread runs after the range's end."""
    return (
        (
            "python",
            [
                ("inner", 0, 10, {}),
                ("PjitFunction(f)", 1, 8, {}),
                ("ParseArguments", 2, 1, {}),
                (RECORD, 4, 0, {"_pt": 15, "_p": 1}),
                ("PjitFunction(g)", 11, 3, {}),
                (RECORD, 12, 0, {"_pt": 15, "_p": 2}),
                ("save", 30, 2, {}),
            ],
        ),
        (
            "tf_XLAExecute",
            [
                (BEGUN, 20, 0, {"_ct": 15, "_c": 1}),
                ("dot.1", 21, 5, {"hlo_op": "dot.1", "hlo_module": "jit_f"}),
                (RECORD, 22, 0, {"_pt": 15, "_p": 3}),
                (OVER, 30, 0, {}),
                (BEGUN, 31, 0, {"_ct": 15, "_c": 2}),
                ("add.2", 32, 5, {"hlo_op": "add.2", "hlo_module": "jit_g"}),
                (OVER, 40, 0, {}),
            ],
        ),
        (
            "tf_XLAEigen",
            [
                (BEGUN, 23, 0, {"_ct": 15, "_c": 3}),  # its stop was not recorded
                ("mul.3", 24, 5, {"hlo_op": "mul.3", "hlo_module": "jit_f"}),
            ],
        ),
    )


def test_a_user_range_goes_with_the_work_that_other_threads_do_for_it(tmp_path):
    profile = loaded(tmp_path, *handed())
    totals = profile.range_totals().select("range", "calls", "device_time").rows()
    assert totals == [("inner", 2, 10_000), (None, 1, 5_000)]
    inner = profile.select(range="inner").ops()["op"].sort().to_list()
    assert inner == ["hlo::dot", "hlo::mul"]


def test_what_the_runtime_does_inside_or_beside_a_call_is_no_range_of_the_user(tmp_path):
    ranges = loaded(tmp_path, *handed()).trace["ranges"]
    user = ranges.filter(pl.col("domain") == "opscope.user")["text"].cast(pl.String)
    assert user.unique().to_list() == ["inner"]
    assert len(user) == 3  # its own thread's, and one on each thread that works for it


def test_tensorflows_own_wrappers_around_a_call_are_no_ranges_of_the_user(tmp_path):
    events = [
        ("load", 0, 60, {}),
        ("convert_to_tensor", 1, 40, {}),
        ("tf.constant", 2, 30, {}),
        *eager("_EagerConst", 3, 5),
        ("train_step", 100, 50, {"tf_function_call": "eager"}),
        *eager("__inference_step_12", 105, 9, is_func=1),
    ]
    ranges = loaded(tmp_path, ("python", events)).trace["ranges"]
    user = ranges.filter(pl.col("domain") == "opscope.user")["text"].cast(pl.String)
    assert user.to_list() == ["load"]


def test_an_operation_belongs_to_the_call_of_its_run_not_to_the_work_that_its_thread_went_on_from(
    tmp_path,
):
    calls = [
        ("first", 0, 10, {}),
        ("PjitFunction(f)", 1, 3, {}),
        (RECORD, 2, 0, {"_pt": 15, "_p": 1}),
    ]
    later = [("second", 12, 5, {}), ("PjitFunction(g)", 13, 3, {}), ("PjitFunction(f)", 18, 1, {})]
    ran = [
        (
            name,
            start,
            4,
            {"hlo_op": name, "hlo_module": module, "program_id": program, "run_id": run},
        )
        for name, start, module, program, run in (
            ("dot.1", 21, "jit_f", 1, 7),
            ("add.2", 26, "jit_g", 2, -5),
            ("dot.1", 31, "jit_f", 1, 8),
        )
    ]
    profile = loaded(
        tmp_path,
        ("python", [*calls, *later]),
        ("tf_XLAExecute", [(BEGUN, 20, 0, {"_ct": 15, "_c": 1}), *ran, (OVER, 40, 0, {})]),
    )
    assert profile.ops().select("op", "range").rows() == [
        ("hlo::dot", "first"),
        ("hlo::add", "second"),
        ("hlo::dot", None),
    ]


def operation(name, start, device):
    return name, start, 2, {"hlo_op": name, "hlo_module": "jit_f", "device_ordinal": device}


def test_operations_on_several_devices_of_the_cpu_name_theirs(tmp_path):
    profile = loaded(
        tmp_path,
        ("tf_XLAExecute", [operation("all-reduce.1", 1, 0), operation("all-reduce.1", 5, 0)]),
        ("tf_XLAExecute", [operation("all-reduce.1", 1, 3)]),
    )
    assert sorted(profile.ops()["device"].to_list()) == ["cpu:0", "cpu:0", "cpu:3"]
    assert profile.op_totals()["calls"].to_list() == [3]  # one op, wherever it ran


def test_operations_of_a_cpu_that_is_one_device_name_none(tmp_path):
    profile = loaded(tmp_path, ("tf_XLAExecute", [operation("dot.1", 1, 0)]))
    assert profile.ops()["device"].to_list() == [None]


def sort(start, length, run):
    return "sort.1", start, length, {"hlo_op": "sort.1", "hlo_module": "jit_f", "run_id": run}


def test_a_sort_that_copies_its_operands_first_runs_once(tmp_path, monkeypatch):
    text = "hlo::sort(f32[8], i32[8]) -> (f32[8], i32[8]) {dimensions=[0]}"
    monkeypatch.setattr(Programs, "text", lambda self, graph, operation, path: text)
    profile = loaded(
        tmp_path,
        ("tf_XLAExecute", [sort(0, 1, 5), sort(2, 1, 5), sort(4, 9, 5), sort(20, 9, 6)]),
    )
    ops = profile.ops().select("op", "inputs", "cpu_time").rows()
    assert ops == [
        ("hlo::copy", "f32[8]", 1_000),
        ("hlo::copy", "i32[8]", 1_000),
        ("hlo::sort", "f32[8], i32[8]", 9_000),
        ("hlo::sort", "f32[8], i32[8]", 9_000),
    ]


def test_a_loop_that_only_sorts_sorts_each_time(tmp_path, monkeypatch):
    text = "hlo::sort(f32[8]) -> f32[8] {dimensions=[0]}"
    monkeypatch.setattr(Programs, "text", lambda self, graph, operation, path: text)
    profile = loaded(tmp_path, ("tf_XLAExecute", [sort(10 * n, 9, 5) for n in range(4)]))
    assert profile.ops()["op"].to_list() == ["hlo::sort"] * 4
