"""Ranges whose names differ only by numbers: a server's prefill and decode steps, and a program's iterations."""

from __future__ import annotations

import pytest

from opscope.core.dialects import serving
from opscope.profile import Profile


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", serving.PREFILL),
        ("execute_context_0(0)_generation_16(16)", serving.DECODE),
        ("execute_context_2(90)_generation_7(7)", serving.MIXED),
        ("execute_context_0(0)_generation_0(0)", None),
        ("context_3(12)_generation_0(0)", serving.PREFILL),
        ("execute_new_2_cached_0", serving.PREFILL),
        ("execute_new_0_cached_31", serving.DECODE),
        ("[Executor] _forward_step 12: 0 ctx reqs, 16 gen reqs", serving.DECODE),
        ("[Executor] _forward_step 3: 2 ctx reqs, 0 gen reqs", serving.PREFILL),
        ("step[DECODE bs=16 toks=16]", serving.DECODE),
        ("step[EXTEND bs=2 toks=512]", serving.PREFILL),
        ("prefill_3", serving.PREFILL),
        ("decoder.layers.3", None),
        ("context_parallel_0", None),
        ("generation_7", None),
        ("decode", None),  # no number: nothing differs
        ("layer_3", None),
    ],
)
def test_the_kind_of_a_servers_step_is_in_its_name(text, kind):
    assert serving.kind(text) == kind


def served(steps: list[tuple[str, int]]) -> list[dict]:
    """Ranges of a program: for each of ``steps`` a range of that name and length, with two ops in it."""
    rows, time = [], 0
    for text, length in steps:
        rows.append(
            {"process": 0, "thread": 1, "start": time, "end": time + length, "domain": "user",
             "kind": "pushpop", "text": text}
        )  # fmt: skip
        rows.extend(
            {"process": 0, "thread": 1, "start": time + 1 + place, "end": time + 1 + place + length // 4,
             "domain": "opscope.x", "kind": "pushpop", "text": "x::mm(f32[4])"}
            for place in (0, length // 2)
        )  # fmt: skip
        time += length + 20
    return rows


STEPS = [
    step
    for n in range(4)
    for step in [
        (f"execute_context_1({800 + n})_generation_0(0)", 500),
        *[(f"execute_context_0(0)_generation_{14 + n + k}({14 + n + k})", 100) for k in range(3)],
    ]
]


def test_each_step_of_a_server_is_an_iteration_of_its_kind(trace_of):
    profile = Profile(trace_of(ranges=served(STEPS)))
    found = profile.iterations()
    assert found["found_by"].to_list() == ["range: prefill", *["range: decode"] * 3] * 4
    assert found["duration"].to_list() == [500, 100, 100, 100] * 4
    assert found["ops"].to_list() == [2] * 16
    assert not found["slow"].any()  # a prefill is no slow decode
    assert not found["is_step"].any()
    assert profile.summary()["steps"].item() in (0, None)


def test_what_repeats_in_prefill_and_decode_is_no_step_of_both(trace_of):
    """A layer names the place of each op, so that the sequence of ops would be sure."""
    rows = served(STEPS)
    for row in [row for row in rows if row["domain"] == "user"]:
        rows.append({**row, "start": row["start"] + 1, "domain": "opscope.x", "category": "layer",
                     "end": row["end"] - 1, "text": "Net.layer"})  # fmt: skip
    found = Profile(trace_of(ranges=rows)).iterations()
    assert set(found["found_by"]) == {"range: prefill", "range: decode"}


def test_time_by_range_has_a_row_for_prefill_and_one_for_decode(trace_of):
    profile = Profile(trace_of(ranges=served(STEPS)))
    rows = profile.range_totals().select("range", "calls", "device_time").rows()
    assert sorted(rows) == [
        ("decode: execute_context_*(*)_generation_*(*)", 24, 24 * 25),
        ("prefill: execute_context_*(*)_generation_*(*)", 8, 8 * 125),
    ]
    assert len(profile.select(range="decode*").ops()) == 24
    assert len(profile.select(range="execute_context_1*").ops()) == 8


def test_numbered_iterations_are_found_and_numbered_layers_are_none(trace_of):
    """Each has other work, so that the sequence of ops shows nothing."""

    def of(name):
        rows = served([(f"{name} {n}", 100) for n in range(5)])
        for place, row in enumerate(rows):
            row["text"] = row["text"].replace("x::mm", f"x::mm{place}")
        return Profile(trace_of(ranges=rows)).iterations()

    found = of("batch")
    assert found["found_by"].to_list() == ["range"] * 5
    assert of("layer")["iteration"].to_list() == [None]


def test_other_numbered_ranges_keep_their_rows(trace_of):
    profile = Profile(trace_of(ranges=served([(f"layer_{n}", 100) for n in range(3)])))
    assert sorted(profile.range_totals()["range"]) == ["layer_0", "layer_1", "layer_2"]
