"""Counters by CUPTI's own calls, on a stand-in for the library that checks what the real one checks."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from opscope.backends.cupti_counters import (
    CountersRefused,
    Library,
    PmSampler,
    RangeProfiler,
    calls,
)
from opscope.backends.kineto_counters import GROUPS

SOURCE = Path(__file__).resolve().parents[1] / "cupti_counters_stand_in" / "stand_in.c"
NAMES = ("dram__bytes.sum", "sm__cycles_active.avg")
CONTEXT = 0x1234


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in for CUPTI")
    library = tmp_path_factory.mktemp("cupti") / "libcupti.so.12"
    options = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    subprocess.run([compiler, *options, str(SOURCE), "-o", str(library)], check=True)
    return library


@pytest.fixture
def device(path):
    """The stand-in's own calls: launches, failures."""
    one = ctypes.CDLL(str(path))
    one.standin_fail.argtypes = [ctypes.c_char_p, ctypes.c_int]
    one.standin_reset()
    yield one
    assert one.standin_open() == 0, "something was not given back"


def value(name: str, place: int) -> float:
    return 1000.0 * len(name) + place


def test_each_kernel_has_its_counters_in_the_order_of_the_launches(path, device):
    profiler = RangeProfiler(Library(path), CONTEXT, NAMES)
    device.standin_launch(5)  # before it begins
    profiler.start()
    device.standin_launch(3)
    found = profiler.stop()
    profiler.close()
    profiler.close()
    assert found.ranges == ["0", "1", "2"]
    assert found.values == [[value(name, place) for name in NAMES] for place in range(3)]
    assert (found.names, found.dropped, profiler.passes) == (NAMES, 0, 1)


def test_kernels_without_room_are_counted(path, device):
    profiler = RangeProfiler(Library(path), CONTEXT, NAMES, most=2)
    profiler.start()
    device.standin_launch(5)
    found = profiler.stop()
    profiler.close()
    assert (len(found.values), found.dropped) == (2, 3)


def test_samples_are_taken_out_as_often_as_the_image_fills(path, device):
    sampler = PmSampler(Library(path, calls.FOR_SAMPLES), NAMES, samples=4)
    sampler.start()
    device.standin_launch(3)
    sampler.drain()
    device.standin_launch(6)
    found = sampler.stop()
    sampler.close()
    assert found.start == [1000 * place for place in range(9)]
    assert found.end == [1000 * place + 1000 for place in range(9)]
    assert found.values[0] == [value(name, 0) for name in NAMES]
    assert len(found.values) == 9
    assert not found.lost


def test_lost_samples_are_told(path, device):
    sampler = PmSampler(Library(path, calls.FOR_SAMPLES), NAMES)
    sampler.start()
    device.standin_overflow(1)
    found = sampler.stop()
    sampler.close()
    assert found.lost


def test_counters_that_need_several_passes_cannot_be_sampled(path, device):
    device.standin_passes(3)
    with pytest.raises(CountersRefused, match="needs 3 passes, and sampling has one"):
        PmSampler(Library(path, calls.FOR_SAMPLES), NAMES)


def test_what_cannot_be_sampled_beside_the_others_is_left_out_and_told(path, device):
    """On an H200 SASS counters cannot be sampled, and instructions of the Tensor Cores need two passes."""
    names = (
        "sm__inst_executed_pipe_tensor.sum",
        *GROUPS["flops"],
        "dram__bytes.sum",
        "refused__here.sum",
    )
    sampler = PmSampler(Library(path, calls.FOR_SAMPLES), names)
    sampler.start()
    device.standin_launch(2)
    found = sampler.stop()
    sampler.close()
    assert found.names == sampler.names == ("dram__bytes.sum",)
    assert set(sampler.left_out) == {*names} - {"dram__bytes.sum"}
    assert found.values == [[value("dram__bytes.sum", place)] for place in range(2)]


def test_a_name_with_a_star_is_all_counters_of_that_name_that_the_gpu_has(path, device):
    names = ("sm__ops_path_tensor_src_*.sum", "dram__bytes.sum", "l9__*.sum")
    profiler = RangeProfiler(Library(path), CONTEXT, names)
    profiler.start()
    device.standin_launch(1)
    found = profiler.stop()
    profiler.close()
    # shares by sparsity are in the counter of all
    expected = (
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum", "dram__bytes.sum",
    )  # fmt: skip
    assert found.names == expected
    assert profiler.left_out == ("l9__*.sum",)
    assert found.values == [[value(name, 0) for name in expected]]


def test_a_library_that_lists_nothing_measures_what_is_named(path, device):
    device.standin_fail(calls.BASE_METRICS.CALL.encode(), 999)
    profiler = RangeProfiler(Library(path), CONTEXT, ["any__counter.sum", "sm__*.sum"])
    profiler.close()
    assert (profiler.names, profiler.left_out) == (("any__counter.sum",), ("sm__*.sum",))


def test_measuring_begins_anew_after_a_stop(path, device):
    profiler = RangeProfiler(Library(path), CONTEXT, NAMES, most=3)
    for many, names in ((3, ["0", "1", "2"]), (2, ["3", "4"])):
        profiler.start()
        device.standin_launch(many)
        found = profiler.stop()
        assert found.ranges == names
        assert found.values == [[value(name, place) for name in NAMES] for place in range(many)]
    profiler.close()


#: The calls that measuring begins with; those that free and ask for sizes are left out.
BEGIN = [
    calls.INITIALIZE, calls.CHIP_NAME, calls.AVAILABILITY, calls.HOST_INITIALIZE, calls.ADD_METRICS,
    calls.CONFIG, calls.PASSES, calls.RANGE_ENABLE, calls.RANGE_DATA_SIZE, calls.RANGE_DATA,
    calls.RANGE_CONFIG, calls.RANGE_START,
]  # fmt: skip


def begun_and_closed(path: Path) -> None:
    profiler = RangeProfiler(Library(path), CONTEXT, NAMES)
    try:
        profiler.start()
    finally:
        profiler.close()


@pytest.mark.parametrize("call", [params.CALL for params in BEGIN])
def test_a_call_that_fails_is_named_and_everything_is_given_back(path, device, call):
    begun_and_closed(path)
    device.standin_fail(call.encode(), 999)
    with pytest.raises(CountersRefused, match=f"{call}: CUPTI's result is 999"):
        begun_and_closed(path)


def test_a_driver_that_forbids_counters_is_told_with_the_remedy(path, device):
    device.standin_fail(b"cuptiRangeProfilerEnable", 35)
    with pytest.raises(CountersRefused, match="NVreg_RestrictProfilingToAdminUsers=0") as raised:
        RangeProfiler(Library(path), CONTEXT, NAMES)
    assert raised.value.code == 35


def test_another_tool_and_unknown_counters_are_told(path, device):
    first = RangeProfiler(Library(path), CONTEXT, NAMES)
    with pytest.raises(CountersRefused, match="another tool"):
        RangeProfiler(Library(path), CONTEXT, NAMES)
    first.close()
    with pytest.raises(CountersRefused, match=r"none of these counters: no__such\.counter"):
        RangeProfiler(Library(path), CONTEXT, ["no__such.counter"])
    with pytest.raises(CountersRefused, match="the combination cannot be measured"):
        RangeProfiler(Library(path), CONTEXT, ["refused__here.sum"])
    with pytest.raises(CountersRefused, match="no counter is named"):
        RangeProfiler(Library(path), CONTEXT, [])


def test_a_library_without_the_calls_says_from_which_cuda_they_are(tmp_path):
    with pytest.raises(CountersRefused, match=r"CUDA 12\.6"):
        Library("libc.so.6")
    with pytest.raises(CountersRefused, match="cannot be loaded"):
        Library(tmp_path / "libcupti.so")


def test_structures_have_the_sizes_of_the_headers():
    """As the C compiler says of the headers of CUDA 12.6 to 13.5 (scripts/counter_layouts.py)."""
    sizes = {
        params.CALL: params.struct_size() for params in (*calls.FOR_RANGES, *calls.FOR_SAMPLES)
    }
    assert sizes["cuptiRangeProfilerSetConfig"] == 90
    assert sizes["cuptiRangeProfilerStop"] == 41
    assert sizes["cuptiPmSamplingDecodeData"] == 45
    assert sizes["cuptiProfilerHostEvaluateToGpuValues"] == 72
