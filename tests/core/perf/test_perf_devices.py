"""The table of devices: its figures agree with one another, and names find their row."""

from __future__ import annotations

import pytest

from opscope.core.perf.devices import _tables, cpu, find, parse_cc, rows


def test_every_row_is_whole():
    names = [device.name for _, _, device in rows()]
    assert len(names) == len(set(names)) > 60
    for _, sizes, device in rows():
        assert device.source, device.name
        assert device.bandwidth > 5e10
        assert device.memory in sizes
        assert device.vector["f32"] > 1e12
        assert device.tensor["f16"] >= device.vector["f32"]


@pytest.mark.parametrize("wanted", [
    "V100", "T4", "RTX 2080 Ti", "RTX 3090", "RTX 4090", "RTX 5090", "A10", "A30", "A40",
    "A100 40GB", "A100 80GB SXM", "A100 80GB PCIe", "L4", "L40S", "H100 PCIe", "H100 SXM", "H100 NVL",
    "H200", "GH200", "B100", "B200", "GB200", "RTX PRO 6000", "Orin", "MI210", "MI250", "MI300X",
    "MI325X", "MI355X",
])  # fmt: skip
def test_the_devices_that_must_be_there(wanted):
    assert any(wanted in device.name for _, _, device in rows())


def test_rates_follow_from_multiprocessors_and_clock():
    """fp32 = rate of an SM × SMs × boost clock, within rounding; tensor rates stand in whole ratios."""
    for _, _, device in rows():
        rates = _tables()["per_clock"].get(device.cc)
        if rates is None or device.name in ("B100", "A10G"):  # sold below their boost clock
            continue
        ideal = rates["vector"]["f32"] * device.sm_count * device.clock
        assert device.vector["f32"] == pytest.approx(ideal, rel=0.02), device.name
        tensor = device.tensor
        if "bf16" in tensor:
            assert tensor["bf16"] == tensor["f16"], device.name
        if "f8" in tensor:
            assert tensor["f8"] == pytest.approx(2 * tensor["f16"], rel=0.02), device.name
        if "tf32" in tensor:
            assert tensor["f16"] / tensor["tf32"] == pytest.approx(
                4 if device.cc == "8.7" else 2, rel=0.02
            ), device.name


@pytest.mark.parametrize(("text", "row"), [
    ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla V100-DGXS-32GB", "V100 SXM2"),
    ("Tesla V100-PCIE-32GB", "V100 PCIe"), ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
    ("Tesla T4", "T4"), ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("A100-SXM4-80GB", "A100 80GB SXM"),
    ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 NVL", "H100 NVL"), ("H100 SXM", "H100 SXM"), ("NVIDIA H200", "H200 SXM"),
    ("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA GH200 480GB", "GH200 480GB"), ("NVIDIA B200", "B200"),
    ("NVIDIA GB200", "GB200"), ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10G"), ("NVIDIA L4", "L4"),
    ("NVIDIA L40", "L40"), ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 2070 SUPER", "RTX 2070 SUPER"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"), ("NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"), ("AMD Instinct MI300X", "MI300X"),
    ("AMD Instinct MI250X", "MI250X"), ("Orin", "Jetson AGX Orin 64GB"),
])  # fmt: skip
def test_names_find_their_row(text, row):
    device, why = find(text)
    assert device is not None, why
    assert device.name == row


def test_a_laptop_part_is_not_the_desktop_one():
    device, why = find("NVIDIA GeForce RTX 4090 Laptop GPU")
    assert device is None
    assert "no row" in why


def test_what_else_the_trace_tells_is_checked():
    device, _ = find("Tesla V100-SXM2-16GB", cc="8.0", sm_count=108, clock_khz=1_410_000)
    assert device.computed, "a name whose compute capability differs is not believed"
    big, _ = find("NVIDIA A100-SXM4-80GB", memory=85_000_000_000)
    assert big.memory == 85_000_000_000
    assert not big.note
    odd, _ = find("NVIDIA A100-SXM4-80GB", memory=20_000_000_000)
    assert "memory" in odd.note
    whole, _ = find("NVIDIA A100-SXM4-40GB")
    part, _ = find("NVIDIA A100-SXM4-40GB MIG 1g.5gb", sm_count=14)
    assert part.tensor["f16"] == pytest.approx(whole.tensor["f16"] * 14 / 108)
    assert "14 of 108" in part.note


def test_unknown_devices():
    device, why = find("Some GPU", cc="9.0", sm_count=132, clock_khz=1_830_000)
    assert why is None
    assert device.computed
    assert device.tensor["f16"] == pytest.approx(989.4e12, rel=0.01)
    assert device.bandwidth is None
    assert device.shared_per_sm == 228 * 1024
    assert find("Some GPU")[0] is None
    assert "compute capability 3.5" in find("Some GPU", cc="3.5", sm_count=10, clock_khz=1)[1]
    assert "--gpu" in find(None)[1]
    assert find("Some GPU", cc="9.0")[0] is None


def test_peaks():
    h100, _ = find("NVIDIA H100 80GB HBM3")
    assert h100.peak("bf16", True) == pytest.approx(989.4e12)
    assert h100.peak("f8e5m2", True) == pytest.approx(1978.9e12)
    assert h100.peak("f32", True) == pytest.approx(494.7e12)
    assert h100.peak("f32", False) == pytest.approx(66.9e12)
    assert h100.peak("f64", True) == pytest.approx(66.9e12)
    assert h100.peak("?", False) is None
    assert h100.peak("f4e2m1", True) is None
    assert find("Tesla T4")[0].peak("bf16", True) is None


def test_cpus():
    device, _ = cpu("amx", 32, 2.0e9)
    assert device.peak("bf16", True) == 2048 * 32 * 2.0e9
    assert cpu("avx2", 8, 3e9)[0].peak("f32", False) == 32 * 8 * 3e9
    assert cpu("avx512", 8, 3e9)[0].peak("f64", False) == 32 * 8 * 3e9
    assert cpu("mmx", 1, 1e9)[0] is None


def test_compute_capability_as_numbers():
    assert parse_cc("9.0") == (9, 0)
    assert parse_cc("12.1") == (12, 1)
    assert parse_cc("gfx942") is None
    assert parse_cc(None) is None
