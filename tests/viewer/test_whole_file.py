"""A file that holds every op, kernel and slice: its times are stored once, and all else comes back from them."""

from __future__ import annotations

import base64
import gzip
import json
import random

import msgspec
import numpy as np
import polars as pl
import pytest

from opscope.profile import Profile
from opscope.viewer import embedded, rows, single, tables
from opscope.viewer.axes import Axes
from opscope.viewer.embedded import embed, zipped
from opscope.viewer.op_guesses import EACH, op_guesses
from opscope.viewer.packed import pack
from opscope.viewer.question import Asked
from opscope.viewer.questions import table
from opscope.viewer.timeline.index import timeline_of
from opscope.viewer.timeline.whole import whole
from opscope.viewer.viewed import Viewed
from opscope.viewer.whole_timeline import Arrays
from tests.viewer import in_node
from tests.viewer.made_training import made_training
from tests.viewer.test_file_source import same

REAL = (
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",  # ops in ops, two threads
    "nsys/fsdp_h100x2_2026.sqlite",  # two processes
)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return in_node.built(tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="module")
def training():
    return Viewed(Profile(made_training(steps=16)), ("gpt.opscope",))


def index_of(made: embedded.Embedded) -> dict:
    return json.loads(gzip.decompress(made.index))


def questions_of(viewed: Viewed) -> list[dict]:
    """Questions about every table: rows from all over, and orders."""
    chosen, made = random.Random(1), []
    for name, kind in tables.kinds().items():
        if name.startswith("diff_"):
            continue
        frame = table.frame_of(kind, Asked(viewed, {}))
        for start in {0, *(chosen.randrange(max(1, frame.height)) for _ in range(6))}:
            made.append({"name": name, "rows": "1000", "from": str(start)})
        plain = [one for one in frame.columns if not frame.schema[one].is_nested()]
        for column in chosen.sample(plain, 3):
            made.append({"name": name, "rows": "1000", "sort": chosen.choice(("", "-")) + column})
    return made


def parts(answer: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(answer[:4], "little")
    return json.loads(answer[4 : 4 + length]), answer[4 + length + -(4 + length) % 8 :]


def check(viewed: Viewed, folder, module) -> None:
    """Fail unless a file has all of what is viewed, equal in every table and in the timeline."""
    assert single.write(viewed, folder / "one.html") == {}
    asked = questions_of(viewed)
    asks = [("timeline_all", {}), *(("table", one) for one in asked)]
    timeline, *found = in_node.answers(module, folder / "one.html", asks)
    for params, got in zip(asked, found, strict=True):
        want = json.loads(msgspec.json.encode(table.answer(Asked(viewed, params))))
        assert same(want, got.get("answer")), params
    want = parts(whole(timeline_of(viewed.profile), 1 << 20))
    assert want[0]["left"] == {"slices": 0, "time": 0}
    assert parts(base64.b64decode(timeline["bytes"])) == want


def test_every_table_and_the_timeline_come_back(training, tmp_path, module):
    assert len(training.profile.ops()) > 4_000
    assert "axes" in index_of(embed(training, single.MOST))
    check(training, tmp_path, module)


@pytest.mark.parametrize("name", REAL)
def test_every_table_and_the_timeline_of_a_real_trace_come_back(name, of, tmp_path, module):
    viewed = Viewed(of(name), (name,))
    assert "axes" in index_of(embed(viewed, single.MOST))
    check(viewed, tmp_path, module)


def test_ops_and_kernels_need_little_more_room_than_their_times(training):
    ops = len(training.profile.ops())
    made = embed(training, 10_000_000)
    index = index_of(made)
    each = [index["axes"], index["timeline"], *(index["tables"][name]["block"] for name in EACH)]
    size = sum(len(made.blocks[int(block)]) for block in each)
    # the made times of an op and its kernel hold 33 bits, as text 5.5 bytes; small files have more around them
    assert size * 4 / 3 / ops < 13


def test_what_does_not_fit_whole_is_cut_as_before_and_it_says_so(training):
    made = embed(training, 60_000)
    index = index_of(made)
    assert "axes" not in index
    assert not any("axes" in one for one in index["tables"].values())
    assert any(one["question"] == "timeline_all" for one in index["answers"])
    assert made.left_out["each_op"] == index["tables"]["each_op"]["left_out"]["rows"] > 0


def test_the_guesses_of_ops_are_right_and_the_file_holds_nothing_of_them(of):
    profile = of(REAL[0])
    ops = profile.ops()
    for name, (_, values) in op_guesses(ops, profile.kernels(), profile.memops()).items():
        assert (ops[name].to_numpy() == values).all(), name


def test_a_guess_that_is_wrong_changes_nothing(tmp_path, module):
    rng = np.random.default_rng(1)
    start, length = np.arange(2_000) * 1_000, rng.integers(1, 900, 2_000)
    wrong = np.where(rng.random(2_000) < 0.1, -3, length)
    frame = pl.DataFrame({"start": start, "end": start + length, "length": wrong})
    assert b'"guess":"length"' in pack(frame)
    path = held(frame, Axes(), tmp_path)
    (got,) = in_node.answers(module, path, [("table", {"name": "made", "rows": 1000})])
    assert got["answer"]["values"]["length"] == frame["length"].head(1000).to_list()


def held(frame: pl.DataFrame, axes: Axes, folder):
    """A file that holds this frame, its times on these axes, as the table ``made``."""
    page = {
        "columns": [{"name": name} for name in frame.columns],
        "total": len(frame),
        "sums_all": {},
    }
    index = {"answers": [], "tables": {"made": {"block": "0", "page": page}}}
    blocks = {"0": pack(frame, axes)}
    if axes.times:
        none = Arrays({"start": "0", "lanes": []}, pl.DataFrame(schema=["name", "kind"]))
        slices = axes.slices(pl.DataFrame())
        index |= {"axes": "1", "timeline": "2"}
        index["tables"]["made"]["axes"] = True
        blocks |= {"1": axes.packed(slices), "2": none.packed(slices)}
    blocks["index"] = json.dumps(index).encode()
    path = folder / "made.html"
    path.write_text(
        "\n".join(
            f'<script type="application/octet-stream" id="opscope-{name}">{base64.b64encode(zipped(data)).decode()}</script>'
            for name, data in blocks.items()
        )
    )
    return path


@pytest.mark.parametrize("first", [0, 1_700_000_000_000_000_000, -(2**62)])
@pytest.mark.parametrize("seed", range(4))
def test_times_on_lanes_that_take_turns_come_back_in_their_order(first, seed, tmp_path, module):
    rng = np.random.default_rng(seed)
    lanes = {
        (process, thread): [first + np.cumsum(rng.integers(1, 10 ** (2 + thread), 900))]
        for process in range(2)
        for thread in range(2)
    }
    axes = Axes.of(lanes)
    made = []
    for (process, thread), (times,) in lanes.items():
        at = np.sort(rng.choice(len(times) - 1, 600, replace=seed > 1))
        made.append(
            pl.DataFrame({"start": times[at], "end": times[at + 1]}).with_columns(
                pl.lit(process).alias("process"), pl.lit(thread).alias("thread")
            )
        )
    every = pl.concat(made)
    frame = every.sort("start") if seed % 2 else every.sample(fraction=1, shuffle=True, seed=seed)
    known = pl.Series(rng.random(len(frame)) < 0.7)
    frame = frame.with_columns(
        pl.when(known).then("end").alias("seen"),
        (pl.col("end") - pl.col("start")).alias("length"),
        pl.Series("small", rng.integers(-3, 3, len(frame))),
        pl.Series("few", rng.choice([2**60, -5, 70_000], len(frame))),
        pl.Series("word", rng.choice(["a", "b", "é"], len(frame))),
        pl.Series("elsewhere", rng.integers(0, 2**62, len(frame))),
        pl.Series("real", rng.random(len(frame))),
    )
    assert b'"as":"time"' in pack(frame, axes)
    asked = [{"name": "made", "rows": 1000, "from": at} for at in (0, 1000, 2000)]
    asked += [{"name": "made", "rows": 1000, "sort": one} for one in ("start", "-seen", "few")]
    found = in_node.answers(module, held(frame, axes, tmp_path), [("table", one) for one in asked])
    for params, got in zip(asked, found, strict=True):
        want = frame
        if sort := params.get("sort"):
            want = frame.sort(
                sort.removeprefix("-"), descending=sort[0] == "-", nulls_last=True, maintain_order=True
            )  # fmt: skip
        want = want.slice(params.get("from", 0), 1000)
        for name in frame.columns:
            assert got["answer"]["values"][name] == rows.values(want[name]), (params, name)


def test_too_many_lanes_and_times_too_far_apart_are_stored_plainly():
    times = np.arange(10)
    assert not Axes.of({(0, thread): [times] for thread in range(300)}).usable
    assert not Axes.of({(0, 0): [np.array([0, 2**60])]}).usable
    assert Axes.of({(0, 0): [times]}).usable


def test_a_kernel_of_no_device_does_not_take_the_axis_of_its_processs_threads():
    host = {"process": 0, "thread": 1, "device": None, "stream": None}
    frame = pl.DataFrame(
        [host | {"start": 100, "end": 900, "name": 0}],
        schema_overrides={"device": pl.Int64, "stream": pl.Int64},
    )
    kernels = [np.array([5, 7])]  # on (process, device, stream), of which two are unknown
    axes = Axes.of({(0, 1): [np.array([100, 900])], (0, None, None): kernels})
    slices = axes.slices(frame)
    assert slices.axis.tolist() == [0]
    assert (slices.start.tolist(), slices.end.tolist()) == ([0], [1])
