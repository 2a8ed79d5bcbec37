"""The diagnosis of made traces of a GPU: each planted cause is named first, and the parts add up to the time."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

import opscope
from opscope.core.advice import diagnosis_time
from opscope.core.advice.diagnosis_words import Words
from opscope.core.analysis.device.device_work import work_on_devices
from opscope.core.analysis.host.input_waits import loader_waits
from opscope.core.analysis.host.wall_time import compilations
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.steps.step_times import step_bounds
from opscope.core.tables.trace import Trace
from opscope.profile import Profile, stored
from tests.device_traces import OP, Ran, profiled, works

#: Microseconds in ns.
US = 1_000
STEPS, STEP = 6, 1_000 * US


def steps(number: int = STEPS, length: int = STEP) -> list[dict]:
    return [
        {
            **OP,
            "start": n * length,
            "end": (n + 1) * length,
            "text": f"step {n}",
            "category": "step",
        }
        for n in range(number)
    ]


def each_step(
    *work: Ran, calls: tuple[dict, ...] = (), ops: tuple[dict, ...] = (), **more
) -> Profile:
    """A training whose steps all run ``work`` and call ``calls`` in ``ops``; times are from the step's start."""
    within = [
        {**op, "start": op["start"] + number * STEP, "end": op["end"] + number * STEP}
        for number in range(STEPS)
        for op in ops
    ]
    ran, called = [], []
    for number in range(STEPS):
        at = number * STEP
        ran += [
            Ran(one.start + at, one.end + at, one.called + at, one.returned + at, one.name, kind=one.kind,
                bytes=one.bytes)
            for one in work
        ]  # fmt: skip
        called += [{**call, "start": call["start"] + at, "end": call["end"] + at} for call in calls]
    return profiled(ran, calls=called, ranges=[*steps(), *within], **more)


def first(profile: Profile) -> dict:
    return profile.diagnosis().row(0, named=True)


def kernels(start: int, number: int, length: int, gap: int, ahead: int = 5 * US) -> list[Ran]:
    """Kernels one after the other (µs), each called ``ahead`` ns before it begins."""
    made = []
    for place in range(number):
        begin = (start + place * (length + gap)) * US
        made.append(Ran(begin, begin + length * US, begin - ahead, begin - ahead + 2 * US))
    return made


def test_a_device_that_always_works_is_healthy_if_it_is_known_what_it_computes():
    work = kernels(10, 2, 490, 5, ahead=8 * US)
    op = {"process": 0, "thread": 1, "kind": "pushpop", "category": "forward", "text": "aten::mm"}
    row = first(each_step(*work, ops=({**op, "start": 1 * US, "end": 600 * US},)))
    assert (row["finding"], row["lost"]) == ("healthy", 0)
    assert "98" in row["text"]
    assert (
        "whether its kernels could be faster is not known" in row["text"]
    )  # nothing names the device
    row = first(each_step(*work))
    assert (row["finding"], row["lost"]) == ("cannot tell", None)
    assert "100 % of the device's time has no op" in row["text"]


def test_tiny_kernels_that_take_less_time_than_their_launches_are_host_bound():
    # 3 µs of work every 10 µs, each launched when the device has long been idle
    row = first(each_step(*kernels(6, 99, 3, 7, ahead=4 * US)))
    assert row["finding"] == "host-bound"
    assert "99 a step, median 3 µs" in row["text"]
    assert row["lost"] == STEPS * (STEP - 99 * 3 * US)


def test_reading_a_value_in_each_step_is_a_synchronising_call():
    # the host waits until the kernels end at 500 µs, and launches the next step 400 µs later
    wait = {"process": 0, "thread": 1, "name": "cudaStreamSynchronize", "correlation": 9_999}
    profile = each_step(
        *kernels(0, 2, 250, 0, ahead=0), calls=({**wait, "start": 10 * US, "end": 502 * US},)
    )
    row = first(profile)
    assert row["finding"] == "synchronising calls"
    # of the last step's rest it is not known what ended it
    assert row["lost"] == (STEPS - 1) * 500 * US


def test_copies_that_nothing_hides_are_named_with_their_memory():
    copy = Ran(300 * US, 900 * US, 290 * US, 900 * US, kind="HtoD", bytes=1 << 20)
    profile = each_step(*kernels(5, 1, 290, 0), copy)
    tables = {name: profile.trace[name] for name in profile.trace.present}
    tables["memops"] = tables["memops"].with_columns(pl.lit("pageable").alias("src_kind"))
    profile = Profile(Trace.of(tables))
    row = first(profile)
    assert row["finding"] == "copy-bound"
    assert "copies to the device from pageable memory" in row["text"]
    assert row["share"] == pytest.approx(0.6, abs=0.01)


def test_work_that_waits_although_it_was_launched_is_not_the_host_s_fault():
    row = first(
        each_step(Ran(5 * US, 400 * US, 0, 2 * US), Ran(900 * US, 990 * US, 3 * US, 4 * US))
    )
    assert row["finding"] == "waiting on other streams"


def test_without_launches_it_is_not_told_why_the_device_is_idle():
    ran = [Ran(n * 100 * US, n * 100 * US + 40 * US) for n in range(20)]
    row = first(profiled(ran))
    assert row["finding"] == "cannot tell"
    assert "why the device was idle" in row["text"]
    assert "launches" in row["to_try"]


def test_of_a_few_kernels_and_of_nothing_it_cannot_tell():
    for profile in (profiled([Ran(0, 10)]), profiled([])):
        (row,) = profile.diagnosis().to_dicts()
        assert row["finding"] == "cannot tell"
        assert row["to_try"]


@given(works(kinds=True))
def test_the_parts_of_each_device_add_up_to_its_time(work):
    profile = profiled(work, ranges=steps(3, 20))
    done = profile.of(work_on_devices)
    host = diagnosis_time.host_of(
        profile.of(op_index), profile.of(loader_waits), profile.of(compilations), cpu_only=False
    )
    judged = diagnosis_time.steps_to_judge(
        profile.of(step_bounds), profile.input_waits(), done, host
    )
    for one in diagnosis_time.on_gpu(done, profile.attribution.trace, host, judged.of):
        assert sum(one.parts.values()) == one.time
        assert min(one.parts.values()) >= 0


def test_the_diagnosis_is_stored_with_the_profile(tmp_path, monkeypatch):

    profile = each_step(*kernels(6, 99, 3, 7, ahead=4 * US))
    profile.diagnosis()
    profile.save(tmp_path / "a.opscope")
    loaded = opscope.load(tmp_path / "a.opscope")
    schema = profile.diagnosis().schema
    monkeypatch.setattr(stored, "schema_of", lambda name: schema)
    monkeypatch.setattr(type(loaded), "_answer", lambda self, *asked: pytest.fail("made again"))
    assert loaded.diagnosis().equals(profile.diagnosis())


def on_a_cpu(outside: float, pieces: int = 1) -> Profile:
    """A training on a CPU whose steps, of ``pieces`` ops each, are outside any op for this part of their time."""
    ops = []
    for number in range(STEPS * pieces):
        begin = number * STEP // pieces
        ops.append(
            {
                **OP,
                "start": begin,
                "end": begin + round((1 - outside) * STEP / pieces),
                "text": "aten::mm(f32[8,8], f32[8,8])",
                "category": "forward",
            }
        )
    tables = {name: pl.DataFrame(rows) for name, rows in {"ranges": [*steps(), *ops]}.items()}
    return Profile(Trace.of(tables))


@pytest.mark.parametrize(
    ("outside", "finding"),
    [
        (0.20, "healthy"),
        (0.26, "borderline host-bound"),
        (0.30, "borderline host-bound"),
        (0.36, "borderline host-bound"),
        (0.40, "host-bound"),
    ],
)
def test_a_part_near_its_limit_is_borderline_on_either_side(outside, finding):
    row = first(on_a_cpu(outside))
    assert row["finding"] == finding
    if finding != "healthy":  # the evidence and the advice are the same on both sides
        assert f"({outside * 100:.3g} %) outside any op" in row["text"]
        assert row["lost"] == pytest.approx(outside * STEPS * STEP, abs=STEPS)
    assert ("30 %" in row["text"]) is finding.startswith("borderline")


@pytest.mark.parametrize("kind", ["python", "sleep"])
def test_a_line_has_a_part_of_the_time_outside_ops_and_never_more_than_all(kind, monkeypatch):
    """Steps are told by their median, and lines by all of them: a few long steps must not add to a line.

    Of a line that sleeps this is said, and the change is about it in place of the ops.
    """
    profile = on_a_cpu(0.5, pieces=20)
    ranges = profile.trace["ranges"]
    everywhere = pl.DataFrame(
        {
            "process": [0],
            "line": ["a/train.py:7"],
            "kind": [kind],
            "start": [0],
            "end": [int(ranges["end"].max())],
        },
        schema_overrides={"process": pl.Int32},
    )
    monkeypatch.setattr("opscope.core.advice.causes.lines_of_steps", lambda profile: everywhere)
    row = first(profile)
    sleeps = kind == "sleep"
    assert "100 % of it at train.py:7" + ", where it slept" * sleeps + ";" in row["text"]
    assert ("opscope report FILE --reports host_lines" in row["to_try"]) is sleeps


def test_what_is_just_over_its_limit_on_a_device_is_borderline_and_a_clear_cause_comes_alone():
    # of each 1,000 µs the device waits for the host for 110 µs: more than a tenth, by little
    row = first(
        each_step(Ran(0, 880 * US, 0, 1 * US), Ran(990 * US, 1000 * US, 985 * US, 986 * US))
    )
    assert row["finding"] == "borderline host-bound"
    assert 0.1 < row["share"] < 0.125
    told = on_a_cpu(0.5).diagnosis()["finding"].to_list()
    assert [one for one in told if one != "cannot tell"] == ["host-bound"]


def on_threads(*rows: dict) -> Profile:
    """Rows of ranges on a CPU: text, thread, start, end (µs), and more."""
    made = [{**OP, **row, "start": row["start"] * US, "end": row["end"] * US} for row in rows]
    return Profile(Trace.of({"ranges": pl.DataFrame(made)}))


def step_on(thread: int, start: int, end: int, number: int) -> dict:
    return {
        "thread": thread,
        "start": start,
        "end": end,
        "text": f"step {number}",
        "category": "step",
    }


def op_on(thread: int, start: int, end: int, text: str) -> dict:
    return {"thread": thread, "start": start, "end": end, "text": text, "domain": "kineto"}


@pytest.mark.parametrize("phase", [True, False])
def test_what_most_of_a_run_went_into_comes_before_what_bounds_its_steps(phase):
    """A program is compiled before the steps, or within the first; each step waits a little for its input."""
    begin = 100_000
    rows = [
        {"thread": 1, "start": 0, "end": begin, "text": "compile step_fn", "category": "phase"}
        if phase
        else step_on(1, 0, begin, 0)
    ]
    for number in range(1, 9):
        at = begin + 100 * (number - 1)
        rows += [
            step_on(1, at, at + 100, number),
            {"thread": 1, "start": at, "end": at + 7, "text": "input", "category": "phase"},
            op_on(1, at + 8, at + 99, "aten::mm(f32[8,8], f32[8,8])"),
        ]
    told = on_threads(*rows).diagnosis()
    assert told["finding"].to_list()[:2] == [
        "compilation" if phase else "slow start",
        "input-bound",
    ]
    assert told["share"][0] > 0.98


def test_compiling_that_is_a_small_part_of_the_run_does_not_come_first():
    rows = [{"thread": 1, "start": 0, "end": 100, "text": "compile f", "category": "phase"}]
    for number in range(8):
        at = 100 + 100 * number
        rows += [
            step_on(1, at, at + 100, number),
            {"thread": 1, "start": at, "end": at + 20, "text": "input", "category": "phase"},
            op_on(1, at + 20, at + 99, "aten::mm(f32[8,8], f32[8,8])"),
        ]
    assert first(on_threads(*rows))["finding"] == "input-bound"


@pytest.mark.parametrize("backend", ["gloo", "mpi", "ucc"])
def test_a_backend_on_its_own_threads_bounds_a_step_by_the_union_of_them(backend):
    rows = [step_on(1, 0, 2100, 0), op_on(1, 2050, 2052, "aten::empty(8)")]
    for thread, late in ((7001, 0), (7002, 3)):
        for number in range(5):
            at = 193 + 380 * number + late
            rows.append(op_on(thread, at, at + 360, f"{backend}:all_reduce(f32[64])"))
    profile = on_threads(*rows)
    row = first(profile)
    assert (row["finding"], row["lost"]) == ("communication-bound", 1815 * US)
    assert profile.communication()["communication_time"].to_list() == [1815 * US]


def test_an_op_that_a_collective_holds_up_computes_nothing():
    """The main thread waits, inside an op, for the collective that runs on the backend's thread."""
    rows = [step_on(1, 0, 1000, 0)]
    rows += [
        op_on(1, 0, 1000, "Function(f32[64])"),
        op_on(1, 100, 110, "_c10d_functional::all_reduce(f32[64])"),
        op_on(1, 120, 720, "_c10d_functional::wait_tensor(f32[64])"),
        op_on(9, 110, 715, "gloo:all_reduce(f32[64])"),
    ]
    profile = on_threads(*rows)
    assert first(profile)["finding"] == "communication-bound"
    row = profile.communication().row(0, named=True)
    assert (row["communication_time"], row["computation_time"]) == (605 * US, 390 * US)
    assert row["overlap_time"] == 10 * US


def test_a_backend_on_the_host_bounds_a_step_although_there_is_a_gpu():
    """The device waits while gloo's thread reduces: that is no late launch."""
    ran = [
        {
            **OP,
            **op_on(
                9,
                (1000 * number + 150) * US,
                (1000 * number + 900) * US,
                "gloo:all_reduce(f32[64])",
            ),
        }
        for number in range(STEPS)
    ]
    work = [
        Ran(n * STEP + 10 * US, n * STEP + 100 * US, n * STEP, n * STEP + US) for n in range(STEPS)
    ]
    more = [Ran(n * STEP + 910 * US, n * STEP + 990 * US, n * STEP + 905 * US, n * STEP + 906 * US)
            for n in range(STEPS)]  # fmt: skip
    profile = profiled([*work, *more], ranges=[*steps(), *ran])
    row = first(profile)
    assert (row["finding"], row["lost"]) == ("communication-bound", STEPS * 750 * US)
    rows = profile.communication().row(0, named=True)
    assert (rows["communication_time"], rows["collectives"]) == (STEPS * 750 * US, STEPS)


@pytest.mark.parametrize(
    ("kind", "pageable", "said", "never"),
    [
        ("HtoD", True, "pin_memory=True", "step ahead"),
        ("HtoD", False, "a step ahead", "pin_memory"),
        ("DtoH", True, "pinned buffer", "DataLoader"),
        ("DtoH", False, "reduce on the device", "DataLoader"),
        ("PtoP", False, "both devices compute", "DataLoader"),
        ("DtoD", False, "layout and dtype conversions", "pin"),
    ],
)
def test_what_to_try_fits_the_direction_of_the_copies_and_their_memory(kind, pageable, said, never):
    for framework in ("torch", None):
        text = Words(framework, on_gpu=True).copies(kind, pageable)
        assert never not in text
        assert framework is None or said in text
