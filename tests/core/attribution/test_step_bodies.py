"""Where the body of a loop begins and ends: what is before, in and after its steps."""

from __future__ import annotations

from itertools import count

import polars as pl
import pytest

from opscope.core.analysis.steps.sections import run_sections
from opscope.core.schema import OPTIMIZER_STEPS
from opscope.profile import Profile

#: Steps as texts: ``f1`` a forward op that a backward op ``b1`` differentiates, ``o`` the optimizer's phase
#: (``oD``: with an op of its own),
#: ``L`` a call of the model, ``S`` a save, ``|`` the mark that the optimizer's hook sets, ``-name`` any other.
STEP = "-load L f1 b1 o |"
EVALUATION = "-load L -metric -load L -metric"


def program(texts: str, pause: dict[int, int] | None = None) -> list[dict]:
    """Ranges of 10 ns, 5 ns apart; ``pause``: ns before the k-th word."""
    rows: list[dict] = []
    time, numbers, made, steps, begun = 1000, count(), {}, count(), None
    for index, word in enumerate(texts.split()):
        time += (pause or {}).get(index, 0)
        kind, name = word[0], word[1:]
        row = {"process": 0, "thread": 1, "start": time, "end": time + 10, "kind": "pushpop"}
        if word == "|":
            if begun is not None:
                rows.append(row | {"start": begun, "end": time - 2, "domain": "opscope.step", "category": "step",
                                   "text": f"step {next(steps)}"})  # fmt: skip
            begun = time
            continue
        row["domain"] = "opscope.x"
        if kind in "fb":
            seq = made.setdefault(name, next(numbers)) if kind == "f" else made.pop(name)
            row |= {"category": {"f": "forward", "b": "backward"}[kind], "text": f"x::{word}(f32[4])",
                    "seq": seq, "fwd_thread": 1}  # fmt: skip
        elif kind in "oSL":
            text = {"o": "optimizer", "S": "checkpoint", "L": "forward"}[kind]
            row |= {"category": "phase", "text": text}
            if name:
                inner = {"start": time + 2, "end": time + 8, "category": "optimizer"}
                rows.append(row | inner | {"text": f"x::{name}(f32[4])"})
        else:
            row |= {"category": "forward", "text": f"x::{name}(f32[4])"}
        rows.append(row)
        time += 15
    if begun is not None:
        rows.append({"process": 0, "thread": 1, "start": begun, "end": time, "kind": "pushpop",
                     "domain": "opscope.step", "category": "step", "text": f"step {next(steps)}",
                     "attrs": '{"unclosed":true}'})  # fmt: skip
    return rows


@pytest.fixture
def profile_of(trace_of):
    def build(texts: str, pause: dict[int, int] | None = None) -> Profile:
        notes = [{"severity": "info", "what": OPTIMIZER_STEPS, "how_many": 1}]
        return Profile(trace_of(ranges=program(texts, pause), notes=notes))

    return build


def words_of_steps(profile: Profile) -> list[str]:
    """The ops, calls and phases of each step, by the names of ``program``."""
    short = {"forward": "L", "optimizer": "o", "checkpoint": "S"}
    ranges = profile.attribution.trace["ranges"].filter(
        pl.col("domain").cast(pl.String) == "opscope.x"
    )
    words = []
    for start, end in (
        profile.iterations()
        .select("start", (pl.col("start") + pl.col("duration")).alias("end"))
        .rows()
    ):
        inside = ranges.filter(pl.col("start").is_between(start, end, closed="left")).sort("start")
        texts = inside["text"].cast(pl.String).str.strip_prefix("x::").str.strip_suffix("(f32[4])")
        words.append(" ".join(short.get(text, text) for text in texts))
    return words


BODY = "load L f1 b1 o"


def test_all_steps_of_a_loop_are_there_and_begin_with_their_batch(profile_of):
    assert words_of_steps(profile_of("-init -init " + f"{STEP} " * 6)) == [BODY] * 6


def test_what_follows_the_optimizer_in_each_step_is_the_steps_own_also_in_the_last(profile_of):
    loop = f"{STEP} -item -item "
    steps = words_of_steps(profile_of("-init " + loop * 5))
    assert steps == [f"{BODY} item item"] * 5


def test_an_evaluation_between_two_epochs_is_in_no_step_and_is_a_section(profile_of):
    epoch = f"{STEP} " * 4 + f"{EVALUATION} "
    profile = profile_of("-init " + epoch * 3)
    assert words_of_steps(profile) == [BODY] * 12
    sections = profile.of(run_sections)
    assert (
        sections["section"].value_counts().filter(pl.col("section") == "evaluation")["count"].item()
        == 3
    )
    assert sections["section"][0] == "building"
    # the sections leave nothing out and do not overlap
    assert sections["end"].to_list()[:-1] == sections["start"].to_list()[1:]


def test_a_pause_beside_an_evaluation_is_between_and_in_no_step(profile_of):
    words = ("-init " + (f"{STEP} " * 4 + f"{EVALUATION} ") * 2).split()
    second = 1 + (len(words) - 1) // 2
    profile = profile_of(" ".join(words), {second: 100_000})
    times = profile.iterations()["duration"]
    assert times.max() < 1000
    between = profile.of(run_sections).filter(pl.col("section") == "between")
    assert (between["end"] - between["start"]).max() >= 100_000


def test_a_save_between_epochs_is_a_checkpoint(profile_of):
    epoch = f"{STEP} " * 4 + f"{EVALUATION} S "
    profile = profile_of("-init " + epoch * 2)
    sections = profile.of(run_sections)
    assert sections.filter(pl.col("section") == "checkpoint").height == 2
    assert words_of_steps(profile) == [BODY] * 8


def test_gradients_of_several_batches_are_one_step(profile_of):
    steps = "-load L f1 b1 -load L f2 b2 o | " * 5
    assert words_of_steps(profile_of("-init " + steps)) == ["load L f1 b1 load L f2 b2 o"] * 5


def test_a_pass_in_every_step_is_no_evaluation(profile_of):
    steps = "-load L -sample L f1 b1 o | " * 5
    assert words_of_steps(profile_of("-init " + steps)) == ["load L sample L f1 b1 o"] * 5


def test_a_save_after_every_step_is_in_none(profile_of):
    assert words_of_steps(profile_of("-init " + f"{STEP} S " * 5)) == [BODY] * 5


def test_steps_of_an_optimizers_hook_say_so_and_are_less_than_certain(profile_of):
    table = profile_of("-init " + f"{STEP} " * 5).iterations()
    assert set(table["found_by"]) == {"optimizer"}
    assert table["certainty"].max() < 1


def test_marks_that_follow_no_optimizer_stay_the_programs_own(trace_of):
    rows = program("-init " + "| -load L f1 b1 o -log " * 5)
    table = Profile(trace_of(ranges=rows)).iterations()
    assert set(table["found_by"]) == {"marked"}


# ------------------------------------------------------------------------------- calls


def called(category: str, texts: list[str], between: str = "-a") -> list[dict]:
    """A loop that calls each of the texts in turn, with an op before and after."""
    rows = program(" ".join(f"{between} -call" for _ in texts) + f" {between}")
    calls = [row for row in rows if row["text"] == "x::call(f32[4])"]
    for row, text in zip(calls, texts, strict=True):
        row |= {"category": category, "text": text}
    return rows


@pytest.mark.parametrize("extra", [0, 1])
def test_runs_of_two_shapes_that_begin_after_all_calls_are_a_step_each(trace_of, extra):
    """XLA on the CPU: the calls return before their work runs on another thread. ``extra``: ops that only
    the program of the second shape has."""
    rows, time = called("graph", ["jit_step"] * 9, between=""), 2000
    for call in range(9):
        rows_of_batch = 77 if call % 3 == 2 else 128
        for name in ("jvp", "transpose", "update", *["other"] * (extra and call % 3 == 2)):
            text = f'hlo::fusion(f32[{rows_of_batch}]) -> f32[4] {{op_name="jit(step)/{name}(loss)/mul"}}'
            rows.append({"process": 0, "thread": 2, "start": time, "end": time + 10, "domain": "opscope.jax",
                         "category": "forward", "text": text, "kind": "pushpop"})  # fmt: skip
            time += 12
    ops = Profile(trace_of(ranges=rows)).ops().filter(pl.col("op") == "hlo::fusion")
    by_step = ops.group_by("step").len().sort("step")
    assert by_step.rows() == [(step, 3 + extra * (step % 3 == 2)) for step in range(9)]


@pytest.mark.parametrize(("category", "text"), [("graph", "jit_step"), ("layer", "Net")])
def test_a_save_between_calls_is_a_checkpoint_and_in_no_step(trace_of, category, text):
    rows = program("-a -call -b -a -call -b S " * 4 + "-a -call -b")
    for row in rows:
        if row["text"] == "x::call(f32[4])":
            row |= {"category": category, "text": text}
    profile = Profile(trace_of(ranges=rows))
    sections = profile.of(run_sections)["section"].value_counts().rows()
    assert dict(sections)["checkpoint"] == 4
    assert profile.iterations().height == 9
    assert profile.iterations()["duration"].max() < 50


@pytest.mark.parametrize(
    ("category", "texts", "by"),
    [
        ("graph", ["jit_step"] * 9, "function step"),
        ("graph", ["__inference_step_12", "__inference_step_45"] * 4, "function step (2 shapes as one)"),
        ("layer", ["Net"] * 7, "model Net"),
        ("forward", ['Session.run(f32[3]) {model="m", session=1}'] * 6, "session m"),
        ("forward", ['Session.run(f32[3]) {model="m", session=1}', 'Session.run(f32[4]) {model="m", session=1}'] * 4,
         "session m"),
    ],
)  # fmt: skip
def test_each_call_in_a_loop_is_a_step_whatever_its_shape(trace_of, category, texts, by):
    profile = Profile(trace_of(ranges=called(category, texts)))
    table = profile.iterations()
    assert len(table) == len(texts)
    assert set(table["found_by"]) == {by}
    assert table["is_step"].all()
    assert profile.summary()["steps"].item() == len(texts)


def test_of_two_models_the_one_that_takes_longer_is_the_step(trace_of):
    rows = called("layer", ["Encoder", *["Decoder"] * 4] * 3)
    table = Profile(trace_of(ranges=rows)).iterations()
    assert set(table["found_by"]) == {"model Decoder"}
    assert len(table) == 12


def test_a_step_ends_with_its_own_operations_however_far_behind_they_run(trace_of):
    """A function that only launches work returns at once: all calls of an epoch come before the first
    operation ends, and an evaluation follows that is in no step."""
    place = {"process": 0, "kind": "pushpop", "domain": "opscope.x"}
    rows, time, ran = [], 1000, 1000
    for name in (["train"] * 5 + ["test"] * 2) * 3:
        rows.append(
            place
            | {
                "thread": 1,
                "start": time,
                "end": time + 10,
                "category": "graph",
                "text": f"jit_{name}",
            }
        )
        ran = max(ran, time + 12)
        way = "backward" if name == "train" else "forward"
        text = f'hlo::dot(f32[4]) {{op_name="jit({name})/dot"}}'
        rows.append(
            place | {"thread": 2, "start": ran, "end": ran + 90, "category": way, "text": text}
        )
        ran, time = ran + 100, time + 15
        if name == "test":  # its result is read
            time = max(time, ran)
    table = Profile(trace_of(ranges=rows)).iterations()
    assert table["duration"].min() > 0
    assert (len(table), set(table["found_by"])) == (15, {"function train"})
    tests = [row["start"] for row in rows if row["text"] == "jit_test"][1::2]
    within = table.select("start", (pl.col("start") + pl.col("duration")).alias("end"))
    for at in tests:
        assert within.filter(pl.col("start") <= at, pl.col("end") > at).is_empty()


def test_two_functions_that_train_in_turns_are_one_step(trace_of):
    place = {"process": 0, "kind": "pushpop", "domain": "opscope.x"}
    rows = []
    for number in range(12):
        name, start = ("critic", "generator")[number % 2], 100 * number
        row = place | {"thread": 1, "start": start, "end": start + 80, "category": "graph"}
        rows.append(row | {"text": f"jit_{name}"})
        for way, at in (("forward", 10), ("backward", 40)):
            text = f'hlo::dot(f32[4]) {{op_name="jit({name})/{way}"}}'
            row = place | {"thread": 2, "start": start + at, "end": start + at + 20}
            rows.append(row | {"category": way, "text": text})
    table = Profile(trace_of(ranges=rows)).iterations()
    assert (len(table), set(table["found_by"])) == (6, {"function"})
