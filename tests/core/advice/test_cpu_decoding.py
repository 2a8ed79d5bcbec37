"""Decoding on the CPU: found where ops and ranges tell it, and nothing said of loaders that nobody sees into."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.cpu_decoding import DECODING, DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import US, a_range, op, steady, training, wait

MS = 1000 * US


def decoding(name="decode", took=3 * MS, waited=4 * MS):
    """Six steps of 10 ms that wait ``waited`` ns for their loader, of which ``took`` in a range ``name``."""
    ranges = steady(6, 10 * MS)
    for n in range(6):
        at = n * 10 * MS
        ranges.append(wait(at, at + waited))
        # a pool of the process decodes: two images at once
        ranges += [
            a_range("opscope.user", None, name, at + 10, at + 10 + took, thread)
            for thread in (5, 6)
        ]
        ranges.append(op("aten::stack([f32[3]]*2)", at + waited - 20, at + waited - 10))
    return training(ranges)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a loader that decodes in threads of the training's process", decoding)


def test_most_of_the_waiting_is_decoding():
    (found,) = DETECTOR.find(decoding())
    # what runs on two threads at once counts once
    assert (found.time, found.saving_least, found.saving_most) == (18 * MS, 0, 18 * MS)
    assert found.rows.select("op", "count", "time").row(0) == ("decode", 12, 36 * MS)
    assert "75.0 %" in found.what
    assert "store the result" in found.recommendation
    assert "GPU" not in found.recommendation  # there is none


def test_a_loader_that_keeps_up_may_decode_where_it_likes():
    assert list(DETECTOR.find(decoding(took=MS // 10, waited=MS // 5))) == []


def test_ranges_that_say_something_else_are_an_answer():
    assert list(DETECTOR.find(decoding("read from disk"))) == []


def test_what_nobody_recorded_is_not_known():
    answer = DETECTOR.find(decoding("decode", took=100))
    assert isinstance(answer, CannotTell)
    assert "100.0 % has no op" in answer.reason
    assert "opscope.annotate('decode')" in answer.reason


def test_it_cannot_tell_without_steps_or_a_loader():
    for made in (training([wait(0, 5)]), training(steady(6, 10))):
        assert isinstance(DETECTOR.find(made), CannotTell)


@pytest.mark.parametrize(("text", "decodes"), [
    ("DecodeJpeg", True), ("torchvision::decode_image", True), ("RandomResizedCrop", True),
    ("torchaudio::MelSpectrogram", True), ("Normalize", True), ("ToTensor", True),
    ("aten::copy_", False), ("aten::stack", False), ("read", False), ("normal_", False),
])  # fmt: skip
def test_names(text, decodes):
    assert bool(DECODING.search(text)) == decodes


def test_real_traces(shared):
    """In nw0 two thirds of the loader's time lie in PIL, which records nothing; nw4's loader keeps up."""
    answer = DETECTOR.find(traces.load(shared / "kineto/resnet50_nw0_step_span1.pt.trace.json.gz"))
    assert isinstance(answer, CannotTell)
    assert "65.6 % has no op" in answer.reason
    good = traces.load(shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz")
    assert list(DETECTOR.find(good)) == []
