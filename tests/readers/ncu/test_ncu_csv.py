"""Nsight Compute's CSV: both pages, what stands around the table, numbers of any locale, ranges, refusals."""

from __future__ import annotations

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall
from opscope.errors import BadInput
from opscope.readers.ncu.csv_file import decimal_comma, factor, numbers
from opscope.readers.ncu.nvtx import pushed as read_pushed

from . import made

TIME = "gpu__time_duration.sum"
READ = "dram__bytes_read.sum"


def load(tmp_path, text: str, encoding: str = "utf-8", name: str = "counters.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return opscope.load(path)


def values(profile) -> dict:
    rows = profile.counter_totals()
    return {(r["name"], r["counter"]): r["counted"] for r in rows.to_dicts()}


def two(read: str = "1,024", unit: str = "byte") -> list:
    return [(made.about(n, name), {TIME: ("ns", f"{2_000 + n:,}"), READ: (unit, read)})
            for n, name in enumerate(("add(float*)", "mul(float*)"))]  # fmt: skip


def test_the_details_page_is_read_past_the_preamble(tmp_path):
    profile = load(tmp_path, made.long(two(), after="==PROF== Disconnected from process 4000\n"))
    assert values(profile)["mul(float*)", TIME] == 2001
    assert profile.kernels()["duration"].to_list() == [2000, 2001]
    assert profile.kernels().select("grid", "block", "stream").row(0) == ("2,1,1", "128,1,1", 7)
    assert profile.trace["devices"]["cc"].to_list() == ["8.0"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_the_table(tmp_path, encoding):
    text = made.long(two(), preamble="" if encoding == "utf-8-sig" else made.PREAMBLE)
    assert values(load(tmp_path, text, encoding))["add(float*)", READ] == 1024


def test_the_units_row_of_the_raw_page_scales_its_columns(tmp_path):
    rows = [
        (
            made.about(0, "add"),
            {TIME: "2.5", READ: "1.5", "launch__func_cache_config": "CachePreferNone"},
        )
    ]
    units = {TIME: "usecond", READ: "Kbyte", "launch__func_cache_config": ""}
    profile = load(tmp_path, made.wide(rows, units))
    assert values(profile) == {("add", READ): 1500, ("add", TIME): 2500}
    (note,) = [what for _, what, _ in profile.notes().rows() if "no numbers" in what]
    assert "left out" in note


def test_lines_of_the_program_inside_the_table_are_left_out_and_counted(tmp_path):
    text = made.long(two()).replace(
        '\n"1"', '\nepoch 1, loss 0.3\n==PROF== Profiling "mul"\n"1"', 1
    )
    profile = load(tmp_path, text)
    assert len(profile.counters()) == 2
    assert [n for _, what, n in profile.notes().rows() if "lines of other programs" in what] == [2]


def test_a_preamble_longer_than_what_recognises_a_file_is_read(tmp_path):
    text = made.long(two(), preamble="==PROF== Connected to process 1\n" + "step\n" * 5000)
    assert len(load(tmp_path, text, name="log.txt").counters()) == 2


def test_commas_before_fractions_are_read_as_such(tmp_path):
    rows = [
        (
            made.about(0, "add"),
            {TIME: ("ns", "2.048"), READ: ("byte", "1.048.576"), "a.pct": ("%", "97,32")},
        )
    ]
    profile = load(tmp_path, made.long(rows))
    assert values(profile)["add", READ] == 1_048_576
    assert profile.counters()["a.pct"].to_list() == [97.32]


@given(st.floats(0, 1e12), st.booleans())
def test_a_number_is_the_same_in_either_notation(number, comma):
    text = f"{number:,.2f}"
    if comma:
        text = text.translate(str.maketrans(",.", ".,"))
    column = pl.Series([text, "1.234,5" if comma else "1,234.5"])
    assert decimal_comma(column) is comma
    assert numbers(column, comma)[0] == float(f"{number:.2f}")


@pytest.mark.parametrize(
    ("text", "number"),
    [("9,589,248", 9589248), ("1 234", 1234), ("1\u202f234", 1234), ("1'234", 1234), ("n/a", None),
     ("12 (0: 4; 1: 8)", 12), ("", None), ("nan", None), ("inf", None), ("5 %", 5), ("12,34,567", 1234567)],
)  # fmt: skip
def test_numbers_that_tools_print(text, number):
    assert numbers(pl.Series([text]), comma=False)[0] == number


@pytest.mark.parametrize(
    ("unit", "base"),
    [("byte", 1), ("Kbyte", 1e3), ("Gbyte", 1e9), ("usecond", 1e3), ("ns", 1), ("Gbyte/second", 1e9),
     ("cycle/nsecond", 1e9), ("Kbyte/block", 1e3), ("%", 1), ("", 1), ("Ghz", 1e9), ("inst", 1)],
)  # fmt: skip
def test_units_in_base_units(unit, base):
    assert factor(unit) == pytest.approx(base)


def test_ranges_around_launches_give_kernels_their_ops(tmp_path):
    op = "opscope.torch:aten::mm(f32[32,64], f32[64,128]) -> f32[32,128]"
    inside = made.pushed(99, "opscope.torch:step 3", "opscope.torch:encoder.0", op)
    call = OpCall("my op", params=(("mode", 'a:"b" "c'),))
    other = made.pushed(99, "opscope.torch:step 3", f"opscope.torch:{format_call(call)}")
    rows = [
        (made.about(n, name), {TIME: "10"}) for n, name in enumerate(("gemm", "epilogue", "add"))
    ]
    text = made.wide(rows, {TIME: "ns"}, [(inside, ""), (inside, ""), (other, "")])
    frame = load(tmp_path, text).counters()
    assert frame["bottom_op"].to_list() == ["aten::mm", "aten::mm", "my op"]
    assert frame["layer"].to_list() == ["encoder.0", "encoder.0", None]
    assert frame["step"].to_list() == [3, 3, 3]
    assert frame["reason"].to_list() == [None] * 3


def test_a_range_with_a_payload_and_a_message_is_read():
    (one,) = read_pushed('7  "my:none:UINT64:42:ARGB:0xff0000:REGISTERED:load:batch" ')
    assert (one.thread, one.domain, one.text, one.payload) == (7, "my", "load:batch", 42)
    assert [x.text for x in read_pushed(made.pushed(1, "<default domain>:aten::mm, seq = 4", "d:x"))] == [
        "aten::mm, seq = 4", "x"]  # fmt: skip


def test_kernels_without_a_duration_have_counters_and_no_times(tmp_path):
    rows = [(made.about(0, "add"), {READ: ("byte", "64")})]
    profile = load(tmp_path, made.long(rows))
    frame = profile.counters()
    assert frame.select("name", "duration", READ).row(0) == ("add", None, 64)
    assert profile.kernels().is_empty()
    assert any("without a duration" in what for _, what, _ in profile.notes().rows())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to"
         " access NVIDIA GPU Performance Counters on the target device 0.\n", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("==PROF== Connected to process 1\nhello\n", "no kernels"),
        (made.quoted([*made.ABOUT, "Metric Name", "Metric Unit", "Metric Value"]) + "\n", "no kernels"),
    ],
)  # fmt: skip
def test_a_file_without_counters_says_what_ncu_said(tmp_path, text, said):
    with pytest.raises(BadInput, match=said):
        load(tmp_path, text)


def test_real_csv_sums_to_the_digit(shared):
    folder = shared / "ncu" / "roofline_rtx5070"
    for path in sorted(folder.glob("*.csv")):
        text = path.read_text("utf-8-sig")
        if '"Metric Name"' not in text:
            continue
        table = csv.DictReader(io.StringIO(text[text.index('"ID",') :]))
        stated = {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in table}
        assert len(stated) == 12
        profile = opscope.load(path)
        found = {r["counter"]: r["mean_count"] for r in profile.counter_totals().to_dicts()}
        assert found == stated
        assert profile.kernels()["duration"].sum() == stated[TIME]
        work = profile.counter_work().row(0, named=True)
        read, written = stated["dram__bytes_op_read.sum"], stated["dram__bytes_op_write.sum"]
        assert (work["dram_read"], work["dram_bytes"]) == (read, read + written)


def test_a_label_of_two_sections_is_two_counters(tmp_path):
    header = [*made.ABOUT, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    about = made.about(0, "add")
    rows = [
        [*about, "GPU Speed Of Light Throughput", "Memory Throughput", "%", "22.5"],
        [*about, "GPU Speed Of Light Throughput", "Duration", "usecond", "3.2"],
        [*about, "Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "120"],
        [*about, "Occupancy", "Waves Per SM", "", "2"],
    ]
    profile = load(tmp_path, "\n".join(made.quoted(row) for row in [header, *rows]) + "\n")
    assert {r["counter"]: r["mean_count"] for r in profile.counter_totals().to_dicts()} == {
        "GPU Speed Of Light Throughput: Memory Throughput": 22.5,
        "Memory Workload Analysis: Memory Throughput": 120e9,
        "gpu__time_duration.sum": 3200,
        "Waves Per SM": 2,
    }
    assert profile.kernels()["duration"].to_list() == [3200]


def test_a_summary_of_many_launches_is_refused_with_what_to_do(tmp_path):
    header = ["Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size", "Device", "CC",
              "Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]  # fmt: skip
    with pytest.raises(BadInput, match="--print-summary"):
        load(tmp_path, made.quoted(header) + "\n" + made.quoted(["1"] * len(header)) + "\n")


def test_an_old_table_without_sizes_and_devices_is_read(tmp_path):
    header = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
              "Section Name", "Metric Name", "Metric Unit", "Metric Value"]  # fmt: skip
    row = [
        0,
        4000,
        "app",
        "127.0.0.1",
        "add",
        "2019-Oct-01 10:00:00",
        1,
        7,
        "s",
        TIME,
        "nsecond",
        "1,500",
    ]
    profile = load(tmp_path, made.quoted(header) + "\r\n" + made.quoted(row) + "\r\n")
    assert profile.kernels().select("name", "duration", "grid", "device").row(0) == (
        "add",
        1500,
        None,
        0,
    )


def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path):
    text = "ID;Process ID;Process Name;Host Name;Kernel Name;Metric Name;Metric Unit;Metric Value\n"
    text += f"0;4000;app;host;add(int, float*);{TIME};ns;1.500,25\n"
    assert load(tmp_path, text).counters()[TIME].to_list() == [1500.25]


def test_processes_are_kept_apart(tmp_path):
    rows = [(made.about(0, "add", pid=pid), {TIME: ("ns", "5")}) for pid in (10, 11)]
    profile = load(tmp_path, made.long(rows))
    assert profile.counters()["process"].to_list() == [0, 1]
    assert profile.trace["processes"]["pid"].to_list() == [10, 11]


@pytest.mark.parametrize("time", ["0", "-5", "nan", "inf", "1e300", "x", ""])
def test_a_time_that_no_kernel_takes_is_none(tmp_path, time):
    rows = [(about, counters | {TIME: ("ns", time)}) for about, counters in two()]
    profile = load(tmp_path, made.long([*rows[:1], *two()[1:]]))
    assert profile.summary()["kernel_time"].to_list() == [None]
    assert any("kernels without a duration" in note for note in profile.notes()["what"])


def test_a_quote_that_is_not_closed_makes_no_thousands_of_columns(tmp_path):
    """It joins the next line to the header; to look at each column took a minute for a megabyte."""
    text = made.wide(
        [(made.about(0, "add"), {TIME: "2.5", READ: ", " * 20_000})], {TIME: "us", READ: ""}
    )
    text = text.replace('"Kernel Name"', '"Kernel Name', 1)
    with pytest.raises(BadInput, match="columns"):
        load(tmp_path, text)


def warned(profile) -> list:
    notes = profile.trace["notes"].filter(pl.col("severity") == "warning")
    return notes.select("what", "how_many").rows()


def test_a_kernel_that_is_there_again_is_counted_once_and_one_of_its_number_is_told(tmp_path):
    units = {TIME: "us", READ: "byte"}
    rows = [(made.about(0, "add"), {TIME: "2.5", READ: time}) for time in ("64", "64", "96")]
    profile = load(tmp_path, made.wide(rows[:2], units))
    assert values(profile)["add", READ] == 64
    [(what, count)] = warned(profile)
    assert (what.endswith("equal in all columns: counted once"), count) == (True, 1)
    profile = load(tmp_path, made.wide(rows[1:], units))
    assert profile.counters()[READ].to_list() == [64, 96]
    assert warned(profile) == [
        (
            "kernels of ncu with another's number and other values: counted each",
            1,
        )
    ]


def test_a_metric_that_has_two_values_is_told(tmp_path):
    what_is_told = "kernels of ncu with two values of a metric, the first taken: counted once"
    profile = load(tmp_path, made.long([two()[0], *two(read="999")]))
    assert values(profile)["add(float*)", READ] == 1024
    [told] = [(what, count) for what, count in warned(profile) if "two values" in what]
    assert told == (what_is_told, 1)
    assert not warned(load(tmp_path, made.long(two())))
