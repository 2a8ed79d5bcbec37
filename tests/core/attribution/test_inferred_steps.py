"""Steps that nobody told: found where something repeats as a whole, and nowhere else."""

from __future__ import annotations

import json
from itertools import count

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests import traces

FORWARD, BACKWARD, UPDATE = "f", "b", "o"
_CATEGORIES = {FORWARD: "forward", BACKWARD: "backward", UPDATE: "optimizer", "-": "forward"}


def eager(steps: list[str]) -> list[dict]:
    """Ranges of steps written as ``f1 f2 b2 b1 o``: a forward op that is numbered, what differentiates it,
    the optimizer's; ``-print`` is any other. 10 ns each, 5 ns apart, 40 ns between steps."""
    rows, time, numbers, made = [], 0, count(), {}
    for step in steps:
        for op in step.split():
            kind, name = op[0], op[1:]
            seq = None
            if kind == FORWARD:
                seq = made[name] = next(numbers)
            elif kind == BACKWARD:
                seq = made.get(name)  # none: the recording began after it
            rows.append(
                {"process": 0, "thread": 1, "start": time, "end": time + 10, "domain": "opscope.x",
                 "category": _CATEGORIES[kind], "kind": "pushpop", "text": f"x::{kind}{name}(f32[4])",
                 "seq": seq, "fwd_thread": None if seq is None else 1}
            )  # fmt: skip
            time += 15
        time += 40
    return rows


def found(trace) -> pl.DataFrame:
    profile = Profile(trace)
    ranges = profile.attribution.trace["ranges"].filter(pl.col("category") == "step")
    assert len(ranges) == profile.summary()["steps"].item()
    return ranges.sort("start")


def ops_by_step(trace) -> list[list[str]]:
    ops = Profile(trace).ops().filter(pl.col("step").is_not_null()).sort("start")
    names = pl.col("op").str.strip_prefix("x::")
    return ops.group_by("step", maintain_order=True).agg(names)["op"].to_list()


STEP = "f1 f2 f3 b3 b2 b1 oA oB"


@pytest.mark.parametrize("many", [3, 4, 20])
def test_a_step_ends_with_the_optimizer(trace_of, many):
    trace = trace_of(ranges=eager([STEP] * many))
    assert ops_by_step(trace) == [STEP.split()] * many
    steps = found(trace)
    told = json.loads(steps["attrs"][0])
    assert told == {"inferred": True, "confidence": 0.99, "by": "optimizer"}
    assert steps["text"].to_list() == [f"step {n}" for n in range(many)]


def test_what_a_graph_counts_at_any_time_ends_no_step(trace_of):
    """MindSpore's graphs count steps, and raise Adam's factors, before the gradients or after them."""
    early, late = "oCount f1 oPower f2 b2 b1 oAdam oAdam", "f1 f2 b2 oPower b1 oAdam oCount oAdam"
    steps = [early, late, early, early, late, late, early, late, early]
    trace = trace_of(ranges=unpaired(steps))
    assert [ops.count("oAdam") for ops in ops_by_step(trace)] == [2] * 9
    assert len(found(trace)) == 9


def test_weights_that_a_graph_updates_amid_the_gradients_are_of_one_step(trace_of):
    amid, after = "oCount f1 f2 b2 oA b1 oB", "f1 f2 b2 b1 oCount oA oB"
    trace = trace_of(ranges=unpaired([amid, *[after] * 3, "f1 f2 b2 oB b1 oCount oA", after]))
    assert [len(ops) for ops in ops_by_step(trace)] == [7] * 6
    assert len(found(trace)) == 6


def test_what_comes_before_the_first_step_is_none_of_it(trace_of):
    trace = trace_of(ranges=eager(["-init -init", *[STEP] * 5]))
    assert ops_by_step(trace) == [STEP.split()] * 5


def unpaired(steps: list[str]) -> list[dict]:
    """As ``eager``, where nothing says which op each backward op differentiates."""
    return [{**row, "seq": None, "fwd_thread": None} for row in eager(steps)]


@pytest.mark.parametrize("many", [3, 5])
def test_a_recording_that_begins_with_a_step_has_all_of_it_without_pairs(trace_of, many):
    assert ops_by_step(trace_of(ranges=unpaired([STEP] * many))) == [STEP.split()] * many


@pytest.mark.parametrize("first", ["f3 b3 b2 b1 oA oB", "-init f1 f2 f3 b3 b2 b1 oA oB"])
def test_without_pairs_a_first_step_that_differs_is_none(trace_of, first):
    """It was cut, or other work came before it: where it began is not known."""
    assert ops_by_step(trace_of(ranges=unpaired([first, *[STEP] * 4]))) == [STEP.split()] * 4


def test_gradients_that_are_accumulated_make_one_step(trace_of):
    step = "f1 b1 f1 b1 f1 b1 oA"
    assert ops_by_step(trace_of(ranges=eager([step] * 6))) == [step.split()] * 6


def test_two_optimizers_that_take_turns_make_one_step(trace_of):
    step = "f1 b1 oD f2 b2 oG"
    assert ops_by_step(trace_of(ranges=eager([step] * 6))) == [step.split()] * 6


def test_a_check_every_so_often_changes_no_step_that_the_optimizer_ends(trace_of):
    steps = [STEP if n % 5 else f"{STEP} -check" for n in range(20)]
    assert len(found(trace_of(ranges=eager(steps)))) == 20


@pytest.mark.parametrize(
    "steps",
    [
        [STEP] * 2,  # no repetition
        ["f1 b1 oA", "f1 b1 oB", "f1 b1 oA", "f1 b1 oC", "f1 b1 oB"],  # optimizers in no order
        ["-a -b -c"] * 9,  # nothing is trained
        ["f1 f2 -loss"] * 9,
        ["oA oB"] * 9,  # an optimizer that nothing precedes
        # no optimizer is known: what is updated every so often may be the step
        ["f1 b1", "f1 b1", "f1 b1", "f1 b1 -update"] * 5,
        ["f1 b1"] * 19 + ["f1 b1 -log"] + ["f1 b1"] * 19 + ["f1 b1 -log"] + ["f1 b1"],
        ["f1 b1", "f2 b2"] * 6,  # two that take turns, and no optimizer known
    ],
)
def test_where_it_is_not_certain_there_are_none(trace_of, steps):
    assert found(trace_of(ranges=eager(steps))).is_empty()


def test_iterations_that_are_all_alike_are_steps_without_an_optimizer(trace_of):
    step = "f1 f2 b2 b1 -mul -assign"
    trace = trace_of(ranges=eager(["f1 b1 -compile", *[step] * 6]))
    assert ops_by_step(trace) == [["f1", "b1", "-compile"], *[step.split()] * 6]
    told = json.loads(found(trace)["attrs"][0])
    assert told == {"inferred": True, "confidence": 0.833, "by": "iteration"}


@pytest.mark.parametrize("told", ["step", "inferred"])
def test_a_process_that_tells_steps_is_left_alone(trace_of, told):
    step = {"process": 0, "thread": 1, "start": 0, "end": 500, "domain": "opscope.step",
            "category": "step", "kind": "pushpop", "text": "step 7"}  # fmt: skip
    ranges = [*eager([STEP] * 5), *([step] if told == "step" else [])]
    other = [{**row, "process": 1} for row in eager([STEP] * 5)]
    steps = found(trace_of(ranges=ranges + other))
    assert steps.filter(process=0)["attrs"].is_null().all() == (told == "step")
    assert len(steps.filter(process=1)) == 5


def compiled(runs: list[tuple[str, str]]) -> list[dict]:
    """Ranges of runs (function, its operations as in ``eager``) that XLA compiled."""
    paths = {FORWARD: "jvp(net)/f", BACKWARD: "transpose(jvp(net))/b", UPDATE: "adam/o", "-": "x"}
    rows, time = [], 0
    for function, ops in runs:
        for op in ops.split():
            path = f"jit({function})/{paths[op[0]]}/{op[1:]}"
            text = f'hlo::fusion(f32[4]) -> f32[4] {{op_name="{path}"}}'
            rows.append({"process": 0, "thread": 1, "start": time, "end": time + 10,
                         "domain": "xla", "kind": "pushpop", "text": text})  # fmt: skip
            time += 15
    return rows


TRAIN = ("step", "fa fb bb o1 ba o2")


def test_runs_of_a_compiled_function_with_the_optimizer_are_steps(trace_of):
    runs = [("init", "-a"), *[("batch", "-x"), TRAIN] * 7]
    steps = found(trace_of(ranges=compiled(runs)))
    assert len(steps) == 7
    assert json.loads(steps["attrs"][0])["by"] == "function"
    begins = [
        row["start"] for row in compiled(runs) if row["text"].endswith('step)/jvp(net)/f/a"}')
    ]
    assert steps["start"].to_list() == begins


def test_a_loop_inside_a_compiled_function_makes_no_steps(trace_of):
    """Of a scan each operation runs often in a run."""
    run = ("step", "fa " + "fl bl " * 12 + "o1")
    assert len(found(trace_of(ranges=compiled([run] * 5)))) == 5


def test_another_function_every_so_often_changes_none(trace_of):
    runs = [run for n in range(20) for run in ([TRAIN, ("eval", "fa")] if n % 10 == 9 else [TRAIN])]
    assert len(found(trace_of(ranges=compiled(runs)))) == 20


def test_functions_that_take_turns_are_one_step(trace_of):
    runs = [("critic", "fa ba o1"), ("actor", "fx bx o2")] * 6
    assert len(found(trace_of(ranges=compiled(runs)))) == 6


@pytest.mark.parametrize(
    "runs",
    [
        # gradients in one function, an update that nothing tells as such in another
        [*[("grad", "fa ba")] * 4, ("apply", "-u")] * 6,
        [TRAIN] * 2,
        [("infer", "-a -b")] * 3,  # too few of what is not trained
        [("one", "fa ba o1"), ("two", "fx bx o2"), ("two", "fx bx o2")] * 6,  # not in turns
    ],
)
def test_where_functions_do_not_tell_there_are_none(trace_of, runs):
    assert found(trace_of(ranges=compiled(runs))).is_empty()


@given(
    body=st.lists(st.sampled_from("abcde"), min_size=1, max_size=8),
    updates=st.integers(1, 4),
    micro=st.integers(1, 4),
    many=st.integers(3, 12),
    more=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_what_the_optimizer_ends_is_found_whatever_a_step_holds(body, updates, micro, many, more):
    forward = " ".join(f"f{name}{n}" for n, name in enumerate(body))
    backward = " ".join(f"b{name}{n}" for n, name in reversed(list(enumerate(body))))
    update = " ".join(f"o{n}" for n in range(updates))
    steps = [
        " ".join([f"{forward} {backward}"] * micro + [update] + ["-log"] * extra)
        for extra in more[:many]
    ]
    rows = eager(steps)
    schema = dict.fromkeys(("start", "end", "seq", "fwd_thread", "thread"), pl.Int64)
    frame = pl.DataFrame(rows, schema_overrides=schema).with_row_index("id")
    trace = Trace.of({"ranges": frame.with_columns(pl.col("id").cast(pl.Int64))})
    ranges = found(trace)
    assert len(ranges) == many
    # what follows the optimizer's last op, and does not come before the first step, is the same step's
    ends = [row["end"] for row, after in zip(rows, [*rows[1:], None], strict=True)
            if row["category"] == "optimizer" and (after is None or after["category"] != "optimizer")]  # fmt: skip
    later = [row["start"] for row in rows if row["text"] == f"x::f{body[0]}0(f32[4])"][::micro]
    assert all(end <= own for end, own in zip(ends, ranges["end"], strict=True))
    assert all(own <= start for own, start in zip(ranges["end"], later[1:], strict=False))
    assert ranges["start"].to_list()[1:] == ranges["end"].to_list()[:-1]


@pytest.mark.parametrize(
    ("name", "many"),
    [
        ("ddp_memory_v100", 5), ("ddp_rank3of8_a100_stacks", 6), ("nccl_meta", 3),
        ("resnet50_nw0_step_span1.pt.trace", 6), ("resnet50_nw4_step_span1.pt.trace", 6),
        ("vision_transformer_rank0", 5), ("sampled_rank0", 2), ("timesformer_h100", 1),
        ("qwen1.5_0.5b_h100", 1), ("triton_example", 1),
    ],
)  # fmt: skip
def test_the_steps_of_real_traces_are_found_when_they_are_hidden(shared, name, many):
    """Each found step is nine tenths of a true one, so none is false; fewer than three are none."""
    trace = traces.load(shared / f"kineto/{name}.json.gz").trace
    is_step = (trace["ranges"]["category"] == "step").fill_null(False)
    told = trace["ranges"].filter(is_step).sort("start")
    assert len(told) == many
    ranges = found(trace.replace(ranges=trace["ranges"].filter(~is_step)))
    assert len(ranges) == (many if many >= 3 else 0)
    for ours, theirs in zip(ranges.rows(named=True), told.rows(named=True), strict=False):
        shared_time = min(ours["end"], theirs["end"]) - max(ours["start"], theirs["start"])
        assert shared_time > 0.8 * (ours["end"] - ours["start"])
        assert shared_time > 0.8 * (theirs["end"] - theirs["start"])


@pytest.mark.parametrize(
    "name",
    ["kineto/vllm_decode_cudagraph_capture.json.gz", "kineto/alexnet_cuda_sync_a100.json.gz",
     "nsys/fsdp_h100x2_2026.sqlite", "nvprof/language_model.sqlite"],
)  # fmt: skip
def test_real_traces_of_one_iteration_or_of_none_have_no_steps(shared, name):
    assert found(traces.load(shared / name).trace).is_empty()


def graph_run(nodes: list[str], times: int) -> list[dict]:
    return [
        {"process": 0, "thread": 1, "start": 20 * n, "end": 20 * n + 10, "domain": "opscope.x",
         "category": "forward", "kind": "pushpop", "text": f'x::op(f32[4]) {{node="{node}"}}'}
        for n, node in enumerate(nodes * times)
    ]  # fmt: skip


def test_the_counter_of_tensorflow_ends_steps(trace_of):
    nodes = ["train/a", "train/global_step/read", "train/b", "train/global_step/add"]
    steps = found(trace_of(ranges=graph_run(nodes, 4)))
    assert [json.loads(one)["by"] for one in steps["attrs"]] == ["global_step"] * 4
    assert steps["end"].to_list() == [70, 150, 230, 310]
    assert steps["start"].to_list() == [0, 70, 150, 230]


@pytest.mark.parametrize("many", [3, 4, 9])
def test_what_is_not_trained_has_steps_where_what_repeats_names_its_place(trace_of, many):
    """Three times may be chance; four of a graph's nodes are runs of it."""
    steps = found(trace_of(ranges=graph_run(["a", "b", "b/c"], many)))
    assert len(steps) == (many if many > 3 else 0)
    if many > 3:
        told = json.loads(steps["attrs"][0])
        assert told["by"] == "sequence"
        assert told["confidence"] >= 0.875


def test_runs_of_a_compiled_function_that_trains_nothing_are_steps(trace_of):
    assert len(found(trace_of(ranges=compiled([("infer", "-a -b")] * 9)))) == 9


def test_a_loop_inside_one_run_of_a_function_that_trains_nothing_makes_no_steps(trace_of):
    run = ("infer", "-a " + "-l -m " * 12 + "-b")
    assert found(trace_of(ranges=compiled([run]))).is_empty()
    assert len(found(trace_of(ranges=compiled([run] * 5)))) == 5


def test_a_layer_that_is_called_again_inside_another_makes_no_steps(trace_of):
    """A recurrent cell runs once for each word; the model around it runs once."""
    one = {"process": 0, "thread": 1, "domain": "opscope.x", "kind": "pushpop"}
    rows = [{**one, "category": "layer", "text": "model", "start": 0, "end": 2000}]
    for n in range(20):
        rows.append(
            {
                **one,
                "category": "layer",
                "text": "model.cell",
                "start": 100 * n,
                "end": 100 * n + 90,
            }
        )
        rows.append(
            {
                **one,
                "category": "forward",
                "text": "x::mm()",
                "start": 100 * n + 5,
                "end": 100 * n + 9,
            }
        )
    assert found(trace_of(ranges=rows)).is_empty()


def test_threads_that_do_other_work_in_each_are_doubted(trace_of):
    rows = graph_run(["a", "b", "c"], 8)
    other = {**rows[0], "thread": 2}
    noise = [{**other, "start": 3 * n, "end": 3 * n + 1, "text": f"y::n{n}()"} for n in range(37)]
    assert len(found(trace_of(ranges=rows))) == 8
    assert found(trace_of(ranges=rows + noise)).is_empty()


@pytest.mark.parametrize(
    "steps", [["oA", "f1 b1 oA", "f1 b1"], ["oA", "f1 b1"], ["oA oB", "f1 b1 oB oA"]]
)
def test_a_short_recording_that_begins_with_an_optimizer_has_no_steps(trace_of, steps):
    assert found(trace_of(ranges=eager(steps))).is_empty()


def test_optimizers_in_no_order_have_no_steps_whatever_ran_first(trace_of):
    body = ["oD", "oD", "oG", "oD", "oD", "oD", "oG", "oD", "oG", "oD"]
    steps = ["oG", *(f"f1 b1 {optimizer}" for optimizer in body)]
    assert found(trace_of(ranges=eager(steps[1:]))).is_empty()
    assert found(trace_of(ranges=eager(steps))).is_empty()
