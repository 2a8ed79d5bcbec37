"""The data loader that does not keep up: found on the trace that has one, its estimate held against the other."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.data_loader import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import US, launching, steady, step, training, wait

NW0 = "kineto/resnet50_nw0_step_span1.pt.trace.json.gz"
NW4 = "kineto/resnet50_nw4_step_span1.pt.trace.json.gz"
#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("ResNet-50 of the PyTorch profiler's tutorial, num_workers=0", NW0)
MS = 1000 * US


def waiting(first, later, steps=6, workers=0, **more):
    """Steps of 10 ms, the first of which waits ``first`` ns for its batch, each other ``later`` ns."""
    waits = [
        wait(n * 10 * MS, n * 10 * MS + (later if n else first), workers) for n in range(steps)
    ]
    return training(steady(steps, 10 * MS) + waits, **more)


def test_it_fires_above_a_twentieth_of_the_steps():
    (found,) = DETECTOR.find(waiting(4 * MS, 4 * MS))
    assert (found.time, found.saving_least, found.saving_most) == (24 * MS, 0, 24 * MS)
    assert found.confidence == "high"
    # a batch takes 4 ms, the rest of the step 6 ms: one worker keeps up, and one is to spare
    assert "num_workers=2" in found.recommendation
    assert found.rows["time"][0] == 24 * MS
    assert found.rows["step"].to_list() == [None, 0, 1, 2, 3, 4, 5]
    assert found.edit.host.select("start", "end", "factor").rows()[1] == (10 * MS, 14 * MS, 0.0)
    assert not DETECTOR.find(waiting(MS // 2, MS // 2))


def test_more_workers_are_advised_to_one_that_has_some():
    (found,) = DETECTOR.find(waiting(6 * MS, 6 * MS, workers=2))
    # two workers deliver a batch each 10 ms, so one takes 20 ms; the rest of the step takes 4 ms
    assert "num_workers=6" in found.recommendation
    assert "2 workers" in found.evidence


def busy(own, machine=100.0, children=0.0, queued=0.0):
    """Samples in which the process uses so many of two processors [%], its workers, and the machine."""
    values = {"machine CPU [%]": machine, "process CPU [%]": own, "child processes CPU [%]": children,
              "waiting for a processor [%]": queued, "processors": 2.0}  # fmt: skip
    return [
        {"process": 0, "time": at, "name": name, "value": value}
        for at in range(0, 60 * MS, 10 * MS)
        for name, value in values.items()
    ]


@pytest.mark.parametrize(("workers", "samples"), [(0, busy(190.0)), (2, busy(40.0, 97.0, 145.0))])
def test_workers_do_not_help_where_this_process_and_its_workers_fill_the_processors(
    workers, samples
):
    (found,) = DETECTOR.find(waiting(4 * MS, 4 * MS, workers=workers, samples=samples))
    assert "of the 2 processors, so more workers would not help" in found.recommendation
    assert "num_workers" not in found.recommendation


@pytest.mark.parametrize(("workers", "samples"), [(0, busy(10.0)), (2, busy(60.0, 100.0, 10.0))])
def test_samples_that_sleep_are_loaded_by_more_workers_though_others_fill_the_machine(
    workers, samples
):
    (found,) = DETECTOR.find(waiting(4 * MS, 4 * MS, workers=workers, samples=samples))
    assert "num_workers=" in found.recommendation
    assert "samples mostly wait" in found.recommendation
    assert "pin_memory" not in found.recommendation  # there is no GPU


@pytest.mark.parametrize(("workers", "own"), [(0, 20.0), (2, 10.0)])
def test_where_the_process_waits_for_processors_its_samples_are_not_said_to_sleep(workers, own):
    samples = busy(own, queued=60.0)
    (found,) = DETECTOR.find(waiting(4 * MS, 4 * MS, workers=workers, samples=samples))
    assert "samples mostly wait" not in found.recommendation
    assert "other processes use" in found.recommendation


def test_workers_for_samples_that_compute_have_what_other_processes_leave():
    (found,) = DETECTOR.find(waiting(8 * MS, 8 * MS, samples=busy(90.0)))
    assert "num_workers=2," in found.recommendation  # not more than there are processors
    assert "other processes use 1.1 of the 2 processors" in found.recommendation


def test_one_long_wait_at_the_begin_is_workers_that_start():
    (found,) = DETECTOR.find(waiting(9 * MS, MS // 10, workers=4))
    assert found.confidence == "low"
    assert "a single wait" in found.what
    assert "persistent_workers=True" in found.recommendation
    assert "num_workers" not in found.recommendation


def test_of_ranks_the_longest_wait_of_each_step_counts():
    import polars as pl

    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

    ranges = []
    for process in range(2):
        for n in range(6):
            late = 4 * MS if n % 2 == process else 2 * MS
            for one in (
                step(n, n * 10 * MS, (n + 1) * 10 * MS),
                wait(n * 10 * MS, n * 10 * MS + late),
            ):
                ranges.append({**one, "process": process})
    (found,) = DETECTOR.find(Profile(Trace.of({"ranges": pl.DataFrame(ranges)}, {})))
    assert found.time == 6 * 4 * MS


def test_it_cannot_tell_without_steps_or_loaders():
    for made, why in (
        (training([wait(0, 5)]), "no steps"),
        (training(steady(6, 10)), "no data loader was seen"),
        (training([*steady(6, 10), wait(0, 5, thread=9)]), "other threads"),
        (training([*steady(6, 10), wait(0, 5)]), "capture more steps"),
    ):
        answer = DETECTOR.find(made)
        assert isinstance(answer, CannotTell)
        assert why in answer.reason


def test_other_loaders_have_other_advice():
    def advice(loader):
        waits = [
            {**wait(n * 10 * MS, n * 10 * MS + 4 * MS), "text": f"{loader}() @train.py:7"}
            for n in range(6)
        ]
        (found,) = DETECTOR.find(training(steady(6, 10 * MS) + waits))
        return found.recommendation

    assert "AUTOTUNE" in advice("tf.data")
    assert "grain." in advice("PyGrainDatasetIterator")
    assert "num_parallel_workers" in advice("mindspore.dataset")
    assert "in parallel" in advice("mine")


def test_the_gpu_idles_while_the_step_waits():
    made = training(
        steady(6, 10 * MS) + [wait(n * 10 * MS, n * 10 * MS + 4 * MS) for n in range(6)],
        [one for n in range(6) for one in launching(n * 10 * MS + 5 * MS, n * 10 * MS + 6 * MS, MS, 3 * MS)],
    )  # fmt: skip
    (found,) = DETECTOR.find(made)
    assert "the GPU idles for 20.0 ms of it" in found.evidence
    (row,) = made.advice(["data_loader"]).rows(named=True)
    assert row["saving"] == 24 * MS


def test_of_two_real_traces_the_one_without_workers_has_it(shared):
    """Without workers each step asks the loader for 63 to 73 of its 164 to 181 ms; with four for at most 4."""
    bad, good = traces.load(shared / NW0), traces.load(shared / NW4)
    (found,) = DETECTOR.find(bad)
    assert found.time == bad.input_waits()["input_wait"].sum() == 415_791_000
    assert "num_workers=" in found.recommendation
    assert "resnet50_profiler_api.py:42" in found.evidence
    assert list(DETECTOR.find(good)) == []


def test_the_estimate_on_the_bad_trace_is_held_against_the_good_one(shared):
    """nw4 is nw0 with four workers. Its first step is warm-up, its fifth an outlier: the median is compared.

    With workers the host's own work takes longer, as they share the processors: the estimate is too good.
    """
    bad, good = traces.load(shared / NW0), traces.load(shared / NW4)
    (row,) = bad.advice().filter(detector="data_loader").rows(named=True)
    assert row["saving_least"] <= row["saving"] <= row["saving_most"]
    before = bad.steps()["time"]
    estimated = (before.sum() - row["saving"]) / len(before)
    steps = good.steps().filter(~good.steps()["warm_up"])["time"]
    measured = steps.median()
    error = estimated / measured - 1
    saved = before.mean() - measured
    print(
        f"data_loader: a step of {before.mean() / 1e6:.1f} ms is estimated at {estimated / 1e6:.1f} ms,"
        f" measured with workers {measured / 1e6:.1f} ms: {100 * error:+.1f} %; saving of a step estimated"
        f" {row['saving'] / len(before) / 1e6:.1f} ms, measured {saved / 1e6:.1f} ms"
    )
    assert abs(error) < 0.15
    assert saved * len(before) <= row["saving_most"]


@pytest.mark.parametrize("name", ["ddp_rank3of8_a100_stacks.json.gz"])
def test_a_loader_that_keeps_up_is_left_alone(shared, name):
    """Its steps wait 70 us of 76 ms."""
    assert list(DETECTOR.find(traces.load(shared / "kineto" / name))) == []
