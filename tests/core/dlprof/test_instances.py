"""Which ops a trace has for DLProf, and which calls, kernels and copies belong to each."""

from __future__ import annotations

import pytest

from opscope.core.dlprof import tables
from opscope.core.dlprof.instances import MOST_OF_A_CALL
from opscope.profile import Profile

MAIN = {"process": 0, "thread": 1}
PUSHED = {**MAIN, "kind": "pushpop"}


def op(start, end, text, **more):
    return {**PUSHED, "domain": "opscope.torch", "start": start, "end": end, "text": text, **more}


def call_of(start, end, correlation, name="cudaLaunchKernel", **more):
    return {**MAIN, "start": start, "end": end, "name": name, "correlation": correlation, **more}


def kernel(start, end, correlation, device=0, name="void k<float>(int)"):
    return {
        "process": 0, "device": device, "start": start, "end": end, "name": name,
        "correlation": correlation,
    }  # fmt: skip


@pytest.fixture
def model(trace_of):
    def make(**given):
        return Profile(trace_of(processes=[{"process": 0}], **given)).dlprof.model()

    return make


def detail(model):
    return {row["Op ID"]: row for row in tables.detail(model).to_dicts()}


def test_the_outermost_op_has_the_work_of_the_ops_inside_it(model):
    found = detail(
        model(
            ranges=[op(0, 100, "aten::linear(f32[4,8], f32[2,8])"), op(10, 90, "aten::addmm")],
            calls=[call_of(20, 30, 1)],
            kernels=[kernel(40, 60, 1)],
        )
    )
    assert list(found) == ["LINEAR_1"]
    row = found["LINEAR_1"]
    assert row["Op Name"] == "/linear"
    assert (row["Total CPU Time (ns)"], row["Total CPU Overhead (ns)"]) == (100, 90)
    assert (row["Total GPU Time (ns)"], row["Total GPU Idle (ns)"]) == (20, 0)
    assert row["TC Eligible"] == "yes"


def test_equal_calls_are_one_op_and_other_shapes_another(model):
    found = detail(
        model(
            ranges=[
                op(0, 10, "aten::relu(f32[4])"),
                op(20, 50, "aten::relu(f32[4])"),
                op(60, 70, "aten::relu(f32[5])"),
            ]
        )
    )
    assert {one: row["No. Calls"] for one, row in found.items()} == {"RELU_1": 2, "RELU_2": 1}
    row = found["RELU_1"]
    assert (row["Avg. CPU Time (ns)"], row["Min CPU Time (ns)"], row["Max CPU Time (ns)"]) == (
        20.0, 10, 30,
    )  # fmt: skip


def test_a_backward_op_has_the_name_of_the_marker_around_its_forward_op_and_is_another_op(model):
    pushed = {**PUSHED, "domain": None}
    marker = str({"traceMarker": ["net.py:7"], "funcStack": "/<module>/Net::forward/relu(2)"})
    call = str(
        {
            "mod": "torch",
            "op": "relu",
            "args": [{"name": "", "type": "tensor", "shape": (4,), "dtype": "float16"}],
        }
    )
    made = model(
        ranges=[
            {**pushed, "start": 0, "end": 20, "text": marker},
            {**pushed, "start": 1, "end": 19, "text": call},
            {**pushed, "start": 5, "end": 15, "text": "aten::relu, seq = 7"},
            {**pushed, "start": 30, "end": 50, "text": "ReluBackward0, seq = 7", "thread": 2},
        ],
        calls=[{**call_of(35, 36, 1), "thread": 2}],
        kernels=[kernel(40, 44, 1)],
    )
    found = detail(made)
    assert {
        one: (row["Direction"], row["Op Name"], row["Op Type"], row["Total GPU Time (ns)"])
        for one, row in found.items()
    } == {
        "RELU_1": ("fprop", "/module/Net::forward/relu[2]", "relu", 0),
        "RELU_2": ("bprop", "/module/Net::forward/relu[2]", "relu", 4),
    }
    assert found["RELU_2"]["Stack Trace"] == "net.py:7"
    assert found["RELU_2"]["Data Type"] == "float16"


def test_a_call_outside_all_ops_is_an_op_of_its_own(model):
    found = detail(
        model(
            ranges=[op(0, 10, "aten::relu(f32[4])")],
            calls=[
                call_of(20, 25, 1, "cudaDeviceSynchronize"),
                call_of(30, 37, 2, "cudaDeviceSynchronize"),
            ],
        )
    )
    names = {one: row["Op Name"] for one, row in found.items() if one != "RELU_1"}
    assert names == dict.fromkeys(
        ("CUDADEVICESYNCHRONIZE_1", "CUDADEVICESYNCHRONIZE_2"),
        "unassociated_cudaDeviceSynchronize",
    )
    row = found["CUDADEVICESYNCHRONIZE_2"]
    assert (row["Total CPU Time (ns)"], row["Total CPU Overhead (ns)"]) == (7, 0)


def test_a_call_that_is_made_very_often_outside_ops_is_one_op(model):
    many = MOST_OF_A_CALL + 1
    found = detail(
        model(
            calls=[call_of(3 * i, 3 * i + 1, i) for i in range(many)],
            kernels=[kernel(3 * i + 1, 3 * i + 2, i) for i in range(many)],
        )
    )
    assert list(found) == ["CUDALAUNCHKERNEL_1"]
    row = found["CUDALAUNCHKERNEL_1"]
    assert (row["No. Calls"], row["Total GPU Time (ns)"]) == (many, many)


def test_a_kernel_without_a_launch_is_unassociated_by_its_name(model):
    found = detail(model(ranges=[op(0, 5, "aten::relu(f32[4])")], kernels=[kernel(10, 30, 9)]))
    row = found["K_1"]
    assert (row["Op Name"], row["Total GPU Time (ns)"]) == ("unassociated_k", 20)
    assert row["Total CPU Time (ns)"] is None


def test_kernels_of_two_devices_add_up_though_they_overlap(model):
    made = model(
        ranges=[op(0, 100, "aten::relu(f32[4])")],
        calls=[call_of(1, 2, 1), call_of(3, 4, 2), call_of(5, 6, 3)],
        kernels=[kernel(10, 30, 1), kernel(10, 30, 2, device=1), kernel(20, 40, 3)],
    )
    row = detail(made)["RELU_1"]
    assert row["Total GPU Time (ns)"] == 30 + 20
    assert row["Accumulated GPU Time (ns)"] == 60


def test_every_kernel_is_in_exactly_one_row_of_the_iteration_report(model):
    made = model(
        ranges=[op(0, 10, "aten::relu(f32[4])"), op(20, 30, "aten::mm(f32[2,2], f32[2,2])")],
        calls=[call_of(1, 2, 1), call_of(21, 22, 2), call_of(50, 51, 3)],
        kernels=[kernel(5, 9, 1), kernel(25, 45, 2), kernel(55, 60, 3), kernel(70, 71, 99)],
    )
    frame = tables.iteration(made)
    assert sorted(frame["GPU Start Time (ns)"]) == [5, 25, 55, 70]
    accumulated = tables.detail(made)["Accumulated GPU Time (ns)"].sum()
    assert frame["GPU Duration (ns)"].sum() == accumulated == 4 + 20 + 5 + 1


def test_without_kernels_gpu_times_are_unknown_and_the_reason_is_told(model):
    made = model(ranges=[op(0, 10, "aten::relu(f32[4])")])
    row = detail(made)["RELU_1"]
    assert row["Total GPU Time (ns)"] is None
    assert row["Using TC"] is None
    assert row["Total CPU Overhead (ns)"] is None
    assert any(one.startswith("GPU times are empty") for one in made.source.reasons)


def test_without_a_gpu_an_ops_cost_is_still_told(model):
    row = detail(model(ranges=[op(0, 1000, "aten::mm(f32[2,3], f32[3,5]) -> f32[2,5]")]))["MM_1"]
    assert row["FLOPs"] == 2 * 2 * 3 * 5


def test_iterations_divide_the_instances_and_a_range_chooses_among_them(trace_of):
    ranges = []
    for step in range(3):
        begin = 100 * step
        ranges += [
            op(begin, begin + 10, "aten::relu(f32[4])"),
            op(begin + 20, begin + 50, "aten::mm(f32[2,2], f32[2,2])"),
        ]
    profile = Profile(trace_of(processes=[{"process": 0}], ranges=ranges))
    whole = profile.dlprof.model("MM_1")
    assert len(whole.found.table) == 4
    assert detail(whole)["RELU_1"]["No. Calls"] == 3
    part = profile.dlprof.model("MM_1", 1, 1)
    assert {one: row["No. Calls"] for one, row in detail(part).items()} == {"RELU_1": 1, "MM_1": 1}
    groups = tables.group_node(whole).to_dicts()
    row = next(one for one in groups if one["Name"] == "/")
    assert (row["Num Calls Aggregated"], row["Total CPU Time (ns)"]) == (6, 120)
    assert (row["Min CPU Time (ns)"], row["Max CPU Time (ns)"]) == (40, 40)


def test_ranges_of_a_named_domain_stand_for_ops_in_its_reports(model, trace_of):
    user = {**PUSHED, "domain": "pipeline"}
    profile = Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[
                {**user, "start": 0, "end": 100, "text": "batch"},
                {**user, "start": 10, "end": 40, "text": "decode"},
                op(50, 60, "aten::relu(f32[4])"),
            ],
            calls=[call_of(20, 22, 1), call_of(52, 54, 2)],
            kernels=[kernel(30, 35, 1), kernel(60, 70, 2)],
        )
    )
    assert profile.dlprof.domains == ["pipeline"]
    found = detail(profile.dlprof.model(domain="pipeline"))
    assert {
        one: (row["Op Name"], row["Total CPU Time (ns)"], row["Total GPU Time (ns)"])
        for one, row in found.items()
    } == {
        "BATCH_1": ("/batch", 70, 10),
        "DECODE_1": ("/batch/decode", 30, 5),
    }
    assert "RELU_1" in detail(profile.dlprof.model())


@pytest.mark.parametrize("texts", [("batch", "decode", "resize"), ("resize", "decode", "batch")])
def test_ranges_of_a_domain_that_begin_together_nest_by_their_ends(trace_of, texts):
    """Whichever was recorded first: a range is often written when it ends, the inner one first."""
    ends = {"batch": 90, "decode": 60, "resize": 30}
    ranges = [
        {**PUSHED, "domain": "pipeline", "start": 10, "end": ends[text], "text": text}
        for text in texts
    ]
    profile = Profile(trace_of(processes=[{"process": 0}], ranges=ranges))
    rows = detail(profile.dlprof.model(domain="pipeline"))
    assert {row["Op Name"]: row["Total CPU Time (ns)"] for row in rows.values()} == {
        "/batch": 30,
        "/batch/decode": 30,
        "/batch/decode/resize": 20,
    }


def marked(start, end, module, name, stack):
    """A call as ``nvidia_dlprof_pytorch_nvtx`` marks it: the call trace, and the call in it."""
    arguments = [{"name": "", "type": "tensor", "shape": (8, 8), "dtype": "float16"}]
    texts = (str({"traceMarker": ["net.py:9"], "funcStack": stack}),
             str({"mod": module, "op": name, "args": arguments}))  # fmt: skip
    return [
        {**PUSHED, "domain": None, "start": start + n, "end": end - n, "text": text}
        for n, text in enumerate(texts)
    ]


def test_without_emit_nvtx_the_backward_pass_is_one_op(model):
    """Section 12.3 of DLProf's guide: its kernels come from autograd's thread, on which no range is."""
    ranges, calls, kernels = [], [], []

    def launch(thread, start, length):
        number = len(calls) + 1
        calls.append({**call_of(start, start + 2, number), "thread": thread})
        kernels.append(kernel(10 * start, 10 * start + length, number))

    for step in (0, 1000):
        ranges += marked(step, step + 50, "torch", "mm", "/Net::forward/mm")
        ranges += marked(step + 100, step + 300, "Tensor", "backward", "/train/backward")
        launch(1, step + 10, 7)
        launch(2, step + 120, 11)
        launch(2, step + 150, 13)
        launch(2, step + 400, 17)  # after the pass: it is nobody's
    pinned = {**call_of(130, 131, None, name="cudaHostAlloc"), "thread": 3}
    found = detail(model(ranges=ranges, calls=[*calls, pinned], kernels=kernels))
    (backward,) = [row for row in found.values() if row["Op Type"] == "backward"]
    assert backward["Op Name"] == "/train/backward"
    assert (backward["No. Calls"], backward["Direction"]) == (2, "bprop")
    assert backward["Total GPU Time (ns)"] == 2 * (11 + 13)
    assert backward["Mapped GPU Time (ns)"] == 2 * (1500 + 13 - 1200)
    assert found["MM_1"]["Total GPU Time (ns)"] == 2 * 7
    nobodys = [row for name, row in found.items() if row["Op Name"].startswith("unassociated")]
    assert sum(row["Total GPU Time (ns)"] for row in nobodys) == 2 * 17
    assert any("cudaHostAlloc" in row["Op Name"] for row in nobodys)


def test_with_emit_nvtx_each_backward_op_keeps_its_kernels(model):
    node = {
        **PUSHED,
        "thread": 2,
        "domain": None,
        "start": 120,
        "end": 180,
        "text": "MmBackward0, seq = 4",
    }
    found = detail(
        model(
            ranges=[*marked(100, 300, "Tensor", "backward", "/train/backward"), node],
            calls=[{**call_of(130, 132, 1), "thread": 2}, {**call_of(200, 202, 2), "thread": 2}],
            kernels=[kernel(400, 410, 1), kernel(420, 425, 2)],
        )
    )
    totals = {row["Op Type"]: row["Total GPU Time (ns)"] for row in found.values()}
    assert totals["backward"] == 0
    assert totals["cudaLaunchKernel"] == 5


def test_mapped_time_spans_the_kernels_of_a_call_on_all_devices(model):
    found = detail(
        model(
            ranges=[
                op(0, 100, "aten::mm(f16[8,8], f16[8,8])"),
                op(200, 300, "aten::mm(f16[8,8], f16[8,8])"),
            ],
            calls=[call_of(10, 12, 1), call_of(20, 22, 2), call_of(210, 212, 3)],
            kernels=[kernel(40, 60, 1), kernel(90, 95, 2, device=1), kernel(400, 430, 3)],
        )
    )
    row = found["MM_1"]
    assert row["Total GPU Time (ns)"] == 20 + 5 + 30
    assert row["Mapped GPU Time (ns)"] == (95 - 40) + (430 - 400)


def test_a_type_of_ops_tells_of_tensor_cores(model):
    name = "volta_fp16_s884gemm_fp16_128x64_nn"
    table = tables.op_type(
        model(
            ranges=[op(0, 10, "aten::mm(f16[8,8], f16[8,8])"), op(20, 30, "aten::mm(f32[4,4], f32[4,4])"),
                    op(40, 50, "aten::relu(f32[4])")],
            calls=[call_of(5, 6, 1), call_of(25, 26, 2), call_of(45, 46, 3)],
            kernels=[kernel(100, 110, 1, name=name), kernel(120, 130, 2), kernel(140, 150, 3)],
        )
    )  # fmt: skip
    rows = {
        row["Op Type"]: (row["# Ops"], row["TC Eligible"], row["Using TC"])
        for row in table.to_dicts()
    }
    assert rows["mm"] == (2, "yes", "yes")
    assert rows["relu"][:2] == (1, "no")
    columns = table.columns
    # behind the columns of DLProf 1.8's file, which has neither
    assert columns.index("TC Eligible") == columns.index("Max GPU Idle (ns)") + 1
