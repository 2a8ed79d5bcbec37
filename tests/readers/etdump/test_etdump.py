"""What ExecuTorch's ETDump says: kernels once, delegates, runs; and what a damaged one does not break."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of

FORMAT = "ExecuTorch's ETDump"
#: A field's bytes, or what is written behind the table, whose place the field then has.
Field: TypeAlias = "bytes | Callable[[bytearray], int]"


def table(fields: Mapping[int, Field]) -> Callable[[bytearray], int]:
    """A flatbuffer's table of the fields with these numbers."""

    def write(out: bytearray) -> int:
        out += bytes(-len(out) % 8)
        layout, width = len(out), 4 + 2 * (1 + max(fields))
        begin = layout + width + -(layout + width) % 8
        body, places = bytearray(struct.pack("<i", begin - layout)), {}
        for number, value in fields.items():
            inline = value if isinstance(value, bytes) else bytes(4)
            body += bytes(-len(body) % len(inline))
            places[number] = len(body)
            body += inline
        entries = [places.get(number, 0) for number in range(max(fields) + 1)]
        head = struct.pack(f"<{2 + len(entries)}H", width, len(body), *entries)
        out += head.ljust(begin - layout, b"\0") + body
        for number, value in fields.items():
            if not isinstance(value, bytes):
                at = begin + places[number]
                struct.pack_into("<I", out, at, value(out) - at)
        return begin

    return write


def vector(members: Sequence[Callable[[bytearray], int]]) -> Callable[[bytearray], int]:
    def write(out: bytearray) -> int:
        begin = len(out)
        out += struct.pack("<I", len(members)) + bytes(4 * len(members))
        for number, member in enumerate(members):
            at = begin + 4 + 4 * number
            struct.pack_into("<I", out, at, member(out) - at)
        return begin

    return write


def text(value: str) -> Callable[[bytearray], int]:
    def write(out: bytearray) -> int:
        out += bytes(-len(out) % 4)
        begin = len(out)
        out += struct.pack("<I", len(value)) + value.encode() + b"\0"
        out += bytes(-len(out) % 4)
        return begin

    return write


def ran(
    name: str | None, start: int, end: int, instruction: int = 0, delegate: str | int | None = None
) -> Callable[[bytearray], int]:
    """An event with times, as the runtime writes it."""
    fields: dict[int, Field] = {
        1: struct.pack("<i", 0),
        2: struct.pack("<i", instruction),
        6: struct.pack("<Q", start),
        7: struct.pack("<Q", end),
    }
    if name is not None:
        fields[0] = text(name)
    if isinstance(delegate, int):
        fields[3] = struct.pack("<i", delegate)
    elif delegate is not None:
        fields[4] = text(delegate)
    return table({0: table(fields)})


ALLOCATION = table({1: table({0: bytes(4), 1: struct.pack("<Q", 64)})})
TENSOR = table({2: table({1: bytes(4)})})


def dump(*blocks: tuple[str, Sequence[Callable[[bytearray], int]]], prefixed: bool = True) -> bytes:
    """An ETDump of blocks of events."""
    out = bytearray(4) + b"ED00"
    runs = vector([table({0: text(name), 3: vector(events)}) for name, events in blocks])
    struct.pack_into("<I", out, 0, table({1: runs})(out))
    out += bytes(-len(out) % 8)
    return (struct.pack("<I", len(out)) if prefixed else b"") + bytes(out)


def kernel(name: str, start: int, end: int, instruction: int) -> list[Callable[[bytearray], int]]:
    """A portable kernel: its own row, then the row around it."""
    return [
        ran(f"native_call_{name}", start, end, instruction),
        ran("OPERATOR_CALL", start - 5, end + 5, instruction),
    ]


def portable(*begins: int) -> list[tuple[str, list[Callable[[bytearray], int]]]]:
    """The load of a program, and runs of two kernels and of a call in which no kernel is told."""
    loaded = [
        ran("Method::init", 20, 40),
        ran("Program::load_method", 10, 50),
    ]
    runs = [
        (
            "Execute",
            [
                *kernel("addmm.out", at + 10, at + 110, 0),
                *kernel("relu.out", at + 120, at + 150, 1),
                ran("OPERATOR_CALL", at + 160, at + 180, 2),
                ran("Method::execute", at, at + 200),
            ],
        )
        for at in begins
    ]
    return [("Default", loaded), *runs]


def delegated(shift: int) -> list[tuple[str, list[Callable[[bytearray], int]]]]:
    """A run of a delegate with four events, whose clock is off by ``shift``."""
    inner = [
        ran(None, shift + 110, shift + 150, delegate="Convolution (NHWC, F32) IGEMM #1"),
        ran(None, shift + 150, shift + 150, delegate="Reshape (NC) #1"),
        ran(None, shift + 150, shift + 160, delegate=7),
    ]
    return [
        (
            "Execute",
            [*inner, ran("DELEGATE_CALL", 100, 200), ran("Method::execute", 90, 210)],
        )
    ]


def seeds(folder: Path) -> list[Path]:
    """Write a file of each kind."""
    made = {
        "portable.etdp": dump(*portable(1000, 2000, 3000)),
        "bare.etdp": dump(*portable(1000), prefixed=False),
        "delegate.etdp": dump(*delegated(0), ("Debug", [TENSOR, ALLOCATION])),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in made]


@pytest.fixture
def load(tmp_path: Path) -> Callable[[bytes], Any]:
    def write_and_load(content: bytes) -> Any:
        path = tmp_path / "a.etdp"
        path.write_bytes(content)
        return opscope.load(path)

    return write_and_load


def totals(profile: Any) -> list[tuple[Any, ...]]:
    sums = profile.op_totals().group_by("op").agg(pl.col("calls", "self_time").sum())
    return sorted(sums.rows())


def notes(profile: Any) -> dict[str, int]:
    return dict(profile.trace["notes"].select("what", "how_many").rows())


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_kernel_counts_once_and_runs_are_steps(load, prefixed):
    profile = load(dump(*portable(1000, 2000, 3000), prefixed=prefixed))
    assert totals(profile) == [
        ("OPERATOR_CALL", 3, 60),  # no kernel is told inside it
        ("native_call_addmm.out", 3, 300),
        ("native_call_relu.out", 3, 90),
    ]
    assert profile.steps().select("step", "start", "end").rows() == [
        (number, 1000 * (number + 1), 1000 * (number + 1) + 200) for number in range(3)
    ]
    kinds = dict(profile.kinds().select("op", "kind").rows())
    assert kinds["native_call_addmm.out"] == "matrix products"
    assert any("does not name its unit of time" in what for what in notes(profile))
    phases = profile.trace["ranges"].filter(category="phase")["text"].cast(str).to_list()
    assert phases == ["Program::load_method", "Method::init"]


def test_instructions_tell_calls_of_one_kernel_apart(load):
    events = [*kernel("add.out", 10, 20, 3), *kernel("add.out", 40, 70, 4)]
    profile = load(dump(("Execute", [*events, ran("Method::execute", 0, 100)])))
    rows = profile.op_totals().select("params", "self_time").rows()
    assert sorted(rows) == [("instruction=3", 10), ("instruction=4", 30)]


def test_a_delegate_has_its_own_events_and_the_rest_of_its_call(load):
    profile = load(dump(*delegated(0)))
    assert totals(profile) == [
        ("Convolution (NHWC, F32) IGEMM #1", 1, 40),
        ("DELEGATE_CALL", 1, 50),
        ("Reshape (NC) #1", 1, 1),  # its clock did not move; it counts as a call
        ("delegate event 7", 1, 9),
    ]
    assert [count for what, count in notes(profile).items() if "without a length" in what] == [1]


def test_times_of_a_delegates_own_clock_are_not_added_to_those_of_the_program(load):
    profile = load(dump(*delegated(1_000_000)))
    assert totals(profile) == [("DELEGATE_CALL", 1, 100)]
    assert [count for what, count in notes(profile).items() if "another clock" in what] == [3]


def test_runs_that_overlap_are_no_steps(load):
    runs = [ran("Method::execute", 0, 100), ran("Method::execute", 50, 150)]
    profile = load(dump(("Execute", [*kernel("add.out", 10, 20, 0), *runs])))
    assert not len(profile.trace["ranges"].filter(category="step"))
    assert any("overlap in time" in what for what in notes(profile))


def test_allocations_and_values_of_tensors_are_counted(load):
    blocks = [*portable(1000), ("Debug", [TENSOR, TENSOR, ALLOCATION])]
    counted = notes(load(dump(*blocks)))
    assert counted["values of tensors, left out"] == 2
    assert counted["allocations, which have no time, left out"] == 1


def test_events_of_the_program_itself_are_its_ranges(load):
    events = [*kernel("add.out", 10, 20, 0), ran("tokenize", 2, 40), ran("Method::execute", 0, 100)]
    ranges = load(dump(("Execute", events))).range_totals()
    assert "tokenize" in ranges["range"].to_list()


@pytest.mark.parametrize("size", [0x7B20, 0x5B20, 0x0280, 0x0580])
def test_a_size_that_looks_like_json_or_a_pickle_is_a_size(size, tmp_path):
    path = tmp_path / "a.etdp"
    content = dump(*portable(1000))
    path.write_bytes(struct.pack("<I", size) + content[4:].ljust(size, b"\0"))
    assert format_of(path) == "etdump"
    assert len(opscope.load(path).trace["ranges"]) == 8


def test_a_file_that_was_cut_says_so_first(load):
    content = dump(*portable(*range(1000, 20_000, 1000)))
    profile = load(content[: len(content) // 2])
    assert "is cut off" in profile.trace["notes"]["what"][0]
    assert "truncated" in profile.trace.origin
    assert 0 < len(profile.trace["ranges"]) < 19 * 6


def test_more_entries_than_bytes_and_names_that_overlap_are_refused(load, tmp_path):
    content = bytearray(dump(*portable(1000)))
    root = 4 + int.from_bytes(content[4:8], "little")
    runs = root + 4 + int.from_bytes(content[root + 4 : root + 8], "little")
    struct.pack_into("<I", content, runs, 1 << 31)
    with pytest.raises(BadInput, match="more entries than fit"):
        load(bytes(content))
    content = bytearray(dump(*portable(1000)))
    for name in (b"Method::init", b"native_call_addmm.out", b"native_call_relu.out"):
        struct.pack_into("<I", content, content.index(name) - 4, len(content) // 2)
    with pytest.raises(BadInput, match="its names overlap"):
        load(bytes(content))


def test_another_layout_and_a_record_alone_are_refused_with_what_to_do(load, tmp_path):
    with pytest.raises(BadInput, match=r"another layout: executorch\.devtools\.Inspector"):
        load(dump(*portable(1000)).replace(b"ED00", b"ED01", 1))
    path = tmp_path / "a.etrecord"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ETRECORD_V0", b"")
        archive.writestr("debug_handle_map", b"{}")
        archive.writestr("delegate_map", b"{}")
    with pytest.raises(BadInput, match=r"ETRecord: .* give the ETDump"):
        opscope.load(path)
