"""Compare opscope's profile of one of gpu_check.sh's programs with independent figures.

Usage: python scripts/gpu_results.py NAME FOLDER
Reads from FOLDER, as far as they exist: NAME.opscope (the profile), NAME.json (the program's own figures
under opscope), NAME.bare.json (without), NAME.plain.json and NAME.plain.trace.json.gz (under torch.profiler).
Writes NAME.checks.json: {"checks": {what: true, false or null if undecided}, "facts": [lines]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

import opscope

try:
    from gpu_plain import compared
except ImportError:  # run as a module of the tests
    from scripts.gpu_plain import compared

#: The share of GPU time that must have an op.
ATTRIBUTED = 0.99
#: The most that modelled and counted FLOPs may differ; kernels of algorithms that need fewer FLOPs.
COUNTED, ALGORITHMS = 0.05, "(?i)winograd|fft"

#: The reason of what a CUDA graph with branches replayed, where its nodes have no numbers.
UNNUMBERED = "replayed from a CUDA graph that runs nodes concurrently and does not number them"


def text(*names):
    return pl.col(names).cast(pl.String)


def kernels_of(profile):
    return profile.kernels().with_columns(
        text("name", "op", "op_type", "layer", "source", "reason")
    )


def attribution(profile):
    """The checks of every profile with kernels."""
    kernels = kernels_of(profile)
    launched = kernels.filter(pl.col("call_start").is_not_null())
    with_op = launched.filter(pl.col("op_id").is_not_null())["duration"].sum()
    row = profile.summary().row(0, named=True)
    total = kernels["duration"].sum()
    moved = profile.memops()
    every = [(one, one.filter(pl.col("op_id").is_not_null())) for one in (kernels, moved)]
    device, of_ops = (sum(pair[k]["duration"].sum() for pair in every) for k in range(2))
    # PyTorch numbers the nodes of CUDA graphs since 2.12 or so; branches cannot be told apart without
    bare = sum(
        one.filter(text("reason") == UNNUMBERED)["duration"].sum() for one in (kernels, moved)
    )
    # a compiler that chooses among kernels runs each of them itself: they belong to no op
    tried = profile.gaps().filter(text("phase") == "compile")["time"].sum()
    device -= tried
    launches = launched["duration"].sum()
    launches -= min(tried, launches - with_op)
    enough = device > 0 and of_ops >= ATTRIBUTED * device
    return {
        f"at least {ATTRIBUTED:.0%} of GPU time has an op": None
        if not enough and of_ops + bare >= ATTRIBUTED * device > 0
        else enough,
        "the rest has a reason": all(
            one.filter(pl.col("op_id").is_null() & pl.col("reason").is_null()).is_empty()
            for one in (kernels, moved)
        ),
        "kernels were captured": len(kernels) > 0,
        f"at least {ATTRIBUTED:.0%} of launched kernel time has an op": None
        if bare and with_op + bare >= ATTRIBUTED * launches > 0
        else launches > 0 and with_op >= ATTRIBUTED * launches,
        "attributed + unattributed = total": len(kernels) > 0
        and row["attributed_time"] + row["unattributed_time"] == total,
    }


def flops(profile, known):
    """Compare the matrix FLOPs with PyTorch's count."""
    row = profile.ops() if profile.cpu_only else profile.kernels()
    if profile.cpu_only:
        row = row.filter(pl.col("canonical"))
    seen = row["matrix_flops"].sum()
    near = abs(seen - known["matrix_flops"]) <= 0.01 * known["matrix_flops"]
    return {f"matrix FLOPs equal PyTorch's count ({seen:.4g} of {known['matrix_flops']:.4g})": near}


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
            "no matrix product is faster than the device's peak": len(rated) > 0
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
        "one FX graph, no break": (known["graphs"], known["breaks"]) == (1, 0),
        "the profile has the number of FX graphs": notes.get(
            "torch.compile: graphs made since the program began"
        )
        == known["graphs"],
        "the region's name has its compilation": len(regions) > 0
        and regions["region"].str.contains(r"Torch-Compiled Region: \d+/\d+$").all(),
        "forward and backward are distinguished": set(regions["direction"])
        == {"forward", "backward"},
        "every generated kernel has the ops that it fuses": len(made) > 0
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
    # each CUDA graph was captured in its own ranges, so every op has two op ids
    each = replayed.group_by("op_id").agg(pl.len())["len"]
    return attribution(profile) | {
        "captures and replays have ranges": count
        == {"capture": known["graphs"], "replay": known["replays"]},
        "every replayed kernel has its capture": len(replayed) > 0 and not len(lost),
        "each captured op ran in each replay of its own CUDA graph": len(each) > 0
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
            "each op ran on one stream only": kernels.group_by("op")
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
        "the memory by op adds up to the peak": by_op["at_peak"].sum() == peak > 0,
        "allocations have ops for at least 90 % of the peak": held >= 0.9 * peak > 0,
        "the reserved memory is the allocator's": int(gpu["reserved"].max() or 0)
        == known["reserved"],
    }


def eager(profile, known):
    """Check a float32 training: FLOPs, roofs, threads, directions and clocks are known."""
    kernels = kernels_of(profile)
    products = kernels.filter(pl.col("op_type").is_in(["gemm", "attention"]))
    device, why = profile.device
    rated = profile.efficiency()
    over = rated.filter((pl.col("efficiency") > 1) & pl.col("over_reason").is_null())
    return attribution(profile) | {
        "all steps were seen": profile.summary()["steps"].item() == known["steps"],
        "matrix products have FLOPs": len(products) > 0
        and products["matrix_flops"].is_not_null().all(),
        f"the device's peaks are known ({device.name if device else why})": device is not None
        and bool(device.vector),
        "ops have roofs": rated["efficiency"].is_not_null().any(),
        "no op is faster than its roof without a reason": not len(over),
        "kernels have the thread that launched them": len(kernels) > 0
        and kernels["call_start"].is_not_null().mean() >= ATTRIBUTED,
        "forward, backward and optimizer are distinguished": {"forward", "backward", "optimizer"}
        <= set(kernels["direction"].cast(pl.String).drop_nulls()),
        "the clocks agree to within five microseconds": not any(
            "by the Unix clock" in one or "may be counted in a neighbouring range" in one
            for one in profile.notes()["what"].cast(pl.String)
        ),
    }


def steps(profile, known):
    """Check ``--steps 3:6``: three equal steps were recorded, and no others."""
    kernels = profile.kernels()
    each = kernels.filter(pl.col("step").is_not_null()).group_by("step").len().sort("step")
    return attribution(profile) | {
        f"the steps 3, 4 and 5 were recorded ({each['step'].to_list()})": each["step"].to_list()
        == [3, 4, 5],
        f"as many kernels in each ({each['len'].to_list()})": each["len"].n_unique() == 1,
        "at most 1 % of the kernels have no step": len(kernels) > 0
        and kernels["step"].is_null().mean() <= 0.01,
    }


def window(profile, known):
    """Check a long program without options: some of many steps were recorded, all of them whole."""
    kernels = profile.kernels()
    each = kernels.filter(pl.col("step").is_not_null()).group_by("step").len().sort("step")
    inner = each["len"][1:-1]
    return attribution(profile) | {
        f"steps were recorded ({len(each)} of {known['steps']})": len(each) >= 3,
        "as many kernels in each step but the first and the last": len(inner) > 0
        and inner.n_unique() == 1,
    }


def scaler(profile, known):
    """Check that a step that GradScaler skips is a step too."""
    return attribution(profile) | {
        "each iteration is a step, also the skipped ones": profile.summary()["steps"].item()
        == known["steps"],
    }


def loader(profile, known):
    memops = profile.memops().with_columns(text("kind", "op", "layer"))
    copied = memops.filter((pl.col("kind") == "HtoD") & (pl.col("bytes") > 4096))
    return attribution(profile) | {
        f"each batch was copied ({copied['bytes'].sum()} of at least {known['copied_bytes']} bytes)": (
            copied["bytes"].sum() >= known["copied_bytes"]
        ),
        "copies have the op that made them": len(copied) > 0
        and copied["op_id"].is_not_null().all(),
        "all steps were seen": profile.summary()["steps"].item() == known["steps"],
    }


def copies(profile, known):
    memops = profile.memops().with_columns(text("kind", "op", "reason"))
    big = memops.filter(pl.col("bytes") == known["bytes"])
    count = dict(big.group_by("kind").len().iter_rows())
    # the copies of the CUDA graph and of each warm-up run before it
    runs = known["replays"] + known["warm_up"]
    return attribution(profile) | {
        "the program's result is right": known["right"],
        # and one more copy from the GPU, to verify the result
        f"each run copied to, on and from the GPU ({count})": count
        == {"HtoD": runs, "DtoD": runs, "DtoH": runs + 1},
        "copies in replays have the captured op": big.filter(pl.col("op") == "aten::copy_").height
        == 3 * runs,
    }


def branches(profile, known):
    kernels = kernels_of(profile)
    replayed = kernels.filter(
        pl.col("inferred").fill_null(False) | pl.col("graph_node").is_not_null()
    )
    elementwise = pl.col("name").str.contains("elementwise")
    products = replayed.filter(pl.col("op").str.starts_with("aten::mm"))
    cosines = replayed.filter(pl.col("op").str.starts_with("aten::cos"))
    expected = known["replays"] * known["each"]
    if kernels.select((text("reason") == UNNUMBERED).any()).item():
        found = "this PyTorch numbers the nodes of CUDA graphs (else only --backend cupti tells branches apart)"
        return attribution(profile) | {found: None}
    return attribution(profile) | {
        f"the cosines' kernels are elementwise ({len(cosines)} of {expected})": len(cosines)
        == expected
        and cosines.select(elementwise.all()).item(),
        f"the products' kernels are not ({len(products)}, at least {expected})": len(products)
        >= expected
        and not products.select(elementwise.any()).item(),
    }


def fork(profile, known):
    kernels = profile.kernels()
    each = kernels.group_by("process").len()
    with_ops = kernels.filter(pl.col("op_id").is_not_null()).group_by("process").len()
    return attribution(profile) | {
        "the parent did not initialise CUDA": not known["parent_used_cuda"],
        f"each worker's kernels were recorded ({each['len'].to_list()})": len(each)
        == known["workers"]
        and each["len"].n_unique() == 1,
        "each worker's kernels have ops": len(with_ops) == known["workers"],
    }


def history(profile, known):
    bare = known.get("bare") or {}
    said = [one for one in profile.notes()["what"].cast(pl.String) if "history" in one]
    return attribution(profile) | {
        f"the program's own history is complete ({known['events']} of {bare.get('events')} events)": (
            known["events"] == bare.get("events")
        ),
        "the history is still on when the program ends it": known["still_on"],
        "a note says what the history cost opscope": bool(said),
    }


def nccl(profile, known):
    groups = profile.groups()
    ops = profile.ops().with_columns(text("op"))
    gathers = ops.filter(pl.col("op").str.contains("c10d::.*(all_?gather|broadcast|allreduce)"))
    return attribution(profile) | {
        f"the group is known ({groups.select('group', 'rank', 'size', 'backend').to_dicts()})": (
            len(groups) > 0 and groups["size"].to_list()[0] == 1
        ),
        "the backend is NCCL": "nccl" in str(groups["backend"].to_list()).lower(),
        f"the collectives are ops ({len(gathers)})": len(gathers) >= 3 * known["collectives"],
        "the process has its rank": profile.trace["processes"]["rank"].drop_nulls().to_list()[:1]
        == [0],
    }


def cores(profile, known):
    """Check the Tensor Core flags of kernels of which it is known beforehand."""
    kernels = kernels_of(profile).with_columns(text("dtypes", "inputs"))
    product = pl.col("op").str.starts_with("aten::mm")
    half = pl.col("inputs").str.contains("bf16")
    on, off = kernels.filter(product & half), kernels.filter(product & ~half)
    plain = kernels.filter(pl.col("op").str.starts_with("aten::add"))
    flags = {
        name: one["tensor_core"].to_list()
        for name, one in (("on", on), ("off", off), ("add", plain))
    }
    main = [any(one is True for one in flags["on"]), len(on) >= known["runs"]]
    return attribution(profile) | {
        f"the bf16 products are said to use Tensor Cores ({flags['on']})": all(main)
        and False not in flags["on"],
        f"the float32 products are not said to ({flags['off']})": len(off) >= known["runs"]
        and True not in flags["off"],
        # a "no" must be proved by the kernel's name; where it is not, null is right
        f"they are known not to ({flags['off']})": None
        if not flags["off"] or None in flags["off"]
        else not any(flags["off"]),
        f"nor are the sums ({flags['add']})": len(plain) >= known["runs"]
        and not any(one is not False for one in flags["add"]),
    }


def products(profile, known):
    """Compare the modelled FLOPs with what hardware counters counted, for products without padding."""
    measured = profile.counter_roofline().with_columns(text("op", "inputs"))
    kernels = profile.counters().with_columns(text("name", "bottom_op"))
    other = kernels.filter(text("name").str.contains(ALGORITHMS))["bottom_op"].unique().to_list()
    rows = measured.filter(pl.col("op").str.contains("aten::(mm|.*conv)"))
    compared = rows.filter(pl.col("flops_difference").is_not_null() & ~pl.col("op").is_in(other))
    far = compared.filter(pl.col("flops_difference").abs() > COUNTED)
    cores = profile.counter_work().filter(pl.col("tensor_flops") > 0)
    if measured.is_empty():
        why = [one for one in profile.notes()["what"].cast(pl.String) if "counter" in one]
        return {f"hardware counters could be measured ({'; '.join(why) or 'none were'})": None}
    return {
        f"modelled FLOPs are within {COUNTED:.0%} of the counters' ({len(compared)} of {len(rows)} ops,"
        f" {[row['op'] + row['inputs'] for row in far.head(3).iter_rows(named=True)]})": len(
            compared
        )
        > 0
        and not len(far),
        "operations on the Tensor Cores were counted": len(cores) > 0,
        "no kernel that counted them is said not to use them": cores.join(
            profile.kernels().select("start", "process", "tensor_core"), on=["process", "start"]
        )
        .filter(~pl.col("tensor_core"))
        .is_empty(),
    }


def onnxruntime(profile, known):
    """Check a session on the GPU: its kernels have the run, or the node, that launched them."""
    ops = profile.ops().with_columns(text("op"))
    return attribution(profile) | {
        "the session's nodes are ops": ops["op"].str.contains("Conv").fill_null(False).any(),
    }


def triton(profile, known):
    """Check a kernel that the user wrote: each launch is an op with the tensors, the grid and the line."""
    ops = profile.ops().with_columns(text("op", "source")).filter(pl.col("op") == "triton::axpy")
    kernels = profile.kernels().with_columns(text("op", "name"))
    own = kernels.filter(pl.col("name").str.contains("axpy"))
    return attribution(profile) | {
        f"every launch is an op ({len(ops)} of {known['runs']})": len(ops) == known["runs"],
        "its kernels have it": len(own) == known["runs"] and own["op"].eq("triton::axpy").all(),
        "its line is known": bool(ops["source"].str.contains("gpu_triton.py").all()),
    }


def overhead(profile, known):
    ratio = known["ratio"]
    return {
        "opscope costs no more than torch.profiler with shapes": ratio[
            "opscope, ranges and kernels"
        ]
        <= 1.05 * ratio["torch.profiler, shapes"],
    }


CHECKS = {
    one.__name__: one
    for one in (
        lenet, eager, amp, graph, streams, memory, steps, window, compiled, copies, branches, fork,
        scaler, loader, history, nccl, cores, products, triton, onnxruntime, overhead,
    )
}  # fmt: skip
#: Programs of which the profile covers a part, and programs that run several times in a profile.
PARTS, TIMES = {"steps", "window", "lenet", "onnxruntime", "products"}, {"fork": 2}


def told(folder, name):
    """Return the program's own figures; those of the runs without opscope under ``bare`` and ``plain``."""
    found = {}
    for key in ("bare", "plain", None):
        path = folder / (f"{name}.{key}.json" if key else f"{name}.json")
        if path.exists():
            read = json.loads(path.read_text(encoding="utf-8"))
            if key:
                found[key] = read
            else:
                found |= read
    return found


def same_result(known):
    """Return whether the program computed the same with and without opscope, and the times of a step."""
    bare = known.get("bare") or {}
    checks = {}
    if known.get("loss") is not None and bare.get("loss") is not None:
        near = abs(known["loss"] - bare["loss"]) <= 1e-3 * abs(bare["loss"])
        checks["the program computes the same with opscope"] = near
    times = {
        name: one["step_ms"]
        for name, one in (("alone", bare), ("torch.profiler", known.get("plain") or {}), ("opscope", known))
        if isinstance(one.get("step_ms"), float)  # not those of several ways, as overhead tells them
    }  # fmt: skip
    said = ", ".join(f"{name} {time:.3f}" for name, time in times.items())
    return checks, [f"ms a step: {said}"] if times else []


def about(profile):
    """Return lines that describe a profile beyond the checks."""
    lines = [f"{key} = {value}" for key, value in profile.summary().row(0, named=True).items()]
    for row in profile.unattributed().head(5).iter_rows(named=True):
        lines.append(f"without an op: {row}")
    kernels = profile.kernels()
    if len(kernels):
        cores = kernels.group_by("tensor_core").agg(pl.col("duration").sum())
        lines.append(f"kernel time by Tensor Cores: {dict(cores.iter_rows())}")
        bare = kernels.filter(pl.col("op_id").is_null()).with_columns(text("name", "reason"))
        worst = bare.group_by("name", "reason").agg(pl.col("duration").sum(), pl.len())
        for row in worst.sort("duration", descending=True).head(5).iter_rows(named=True):
            lines.append(f"kernel without an op: {row}")
    device, why = profile.device
    lines.append(f"device: {device.name if device else why}")
    lines += [f"note: {what}" for what in profile.notes()["what"].cast(pl.String)]
    return lines


def loaded(folder, name):
    """Return the profile of a program, with the hardware counters of another run of it if there are any."""
    counted, counters = folder / f"{name}.counted.opscope", folder / f"{name}.ncu.csv"
    if counted.exists():
        return opscope.load(counted)
    given = counters if counters.exists() and counters.stat().st_size else None
    return opscope.load(folder / f"{name}.opscope", counters=given)


def checked(folder, name):
    """Return (checks, facts) of one program; a check fails if there is no result or no comparison."""
    checks, facts = {}, []
    try:
        known = told(folder, name)
        profile = loaded(folder, name) if name != "overhead" else None
        checks |= CHECKS[name](profile, known)
        more, lines = same_result(known)
        checks |= more
        facts += lines
        plain = folder / f"{name}.plain.trace.json.gz"
        if plain.exists() and name not in PARTS:
            more, lines = compared(profile, plain, TIMES.get(name, 1))
            checks |= more
            facts += lines
        if profile is not None:
            facts += about(profile)
        for variant, ratio in known.get("ratio", {}).items():
            facts.append(f"{known['step_ms'][variant]:9.3f} ms  {ratio:5.2f}  {variant}")
    except Exception as error:  # noqa: BLE001 - the results so far are still written
        checks[f"the program ran and could be compared ({type(error).__name__}: {error})"] = False
    return checks, facts


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    checks, facts = checked(folder, name)
    text = json.dumps({"checks": checks, "facts": facts}, indent=1, default=str)
    (folder / f"{name}.checks.json").write_text(text, encoding="utf-8")
    sys.exit(not all(one is not False for one in checks.values()))


if __name__ == "__main__":
    main()
