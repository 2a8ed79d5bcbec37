"""Symbols of C++: read where they can be, and left as they are where their text would not end."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.dialects import demangle
from opscope.core.dialects.demangle import LONGEST, all_demangled, demangled
from tests.draws import dear

pytestmark = pytest.mark.skipif(demangle._library() is None, reason="no libstdc++ here")
NORM = (
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipel"
    "ineProblemIDF16bDF16bfDF16bDF16bDF16bffNS_19Generic2dBlockShapeINS_8sequenceIJLi1ELi3072EEEENS5_"
    "IJLi1ELi128EEEENS5_IJLi1ELi8EEEEEENS_18Rmsnorm2dFwdTraitsILb1ELb0ELb0ELb0ELNS_21Rmsnorm2dFusedAd"
    "dEnumE0ELNS_23Rmsnorm2dFusedQuantEnumE0ELNS_22Rmsnorm2dSensitiveEnumE0EEEEENS_33Rmsnorm2dFwdPipe"
    "lineDefaultPolicyEEENS_17Default2DEpilogueINS_24Default2DEpilogueProblemIfDF16bLb0ELb1ELb0EEEvEE"
    "EEJNSM_5KargsEEEEvDpT1_"
)


def sequence_number(number):
    """How the symbol refers to what came as number ``number``."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ""
    while number > 0:
        number -= 1
        text = digits[number % 36] + text
        number //= 36
    return f"S{text}_"


def doubling(times):
    """``f(a<int, int>, a<that, that>, a<that, that>, …)``: each argument twice as long as the last."""
    text = "_Z1f1aIiiE"
    for number in range(1, times + 1):
        last = sequence_number(number)
        text += f"S_I{last}{last}E"
    return text


@pytest.mark.parametrize("times", [22, 400])
def test_a_symbol_whose_name_doubles_with_every_ten_bytes_stays_a_symbol(times):
    assert demangled(doubling(times)) == doubling(times)


@given(st.integers(0, 30))
@dear
def test_no_name_is_longer_than_a_trace_can_bear(times):
    found = demangled(doubling(times))
    assert len(found) <= LONGEST
    assert found == doubling(times) or found.startswith("f(a<int, int>")


def test_those_beside_a_symbol_that_never_ends_are_read():
    wild, plain = doubling(60), "_ZN2at6native3addEv"
    long = "_Z1f" + "1aIiiE" + "".join(f"S_IS{sequence_number(n)[1:-1]}_iE" for n in range(1, 14))
    assert not demangle._stays_small(long)
    found = all_demangled([wild, long, None, plain, doubling(61), NORM, "sgemm"])
    assert found[0] == wild
    assert found[1].startswith("f(a<int, int>, ")
    assert found[2] is None
    assert found[3] == "at::native::add()"
    assert found[4] == doubling(61)
    assert found[5].startswith("void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<")
    assert found[6] == "sgemm"


def test_symbols_that_never_end_take_no_more_than_so_many_tries(monkeypatch):
    asked = []
    run = subprocess.run

    def counted(*args, **kwargs):
        asked.append(args)
        return run(*args, **kwargs)

    monkeypatch.setattr(subprocess, "run", counted)
    wild = [doubling(times) for times in range(70, 76)]
    assert all_demangled(wild) == wild
    assert len(asked) == demangle._TRIES
    assert all_demangled(wild) == wild
    assert len(asked) == demangle._TRIES, "what was tried once is remembered"


def test_a_program_that_is_no_interpreter_starts_no_child(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a child"))
    assert demangled(doubling(90)) == doubling(90)


@pytest.mark.parametrize("times", [3, 5])
def test_a_short_name_is_read_here_and_in_a_child_alike(times):
    assert demangle._apart([doubling(times)]) == {doubling(times): demangle._here(doubling(times))}


@given(st.text(st.sampled_from("ISTLEPKRNDsp_0123aiv"), max_size=40))
def test_any_text_that_begins_as_a_symbol_does_is_read_or_left(text):
    symbol = f"_Z1f{text}"
    if demangle._stays_small(symbol):
        assert len(demangled(symbol)) <= LONGEST


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN5aiter18fmha_fwd_hd128_fp8E", "aiter::fmha_fwd_hd128_fp8"),
        ("_ZN5aiter18fmha_fwd_hd128_fp8E.kd", "aiter::fmha_fwd_hd128_fp8"),
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_",
            "void aiter::add_rmsnorm_quant_kernel<std::bfloat16_t, std::bfloat16_t, 256>(std::bfloat16_t*)",
        ),
        (
            "_ZN5aiter30fused_mx_quant_moe_sort_kernelIDF16bDB8_Li256ELi16EEEvPT0_PhPKT_",
            "void aiter::fused_mx_quant_moe_sort_kernel<std::bfloat16_t, _BitInt(8), 256, 16>"
            "(_BitInt(8)*, unsigned char*, std::bfloat16_t const*)",
        ),
    ],
)
def test_names_of_amd_s_libraries(symbol, name):
    assert demangled(symbol) == name
