"""The meaning of known hardware counters: FLOPs on and off the Tensor Cores, bytes of device memory, time.

A counter is known by its name. Counters that are not listed here are not added to FLOPs or bytes, whatever
they measure. Sources:

- NVIDIA's SASS counters: the roofline sections of Nsight Compute (``SpeedOfLight_HierarchicalSingle``,
  ``…Double``, ``…HalfRooflineChart.section``) take an add and a multiply as 1, a multiply-add as 2, and twice
  that for half precision, whose instructions work on two values (``…_hadd_pred_on_x2``,
  ``…_hfma_pred_on_x4``). Holistic Trace Analysis 0.5.0 counts half precision as 1 and 2.
- Tensor Core operations: ``SpeedOfLight_HierarchicalTensorRooflineChart.section`` takes
  ``sm__ops_path_tensor_src_*`` as FLOPs (a multiply-add as 2).
- Sizes of matrix instructions: PTX ISA, "Warp-level matrix multiply-accumulate instructions"; their SASS
names
  have the sizes m, n and k (``HMMA.16816``).
- nvprof's metrics: CUDA Profiler User's Guide, "Metrics reference".
- AMD: ROCm Compute Profiler's documentation, "Compute unit" and "L2 cache": an instruction of a wave has 64
  lanes, ``SQ_INSTS_VALU_MFMA_MOPS_*`` counts in units of 512 operations, ``FETCH_SIZE`` is in KiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

#: The quantity that a counter counts.
What = Literal[
    "vector", "tensor", "tensor instructions", "dram read", "dram written", "dram", "time"
]
#: A sector of NVIDIA's caches and memory, in bytes.
SECTOR: Final = 32
#: FLOPs of half-precision instructions off the Tensor Cores are in this dtype.
HALF: Final = "f16"
_PRECISION: Final = {"d": "f64", "f": "f32", "h": HALF}
_SASS: Final = re.compile(
    r"(smsp|sm)__sass_thread_inst_executed_op_([dfh])(add|mul|fma)_pred_on\.sum"
)
_TENSOR: Final = re.compile(
    r"sm__ops_path_tensor_(?:op_(?P<op>[a-z]+)_)?src_(?P<src>[a-z0-9]+)(?:_dst_(?P<dst>[a-z0-9]+))?"
    r"(?:_sparsity_(?P<sparse>on|off))?\.sum"
)
_TENSOR_INSTRUCTIONS: Final = re.compile(r"sm__inst_executed_pipe_tensor\.sum")
#: An entry of the counter of instructions by opcode, as the reader of Nsight Compute's reports names it.
OPCODES: Final = "sass__inst_executed_per_opcode_with_modifier_all"
_OPCODE: Final = re.compile(rf"{OPCODES}:(?P<name>[A-Z][A-Z0-9]*)(?P<more>[.\w]*)")
#: The same, counting only threads whose predicate was true: add, multiply and multiply-add instructions by
#: opcode. A ``2`` in the name marks instructions on two values.
THREAD_OPCODES: Final = "sass__thread_inst_executed_true_per_opcode"
_ARITHMETIC: Final = re.compile(rf"{THREAD_OPCODES}:([DFH])(ADD|MUL|FMA)(2?)(?:_?32I|_MMA)?")
#: All such opcodes that a kernel could have: an opcode that a kernel does not list did not run.
ARITHMETIC: Final = tuple(
    f"{THREAD_OPCODES}:{name}"
    for name in ("DADD", "DMUL", "DFMA", "FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2")
)
#: Matrix instructions by the first part of their opcode. If the name does not show the size, the FLOPs are
#: unknown.
_MATRIX: Final = re.compile(r"(?:UTC)?[HDIBQO]G?MMA\Z")
#: The sizes (m, n, k) by which opcodes are named. Volta's HMMA.884 is left out: one product consists of two
#: or four such instructions.
_SIZES: Final = {
    ("HMMA", "1688"): (16, 8, 8),
    ("HMMA", "16816"): (16, 8, 16),
    ("DMMA", "884"): (8, 8, 4),
    ("DMMA", "1684"): (16, 8, 4),
    ("DMMA", "1688"): (16, 8, 8),
    ("DMMA", "16816"): (16, 8, 16),
    ("IMMA", "8816"): (8, 8, 16),
    ("IMMA", "8832"): (8, 8, 32),
    ("IMMA", "16816"): (16, 8, 16),
    ("IMMA", "16832"): (16, 8, 32),
    ("IMMA", "16864"): (16, 8, 64),
    ("QMMA", "16816"): (16, 8, 16),
    ("QMMA", "16832"): (16, 8, 32),
}
_THREE: Final = re.compile(r"(\d+)x(\d+)x(\d+)\Z")
_FIXED: Final[dict[str, tuple[What, float, str | None]]] = {
    "dram__bytes.sum": ("dram", 1, None),
    "dram__bytes_read.sum": ("dram read", 1, None),
    "dram__bytes_write.sum": ("dram written", 1, None),
    # the names since Nsight Compute 2025
    "dram__bytes_op_read.sum": ("dram read", 1, None),
    "dram__bytes_op_write.sum": ("dram written", 1, None),
    "dram__sectors.sum": ("dram", SECTOR, None),
    "dram__sectors_read.sum": ("dram read", SECTOR, None),
    "dram__sectors_write.sum": ("dram written", SECTOR, None),
    "dram__sectors_op_read.sum": ("dram read", SECTOR, None),
    "dram__sectors_op_write.sum": ("dram written", SECTOR, None),
    "gpu__time_duration.sum": ("time", 1, None),
    # nvprof
    "flop_count_sp": ("vector", 1, "f32"),
    "flop_count_dp": ("vector", 1, "f64"),
    "flop_count_hp": ("vector", 1, HALF),
    "dram_read_bytes": ("dram read", 1, None),
    "dram_write_bytes": ("dram written", 1, None),
    "dram_read_transactions": ("dram read", SECTOR, None),
    "dram_write_transactions": ("dram written", SECTOR, None),
    # AMD
    "FETCH_SIZE": ("dram read", 1024, None),
    "WRITE_SIZE": ("dram written", 1024, None),
}  # fmt: skip
#: instructions counted by opcode are complete: each is a part, and any number of them make up the whole
OPCODE_PARTS: Final = "opcodes"
_LANES: Final = 64
_AMD_VALU: Final = re.compile(r"SQ_INSTS_VALU_(ADD|MUL|FMA|TRANS)_F(16|32|64)")
_AMD_MATRIX: Final = re.compile(r"SQ_INSTS_VALU_MFMA_MOPS_(F16|BF16|F32|F64|F8|F6F4|XF32|I8)")
_MOPS: Final = 512


@dataclass(frozen=True, slots=True)
class Known:
    """The meaning of a counter: ``value × factor`` is in FLOP, bytes, ns or instructions by ``what``.

    ``dtype``: of the FLOPs. ``part``: counters of one ``whole`` and different ``part`` are added up; all
    parts of ``parts`` are needed for the whole to be known. ``rank``: of two counters of one part, the lower
    counts.
    """

    what: What
    factor: float
    dtype: str | None
    part: str
    parts: tuple[str, ...]
    rank: int = 0


def known(name: str) -> Known | None:
    """Return the meaning of the counter ``name``; None if it counts no FLOPs, bytes of device memory or
    time."""
    if name in _FIXED:
        subject, factor, dtype = _FIXED[name]
        rank = 0 if factor == 1 else 1
        return Known(subject, factor, dtype, dtype or "all", (dtype or "all",), rank)
    if match := _SASS.fullmatch(name):
        level, precision, kind = match.groups()
        factor = (2.0 if kind == "fma" else 1.0) * (2 if precision == "h" else 1)
        return Known(
            "vector", factor, _PRECISION[precision], kind, ("add", "mul", "fma"), level != "smsp"
        )
    if match := _ARITHMETIC.fullmatch(name):
        precision, kind, packed = match.groups()
        factor = (2.0 if kind == "FMA" else 1.0) * (2 if packed else 1)
        opcode = name.rpartition(":")[2]
        return Known("vector", factor, _PRECISION[precision.lower()], opcode, (OPCODE_PARTS,))
    if match := _AMD_VALU.fullmatch(name):
        kind, bits = match.groups()
        factor = _LANES * (2.0 if kind == "FMA" else 1.0)
        return Known("vector", factor, f"f{bits}", kind.lower(), ("add", "mul", "fma", "trans"), 0)
    if match := _AMD_MATRIX.fullmatch(name):
        return Known("tensor", _MOPS, None, match.group(1), (), 0)
    return _tensor(name)


def _tensor(name: str) -> Known | None:
    if match := _TENSOR.fullmatch(name):
        # a counter and its shares by sparsity or instruction count the same: the whole is preferred
        detail = (match["op"] is not None) * 2 + (match["sparse"] is not None)
        part = f"src_{match['src']}" + (f"_dst_{match['dst']}" if match["dst"] else "")
        return Known("tensor", 1, None, part, (), detail)
    if _TENSOR_INSTRUCTIONS.fullmatch(name):
        return Known("tensor instructions", 1, None, "all", ("all",), 0)
    if match := _OPCODE.fullmatch(name):
        if not _MATRIX.match(match["name"]):
            return Known("tensor", 0, None, "opcode", (), 9)
        size = _size(match["name"], match["more"])
        return Known("tensor", float("nan") if size is None else size, None, "opcode", (), 9)
    return None


def _size(name: str, more: str) -> float | None:
    """Return the FLOPs of a matrix instruction; None if its name does not show its size."""
    words = more.strip(".").split(".")
    if "SP" in words:  # half of the products of a sparse instruction are zeros that are not stored
        return None
    for word in words:
        if three := _THREE.match(word):
            m, n, k = map(int, three.groups())
            return 2.0 * m * n * k
        if (name, word) in _SIZES:
            m, n, k = _SIZES[name, word]
            return 2.0 * m * n * k
    return None


#: Endings of counters whose values may be added up over kernels: a sum over the units of a device.
_SUMS: Final = re.compile(r"[^.]*(?:\.sum)?\Z|[^.]*:.*")
_NO_SUMS: Final = re.compile(
    r"device__attribute|derived__|launch__|profiler__|smsp__pcsamp_interval"
    # nvprof's and AMD's counters: shares, rates and means are marked by other words
    r"|.*(?:_rate|_pct|_efficiency|utili[sz]ation|_throughput|occupancy|_limit|_ratio|ipc|_av[gr]"
    r"|_m(?:ax|in)|percent|busy|stalled|cachehit|bandwidth)\Z"
    r"|(?!.*__).*_per_",
    re.IGNORECASE,
)


def adds_up(name: str) -> bool:
    """Return whether this counter's values may be added up over kernels (``….sum``, an event)."""
    return bool(_SUMS.fullmatch(name)) and not _NO_SUMS.match(name) and divides(name) is not False


#: Words that mark a counter as a rate or a mean, after the first dot of its name (at the end of PyTorch's
#: labels).
_RATE: Final = re.compile(
    r"[^.]*\.(?:.*\.)?(?:avg|pct|ratio)(?:\..*)?\Z|[^.]*\..*(?:pct_of_peak|per_second|per_cycle).*|.* \(%\)\Z"
)


def divides(name: str) -> bool | None:
    """Return whether a sample of this counter is a count, which is divided among kernels (``….sum``).
    False: a rate or a mean, which is averaged over each kernel's time (``….avg``, ``….pct``,
    ``…per_second``, ``… (%)``). None: its name shows neither.
    """
    if _RATE.fullmatch(name):
        return False
    return True if re.fullmatch(r"[^.]+\.sum", name) else None
