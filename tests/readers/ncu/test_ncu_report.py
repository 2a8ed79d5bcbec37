"""Nsight Compute's reports: read by our own reader, or by ncu's exporter where their form is not known."""

from __future__ import annotations

import json
import struct
import sys

import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers.ncu import exporter

from . import made

NAMES = ["gpu__time_duration.sum", "dram__bytes_read.sum", "device__attribute_display_name",
         "sass__inst_executed_per_opcode_with_modifier_all", "sass__thread_inst_executed_true_per_opcode"]  # fmt: skip


def one(nvtx: bytes = b"", opcodes=(("HMMA.16816.F32", 10), ("IADD3", 4))) -> bytes:
    metrics = (
        made.metric(0, 1600.0) + made.metric(1, 4096.0) + made.metric(2, "NVIDIA A100-SXM4-40GB")
    )
    metrics += made.metric(3, 14.0, opcodes) + made.metric(4, 6.0, (("FFMA", 6),))
    return made.result("kernel", metrics, nvtx)


def write(tmp_path, data: bytes, name: str = "run.ncu-rep"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_a_report_has_its_kernels_devices_and_values(tmp_path):
    path = write(tmp_path, made.report([one(), one()], NAMES, sources=[b"cubin"]))
    profile = opscope.load(path)
    assert profile.trace.origin["version"] == "2022.4.0.0"
    assert profile.trace["devices"]["name"].to_list() == ["NVIDIA A100-SXM4-40GB"]
    frame = profile.counters()
    assert frame["dram__bytes_read.sum"].to_list() == [4096, 4096]
    assert profile.kernels().select("name", "duration", "grid", "stream").rows() == [
        ("kernel(float*)", 1600, "4,2,1", 7)] * 2  # fmt: skip


def test_matrix_instructions_of_known_size_give_operations(tmp_path):
    work = (
        opscope.load(write(tmp_path, made.report([one()], NAMES))).counter_work().row(0, named=True)
    )
    assert work["tensor_flops"] == 10 * 2 * 16 * 8 * 16
    assert (work["f32_flops"], work["f64_flops"], work["f16_flops"]) == (12, 0, 0)


@pytest.mark.parametrize("opcode", ["HMMA.884.F32.F32.STEP0", "HMMA.SP.16816.F32", "HGMMA.F32"])
def test_matrix_instructions_of_unknown_size_give_none(tmp_path, opcode):
    data = made.report([one(opcodes=((opcode, 3),))], NAMES)
    work = opscope.load(write(tmp_path, data)).counter_work().row(0, named=True)
    assert work["tensor_flops"] is None
    assert "size" in work["no_tensor"]


def test_ranges_in_a_report_give_kernels_their_ops(tmp_path):
    mm = "aten::mm(f32[32,64], f32[64,128]) -> f32[32,128]"
    strings = made.field(3, made.field(1, 5) + made.field(2, mm))
    categories = made.field(1, 1) + made.field(2, made.field(1, 1) + made.field(2, "backward"))
    domain = made.field(
        1, made.field(1, 2) + made.field(2, "opscope.torch") + strings + made.field(4, categories)
    )
    registered = made.field(2, 1) + made.field(5, made.field(1, 3) + made.field(3, 5))
    stack = made.field(2, made.field(1, "outer")) + made.field(2, made.field(2, registered))
    thread = made.field(2, made.field(1, 77) + made.field(2, made.field(1, 2) + stack))
    path = write(tmp_path, made.report([one(domain + thread)], NAMES))
    row = opscope.load(path).counters().row(0, named=True)
    assert (row["bottom_op"], row["direction"]) == ("aten::mm", "backward")


def test_a_compressed_report_is_read(tmp_path):
    import gzip

    path = write(tmp_path, gzip.compress(made.report([one()], NAMES)), "run.ncu-repz")
    assert len(opscope.load(path).counters()) == 1


@pytest.mark.parametrize("cut", range(4, 400, 7))
def test_a_damaged_report_is_refused_in_one_line(tmp_path, cut):
    data = made.report([one()], NAMES)
    with pytest.raises(BadInput) as raised:
        opscope.load(write(tmp_path, data[: len(data) - cut if cut < len(data) - 8 else 9]))
    assert "\n" not in str(raised.value)


def test_sizes_that_promise_too_much_are_refused(tmp_path):
    data = bytearray(made.report([one()], NAMES))
    struct.pack_into("<I", data, 4, 0xFFFFFFF0)
    with pytest.raises(BadInput, match="ends early"):
        opscope.load(write(tmp_path, bytes(data)))


# ---------------------------------------------------------------------------------- ncu's exporter

FAKE = """#!{python}
import json, sys, time
json.dump(sys.argv[1:], open({said!r}, "w"))
{body}
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that puts a program ``ncu`` on PATH; returns the file with its arguments."""

    def install(body: str):
        folder = tmp_path / "bin"
        folder.mkdir()
        said = tmp_path / "said.json"
        program = folder / "ncu"
        program.write_text(FAKE.format(python=sys.executable, said=str(said), body=body))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("OPSCOPE_NCU", raising=False)
        return said

    return install


def unknown(tmp_path):
    return write(tmp_path, made.report([one()], NAMES, version=8))


def test_a_report_of_another_version_is_exported_by_ncu(tmp_path, fake):
    text = made.wide(
        [(made.about(0, "add"), {"gpu__time_duration.sum": "5"})], {"gpu__time_duration.sum": "ns"}
    )
    said = fake(f"sys.stdout.write({text!r})")
    path = unknown(tmp_path)
    assert opscope.load(path).kernels()["duration"].to_list() == [5]
    arguments = json.loads(said.read_text())
    assert arguments[:5] == ["--import", str(path), "--csv", "--page", "raw"]
    assert "base" in arguments


def test_a_report_of_another_version_needs_ncu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"install ncu here.*--page raw"):
        opscope.load(unknown(tmp_path))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.stderr.write('==ERROR== cannot open\\n'); sys.exit(3)", r"status 3.*cannot open"),
        ("time.sleep(60)", "more than 1 s"),
        (
            "sys.stdout.write('==ERROR== ERR_NVGPUCTRPERM - no\\n')",
            "NVreg_RestrictProfilingToAdminUsers",
        ),
    ],
)
def test_what_ncu_cannot_do_is_said(tmp_path, fake, monkeypatch, body, said):
    fake(body)
    monkeypatch.setattr(exporter, "LIMIT", 1)
    with pytest.raises(BadInput, match=said):
        opscope.load(unknown(tmp_path))


# --------------------------------------------------------------------------------------- real ones


def test_real_reports_are_read_without_ncu(shared, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    scan = opscope.load(shared / "ncu" / "speedy_scan_profile.ncu-rep")
    (row,) = scan.counter_work().to_dicts()
    assert row["name"].startswith("kernel(int const*")
    assert (row["dram_read"], row["dram_written"], row["duration"]) == (40114816, 38219392, 336704)
    assert (row["tensor_flops"], row["f32_flops"]) == (0, 0)
    sectors = scan.counters()
    assert sectors["dram__sectors_read.sum"][0] * 32 == row["dram_read"]
    mojo = opscope.load(shared / "ncu" / "cuda_learning_mojo_profile.ncu-rep")
    names = mojo.kernels()["name"].str.extract(r"^(\w+)").to_list()
    assert names[:3] == ["warmingUp", "mathKernel1", "mathKernel2"]
    assert mojo.trace["devices"]["name"].to_list() == ["NVIDIA GeForce GTX 1660 Ti"]
