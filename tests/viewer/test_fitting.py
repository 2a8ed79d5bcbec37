"""Which columns fit what was recorded, and how kernels' names are told apart."""

from __future__ import annotations

import polars as pl

from opscope.profile import Profile
from opscope.viewer.fitting import heading, unfit
from opscope.viewer.question import Asked
from opscope.viewer.questions.kernel_names import answer
from opscope.viewer.viewed import Viewed


def test_a_column_without_a_value_does_not_fit():
    frame = pl.DataFrame({"op": ["a", "b"], "device_time": [1, None], "reason": [None, None]})
    assert unfit(frame, cpu_only=False) == {"reason"}
    assert unfit(frame.clear(), cpu_only=False) == frozenset()


def test_a_reason_that_stands_in_the_ops_place_has_no_column():
    frame = pl.DataFrame({"op": ["a", None], "time": [1, 2], "reason": [None, "outside any op"]})
    assert unfit(frame, cpu_only=False) == {"reason"}
    of_an_op = frame.with_columns(reason=pl.Series(["no launch", "outside any op"]))
    assert unfit(of_an_op, cpu_only=False) == frozenset()


def test_without_a_gpu_kernel_time_beside_the_time_does_not_fit():
    frame = pl.DataFrame({"reason": ["outside any op"], "kernel_time": [1], "time": [1]})
    assert unfit(frame, cpu_only=True) == {"kernel_time"}
    assert unfit(frame, cpu_only=False) == unfit(frame.drop("time"), cpu_only=True) == frozenset()


def test_without_a_gpu_its_columns_do_not_fit_and_times_are_times():
    frame = pl.DataFrame({
        "op": ["a"], "device_self": [1], "host_self": [1], "kernels": [0], "tc_eligible": [True], "device": [-1],
    })  # fmt: skip
    assert unfit(frame, cpu_only=True) == {"host_self", "kernels", "tc_eligible", "device"}
    assert unfit(frame, cpu_only=False) == frozenset()
    assert heading("device_self", cpu_only=True) == "self time"
    assert heading("device_self", cpu_only=False) is None
    # the host's times stay where they are all there is
    assert unfit(frame.select("op", "host_self"), cpu_only=True) == frozenset()


def test_columns_are_called_as_the_vendor_of_the_devices_calls_it():
    assert heading("tensor_core_time", False, "amd") == "matrix core time"
    assert heading("tc_eligible", False, "amd") == "MC eligible"
    assert heading("sm_efficiency", False, "amd") == "CU efficiency"
    assert heading("blocks_per_sm", False, "amd") == "blocks/CU"
    assert heading("tensor_core", False, "google") == "matrix unit"
    assert heading("tensor_core", False, "nvidia") is None
    assert heading("device_time", False, "amd") is None


def test_kernels_are_demangled_and_shortened_and_stay_apart(trace_of):
    mangled = [f"_ZN2at6native{len(name)}{name}IfLi{n}EEEvPT_i" for name, n in
               (("reduce_kernel_of_a_long_name_indeed_it_is", 4), ("reduce_kernel_of_a_long_name_indeed_it_is", 8))]  # fmt: skip
    plain = [
        f"void very::long::name::of_a_kernel<float, 128, {n}, true, false>(float*, int)"
        for n in range(30)
    ]
    names = [*mangled, *plain, "short"]
    kernels = [{"name": name, "start": 10 * n, "end": 10 * n + 5} for n, name in enumerate(names)]
    named = answer(Asked(Viewed(Profile(trace_of(kernels=kernels)), ("run",)), {}))
    shown = [named["short"].get(name, name) for name in names]
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) <= 44
    assert "short" not in named["short"]
    assert set(named["whole"]) == set(mangled)
    assert all(
        text.startswith("void at::native::reduce_kernel") for text in named["whole"].values()
    )


def test_names_that_differ_in_their_signature_alone_keep_it(trace_of):
    names = ["void kernel<float>(float*, int)", "void kernel<float>(double*, int)"]
    kernels = [{"name": name, "start": 10 * n, "end": 10 * n + 5} for n, name in enumerate(names)]
    named = answer(Asked(Viewed(Profile(trace_of(kernels=kernels)), ("run",)), {}))
    assert len({named["short"].get(name, name) for name in names}) == 2
