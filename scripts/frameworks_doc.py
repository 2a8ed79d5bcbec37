"""Train or run one small model in every installed framework, and rewrite docs/frameworks.md.

Usage: python scripts/frameworks_doc.py [WAY ...]    # in an environment of each framework in turn

tests/frameworks.json keeps the measured values; the tests of each framework compare with it. A way that
cannot run here keeps its values.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "scripts" / "frameworks"
TABLE = ROOT / "tests" / "frameworks.json"
DOCUMENT = ROOT / "docs" / "frameworks.md"
STEPS = 6


@dataclass(frozen=True)
class Way:
    """One way to train the model, or to run it where the framework does not train.

    ``program``: the module in scripts/frameworks; it has ``train(steps)``, or ``infer(steps)`` if not
    ``trains``. ``needs``: the modules that must be installed. ``versions``: what other distributions must
    be, as ``{"numpy": "<2"}``. ``environ``: variables of the program's process. ``asks``: the framework that
    ``opscope.init`` is asked for by name, if that shows more. ``without``: the columns
    of EQUAL that this way cannot fill, each with the reason, which the page prints.
    """

    program: str
    needs: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    trains: bool = True
    asks: str | None = None
    without: Mapping[str, str] = field(default_factory=dict)


#: In the order of the page's rows.
WAYS: dict[str, Way] = {
    "PyTorch": Way("torch_net", ("torch",)),
    "TensorFlow": Way("tensorflow_net", ("tensorflow",)),
    "JAX": Way("jax_net", ("jax", "optax")),
    "MindSpore, PyNative": Way("mindspore_net", ("mindspore",), versions={"numpy": "<2"}),
    "MindSpore, graph": Way(
        "mindspore_net",
        ("mindspore",),
        versions={"numpy": "<2"},
        environ={"NET_MODE": "graph"},
        without={"line": "MindSpore's graphs do not record the lines of their operators"},
    ),
    "Keras on TensorFlow": Way(
        "keras_net", ("tensorflow", "keras"), environ={"KERAS_BACKEND": "tensorflow"}
    ),
    "Keras on JAX": Way("keras_net", ("jax", "keras"), environ={"KERAS_BACKEND": "jax"}),
    "Keras on PyTorch": Way("keras_net", ("torch", "keras"), environ={"KERAS_BACKEND": "torch"}),
    "ONNX Runtime": Way(
        "onnxruntime_net", ("onnxruntime", "onnx"), trains=False, asks="onnxruntime"
    ),
}
PARTS = ("conv", "act", "fc")
DIRECTIONS = ("forward", "backward")
#: Values that must be equal in every framework; for a convolution's backward all FLOPs, with the bias's.
EQUAL = ("matrix_flops", "dtypes", "line", "linked")
ALL_FLOPS = "conv backward"
RUN = """
import sys
import opscope
opscope.init(*sys.argv[6:])
sys.path.insert(0, sys.argv[1])
program = __import__(sys.argv[2])
with opscope.capture(sys.argv[4]):
    getattr(program, sys.argv[3])(int(sys.argv[5]))
"""


def lacking(way: str) -> str:
    """Return what this environment lacks to train or run the model this way; empty if nothing."""
    from packaging.specifiers import SpecifierSet

    absent = [name for name in WAYS[way].needs if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    for name, asked in WAYS[way].versions.items():
        version = importlib.metadata.version(name)
        if version not in SpecifierSet(asked):
            return f"needs {name} {asked}, not {version}"
    return ""


def measured(way: str, folder: Path) -> dict[str, Any]:
    """Run the program in its own process, record into ``folder``, and describe the parts of its profile.

    Raises CalledProcessError if the program fails.
    """
    chosen = WAYS[way]
    target = folder / "net.opscope"
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **chosen.environ}
    function = "train" if chosen.trains else "infer"
    command = [
        sys.executable, "-c", RUN, str(PROGRAMS), chosen.program, function, str(target), str(STEPS),
        *([] if chosen.asks is None else [chosen.asks]),
    ]  # fmt: skip
    subprocess.run(command, env=environ, cwd=folder, check=True, timeout=600)
    return described(target, chosen)


def directions(way: Way) -> tuple[str, ...]:
    """Return the directions in which the model's parts run."""
    return DIRECTIONS if way.trains else DIRECTIONS[:1]


def described(target: Path, way: Way) -> dict[str, Any]:
    """The steps, and by part and direction: layer, ops, matrix FLOP per step, dtypes, line, links."""
    import polars as pl

    import opscope

    profile = opscope.load(target)
    program = way.program
    lines = (PROGRAMS / f"{program}.py").read_text(encoding="utf-8").splitlines()
    ops = profile.ops().filter(pl.col("step").is_not_null())
    many = profile.summary()["steps"].item()
    rows = {}
    for part in PARTS:
        for direction in directions(way):
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
                    {
                        one.strip()
                        for text in shown["dtypes"].drop_nulls()
                        for one in text.split(",")
                        if not one.strip().startswith(("i", "u"))
                    }
                ),
                "line": bool(at) and all(at) and not found.has_nulls(),
                "linked": direction == "forward" or not shown["forward_op_id"].has_nulls(),
            }
    return {"steps": many, "parts": rows}


def document(table: dict[str, Any]) -> str:
    """The text of docs/frameworks.md."""
    known = [way for way in WAYS if way in table]
    text = HEAD
    for way in known:
        if not WAYS[way].trains:
            text += f"- {way} runs models and does not train them: it has no backward rows.\n"
        text += "".join(f"- {way}: {reason}.\n" for reason in WAYS[way].without.values())
    text += TAIL
    text += "| | steps |\n|---|---|\n"
    text += "".join(f"| {way} | {table[way]['steps']} |\n" for way in known)
    for part in PARTS:
        for direction in DIRECTIONS:
            text += f"\n## {part}, {direction}\n\n"
            text += "| | layer | ops | matrix FLOP a step | all FLOP | dtypes | line | forward op known |\n"
            text += "|---|---|---|---|---|---|---|---|\n"
            for way in known:
                if direction in directions(WAYS[way]):
                    row = table[way]["parts"][f"{part} {direction}"]
                    text += f"| {way} | " + " | ".join(cells(row, direction)) + " |\n"
    return text


def cells(row: dict[str, Any], direction: str) -> list[str]:
    """Return a part's row as the page shows it."""
    return [
        ", ".join(row["layer"]) or "none: fused into another's",
        ", ".join(f"`{op}`" for op in row["ops"]) or "–",
        "–" if row["matrix_flops"] is None else f"{row['matrix_flops']:,}",
        "–" if row["flops"] is None else f"{row['flops']:,}",
        ", ".join(row["dtypes"]) or "–",
        "yes" if row["line"] else "–",
        "" if direction == "forward" else "yes" if row["linked"] else "no",
    ]


HEAD = f"""# One model in every framework

A convolution (3 → 8, 3×3), a ReLU and a dense layer (1568 → 10), trained for {STEPS} steps on a batch of 8
images of 16×16, by `scripts/frameworks/*_net.py`. The names of ops are each framework's own; the columns
mean the same. `python scripts/frameworks_doc.py` writes this page, and a test in each framework's folder
compares the recorded values with it.

The frameworks differ in these points:

- An activation that a framework fuses into the convolution before it has no forward op of its own.
- The column *all FLOP* counts the ops that a framework runs: a bias counts if a separate op adds it, but not
  inside a product. XLA fuses more than the activation into the operation with the activation's name.
- The dtypes leave out sizes that a framework passes as integer tensors.
- Keras's ops have the line of `fit`: no other line of the program runs them.
- The JAX program marks no steps: opscope infers them, as the profile's notes say.
"""
TAIL = """
TensorRT has no rows: it runs on NVIDIA GPUs only, and this page is written on machines without one. A stack
without an adapter has none either: opscope knows its kernels, but not its ops ([simple.md](simple.md)).

"""


def main(wanted: Sequence[str]) -> int:
    """Measure the ways named, or all that can run here. Returns 1 if a program failed."""
    unknown = [way for way in wanted if way not in WAYS]
    if unknown:
        print(f"no way {unknown[0]!r}; choose from: {', '.join(WAYS)}")
        return 2
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    failed = 0
    for way in wanted or WAYS:
        lacks = lacking(way)
        if lacks:
            print(f"{way}: not run here: {lacks}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                table[way] = measured(way, Path(folder))
            except subprocess.CalledProcessError as error:
                print(f"{way}: the program failed with status {error.returncode}")
                failed = 1
                continue
        print(f"{way}: {table[way]['steps']} steps")
    ordered = {way: table[way] for way in WAYS if way in table}
    TABLE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(document(ordered), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
