"""Compares what opscope saw of gpu_check.sh's programs with what these know of themselves.

Usage: python scripts/gpu_results.py FOLDER   (NAME.opscope and NAME.json of each program)
Writes FOLDER/results.txt, and exits with 1 where a check fails. A program that left nothing failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

import opscope

#: What share of launched kernel time must have its op.
ATTRIBUTED = 0.99


def text(*names):
    return pl.col(names).cast(pl.String)


def kernels_of(profile):
    return profile.kernels().with_columns(
        text("name", "op", "op_type", "layer", "source", "reason")
    )


def attribution(profile):
    """What holds of every profile with kernels."""
    kernels = kernels_of(profile)
    launched = kernels.filter(pl.col("call_start").is_not_null())
    with_op = launched.filter(pl.col("op_id").is_not_null())["duration"].sum()
    row = profile.summary().row(0, named=True)
    total = kernels["duration"].sum()
    return {
        "kernels were captured": len(kernels) > 0,
        f"at least {ATTRIBUTED:.0%} of launched kernel time has an op": len(launched) > 0
        and with_op >= ATTRIBUTED * launched["duration"].sum(),
        "attributed + unattributed = total": len(kernels) > 0
        and row["attributed_time"] + row["unattributed_time"] == total,
    }


def flops(profile, known):
    """Matrix FLOPs against those that PyTorch counts."""
    row = profile.ops() if profile.cpu_only else profile.kernels()
    if profile.cpu_only:
        row = row.filter(pl.col("canonical"))
    seen = row["matrix_flops"].sum()
    near = abs(seen - known["matrix_flops"]) <= 0.01 * known["matrix_flops"]
    return {f"matrix FLOPs are PyTorch's own ({seen:.4g} of {known['matrix_flops']:.4g})": near}


def lenet(profile, known):
    row = profile.summary().row(0, named=True)
    return attribution(profile) | {
        "FLOPs are known for at least 95 % of launched device time": (row["flops_share"] or 0)
        >= 0.95,
        "all 8 steps were seen": row["steps"] == 8,
    }


def amp(profile, known):
    kernels = kernels_of(profile)
    products = kernels.filter(pl.col("op_type").is_in(["gemm", "attention"]))
    with_flops = products.filter(pl.col("matrix_flops") > 0)
    on_cores = with_flops.filter(pl.col("tensor_core").fill_null(False))["matrix_flops"].sum()
    rated = profile.efficiency("op").filter(pl.col("efficiency").is_not_null())
    return (
        attribution(profile)
        | flops(profile, known)
        | {
            "at least 95 % of matrix FLOPs ran on Tensor Cores": len(with_flops) > 0
            and on_cores >= 0.95 * with_flops["matrix_flops"].sum(),
            "no matrix product is faster than the device can be": len(rated) > 0
            and not (
                rated.filter(text("op").str.contains("mm|attention"))["efficiency"] > 1.05
            ).any(),
            "all steps were seen": profile.summary()["steps"].item() == known["steps"],
        }
    )


def compiled(profile, known):
    regions = profile.compiled().with_columns(
        text("region", "name", "fused", "source", "direction")
    )
    made = regions.filter(pl.col("name").str.contains("^(triton|cpp)_.*fused"))
    notes = dict(profile.notes().select("what", "how_many").rows())
    return (attribution(profile) if not profile.cpu_only else {}) | {
        "one graph, no break": (known["graphs"], known["breaks"]) == (1, 0),
        "the profile has the number of graphs": notes.get(
            "torch.compile: graphs made since the program began"
        )
        == known["graphs"],
        "the region is named by its compilation": len(regions) > 0
        and regions["region"].str.contains(r"Torch-Compiled Region: \d+/\d+$").all(),
        "forward and backward are told apart": set(regions["direction"]) == {"forward", "backward"},
        "every generated kernel tells what it fuses": len(made) > 0
        and made["fused"].str.contains("aten::").fill_null(False).all(),
        "every generated kernel has a line of the program": len(made) > 0
        and made["source"].str.contains(r"gpu_programs\.py:\d+").fill_null(False).all(),
    }


def graph(profile, known):
    kernels = kernels_of(profile)
    replayed = kernels.filter(pl.col("inferred") & pl.col("op_id").is_not_null())
    lost = kernels.filter(pl.col("reason").fill_null("").str.contains("CUDA graph"))
    ranges = profile.trace["ranges"].filter(text("category") == "graph").select(text("text"))
    found = ranges["text"].str.extract(r" (capture|replay)$").value_counts()
    count = dict(found.rows())
    # a graph of its own: its ops were captured in different ranges, so two op ids for every op
    each = replayed.group_by("op_id").agg(pl.len())["len"]
    return attribution(profile) | {
        "captures and replays have ranges": count
        == {"capture": known["graphs"], "replay": known["replays"]},
        "no replayed kernel lost its capture": len(replayed) > 0 and not len(lost),
        "each captured op ran in each replay of its own graph": len(each) > 0
        and (each % (known["replays"] // known["graphs"]) == 0).all(),
        "forward and backward were captured": {"forward", "backward"}
        <= set(replayed["direction"].cast(pl.String)),
    }


def streams(profile, known):
    kernels = kernels_of(profile).filter(pl.col("op").str.contains("aten::(mm|relu|add_)"))
    return (
        attribution(profile)
        | flops(profile, known)
        | {
            "kernels ran on both streams": kernels["stream"].n_unique() == known["streams"],
            "the products are on one, the rest on the other": kernels.group_by("op")
            .agg(pl.col("stream").n_unique())["stream"]
            .max()
            == 1,
        }
    )


def memory(profile, known):
    gpu = profile.memory().filter(pl.col("device") >= 0)
    peak = int(gpu["peak_memory"].max() or 0)
    by_op = profile.memory_by_op().filter(pl.col("device") >= 0)
    held = by_op.filter(pl.col("op").is_not_null())["at_peak"].sum()
    return {
        f"the peak is the allocator's ({peak} of {known['requested']})": peak == known["requested"],
        "what ops held and what was there add up to it": by_op["at_peak"].sum() == peak > 0,
        "allocations have ops for at least 90 % of the peak": held >= 0.9 * peak > 0,
        "reserved memory is told": int(gpu["reserved"].max() or 0) == known["reserved"],
    }


def overhead(profile, known):
    ratio = known["ratio"]
    return {
        "opscope costs no more than torch.profiler with shapes": ratio[
            "opscope, ranges and kernels"
        ]
        <= 1.05 * ratio["torch.profiler, shapes"],
    }


CHECKS = {one.__name__: one for one in (lenet, amp, compiled, graph, streams, memory, overhead)}


def checked(folder, name):
    """The checks of one program; one that fails where it left nothing, or could not be compared."""
    profile, known = folder / f"{name}.opscope", folder / f"{name}.json"
    try:
        told = json.loads(known.read_text(encoding="utf-8")) if name != "lenet" else {}
        return CHECKS[name](opscope.load(profile) if name != "overhead" else None, told), told
    except Exception as error:  # noqa: BLE001 - the other programs are still to be compared
        return {f"it ran and could be compared ({type(error).__name__}: {error})": False}, {}


def main():
    folder = Path(sys.argv[1])
    lines = [f"opscope {opscope.__version__}"]
    failed = 0
    for name in CHECKS:
        found, told = checked(folder, name)
        lines.append(f"{name}: {told.get('torch', '')} {told.get('device', '')}".rstrip(": "))
        for what, passed in found.items():
            failed += not passed
            lines.append(f"  {'pass' if passed else 'FAIL'}  {what}")
        for variant, ratio in told.get("ratio", {}).items():
            lines.append(f"        {told['step_ms'][variant]:9.3f} ms  {ratio:5.2f}  {variant}")
        if (folder / f"{name}.opscope").exists():
            row = opscope.load(folder / f"{name}.opscope").summary().row(0, named=True)
            lines += [f"        {key} = {value}" for key, value in row.items()]
    report = "\n".join([*lines, f"{failed} checks failed"]) + "\n"
    (folder / "results.txt").write_text(report, encoding="utf-8")
    print(report)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
