"""The timeline before the kernels' ops are known: provisional colours, which end and are kept nowhere."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opscope
from opscope.core.tables import mapped
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.viewer import long
from opscope.viewer.question import Asked, BadParameter
from opscope.viewer.questions import (
    timeline,
    timeline_all,
    timeline_lanes,
    timeline_settled,
    timeline_slice,
    timeline_sum,
)
from opscope.viewer.timeline import first_pictures, kept_kinds, op_kinds
from opscope.viewer.timeline.index import Timeline, timeline_of
from opscope.viewer.timeline.lane import CATEGORIES, CATEGORY, UNTOLD
from opscope.viewer.viewed import Viewed

from . import timeline_reading as reading
from .made_training import made_training

REAL = {
    "resnet": "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "fsdp": "nsys/fsdp_h100x2_2026.sqlite",
    "vllm": "kineto/vllm_decode_cudagraph.json.gz",
}


@pytest.fixture(scope="module", params=["made", *REAL])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved profile in which nothing is kept but what links kernels to ops."""
    path = tmp_path_factory.mktemp("saved") / "run.opscope"
    if request.param == "made":
        profile = Profile(made_training(steps=2))
    else:
        shared: Path = request.getfixturevalue("shared")
        profile = opscope.load(shared / REAL[request.param])
    assert profile.attribution
    profile.save(path)
    return path


@pytest.fixture
def late():
    """No trace is short, so that colours by op always come late, and all of it is read as if it was long."""
    with (
        mock.patch.object(op_kinds, "AT_ONCE", 0),
        mock.patch.object(long, "LONG", 0),
        mock.patch.object(mapped, "LEAST", 1),
    ):
        yield


def copy_of(saved: Path, folder: Path) -> Profile:
    shutil.copytree(saved, folder / "run.opscope", ignore=shutil.ignore_patterns("kept.*"))
    return opscope.load(folder / "run.opscope")


def ask(profile: Profile, module: Any, **given: str) -> Any:
    return module.QUESTION.answer(Asked(Viewed(profile, ("run",)), given))


def first_picture(profile: Profile) -> tuple[dict[str, Any], bytes]:
    """What a page asks first: the lanes of devices, and the picture of all of them."""
    lanes = ask(profile, timeline_lanes, part="device")
    asked = ",".join(f"{one['id']}:{one['levels']}" for one in lanes["lanes"])
    low, high = lanes["span"]
    return lanes, ask(profile, timeline, lanes=asked, start=low, end=high, columns="300")


def same_lanes(one: Timeline, other: Timeline, part: str) -> None:
    for (left_id, left), (right_id, right) in zip(one.part(part), other.part(part), strict=True):
        assert (left_id, left.about, left.provisional) == (right_id, right.about, False)
        for mine, theirs in zip(left.strips, right.strips, strict=True):
            for name in ("start", "before", "row", "kind", "kinds", "sums", "tops", "top_at"):
                assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
            for ours, texts in ((mine, one.names), (theirs, other.names)):
                assert ours.name.max(initial=0) < len(texts)
            names = ([texts[n] for n in strip.name.tolist()] for strip, texts in
                     ((mine, one.names), (theirs, other.names)))  # fmt: skip
            assert next(names) == next(names)


def test_the_first_picture_does_not_wait_for_ops_and_says_so_until_they_are_known(
    saved: Path, tmp_path: Path, late: None
) -> None:
    plain = Profile(opscope.load(saved).trace)
    plain.kernels()  # with their columns the colours of ops are there at once
    expected = first_picture(plain)
    profile = copy_of(saved, tmp_path)
    lanes, made = first_picture(profile)
    assert lanes.pop("provisional") is True
    assert lanes == expected[0]
    assert "attribution" not in vars(profile)
    before, drawn = reading.picture(made)
    after, settled = reading.picture(expected[1])
    assert before.pop("provisional") is True
    assert "provisional" not in after
    for lane, strips in drawn.items():
        for strip, theirs in zip(strips, settled[lane], strict=True):
            for name in ("busy", "start", "lasted", "index"):
                assert np.array_equal(strip[name], theirs[name])
    assert first_pictures.kept(opscope.load(profile._path)) is None
    # a hint says whose category it tells; what is told of a slice waits for its op
    hint = ask(profile, timeline_slice, lane="d0", level="0", index="0", brief="1")
    assert hint["kind"].endswith(" by its name")
    assert ask(profile, timeline_settled) == {"settled": True}
    assert first_picture(profile) == expected
    same_lanes(timeline_of(profile), timeline_of(plain), "device")
    # who looks again has the colours, and the picture, at once
    again = opscope.load(profile._path)
    assert first_pictures.kept(again) is not None
    assert (kept_kinds.kept(again) is None) == (op_kinds._by_columns(plain) is None)
    assert ask(again, timeline_lanes, part="device", made="1") == expected[0]
    same_lanes(timeline_of(again), timeline_of(plain), "device")


def test_of_many_kernels_whose_columns_are_kept_the_first_picture_does_not_wait_for_these(
    saved: Path, tmp_path: Path, late: None
) -> None:
    """As `opscope run` leaves a profile. Their columns tell the colours then, and no attribution is read."""
    plain = Profile(opscope.load(saved).trace)
    plain.kernels()
    expected = first_picture(plain)
    shutil.copytree(saved, tmp_path / "run.opscope")
    with_columns = opscope.load(tmp_path / "run.opscope")
    with_columns.kernels()
    assert "kernels" in opscope.load(tmp_path / "run.opscope")._stored
    for most, waits in ((1 << 30, True), (0, False)):
        place = tmp_path / str(most)  # a folder each: the first picture is kept
        shutil.copytree(tmp_path / "run.opscope", place / "run.opscope")
        profile = opscope.load(place / "run.opscope")
        with mock.patch.object(op_kinds, "COLUMNS_AT_ONCE", most):
            lanes, _ = first_picture(profile)
            assert ("provisional" in lanes) is not waits
            assert ask(profile, timeline_settled) == {"settled": True}
            assert first_picture(profile) == expected
        assert "attribution" not in vars(profile)
    same_lanes(timeline_of(profile), timeline_of(plain), "device")
    assert (kept_kinds.kept(profile) is None) == (op_kinds._by_columns(plain) is None)


def test_sums_details_and_files_have_no_provisional_categories(
    saved: Path, tmp_path: Path, late: None
) -> None:
    plain = Profile(opscope.load(saved).trace)
    plain.kernels()
    low, high = first_picture(plain)[0]["span"]
    ids = ",".join(one["id"] for one in ask(plain, timeline_lanes)["lanes"][:2])
    for number, (module, given) in enumerate(
        (
            (timeline_sum, {"start": low, "end": high, "lanes": ids}),
            (timeline_slice, {"lane": "d0", "level": "0", "index": "3"}),
            (timeline_all, {}),
        )
    ):
        profile = copy_of(saved, tmp_path / str(number))
        assert first_picture(profile)[0]["provisional"] is True
        answer, expected = (ask(one, module, **given) for one in (profile, plain))
        if module is timeline_all:  # names may have other numbers
            assert not any(lane.provisional for _, lane in timeline_of(profile).all_lanes())
        else:
            assert answer == expected


def test_a_profile_that_is_read_into_files_tells_the_same(
    saved: Path, tmp_path: Path, late: None
) -> None:
    plain = Profile(opscope.load(saved).trace)
    profile = copy_of(saved, tmp_path)
    held = timeline_of(profile)
    assert (profile._reading is not None) == mapped.POSSIBLE
    for lane_id, _ in held.part("host"):
        for index in ("0", "1"):
            given = {"lane": lane_id, "level": "0", "index": index}
            answers = []
            for one in (profile, plain):
                try:
                    answers.append(ask(one, timeline_slice, **given))
                except BadParameter as error:  # the lane has one slice
                    answers.append(str(error))
            assert answers[0] == answers[1]
    for name in ("summary", "kernels", "op_totals", "steps", "notes", "iterations"):
        one, other = (getattr(of, name)() for of in (profile, plain))
        assert_frame_equal(one, other)


def test_the_lanes_of_a_long_profile_are_made_of_columns_in_files(
    saved: Path, tmp_path: Path, late: None
) -> None:
    plain = timeline_of(Profile(opscope.load(saved).trace))
    profile = copy_of(saved, tmp_path)
    held = timeline_of(profile)
    with mock.patch.object(mapped.Mapped, "_written", autospec=True, side_effect=mapped.Mapped._written) as written:  # fmt: skip
        assert held.host
    assert written.called == mapped.POSSIBLE
    # the trace was not read for it a second time
    assert ("ranges" in profile.trace.tables._files) == mapped.POSSIBLE  # type: ignore[attr-defined]
    same_lanes(held, plain, "host")


def test_columns_stay_in_memory_if_there_is_no_room_for_files(
    saved: Path, tmp_path: Path, late: None
) -> None:
    plain = timeline_of(Profile(opscope.load(saved).trace))
    held = timeline_of(copy_of(saved, tmp_path))
    with mock.patch.object(mapped.Mapped, "_written", side_effect=OSError(28, "no space left")):
        assert held.host
        held.settle()
    same_lanes(held, plain, "host")


@pytest.mark.parametrize("harm", ["cut", "other kernels", "another form", "no stream", "a bomb"])
def test_kept_categories_that_are_damaged_are_found_again(tmp_path: Path, harm: str) -> None:
    Profile(made_training(steps=1, ranks=1)).save(tmp_path / "run.opscope")
    profile = opscope.load(tmp_path / "run.opscope")
    with mock.patch.object(op_kinds, "AT_ONCE", 0):
        assert first_picture(profile)[0]["provisional"] is True
        timeline_of(profile).settle()
        expected = kept_kinds.kept(opscope.load(tmp_path / "run.opscope"))
        assert expected is not None
        file = tmp_path / "run.opscope/kept.kernel_kinds.parquet"
        label = pl.read_parquet_metadata(file)["opscope"]
        data = pl.read_parquet(file)["byte"].to_numpy().tobytes()
        held = list(msgspec.msgpack.decode(data))
        if harm == "cut":
            file.write_bytes(file.read_bytes()[:-40])
        else:
            if harm == "other kernels":
                held[2] = zlib.compress(expected[:-1].tobytes())
            elif harm == "another form":
                held[1] = held[1][::-1]
            elif harm == "no stream":
                held[2] = b"xyz"
            else:
                held[2] = zlib.compress(bytes(1 << 28))
            made = np.frombuffer(msgspec.msgpack.encode(held), np.uint8)
            pl.DataFrame({"byte": made}).write_parquet(file, metadata={"opscope": label})
        again = opscope.load(tmp_path / "run.opscope")
        assert kept_kinds.kept(again) is None
        held_by = timeline_of(again)
        assert any(lane.provisional for lane in held_by.device)
        held_by.settle()
    assert np.array_equal(kept_kinds.kept(opscope.load(tmp_path / "run.opscope")), expected)


def test_a_direction_around_an_op_decides_its_kernels_category() -> None:
    """Ops without a direction of their own inside an optimizer's and inside a collective's; one that has its
    own; and a compiler's kernel in each."""
    texts = [
        # (start, end, text, category)
        (0, 100, "torch::Adam.step()", "optimizer"), (5, 45, "aten::_foreach_add_()", None),
        (50, 95, "aten::add()", "forward"), (55, 90, "aten::mul()", None),
        (200, 300, "c10d::allreduce_()", "communication"), (205, 245, "aten::copy_()", None),
        (400, 500, "aten::add()", None), (405, 450, "aten::mm()", None),
    ]  # fmt: skip
    launches = [
        (10, "gemm"), (12, "triton_poi_fused_add_1"), (60, "gemm"), (62, "triton_poi_fused_add_1"),
        (210, "copy"), (410, "elementwise_kernel"), (412, "triton_red_fused_sum_1"), (600, "gemm"),
    ]  # fmt: skip
    many = len(launches)
    calls = pl.DataFrame(
        {"start": [at for at, _ in launches], "end": [at + 1 for at, _ in launches],
         "correlation": range(many)}
    ).with_columns(pl.lit("cudaLaunchKernel").alias("name"), pl.lit(1, pl.Int64).alias("thread"))  # fmt: skip
    kernels = pl.DataFrame(
        {"start": [1_000 * n for n in range(many)], "end": [1_000 * n + 500 for n in range(many)],
         "correlation": range(many), "name": [name for _, name in launches]}
    ).with_columns(pl.lit(0).alias("device"), pl.lit(7).alias("stream"))  # fmt: skip
    ranges = pl.DataFrame(texts, ["start", "end", "text", "category"], orient="row").with_columns(
        pl.lit("opscope.torch").alias("domain"), pl.lit(1, pl.Int64).alias("thread"),
        pl.int_range(pl.len()).alias("id"),
    )  # fmt: skip
    frames = {"kernels": kernels, "calls": calls, "ranges": ranges}
    profile = Profile(Trace.of({name: one.with_columns(process=0) for name, one in frames.items()}))
    told, table = op_kinds._by_attribution(profile), op_kinds._by_columns(profile)
    assert told is not None
    assert table is not None
    assert told(0, many).tolist() == table(0, many).tolist()
    said = [CATEGORIES[one] if one != UNTOLD else None for one in told(0, many).tolist()]
    assert said[:2] == ["optimizer", "optimizer"]
    assert said[4] == "communication"
    assert said[5] == "matrix products"
    assert said[6] == "reductions"
    assert said[7] is None
    assert set(CATEGORY) == set(CATEGORIES)
