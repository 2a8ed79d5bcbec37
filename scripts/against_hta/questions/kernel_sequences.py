"""Frequent sequences of kernels that an op launches."""

from __future__ import annotations

TITLE = "frequent kernel sequences"
#: Ops that are asked for, by a part of their name, and how many kernels a sequence has at least.
OPS = ("aten::linear", "Optimizer.step")
LEAST = 3
TOP = 3


def ours(profile):
    """Return occurrences, device time and CPU time (µs) of the most frequent sequences of each op."""
    found = {}
    for op in OPS:
        frame = profile.op_sequences(op, least=LEAST)
        rows = [(r["occurrences"], r["total"] / 1e3, r["cpu_time"] / 1e3) for r in frame.to_dicts()]
        found |= _figures(op, rows)
    return found


def theirs(analysis):
    """Return the same of ``get_frequent_cuda_kernel_sequences``, which also writes a trace file."""
    import tempfile

    found = {}
    for op in OPS:
        with tempfile.TemporaryDirectory() as folder:
            frame = analysis.get_frequent_cuda_kernel_sequences(
                operator_name=op, output_dir=folder, min_pattern_len=LEAST, visualize=False
            )
        columns = ("count", "GPU kernel duration (us)", "CPU op duration (us)")
        rows = list(zip(*(frame[name] for name in columns), strict=True)) if len(frame) else []
        found |= _figures(op, rows)
    return found


def _figures(op, rows):
    found = {}
    ordered = sorted(rows, key=lambda row: (-row[0], -row[1]))
    if rows:
        found[f"{op}: sequences"] = len(rows)
        found[f"{op}: ops with one"] = sum(row[0] for row in rows)
    for number, (many, busy, cpu) in enumerate(ordered[:TOP], start=1):
        found[f"{op} #{number}: occurrences"] = many
        found[f"{op} #{number}: device (µs)"] = float(busy)
        found[f"{op} #{number}: CPU (µs)"] = float(cpu)
    return found


WHY = {
    "": lambda figure, mine, other: (
        None
        if any(name.startswith(figure.partition(":")[0].partition(" #")[0]) for name in other)
        else "opscope: HTA asks only the shallowest events of this name, which are here the annotations of the GPU"
    )
}
