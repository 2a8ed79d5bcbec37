"""Train one small model in every installed framework, and rewrite docs/frameworks.md.

Usage: python scripts/frameworks_doc.py    # in an environment of each framework in turn

tests/frameworks.json keeps the measured values; the tests of each framework compare with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "scripts" / "frameworks"
TABLE = ROOT / "tests" / "frameworks.json"
DOCUMENT = ROOT / "docs" / "frameworks.md"
STEPS = 6
#: For each way to train the model: the module that must be installed, the program, Keras's backend.
WAYS: dict[str, tuple[str, str, str | None]] = {
    "PyTorch": ("torch", "torch_net", None),
    "TensorFlow": ("tensorflow", "tensorflow_net", None),
    "JAX": ("jax", "jax_net", None),
    "MindSpore, PyNative": ("mindspore", "mindspore_net", None),
    "Keras on TensorFlow": ("tensorflow", "keras_net", "tensorflow"),
    "Keras on JAX": ("jax", "keras_net", "jax"),
    "Keras on PyTorch": ("torch", "keras_net", "torch"),
}
PARTS = ("conv", "act", "fc")
DIRECTIONS = ("forward", "backward")
#: Values that must be equal in every framework; for a convolution's backward all FLOPs, with the bias's.
EQUAL = ("matrix_flops", "dtypes", "line", "linked")
ALL_FLOPS = "conv backward"
RUN = """
import sys
import opscope
opscope.init()
sys.path.insert(0, sys.argv[1])
program = __import__(sys.argv[2])
with opscope.capture(sys.argv[3]):
    program.train(int(sys.argv[4]))
"""


def installed(way: str) -> bool:
    """Whether this environment can train the model this way."""
    needs, program, _ = WAYS[way]
    more = {"jax_net": ("optax",), "keras_net": ("keras",)}.get(program, ())
    return all(importlib.util.find_spec(name) is not None for name in (needs, *more))


def measured(way: str, folder: Path) -> dict[str, Any]:
    """Train the model in its own process, record into ``folder``, and describe the parts of its profile."""
    _, program, backend = WAYS[way]
    target = folder / "net.opscope"
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if backend is not None:
        environ["KERAS_BACKEND"] = backend
    command = [sys.executable, "-c", RUN, str(PROGRAMS), program, str(target), str(STEPS)]
    subprocess.run(command, env=environ, cwd=folder, check=True, timeout=600)
    return described(target, program)


def described(target: Path, program: str) -> dict[str, Any]:
    """The steps, and by part and direction: layer, ops, matrix FLOP per step, dtypes, line, links."""
    import polars as pl

    import opscope

    profile = opscope.load(target)
    lines = (PROGRAMS / f"{program}.py").read_text(encoding="utf-8").splitlines()
    ops = profile.ops().filter(pl.col("step").is_not_null())
    many = profile.summary()["steps"].item()
    rows = {}
    for part in PARTS:
        for direction in DIRECTIONS:
            mine = ops.filter(
                pl.col("layer").str.contains(rf"(^|[./]){part}$")
                & (pl.col("direction") == direction)
            )
            works = mine.filter(pl.col("matrix_flops") > 0)
            shown = works if len(works) else mine
            found = shown["source"].str.extract(rf"{program}\.py:([0-9]+)").cast(pl.Int64)
            at = {
                part in lines[number - 1].rpartition("# ")[2].split()
                for number in found.drop_nulls()
            }
            rows[f"{part} {direction}"] = {
                "layer": sorted(set(shown["layer"])),
                "ops": sorted(set(shown["op"])),
                "matrix_flops": works["matrix_flops"].sum() // many if many else None,
                "flops": None
                if mine["flops"].has_nulls() or not many
                else mine["flops"].sum() // many,
                "dtypes": sorted(
                    {one for text in shown["dtypes"].drop_nulls() for one in text.split(", ")}
                ),
                "line": bool(at) and all(at) and not found.has_nulls(),
                "linked": direction == "forward" or not shown["forward_op_id"].has_nulls(),
            }
    return {"steps": many, "parts": rows}


def document(table: dict[str, Any]) -> str:
    """The text of docs/frameworks.md."""
    known = [way for way in WAYS if way in table]
    text = HEAD
    text += "| | steps |\n|---|---|\n"
    text += "".join(f"| {way} | {table[way]['steps']} |\n" for way in known)
    for part in PARTS:
        for direction in DIRECTIONS:
            text += f"\n## {part}, {direction}\n\n"
            text += "| | layer | ops | matrix FLOP a step | all FLOP | dtypes | line | forward op known |\n"
            text += "|---|---|---|---|---|---|---|---|\n"
            for way in known:
                row = table[way]["parts"][f"{part} {direction}"]
                cells = [
                    ", ".join(row["layer"]) or "none: fused into another's",
                    ", ".join(f"`{op}`" for op in row["ops"]) or "–",
                    f"{row['matrix_flops']:,}",
                    "–" if row["flops"] is None else f"{row['flops']:,}",
                    ", ".join(row["dtypes"]) or "–",
                    "yes" if row["line"] else "–",
                    "" if direction == "forward" else "yes" if row["linked"] else "no",
                ]
                text += f"| {way} | " + " | ".join(cells) + " |\n"
    return text


HEAD = f"""# One model in every framework

A convolution (3 → 8, 3×3), a ReLU and a dense layer (1568 → 10), trained for {STEPS} steps on a batch of 8
images of 16×16, by `scripts/frameworks/*_net.py`. The names of ops are each framework's own; the columns
mean the same. `python scripts/frameworks_doc.py` writes this page, and a test in each framework's folder
compares the recorded values with it.

The frameworks differ in these points:

- An activation that a framework fuses into the convolution before it has no forward op of its own.
- All FLOP are those of the ops that a framework runs: a bias counts if an op of its own adds it, and does not
  count within a product. XLA fuses more than the activation into the operation that has its name.
- Keras's ops are on the line of `fit`: the program has no other.
- In JAX the program marks no steps: opscope infers them, as the profile's notes say.

"""


def main() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    for way in WAYS:
        if installed(way):
            with tempfile.TemporaryDirectory() as folder:
                table[way] = measured(way, Path(folder))
            print(f"{way}: {table[way]['steps']} steps")
    ordered = {way: table[way] for way in WAYS if way in table}
    TABLE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(document(ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
