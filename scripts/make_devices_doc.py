"""Write docs/reference/devices.md from devices.toml. Usage: python scripts/make_devices_doc.py [--check]"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope.core.perf.devices.peaks import devices, tables

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "devices.md"
HEAD = """# Devices

opscope compares times with the peaks of these devices: {count} models, from `opscope/core/perf/devices/devices.toml`.
`scripts/make_devices_doc.py` writes this page.

Rates are **dense** (no structured sparsity), in TFLOP/s (integers: TOP/s) at the boost clock, or at the lower
clock at which the vendor rates matrix products. fp16 and fp8 rates are with f32 accumulation, as frameworks
request it; with it GeForce parts reach half of a professional part's rate. f8, f6 and f4 stand for every
format of that width. Bandwidth is GB/s (10⁹), memory GB, L2 MiB (`+` a cache behind it).

## How a trace's device is found

opscope finds the row by the name that the driver gives, then checks it:

- a row with another **compute capability** is not used;
- **multiprocessors and memory** choose between variants of one name (RTX 3080 of 10 and of 12 GB); where no
  variant fits, opscope uses the nearest, scales its rates by the multiprocessors, and the report says so
  under *warning* (a part cut down);
- a **slice** of a GPU (MIG, `NVIDIA H200 MIG 1g.18gb`) has its share of the board's row, as NVIDIA's
  [Multi-Instance GPU User Guide]({mig})
  gives it: rates by the multiprocessors that the trace records, else by compute slices (`1g` is 1 of 7; of
  4 on {fours}),
  bandwidth and L2 by eighths of the memory (18 of 141 GB are one). The report says so under *warning*. A
  slice that the board does not have has no peaks;
- a **clock** more than 2 % off the row's scales the rates, and the report says so too;
- laptop parts never match the desktop row of the same number;
- a device without a name, as in ROCm traces, is the one row that fits its multiprocessors, memory and
  compute capability; if several fit, none is used.

For a device without a row, opscope computes the rates as multiprocessors × clock × the rate of its
architecture per clock, where the trace records these values, and the report says so. Otherwise its peaks are
null: give a name with `--gpu NAME`. `--gpu "CPU avx512 8 cores 2.5 GHz 100 GB/s 32 MB"` describes a CPU (its
instruction set, physical cores, clock under load, memory bandwidth, last cache) for a trace without a GPU. The
instruction sets are {cpus}. For such a trace opscope refuses the name of a GPU.

## What is checked, and how

| sign | meaning |
|---|---|
| a | arithmetic: every rate of the row is multiprocessors × clock × FLOP per clock of its architecture, within 1.5 % (`tests/core/perf/test_perf_devices.py`, all rows) |
| b | bandwidth is the bus's width × its data rate, within 0.5 % (same test) |
| p, m, u | **p**eaks, **m**emory (size, bandwidth), **u**nits (multiprocessors, L2, clock) were verified in the sources below the table |

Vendors' pages and papers were read as quoted in public copies. The other sources are databases of graphics
cards, reviews and dealers that quote them, and values that a device itself reported. A row without p, m or u
has only the arithmetic check, and was written from memory of the named document: {bare} of {count} rows,
{names}.
"""
MIG = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"
RATES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f6", "f4", "i8")
SIGNS = {"peaks": "p", "memory": "m", "units": "u"}


def page() -> str:
    """The page's text."""
    rows = devices()
    bare = [row["name"] for row in rows if not row.get("checked")]
    told = {"bare": len(bare), "names": ", ".join(bare), "cpus": ", ".join(tables()["cpu"])}
    told |= {"mig": MIG, "fours": ", ".join(row["name"] for row in rows if row.get("mig") == 4)}
    parts = [HEAD.format(count=len(rows), **told)]
    parts.append("\n## Peaks\n\n")
    parts.append(
        "| device | cc | SMs | MHz | GB | GB/s | L2 | vector f64, f32, f16 | tensor "
        f"{', '.join(RATES)} | checked |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    parts += [_row(row) for row in rows]
    parts.append("\n## Sources\n\n| device | document | verified in |\n|---|---|---|\n")
    parts += [_source(row) for row in rows]
    parts.append(_rates_a_clock())
    return "".join(parts)


def _row(row: dict[str, Any]) -> str:
    vector, tensor = row["vector"], row.get("tensor", {})
    sizes = row["memory"] if isinstance(row["memory"], list) else [row["memory"]]
    clock = f"{row['clock']}"
    if "tensor_clock" in row:
        clock += f" (tensor {row['tensor_clock']})"
    if "vector_clock" in row:
        clock += f" (vector {row['vector_clock']})"
    l2 = f"{row['l2']}" + (f" + {row['llc']}" if "llc" in row else "")
    signs = "a" + ("b" if "bus" in row else "")
    signs += "".join(sign for key, sign in SIGNS.items() if key in row.get("checked", {}))
    cells = [
        row["name"],
        row["cc"],
        str(row["sm_count"]),
        clock,
        "/".join(str(size) for size in sizes),
        str(row["bandwidth"]),
        l2,
        ", ".join(_rate(vector.get(dtype)) for dtype in ("f64", "f32", "f16")),
        ", ".join(_rate(tensor.get(dtype)) for dtype in RATES) if tensor else "–",
        signs,
    ]
    return f"| {' | '.join(cells)} |\n"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _source(row: dict[str, Any]) -> str:
    places: dict[str, str] = {}
    for key, address in row.get("checked", {}).items():
        places[address] = places.get(address, "") + SIGNS[key]
    told = ", ".join(f"[{signs}]({address})" for address, signs in places.items()) or "–"
    return f"| {row['name']} | {row['source']} | {told} |\n"


def _rates_a_clock() -> str:
    lines = [
        "\n## FLOP per clock and multiprocessor\n\nThe arithmetic uses these rates, and so does the computation "
        "for a device without a row (AMD: per compute unit). `full` is a professional part's rate, `half` "
        "the rate of two data-centre parts as sold.\n\n| architecture | vector | tensor |\n|---|---|---|\n"
    ]
    lines += _units("per_clock")
    lines.append("\nA CPU's core:\n\n| instruction set | vector | tiles |\n|---|---|---|\n")
    lines += _units("cpu")
    return "".join(lines)


def _units(table: str) -> Iterator[str]:
    for name, rates in tables()[table].items():
        vector, tensor = (
            ", ".join(f"{dtype} {rate}" for dtype, rate in rates[unit].items()) or "–"
            for unit in ("vector", "tensor")
        )
        yield f"| {name} | {vector} | {tensor} |\n"


def main() -> int:
    """Write the page, or with ``--check`` print whether it is up to date."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print(
            "up to date" if same else f"{PAGE} is not up to date: run scripts/make_devices_doc.py"
        )
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
