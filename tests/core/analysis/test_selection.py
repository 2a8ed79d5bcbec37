"""Selections: steps, devices, ranks, layers and user ranges of a profile."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests import traces

#: What a kernel has in common with itself in the whole profile; ids of ops are kept too.
SAME = [
    "process",
    "device",
    "stream",
    "start",
    "end",
    "name",
    "op_id",
    "op",
    "op_type",
    "direction",
    "seq",
    "layer",
    "step",
    "source",
    "range",
    "inputs",
    "outputs",
    "flops",
    "bytes",
    "reason",
]
MM = "aten::mm(f32[8,4], f32[4,2]) -> f32[8,2]"
LAYERS = ["net.encoder.0", "net.encoder.1", "net.head"]


class Program:
    """A made-up training: every step has a forward on thread 1 and a backward on thread 2, by layers."""

    def __init__(self, *, steps: int = 3, ranks: int = 1, kernels: bool = True) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {"ranges": [], "calls": [], "kernels": []}
        self.ids = 0
        for rank in range(ranks):
            for step in range(steps):
                self.step(rank, step, kernels)
        self.ranks = ranks
        self.kernels = kernels

    def range(self, process, thread, start, end, category, text, domain="opscope.torch", seq=None):
        row = {
            "process": process,
            "thread": thread,
            "start": start,
            "end": end,
            "domain": domain,
            "category": category,
            "text": text,
            "seq": seq,
            "fwd_thread": None if seq is None else 1,
            "kind": "pushpop",
        }
        self.rows["ranges"].append(row)

    def launch(self, process, thread, at, took, device=0, stray=False):
        self.ids += 1
        self.rows["calls"].append(
            {
                "process": process,
                "thread": thread,
                "start": at,
                "end": at + 10,
                "name": "cudaLaunchKernel",
                "correlation": self.ids,
            }
        )
        self.rows["kernels"].append(
            {
                "process": process,
                "device": device,
                "stream": 7,
                "start": at + 50,
                "end": at + 50 + took,
                "name": f"k{'' if stray else device}",
                "correlation": self.ids,
            }
        )

    def step(self, process, step, kernels):
        at = step * 100_000
        self.range(process, 1, at, at + 90_000, "step", f"step {step}", "opscope.step")
        self.range(process, 1, at + 1_000, at + 80_000, "", "my loop", "mine")
        for number, layer in enumerate(LAYERS):
            begin = at + 2_000 + number * 10_000
            seq = step * 10 + number
            self.range(process, 1, begin, begin + 9_000, "layer", layer)
            if number == 1:
                self.range(process, 1, begin + 100, begin + 8_000, "", "attention", "mine")
            self.range(process, 1, begin + 1_000, begin + 4_000, "forward", MM, seq=seq)
            back = at + 70_000 - number * 10_000
            self.range(process, 2, back, back + 5_000, "backward", "MmBackward0()", seq=seq)
            self.range(process, 2, back + 500, back + 4_000, "backward", MM)
            if kernels:
                self.launch(process, 1, begin + 1_100, 700 + number, device=number % 2)
                self.launch(process, 2, back + 600, 900 + number, device=number % 2)
        if kernels:
            self.launch(process, 1, at + 85_000, 333, stray=True)  # in the step, outside any op
            self.launch(process, 1, at + 95_000, 77, stray=True)  # outside any step

    def profile(self) -> Profile:
        kind = {"process": pl.Int32, "device": pl.Int32}
        tables = {
            "processes": pl.DataFrame(
                {"process": range(self.ranks), "rank": range(self.ranks), "pid": range(self.ranks)}
            ),
            "ranges": pl.DataFrame(self.rows["ranges"]).with_row_index("id"),
        }
        if self.kernels:
            tables |= {
                name: pl.DataFrame(self.rows[name]).cast(
                    {k: v for k, v in kind.items() if k in self.rows[name][0]}
                )
                for name in ("calls", "kernels")
            }
        return Profile(Trace.of(tables, {"format": "made", "paths": ["made"]}))


def test_steps_keep_their_kernels_as_they_are_in_the_whole() -> None:
    whole = Program().profile()
    part = whole.select(steps=(1, 1))
    assert_frame_equal(part.kernels()[SAME], whole.kernels().filter(pl.col("step") == 1)[SAME])
    row = part.summary().row(0, named=True)
    assert (row["steps"], row["kernels"], row["wall_time"]) == (1, 7, 90_000)
    assert set(part.ops()["step"]) == {1}
    assert part.selected == "step 1"


def test_open_ends_select_the_first_and_the_last_steps() -> None:
    whole = Program(steps=4).profile()
    assert set(whole.select(steps=(2, None)).ops()["step"]) == {2, 3}
    assert set(whole.select(steps=(None, 1)).ops()["step"]) == {0, 1}
    assert set(whole.select(steps=3).ops()["step"]) == {3}


def test_a_layer_has_its_backward_ops_and_all_layers_inside_it() -> None:
    whole = Program().profile()
    part = whole.select(layer="net.encoder")
    kernels = whole.kernels()
    wanted = pl.col("layer").str.starts_with("net.encoder").fill_null(False)
    assert_frame_equal(part.kernels()[SAME], kernels.filter(wanted)[SAME])
    assert set(part.kernels()["direction"]) == {"forward", "backward"}
    assert_frame_equal(whole.select(layer="*.encoder.?").kernels(), part.kernels())


def test_a_user_range_has_the_work_of_all_ranges_inside_it() -> None:
    whole = Program().profile()
    assert set(whole.select(range="attention").kernels()["layer"]) == {"net.encoder.1"}
    everything = whole.select(range="my loop").kernels()
    assert everything.filter(pl.col("op").is_not_null()).height == 18
    assert "attention" in everything["range"].to_list()


def test_an_op_keeps_the_layer_and_cost_of_a_forward_op_that_is_left_out() -> None:
    program = Program()
    program.range(0, 2, 40_000, 90_000, "", "only backward", "mine")
    whole = program.profile()
    part = whole.select(range="only backward", steps=0)
    assert set(part.kernels()["direction"]) == {"backward"}
    mine = whole.kernels().filter(pl.col("op_id").is_in(part.kernels()["op_id"].to_list()))
    assert_frame_equal(part.kernels()[SAME], mine[SAME])
    assert part.kernels()["layer"].null_count() == 0
    assert part.kernels()["flops"].null_count() == 0
    forwards = whole.ops().filter(pl.col("direction") == "forward")["op_id"]
    assert not set(forwards) & set(part.ops()["op_id"])


def test_a_device_has_its_kernels_and_not_the_ops_of_the_other() -> None:
    whole = Program().profile()
    part = whole.select(device=1)
    assert_frame_equal(part.kernels()[SAME], whole.kernels().filter(pl.col("device") == 1)[SAME])
    assert set(part.op_totals()["layer"].drop_nulls()) == {"net.encoder.1"}


def test_a_rank_has_its_process() -> None:
    whole = Program(ranks=2).profile()
    part = whole.select(rank=1)
    assert part.summary()["processes"].item() == 1
    assert set(part.ops()["process"]) == {1}
    assert part.trace["processes"]["rank"].to_list() == [1]


def test_several_values_and_several_fields_go_together() -> None:
    whole = Program(ranks=3).profile()
    part = whole.select(rank=[0, 2], steps=(0, 1), layer=["net.head", "net.encoder.0"], device=0)
    kernels = part.kernels()
    assert set(kernels["process"]) == {0, 2}
    assert set(kernels["step"]) == {0, 1}
    assert set(kernels["layer"]) == {"net.head", "net.encoder.0"}
    assert part.selected == "steps 0 to 1, device 0, ranks 0, 2, layers net.head, net.encoder.0"


def test_without_a_gpu_a_layer_has_no_time_outside_its_own_ranges() -> None:
    whole = Program(kernels=False).profile()
    row = whole.select(layer="net.head", steps=1).summary().row(0, named=True)
    assert (
        row["device_attributed_time"] == 3_000 + 5_000
    )  # the op, and the backward node around its op
    assert row["device_unattributed_time"] == 9_000 - 3_000


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ({"steps": (7, 9)}, "nothing here is of steps 7 to 9: the trace has steps 0 to 2"),
        ({"device": 5}, "nothing here is of device 5: the trace has devices 0, 1"),
        ({"rank": 4}, "nothing here is of rank 4: the trace has rank 0"),
        (
            {"layer": "net.encodr.0"},
            "nothing here is of layer net.encodr.0: did you mean net.encoder.0",
        ),
        ({"layer": "decoder"}, "the trace has layers net.encoder.0, net.encoder.1, net.head"),
        ({"range": "atention"}, "nothing here is of range atention: did you mean attention?"),
        ({"layer": "net.head", "range": "attention"}, "together"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(where, what) -> None:
    with pytest.raises(ValueError) as refused:
        Program().profile().select(**where)
    assert what in str(refused.value)


def test_a_selection_says_what_it_is_and_cannot_be_saved(tmp_path) -> None:
    part = Program().profile().select(steps=1)
    assert any("selected: step 1" in what for what in part.notes()["what"])
    with pytest.raises(ValueError, match="only a whole profile can be saved"):
        part.save(tmp_path / "x.opscope")
    assert not list(tmp_path.iterdir())


def test_nothing_selected_is_the_profile_itself() -> None:
    whole = Program().profile()
    assert whole.select() is whole
    assert whole.select(steps=1) is whole.select(steps=(1, 1))


@given(steps=st.integers(1, 5), ranks=st.integers(1, 2), cut=st.integers(0, 4))
def test_two_halves_are_the_whole(steps, ranks, cut) -> None:
    whole = Program(steps=steps, ranks=ranks).profile()
    bound = min(cut, steps - 1)
    halves = [whole.select(steps=(None, bound))]
    if bound + 1 < steps:
        halves.append(whole.select(steps=(bound + 1, None)))
    stepped = whole.kernels().filter(pl.col("step").is_not_null())
    joined = pl.concat([half.kernels() for half in halves])
    by = ["process", "start", "end"]
    assert_frame_equal(joined.sort(by)[SAME], stepped.sort(by)[SAME])
    for column in ("flops", "calls"):
        parts = sum(half.op_totals()[column].sum() for half in halves)
        assert parts == whole.op_totals().filter(pl.col("op").is_not_null())[column].sum()


FILES = [
    "kineto/vision_transformer_rank0.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
]


@pytest.mark.parametrize("file", FILES)
def test_in_real_traces_the_steps_add_up_and_each_kernel_stays_as_it_is(shared, file) -> None:
    whole = traces.load(shared / file)
    kernels = whole.kernels()
    steps = sorted(kernels["step"].drop_nulls().unique())
    parts = [whole.select(steps=one).kernels() for one in steps]
    of_steps = kernels.filter(pl.col("step").is_not_null())
    by = ["process", "stream", "start", "end", "correlation"]
    names = [*SAME, "correlation"]
    assert_frame_equal(pl.concat(parts).sort(by)[names], of_steps.sort(by)[names])


@pytest.mark.parametrize("file", FILES[:2])
def test_in_real_traces_a_user_range_keeps_each_kernel_as_it_is(shared, file) -> None:
    whole = traces.load(shared / file)
    part = whole.select(range="## backward ##").kernels()
    assert len(part) > 500
    key = ["process", "stream", "start", "end", "correlation"]
    mine = whole.kernels().join(part.select(key), on=key, how="semi")
    assert_frame_equal(part.sort(key)[SAME], mine.sort(key)[SAME])
