"""Measure what the names of 100,000 engine steps add to the report of a server with the same kernels.

Usage: python benchmarks/server_steps.py [--steps 100000] [--kernels 4] [--turns 5] [--names vllm|sums|sglang]
       [--folder DIR]

Writes two traces of PyTorch's profiler that differ only in the ranges of the steps; each name with sums has
its own numbers, as in a long run. Then `opscope report` reads them by turns, and their user CPU time is
compared, which other programs on the machine change least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import children

NAMES = {
    "vllm": lambda n, old: f"execute_context_0(0)_generation_{old}({old})",
    "sums": lambda n, old: (
        f"execute_{old}_context_0(sq0sk0sqsq0sqsk0)_generation_{old}"
        f"(sq{old}sk{9000 + n}sqsq{old}sqsk{9000 + n})"
    ),
    "sglang": lambda n, old: f"step[DECODE bs={old}]",
}
PREFILLS = {
    "vllm": lambda n: f"execute_context_1({500 + n % 900})_generation_0(0)",
    "sums": lambda n: (
        f"execute_{500 + n % 900}_context_1(sq{500 + n % 900}sk{500 + n % 900}sqsq{(500 + n % 900) ** 2}"
        f"sqsk{(500 + n % 900) ** 2})_generation_0(sq0sk0sqsq0sqsk0)"
    ),
    "sglang": lambda n: f"step[EXTEND bs=1 toks={500 + n % 900}]",
}
OPS = (
    ("aten::mm", [[16, 4096], [4096, 4096]], "ampere_bf16_s16816gemm_bf16_128x128"),
    (
        "vllm::unified_attention_with_output",
        [[16, 32, 128], [16, 8, 128], [16, 8, 128], [16, 32, 128]],
        "kernel_unified_attention_2d",
    ),
    ("aten::mul", [[16, 4096], [16, 4096]], "vectorized_elementwise_kernel"),
    ("aten::argmax", [[16, 32000]], "at::native::reduce_kernel<ArgMax>"),
)


def write(path: Path, steps: int, kernels: int, names: str | None) -> None:
    """Write the trace of a server whose every tenth step is a prefill; no names, no ranges."""
    us, correlation = 1_000, 0
    with path.open("w") as file:
        file.write(
            '{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3","numSms":132,'
            '"computeMajor":9,"computeMinor":0}],"traceEvents":[\n'
        )
        lines = []
        for step in range(steps):
            prefill = step % 10 == 0
            took = 400 if prefill else 100
            if names is not None:
                name = PREFILLS[names](step) if prefill else NAMES[names](step, 16 + step % 7)
                lines.append(
                    {
                        "ph": "X",
                        "cat": "user_annotation",
                        "name": name,
                        "pid": 7,
                        "tid": 7,
                        "ts": us,
                        "dur": took,
                    }
                )
            for place in range(kernels):
                correlation += 1
                op, dims, kernel = OPS[place % len(OPS)]
                at, each = us + 2 + place * 12, (took - 20) // kernels
                args = {"External id": correlation, "Input Dims": dims,
                        "Input type": ["c10::BFloat16"] * len(dims)}  # fmt: skip
                lines += [
                    {"ph": "X", "cat": "cpu_op", "name": op, "pid": 7, "tid": 7, "ts": at,
                     "dur": 10, "args": args},
                    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7,
                     "ts": at + 2, "dur": 4, "args": {"correlation": correlation,
                                                           "External id": correlation}},
                    {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7,
                     "ts": us + 10 + place * each, "dur": each - 2,
                     "args": {"device": 0, "context": 1, "stream": 7, "correlation": correlation,
                              "External id": correlation}},
                ]  # fmt: skip
            us += took + 20
            if len(lines) > 50_000 or step == steps - 1:
                file.write(",\n".join(json.dumps(line, separators=(",", ":")) for line in lines))
                file.write(",\n" if step < steps - 1 else "\n]}\n")
                lines = []


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--kernels", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--names", choices=sorted(NAMES), default="sums")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        folder = asked.folder or Path(where)
        files = {"with steps": folder / f"{asked.names}.json", "without": folder / "none.json"}
        for what, path in files.items():
            if not path.exists():
                write(
                    path, asked.steps, asked.kernels, asked.names if what == "with steps" else None
                )
        used: dict[str, list[float]] = {what: [] for what in files}
        for _ in range(asked.turns):
            for what, path in files.items():
                used[what].append(children.run(children.report(path)).user)
    for what, seconds in used.items():
        print(
            f"{what:12} {statistics.median(seconds):6.2f} user s ({min(seconds):.2f} to {max(seconds):.2f})"
        )
    ratios = [one / other for one, other in zip(*used.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
