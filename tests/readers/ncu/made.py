"""Write files as Nsight Compute does: CSV of both pages, and reports."""

from __future__ import annotations

import struct
from pathlib import Path

#: What scripts/fuzz_seeds.py calls the files of ``seeds``.
FORMAT = "Nsight Compute"
MM = "aten::mm(f32[32,64], f32[64,128]) -> f32[32,128]"
PUSHED = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
STARTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
PREAMBLE = "==PROF== Connected to process 4000 (/usr/bin/python3.11)\n==PROF== Profiling: 0%....100% - 8 passes\nloss 0.5\n"
ABOUT = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
         "Block Size", "Grid Size", "Device", "CC"]  # fmt: skip


def quoted(cells) -> str:
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells)


def about(
    number: int, name: str, *, stream: int = 7, grid: str = "(2, 1, 1)", pid: int = 4000
) -> list:
    return [number, pid, "python3.11", "127.0.0.1", name, 1, stream, "(128, 1, 1)", grid, 0, "8.0"]


def long(launches, preamble: str = PREAMBLE, after: str = "") -> str:
    """The details page: ``launches`` are (about(...), {metric: (unit, text)}) pairs."""
    lines = [quoted([*ABOUT, "Section Name", "Metric Name", "Metric Unit", "Metric Value"])]
    for row, metrics in launches:
        lines += [quoted([*row, "Command line profiler metrics", name, unit, text])
                  for name, (unit, text) in metrics.items()]  # fmt: skip
    return preamble + "\n".join(lines) + "\n" + after


def wide(launches, units, nvtx=(), preamble: str = PREAMBLE) -> str:
    """The raw page: ``launches`` are (about(...), {metric: text}); ``nvtx`` a (pushed, started) pair for each."""
    names = list(units)
    more = [PUSHED, STARTED] if nvtx else []
    lines = [quoted([*ABOUT[:4], *more, *ABOUT[4:], *names])]
    lines.append(quoted([*[""] * (len(ABOUT) + len(more)), *units.values()]))
    for place, (row, metrics) in enumerate(launches):
        ranges = nvtx[place] if nvtx else ()
        lines.append(
            quoted([*row[:4], *ranges, *row[4:], *(metrics.get(name, "") for name in names)])
        )
    return preamble + "\n".join(lines) + "\n"


def pushed(thread: int, *ranges: str) -> str:
    """The cell of a thread's open ranges, ``domain:text`` each."""
    return (
        f"{thread}  " + "  ".join(f'"{one}:none:none:none:none:none:none"' for one in ranges) + " "
    )


# ------------------------------------------------------------------------------------------ reports


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: int | float | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def metric(place: int, value: float | str, instances=()) -> bytes:
    kind = 1 if isinstance(value, str) else 3
    data = field(1, place) + field(2, field(kind, value))
    for key, count in instances:
        data += field(3, field(1, field(1, key)) + field(2, field(5, count)))
    return field(13, data)


def result(name: str, metrics: bytes, nvtx: bytes = b"", stream: int = 7) -> bytes:
    three = field(1, 4) + field(2, 2) + field(3, 1)
    return (field(1, 11) + field(6, name) + field(7, f"{name}(float*)") + field(10, three)
            + field(11, three) + metrics + (field(21, nvtx) if nvtx else b"") + field(22, 1)
            + field(23, stream))  # fmt: skip


def report(
    results: list[bytes], strings: list[str], version: int = 7, sources: list[bytes] = ()
) -> bytes:
    payload = b"".join(map(sized, [*sources, *results]))
    table = b"".join(field(1, text) for text in strings)
    process = field(1, 4000) + field(2, "host") + field(3, "/usr/bin/train")
    header = field(1, len(sources)) + field(2, len(results)) + field(4, table)
    header += field(5, len(payload)) + field(6, process)
    session = field(3, field(8, field(1, "Nsight Compute Target") + field(2, "2022.4.0.0")))
    other = field(1, 0) + field(2, 0) + session + field(5, 0)
    return (b"NVR\0" + sized(field(1, version)) + sized(other) + sized(header) + payload)  # fmt: skip


def seeds(folder: Path) -> list[Path]:
    """Write Nsight Compute's CSV of both pages, and a report."""
    time, read = "gpu__time_duration.sum", "dram__bytes_read.sum"
    launches = [(about(n, f"kernel{n}(float *)"), n) for n in range(4)]
    cell = pushed(7, "opscope.torch:step 1", f"opscope.torch:{MM}")
    files = {
        "long.csv": long([(row, {time: ("ns", f"{9000 + n:,}"), read: ("Kbyte", "1.5")})
                               for row, n in launches]).encode(),
        "wide.csv": wide([(row, {time: f"{n}.5", read: "64"}) for row, n in launches],
                              {time: "us", read: "byte"}, [(cell, "")] * 4).encode(),
        "run.ncu-rep": report([result("k", metric(0, 5.0) + metric(1, 64.0))] * 2,
                                   [time, read]),
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]
