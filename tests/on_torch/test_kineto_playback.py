"""A capture end to end, without a GPU: launches from live ops, what Kineto writes of them, the op of each.

``OPSCOPE_PLAYBACK_RUNS=200`` plays so often, each time with another clock and other threads.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("torch")

import opscope
from opscope.backends.kineto_capture import KinetoCapture
from opscope.core.capture import session
from opscope.profile import Profile
from opscope.readers.recording.reader import collect
from tests.fake_cuda import FakeCuda

from . import kineto_playback as playback
from .kineto_playback import Stage

RUNS = int(os.environ.get("OPSCOPE_PLAYBACK_RUNS", "6"))
TRACE = "nsys/fsdp_h100x2_2026.sqlite"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Ops launch, and are observed."""
    stage = Stage()
    opscope.init(frameworks=["torch"])
    try:
        with playback.launching(stage):
            yield stage
    finally:
        opscope.shutdown()


@pytest.fixture(scope="module")
def nsight(shared: Path) -> Profile:
    """The profile whose kernels are played back."""
    return opscope.load(shared / TRACE)


def captured(
    folder: Path, stage: Stage, gpu: FakeCuda, player: playback.Player, **how: int
) -> Profile:
    """The profile of a capture around a training that plays it all."""
    session.start(KinetoCapture(folder, lambda: gpu, gpu))
    try:
        playback.run(stage, gpu, player, **how)
    finally:
        session.stop()
    return Profile(collect(folder))


def wrong(profile: Profile, gpu: FakeCuda) -> list[str]:
    """Every launch that is not with the op that made it, by what the recorder itself saw; what is off."""
    trace = profile.trace
    columns = "correlation", "op", "op_id", "reason"
    rows = pl.concat([profile.kernels().select(columns), profile.memops().select(columns)])
    ranges = trace["ranges"].select("id", "thread", "start", "end")
    placed = trace["calls"].select("correlation", called="start", caller="thread")
    true = pl.DataFrame(
        [(each.correlation, each.thread, each.start, each.op) for each in gpu.launched],
        schema=["correlation", "thread_was", "time_was", "op_was"],
        orient="row",
    )
    all_of = (
        true.join(rows, on="correlation", how="left")
        .join(placed, on="correlation", how="left")
        .join(ranges, left_on="op_id", right_on="id", how="left")
    )
    (error,) = trace["clocks"].filter(pl.col("kind") == "kineto")["error_ns"]
    named = pl.col("op").cast(pl.String).str.replace(r"\..*", "") == pl.col("op_was")
    within = pl.col("time_was").is_between(pl.col("start"), pl.col("end"), closed="left")
    checks = {
        "has another op's name": named,
        "was not made in that op": within & (pl.col("thread") == pl.col("thread_was")),
        "has another thread": pl.col("caller") == pl.col("thread_was"),
        # both clocks round, and a read of ours lies between two of theirs
        "is farther off than the stated error": (pl.col("called") - pl.col("time_was")).abs()
        <= error + 2,
    }
    found = []
    for what, holds in checks.items():
        bad = all_of.filter(~holds.fill_null(False))
        if len(bad):
            found.append(f"{len(bad)} of {len(all_of)} {what}: {bad.row(0, named=True)}")
    if len(rows) != len(true):
        found.append(f"{len(rows)} kernels, copies and sets, {len(true)} launches")
    return found


@pytest.mark.parametrize("seed", range(RUNS))
def test_each_launch_of_a_training_is_with_its_op(seed: int, stage: Stage, tmp_path: Path) -> None:
    gpu = FakeCuda(seed)
    player = playback.made(seed)
    profile = captured(tmp_path, stage, gpu, player, threads=2, seed=seed)
    assert player.played == len(gpu.launched) > 600
    assert wrong(profile, gpu) == []


@pytest.mark.parametrize("seed", range(RUNS))
def test_each_kernel_of_a_real_trace_played_back_is_with_its_op(
    seed: int, stage: Stage, nsight: Profile, tmp_path: Path
) -> None:
    gpu = FakeCuda(seed)
    player = playback.of_trace(nsight)
    profile = captured(tmp_path, stage, gpu, player, threads=1 + seed % 3, seed=seed)
    assert player.played == len(gpu.launched)
    assert len(profile.kernels()) == 3_986, "all that the trace knows the launch of"
    assert wrong(profile, gpu) == []


def test_threads_met_by_cpu_activity_are_known_by_the_systems_id(
    stage: Stage, tmp_path: Path
) -> None:
    gpu = FakeCuda(1, met=True)
    profile = captured(tmp_path, stage, gpu, playback.made(1), threads=2, seed=1)
    assert wrong(profile, gpu) == []


def test_on_an_amd_gpu_each_launch_is_with_its_op(stage: Stage, tmp_path: Path) -> None:
    gpu = FakeCuda(4, rocm=True)
    profile = captured(tmp_path, stage, gpu, playback.made(4), threads=2, seed=4)
    names = set(profile.trace["calls"]["name"].cast(pl.String))
    assert {"hipDriverGetVersion", "hipLaunchKernel", "hipMemcpyAsync"} <= names
    assert wrong(profile, gpu) == []


def test_threads_after_each_other_under_one_pthread_id_are_told_apart(
    stage: Stage, tmp_path: Path
) -> None:
    gpu = FakeCuda(2)
    session.start(KinetoCapture(tmp_path, lambda: gpu, gpu))
    idents = []
    for number in range(6):
        player = playback.made(number, many=40)
        idents += playback.run(stage, gpu, player, threads=1, seed=5)[1:]
    session.stop()
    if len(set(idents)) == len(idents):
        pytest.skip("each thread got a pthread id of its own")
    assert wrong(Profile(collect(tmp_path)), gpu) == []


def test_half_of_all_threads_have_a_number_that_is_no_part_of_their_pthread_id() -> None:
    """Else nothing above would show that such are found."""
    # all alive at once: a thread that begins takes over the stack of the one that ended last
    met: list[int] = []
    done = threading.Event()

    def wait() -> None:
        met.append(threading.get_ident())
        done.wait()

    threads = [threading.Thread(target=wait) for _ in range(24)]
    for seed, thread in enumerate(threads):
        with playback.elsewhere(random.Random(seed)):
            thread.start()
    done.set()
    for thread in threads:
        thread.join()
    assert 2 < sum(ident >> 31 & 1 for ident in met) < 22
