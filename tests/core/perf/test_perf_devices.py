"""The table of devices: every figure agrees with the others of its row and its architecture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opscope.core.perf.devices.identify import find
from opscope.core.perf.devices.peaks import cpu, devices, parse_cc, rows, tables

ROWS = {row["name"]: row for row in devices()}
#: What two or three significant digits leave open.
ROUNDING = 0.015


def test_every_row_is_whole():
    assert len(ROWS) == len(devices()) == len(rows()) > 100
    for sizes, device in rows():
        assert device.source, device.name
        assert device.bandwidth > 3e10, device.name
        assert device.memory in sizes, device.name
        assert device.vector["f32"] > 5e11, device.name
        assert device.max_threads_per_sm, device.name
        assert set(device.checked) <= {"peaks", "memory", "units"}, device.name
        assert all(address.startswith("http") for address in device.checked.values()), device.name
        if device.tensor:
            assert device.tensor["f16"] >= device.vector["f32"], device.name


@pytest.mark.parametrize("wanted", [
    "V100 SXM2", "V100 PCIe", "T4", "RTX 2060", "RTX 2060 SUPER", "RTX 2070", "RTX 2070 SUPER", "RTX 2080", "RTX 2080 SUPER",
    "RTX 2080 Ti", "RTX 3050", "RTX 3060", "RTX 3060 Ti", "RTX 3070", "RTX 3070 Ti", "RTX 3080",
    "RTX 3080 Ti", "RTX 3090", "RTX 3090 Ti", "RTX 4060", "RTX 4060 Ti", "RTX 4070", "RTX 4070 SUPER",
    "RTX 4070 Ti", "RTX 4070 Ti SUPER", "RTX 4080", "RTX 4080 SUPER", "RTX 4090", "RTX 4090 D",
    "RTX 5050", "RTX 5060", "RTX 5060 Ti", "RTX 5070", "RTX 5070 Ti", "RTX 5080", "RTX 5090",
    "A10", "A10G", "A30", "A40", "A100 40GB", "A100 80GB SXM", "A100 80GB PCIe", "L4", "L40", "L40S",
    "H100 PCIe", "H100 SXM", "H100 NVL", "H200 SXM", "H200 NVL", "GH200 96GB", "GH200 144GB", "B100",
    "B200", "GB200", "B300", "GB300", "RTX PRO 6000 Blackwell", "Jetson AGX Orin 64GB",
    "Jetson Orin NX 16GB", "Jetson Orin Nano 8GB", "Jetson AGX Thor", "GB10", "P100 SXM2", "P40",
    "Quadro RTX 8000", "RTX A2000", "RTX A6000", "RTX 6000 Ada", "MI100", "MI210", "MI250", "MI250X",
    "MI300A", "MI300X", "MI325X", "MI350X", "MI355X",
])  # fmt: skip
def test_the_devices_that_must_be_there(wanted):
    assert wanted in ROWS


def clocks(row, unit, dtype):
    """The clocks that a rate may be for: the boost clock, and the lower one of the row's unit."""
    known = {row["clock"], row.get(f"{unit}_clock")}
    if dtype == "f64":  # the f64 rate of tensor units keeps to the vector units' clock
        known.add(row.get("vector_clock"))
    return known - {None}


@pytest.mark.parametrize("name", ROWS)
def test_rates_follow_from_multiprocessors_and_clock(name):
    """rate = multiprocessors × clock × FLOP a clock and multiprocessor, of every dtype of every row."""
    row = ROWS[name]
    known = tables()["per_clock"][row.get("units", row["cc"])]
    compared = 0
    for unit in ("vector", "tensor"):
        for dtype, rate in row.get(unit, {}).items():
            if dtype not in known[unit]:
                assert (row["cc"], dtype) == ("10.3", "f64"), "a rate that nothing holds"
                continue
            each = row["sm_count"] * known[unit][dtype] * 1e-6
            ideals = [each * clock for clock in clocks(row, unit, dtype)]
            assert any(rate == pytest.approx(ideal, rel=ROUNDING) for ideal in ideals), (
                unit,
                dtype,
            )
            assert rate <= max(ideals) * (1 + ROUNDING), (unit, dtype)
            compared += 1
    assert compared >= 1


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "bus" in row])
def test_bandwidth_follows_from_the_bus(name):
    row = ROWS[name]
    assert row["bandwidth"] == pytest.approx(row["bus"] * row["pin"] / 8, rel=0.005)


def test_most_rows_have_a_bus():
    gddr = [name for name, row in ROWS.items() if row["bandwidth"] < 1100]
    assert all("bus" in ROWS[name] for name in gddr if name not in ("A30", "P100 PCIe 16GB", "P100 PCIe 12GB"))  # fmt: skip


def test_an_error_in_a_row_is_found():
    """The arithmetic is no formality: a sparse figure, or another part's clock, stands out."""
    row = ROWS["H100 SXM"]
    each = row["sm_count"] * tables()["per_clock"]["9.0"]["tensor"]["f16"] * 1e-6
    sparse = 2 * row["tensor"]["f16"]
    assert not any(sparse == pytest.approx(each * c, rel=ROUNDING) for c in clocks(row, "tensor", "f16"))  # fmt: skip
    pcie = ROWS["H100 PCIe"]["clock"]
    assert row["vector"]["f32"] != pytest.approx(row["sm_count"] * 256e-6 * pcie, rel=ROUNDING)


def test_ratios_between_dtypes():
    """f32 accumulation on GeForce parts is half of f16's; nothing else in a row may differ by that."""
    for name, row in ROWS.items():
        tensor = row.get("tensor", {})
        if "f16_f16acc" in tensor:
            assert tensor["f16_f16acc"] == pytest.approx(2 * tensor["f16"], rel=ROUNDING), name
            assert name.startswith("RTX "), name
        if "bf16" in tensor and row["cc"] != "gfx908":
            assert tensor["bf16"] == tensor["f16"], name
        if "f8" in tensor:
            assert tensor["f8"] == pytest.approx(2 * tensor["f16"], rel=0.02), name


@pytest.mark.parametrize(("text", "row"), [
    ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla V100-DGXS-32GB", "V100 SXM2"),
    ("Tesla V100-PCIE-32GB", "V100 PCIe"), ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
    ("Tesla T4", "T4"), ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("A100-SXM4-80GB", "A100 80GB SXM"),
    ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
    ("NVIDIA A800-SXM4-80GB", "A100 80GB SXM"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 NVL", "H100 NVL"), ("H100 SXM", "H100 SXM"), ("NVIDIA H200", "H200 SXM"),
    ("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA GH200 480GB", "GH200 96GB"), ("NVIDIA B200", "B200"),
    ("NVIDIA GB200", "GB200"), ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10G"), ("NVIDIA L4", "L4"),
    ("NVIDIA L40", "L40"), ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 2070 SUPER", "RTX 2070 SUPER"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"), ("NVIDIA GeForce RTX 4070 Ti", "RTX 4070 Ti"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"), ("Quadro RTX 6000", "Quadro RTX 6000"),
    ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada"), ("NVIDIA RTX A2000 12GB", "RTX A2000"),
    ("AMD Instinct MI300X", "MI300X"), ("AMD Instinct MI250X", "MI250X"),
    ("Orin", "Jetson AGX Orin 64GB"), ("NVIDIA Thor", "Jetson AGX Thor"), ("NVIDIA GB10", "GB10"),
])  # fmt: skip
def test_names_find_their_row(text, row):
    device, why = find(text)
    assert device is not None, why
    assert device.name == row


def test_no_name_finds_two_kinds_of_device():
    """Each row's own name finds that row, or a variant of it that memory or multiprocessors tell apart."""
    for _, device in rows():
        found, _ = find(device.name, device.cc, device.sm_count, device.memory)
        if found is None:  # some names of rows are not what the driver says
            continue
        assert (found.cc, found.sm_count, found.bandwidth, found.tensor) == (
            device.cc, device.sm_count, device.bandwidth, device.tensor), device.name  # fmt: skip


@pytest.mark.parametrize("name", [
    "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3060 Laptop GPU",
    "NVIDIA RTX 5000 Ada Generation Laptop GPU", "NVIDIA RTX A2000 Laptop GPU",
    "GeForce RTX 2080 Super with Max-Q Design", "NVIDIA GeForce GTX 1660 Ti", "NVIDIA GeForce MX450",
    "NVIDIA GeForce RTX 5070 Laptop GPU", "GRID T4-16Q",
])  # fmt: skip
def test_a_laptop_or_unknown_part_is_not_the_desktop_one(name):
    device, why = find(name)
    assert device is None
    assert "no row" in why


def test_what_else_the_trace_tells_is_checked():
    device, _ = find("Tesla V100-SXM2-16GB", cc="8.0", sm_count=108, clock_khz=1_410_000)
    assert device.computed, "a name whose compute capability differs is not believed"
    assert "V100 SXM2 has 7.0" in device.note
    big, _ = find("NVIDIA A100-SXM4-80GB", memory=85_000_000_000)
    assert big.memory == 85_000_000_000
    assert not big.note
    odd, _ = find("NVIDIA A100-SXM4-80GB", memory=20_000_000_000)
    assert "20 GB of memory where A100 80GB SXM has 80" in odd.note
    nvl, _ = find("NVIDIA H100 80GB HBM3", memory=100_000_000_000)
    assert "100 GB of memory" in nvl.note
    whole, _ = find("NVIDIA A100-SXM4-40GB")
    part, _ = find("NVIDIA A100-SXM4-40GB MIG 1g.5gb", sm_count=14)
    assert part.tensor["f16"] == pytest.approx(whole.tensor["f16"] * 14 / 108)
    assert "14 of 108" in part.note
    more, _ = find("NVIDIA GeForce RTX 4090", sm_count=142)
    assert "142 multiprocessors where RTX 4090 has 128" in more.note
    assert more.vector["f32"] == pytest.approx(82.6e12 * 142 / 128)
    fast, _ = find("NVIDIA GeForce RTX 4090", clock_khz=2_700_000)
    assert "2700 MHz where RTX 4090 has 2520" in fast.note
    assert fast.tensor["f16"] == pytest.approx(165.2e12 * 2700 / 2520)
    same, _ = find(
        "NVIDIA GeForce RTX 4090", "8.9", 128, 25_250_000_000, 2_520_000, 1_008_096_000_000
    )
    assert not same.note
    other, _ = find("NVIDIA GeForce RTX 3060 Ti", mem_bandwidth=608_000_000_000)
    assert "608 GB/s where RTX 3060 Ti has 448, which is used" in other.note


@pytest.mark.parametrize(
    ("name", "board", "compute", "eighths"),
    [
        ("NVIDIA H200 MIG 1g.18gb", "NVIDIA H200", 1 / 7, 1),
        ("NVIDIA H200 MIG 1g.18gb+me", "NVIDIA H200", 1 / 7, 1),
        ("NVIDIA H200 MIG 1g.35gb", "NVIDIA H200", 1 / 7, 2),
        ("NVIDIA H200 MIG 3g.71gb", "NVIDIA H200", 3 / 7, 4),
        ("NVIDIA H200 MIG 7g.141gb", "NVIDIA H200", 1, 8),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", "NVIDIA H100 80GB HBM3", 2 / 7, 2),
        ("NVIDIA H100 NVL MIG 1g.12gb", "NVIDIA H100 NVL", 1 / 7, 1),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB", 1 / 7, 1),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "NVIDIA A100-SXM4-40GB", 1 / 7, 4),
        ("NVIDIA A100 80GB PCIe MIG 4g.40gb", "NVIDIA A100 80GB PCIe", 4 / 7, 4),
        ("NVIDIA A30 MIG 1g.6gb", "NVIDIA A30", 1 / 4, 2),
        ("NVIDIA A30 MIG 2g.12gb+me", "NVIDIA A30", 2 / 4, 4),
        ("NVIDIA B200 MIG 1g.23gb", "NVIDIA B200", 1 / 7, 1),
        ("NVIDIA GB200 MIG 2g.47gb", "NVIDIA GB200", 2 / 7, 2),
    ],
)
def test_a_slice_has_its_share_of_the_boards_peaks(name, board, compute, eighths):
    """Shares as NVIDIA's user guide of MIG has them."""
    part, why = find(name)
    whole, _ = find(board)
    assert why is None
    for rates, all_of in ((part.tensor, whole.tensor), (part.vector, whole.vector)):
        assert rates == pytest.approx({dtype: rate * compute for dtype, rate in all_of.items()})
    assert part.bandwidth == pytest.approx(whole.bandwidth * eighths / 8)
    assert part.l2 == pytest.approx(whole.l2 * eighths / 8, abs=1)
    assert (part.cc, part.sm_count) == (whole.cc, None), "how many it has is not told"
    assert part.max_threads_per_sm == whole.max_threads_per_sm
    assert part.note.startswith(f"a slice of {whole.name}: ")


def test_a_slice_has_the_multiprocessors_that_the_trace_tells():
    part, _ = find("NVIDIA H200 MIG 1g.18gb", "9.0", 16, 17_179_869_184, 1_980_000)
    whole, _ = find("NVIDIA H200")
    assert part.tensor["bf16"] == pytest.approx(whole.tensor["bf16"] * 16 / 132)
    assert (part.sm_count, part.memory) == (16, 17_179_869_184)
    assert part.note == (
        "a slice of H200 SXM: 16 of 132 multiprocessors, 1/8 of the memory bandwidth and of the L2"
    )
    slow, _ = find("NVIDIA H200 MIG 1g.18gb", "9.0", 16, 17_179_869_184, 990_000)
    assert slow.tensor["bf16"] == pytest.approx(part.tensor["bf16"] / 2)
    assert part.note in slow.note
    assert "990 MHz" in slow.note


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA H200 MIG", "profile is not known"),
        ("NVIDIA H200 MIG 1x.18gb", "profile is not known"),
        ("NVIDIA H200 MIG 5c.3g.71gb", "profile is not known"),
        ("NVIDIA H200 MIG 1g.11gb", "no slice 1g.11gb"),
        ("NVIDIA A30 MIG 7g.24gb", "no slice 7g.24gb"),
        ("Tesla V100-SXM2-16GB MIG 1g.2gb", "V100 SXM2"),
        ("NVIDIA Z900 MIG 1g.18gb", "'NVIDIA Z900', which has no row"),
    ],
)
def test_a_slice_that_nobody_knows_has_no_peaks(name, said):
    for told in ({}, {"cc": "9.0", "sm_count": 16, "clock_khz": 1_980_000}):
        device, why = find(name, **told)
        assert device is None
        assert said in why or told


def test_variants_of_one_name():
    assert find("NVIDIA GeForce RTX 3080", memory=12_884_901_888)[0].name == "RTX 3080 12GB"
    assert find("NVIDIA GeForce RTX 3080", memory=10_737_418_240)[0].name == "RTX 3080"
    assert find("NVIDIA GeForce RTX 3080", sm_count=70)[0].bandwidth == 912e9
    assert "RTX 3080 12GB" in find("NVIDIA GeForce RTX 3080")[0].note, (
        "which of the two is not told"
    )
    assert find("NVIDIA GH200 144G HBM3e", memory=150_000_000_000)[0].bandwidth == 4900e9
    assert find("Orin", "8.7", 8, 8_000_000_000)[0].bandwidth < 110e9


def test_a_device_without_a_name():
    """Its properties, where they fit one row alone."""
    device, _ = find(None, "9.4", 304, 206_141_652_992)
    assert (device.name, device.vendor) == ("MI300X", "amd")
    assert "names no device" in device.note
    device, _ = find("AMD", None, 304, 206_141_652_992, 2_100_000, 2_662_400_000_000)
    assert device.name == "MI300X"
    assert device.bandwidth == 5300e9
    device, _ = find("", "9.0", 132, 85_018_279_936)
    assert device.name == "H100 SXM"
    # HIP calls MI250X's target 9.0 too
    assert find(None, "9.0", 110, 68_702_699_520)[0].name == "MI250X"
    assert find(None, "9.0", 104, 68_702_699_520)[0].name == "MI210", "a die of MI250 is the same"
    device, why = find(None, "8.0", 108, 85_000_000_000)
    assert device is None
    assert "A100 80GB SXM and A100 80GB PCIe" in why
    assert "--gpu" in find(None)[1]
    assert "names no device" in find("", sm_count=132)[1]
    assert find("AMD Instinct MI250X", "9.0", 110)[0].vendor == "amd", "not taken for Hopper"
    assert find("AMD Instinct MI300X", "gfx942:sramecc+:xnack-")[0].name == "MI300X"


def test_unknown_devices():
    device, why = find("Some GPU", cc="9.0", sm_count=132, clock_khz=1_830_000)
    assert why is None
    assert device.computed
    assert device.tensor["f16"] == pytest.approx(989.4e12, rel=0.01)
    assert device.bandwidth is None
    assert device.shared_per_sm == 228 * 1024
    assert find("Some GPU")[0] is None
    assert "compute capability 3.5" in find("Some GPU", cc="3.5", sm_count=10, clock_khz=1)[1]
    assert find("Some GPU", cc="9.0")[0] is None
    assert "A100 40GB, A100 80GB SXM, A100 80GB PCIe" in find("A100")[1]


def test_a_computed_geforce_has_half_the_rate_of_a_professional_part():
    facts = {"cc": "8.9", "sm_count": 60, "clock_khz": 2_000_000}
    laptop, _ = find("NVIDIA GeForce RTX 4080 Laptop GPU", **facts)
    pro, _ = find("NVIDIA RTX 5000 Ada Generation Laptop GPU", **facts)
    assert laptop.computed
    assert "computed" in laptop.note
    assert pro.tensor["f16"] == 2 * laptop.tensor["f16"]
    assert pro.vector == laptop.vector


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce GTX 1660 Ti", "NVIDIA GeForce MX450", "NVIDIA T600"]
)
def test_parts_without_tensor_cores(name):
    device, _ = find(name, cc="7.5", sm_count=24, clock_khz=1_770_000)
    assert device.vector["f32"] > 0
    assert device.peak("f16", tensor=True) is None


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
    assert find("AMD Instinct MI300X")[0].peak("f32", True) == pytest.approx(163.4e12)
    assert h100.cache() == 50 * 2**20
    assert find("AMD Instinct MI300X")[0].cache() == 256 * 2**20


def test_cpus():
    device, _ = cpu("amx", 32, 2.0e9)
    assert device.peak("bf16", True) == 1024 * 32 * 2.0e9
    assert device.peak("i8", True) == 2048 * 32 * 2.0e9
    assert device.peak("bf16", False) == 128 * 32 * 2.0e9
    assert cpu("avx2", 8, 3e9)[0].peak("f32", False) == 32 * 8 * 3e9
    assert cpu("avx2", 8, 3e9)[0].peak("f32", True) is None
    assert cpu("avx512", 8, 3e9)[0].peak("f64", False) == 32 * 8 * 3e9
    assert "avx512" in cpu("mmx", 1, 1e9)[1]


def test_rates_of_cpus_follow_from_the_width_of_a_register():
    """Two units × lanes × 2; AMX: a 16×16 tile of 64-byte rows in 16 clocks (bf16), int8 twice that."""
    for name, row in tables()["cpu"].items():
        bits = 256 if name.startswith("avx2") else 512
        assert row["vector"]["f32"] == 2 * bits // 32 * 2
        assert row["vector"]["f64"] == 2 * bits // 64 * 2
        if "bf16" in row["tensor"]:
            assert row["tensor"]["bf16"] == 2 * 16 * 16 * 32 // 16
            assert row["tensor"]["i8"] == 2 * 16 * 16 * 64 // 16


def test_a_cpu_by_its_description():
    device, _ = find("CPU avx512 8 cores 2.5 GHz 100 GB/s")
    assert device.peak("f32", False) == 64 * 8 * 2.5e9
    assert device.bandwidth == 100e9
    assert device.cache() is None
    assert find("CPU avx512 8 cores 2.5 GHz 100 GB/s 32 MB")[0].cache() == 32 * 2**20
    assert find("amx, 16 cores, 2 GHz")[0].peak("bf16", True) == 1024 * 16 * 2e9
    assert "bandwidth is not known" in find("cpu avx2 1 core 3 GHz")[0].note
    assert "cores and clock" in find("cpu avx2")[1]
    assert "avx9" in find("cpu avx9 1 core 3 GHz")[1]
    assert find("cpu avx2 1 core 3.1.2 GHz")[0] is None


def test_the_page_of_devices_is_up_to_date():
    script = Path(__file__).parents[3] / "scripts" / "make_devices_doc.py"
    if not script.is_file():
        pytest.skip("the source distribution has no scripts")
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_compute_capability_as_numbers():
    assert parse_cc("9.0") == (9, 0)
    assert parse_cc("12.1") == (12, 1)
    assert parse_cc("gfx942") is None
    assert parse_cc(None) is None
