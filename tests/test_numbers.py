"""A number that no trace can have, in any place of any format, is read as null or refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from opscope import readers
from opscope.backends.recording_folder import parts
from opscope.readers import BadInput
from opscope.readers.recording.reader import collect
from opscope.readers.rows import frame_of
from tests import odd_numbers
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
fuzz_seeds = pytest.importorskip("fuzz_seeds")

#: Files that are opened of each format, spread over its places; the values take turns.
EACH = 30
FORMATS = (
    "nsys SQLite", "nvprof", "DLProf", "Kineto JSON", "ONNX Runtime JSON", "TensorRT",
    "XPlane", "profile", "recording", "CUPTI", *fuzz_seeds.beside_tests(),
)  # fmt: skip


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return fuzz_seeds.made(tmp_path_factory.mktemp("seeds"))


def opened(path: Path, which: str) -> bool:
    """Whether a file is read, with all its tables; False where it is refused by name in one line."""
    try:
        trace = collect(path) if path.is_dir() and parts(path) else readers.open(path)
        for name in trace.tables:
            trace[name]
    except BadInput as error:
        refused = error
    except BaseException as error:
        raise AssertionError(f"{which}: {type(error).__name__}: {error}") from error
    else:
        return True
    assert str(path) in str(refused), which
    assert len(refused.what.splitlines()) == 1, which
    return False


def inside(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("name", FORMATS)
def test_a_number_that_cannot_be_is_read_as_null_or_refused(name, seeds):
    every = [
        (source, file, place, made)
        for source in seeds[name]
        for file in inside(source)
        for place, made in odd_numbers.changes(file)
    ]
    assert len(every) > 30
    step = max(1, len(every) // EACH)
    read = 0
    for number, (source, file, place, made) in enumerate(every[::step]):
        whole = file.read_bytes()
        try:
            file.write_bytes(made[number % len(made)]())
            read += opened(source, f"{file.name} {place} {number % len(made)}")
        finally:
            file.write_bytes(whole)
    # a curve of a wrong number is no curve
    assert read > (0 if name == "PyTorch's memory timelines" else 10)


# ------------------------------------------------------------------ what the seeds do not have


def test_devices_of_cupti_with_numbers_beyond_64_bits(tmp_path):
    from opscope.core.cupti import kinds
    from opscope.readers.recording.with_cupti import load
    from tests.cupti_records import kernel, record, write

    at = 1_700_000_000_000_000_000
    device = {"globalMemorySize": 2**63 + 5, "globalMemoryBandwidth": 2**64 - 1}
    told = {"device": 0, "clock_khz": 10**400, "sm_count": 132}
    facts = [{"clock": [at, 5, 5]}, {"devices": [told]}]
    path = write(tmp_path, kernel(at, at + 1, 1), record(kinds.DEVICE, **device), facts=facts)
    trace = load(path).trace
    (row,) = trace["devices"].rows(named=True)
    assert (row["memory"], row["mem_bandwidth"], row["clock_khz"]) == (None, None, None)
    assert row["sm_count"] == 132
    noted = "values of devices.{} out of range, read as null"
    for name in ("memory", "mem_bandwidth", "clock_khz"):
        assert ("warning", noted.format(name), 1) in trace["notes"].rows()


COUNTED = (
    {"version": 130500, "counters": ["a"]},
    {"devices": [{"device": 0, "memory": 80, "clock_khz": 9, "name": "H100"}]},
    {
        "measured": {
            "context": 1, "device": 0, "began": 1000, "ended": 9000, "passes": 1, "dropped": 0,
        }
    },
    {"launches": [[1100, 1200, 1, 4000, 7, 33554643, 1]]},
    {"names": {"1": "kernel"}},
    {"values": {"context": 1, "rows": [[2.5]]}},
    {"samples": {"device": 0, "rows": [[1500, 2.5]]}},
)  # fmt: skip


def test_counters_beside_a_recording(tmp_path, seeds):
    """Each number of the file in turn by each of the others; every seventh is opened."""
    from opscope.core.cupti.counter_files import COUNTERS
    from opscope.readers.recording import with_counters

    whole = "".join(json.dumps(line) + "\n" for line in COUNTED)
    file = inside(seeds["recording"][0])[0].parent / COUNTERS
    try:
        file.write_text(whole)
        assert opened(seeds["recording"][0], "whole")
        made = [
            (place, number, one)
            for place, several in odd_numbers.changes(file)
            for number, one in enumerate(several)
        ]
        read = 0
        for place, number, one in made[::7]:
            file.write_bytes(one())
            read += opened(seeds["recording"][0], f"{place} {number}")
        assert read > 5
        far = whole.replace('"device": 0', f'"device": {1 << 40}')
        file.write_text(far)
        with pytest.raises(BadInput, match="is not a device number"):
            with_counters.load(file)
    finally:
        file.unlink()


@pytest.mark.parametrize("value", [1e308, float("inf"), float("nan"), -1.0, 2.0**70])
def test_a_report_of_nsight_compute_whose_device_cannot_be(tmp_path, value):
    from tests.readers.ncu import made

    names = ["gpu__time_duration.sum", "launch__device_id", *(
        f"device__attribute_{name}" for name in
        ("multiprocessor_count", "global_memory_size", "compute_capability_major",
         "compute_capability_minor")
    )]  # fmt: skip
    metrics = b"".join(made.metric(place, value) for place in range(len(names)))
    file = tmp_path / "run.ncu-rep"
    file.write_bytes(made.report([made.result("k", metrics)], names))
    opened(file, str(value))


@pytest.mark.parametrize("number", ["9" * 5000, "99999999999"])
def test_a_plane_of_a_device_that_cannot_be_is_refused(tmp_path, number):
    from tests.readers import protobuf

    event = protobuf.event(1, 1000, 1000)
    line = protobuf.line(1, f"Stream #{number}", 0, event)
    file = tmp_path / "one.xplane.pb"
    lines = [line, protobuf.line(2, "Stream #7", 0, event)]  # a file without any kernel is refused
    file.write_bytes(protobuf.space(protobuf.plane("/device:GPU:0", {1: "k"}, lines)))
    assert opened(file, "stream")
    file.write_bytes(protobuf.space(protobuf.plane(f"/device:GPU:{number}", {1: "k"}, [line])))
    assert not opened(file, "device")


def test_the_layers_of_an_engine_that_take_a_century(tmp_path):
    file = tmp_path / "times.json"
    each = {"averageMs": 9e14, "medianMs": 9e14, "percentage": 50.0}
    layers = [{"name": "a", "timeMs": 9e14, **each}, {"name": "b", "timeMs": 1.0}]
    file.write_text(json.dumps([{"count": 1}, *layers]))
    trace = readers.open(file)
    assert trace["kernels"]["name"].to_list() == ["b"]
    assert ("warning", "layers whose time is out of range, left out", 1) in trace["notes"].rows()


@pytest.mark.parametrize("value", ["Infinity", "1e400", "NaN", "9" * 5000, "[1]", '"x"', "-1"])
def test_samples_of_the_processors_that_are_no_numbers(tmp_path, value):
    from opscope.readers.mindspore import minddata

    use = '{"user_utilization": [1, VALUE], "sys_utilization": [1, 2]}'
    whole = f'{{"time_stamp": [1, 2], "device_info": {use}, "process_info": {use}}}'
    file = tmp_path / "samples.json"
    file.write_text(whole.replace("VALUE", value))
    samples, _, note = minddata.processors(file)
    assert not len(samples)
    assert note is not None


@pytest.mark.parametrize("turns", ["Infinity", "1e400", "NaN", "9" * 5000, "[]"])
def test_the_turns_of_a_loop_that_are_no_number(turns):
    from opscope.core.hlo import loops

    class Instruction:
        message = None

    def said(*_):
        return '{"known_trip_count": {"n": TURNS}}'.replace("TURNS", turns)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loops, "text", said)

        class Module:
            data = b""

        assert loops._turns(Module(), Instruction()) is None


def test_rows_keep_what_their_columns_can_hold():
    odd = (2**63, -(2**63) - 1, 10**400, float("inf"), float("nan"), "x", [1], {}, b"\xff", 2**31)
    notes = []
    rows = [{"a": value, "b": value} for value in odd] + [{"a": 1}, {"a": 2, "b": 3}]
    frame = frame_of(rows, {"a": pl.Int64, "b": pl.Int32}, notes, "t")
    assert frame["a"].to_list() == [None] * 9 + [2**31, 1, 2]
    assert frame["b"].to_list() == [None] * 10 + [None, 3]
    said = "values of t.{} out of range, read as null"
    assert notes == [("warning", said.format("a"), 9), ("warning", said.format("b"), 10)]
