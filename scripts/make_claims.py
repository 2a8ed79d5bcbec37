"""Write docs/reference/claims.md: each distinct sentence of every detector, with its figures counted again.

Usage: python scripts/make_claims.py [--check]

The detectors are asked about every trace of the tests (OPSCOPE_SHARED), and about their examples of made rows. Of
sentences that differ in figures and names alone one is shown: that of the first trace. ``RECOUNTS`` counts what a
finding says again, from the profile's tables and without the detector; a figure that is not in the sentence ends
the script with status 1. ``--check`` writes nothing and compares.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import opscope
from opscope.core.advice.ask import CANNOT_TELL, FOUND, detectors
from opscope.core.advice.saying import ms
from opscope.core.analysis.host.in_words import size
from opscope.core.communication import is_kernel
from opscope.core.tables.intervals import intersect, merge, subtract
from opscope.profile import Profile

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "claims.md"
HEAD = """# What the detectors claim

Every distinct sentence of every detector on the real traces of the tests and on the detectors' examples of made rows,
one a row: of sentences that differ in figures and names alone, that of the first trace. *Rests on* names the tables
that the figures come from. *Counted again* has what `scripts/make_claims.py`, which writes this page, counted in these
tables without the detector; where that is a bound, the sentence's figure is within it. Each sentence was read once
beside its trace: what it says is what these tables show, and a change is one for this framework and vendor.

"""
#: What stands for a name or a figure in a template.
NAMED = re.compile(
    r"\S*\.py:\d+(?: < \S+\.py:\d+)*|\b(?:aten|nccl|gloo|hlo|autograd|c10d)::?[\w:]+|[fbiu]\d+\[[^\]]*\]|'[^']*'"
)
FIGURE = re.compile(r"\d[\d,.]*")
TABLES = re.compile(r"\b([a-z_]+\(\)|allocations|calls|ranges|devices)(?=[:\s,.;)]|$)")
MS = 1e6


@dataclass
class Claim:
    """A sentence of a detector: of which trace it is, how many say it, and what was counted again."""

    trace: str
    text: str
    rests_on: str
    counted: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    traces: int = 1


def spans(frame: pl.DataFrame) -> tuple[Any, Any]:
    return merge(*(frame[name].drop_nulls().to_numpy() for name in ("start", "end")))


def length(of: tuple[Any, Any]) -> int:
    return int((of[1] - of[0]).sum())


def steps(profile: Profile) -> pl.DataFrame:
    return profile.steps().filter(pl.col("step").is_not_null())


def later_steps(profile: Profile) -> pl.DataFrame:
    return steps(profile).filter(~pl.col("warm_up").fill_null(False))


def kernels(profile: Profile) -> pl.DataFrame:
    return profile.kernels().with_columns((pl.col("end") - pl.col("start")).alias("took"))


#: What a recount yields: the text that the sentence must hold, and the table that it was counted in; or, with
#: None in place of a text, a bound that holds.
Recount = Iterator[tuple[str | None, str]]


def no_ranges(profile: Profile, row: dict[str, Any]) -> Recount:
    table = profile.trace["kernels"]
    yield f"{len(table):,} kernels ({ms(profile.summary()['kernel_time'][0])})", "kernels"


def no_iterations(profile: Profile, row: dict[str, Any]) -> Recount:
    marked = profile.trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    assert marked.is_empty() or not len(steps(profile))
    yield "has no steps", "ranges of category step: 0"


def pageable_copies(profile: Profile, row: dict[str, Any]) -> Recount:
    table = profile.trace["memops"].with_columns(
        pl.col("kind", "src_kind", "dst_kind").cast(pl.String),
        (pl.col("end") - pl.col("start")).alias("took"),
    )
    kind, end = ("HtoD", "src_kind") if "to the GPU" in row["finding"] else ("DtoH", "dst_kind")
    mine = table.filter(pl.col("kind") == kind, pl.col(end) == "pageable")
    large = mine.filter(pl.col("bytes") > 65_536)
    moved, took = int(large["bytes"].sum()), int(large["took"].sum())
    yield f"{len(large):,} of {len(mine):,} copies", "memops: kind, bytes"
    yield f"{moved / 1e6:,.1f} MB in {ms(took)}", "memops: bytes, start, end"


def transfer_bound(profile: Profile, row: dict[str, Any]) -> Recount:
    memops, computed = profile.trace["memops"], spans(profile.trace["kernels"])
    moving = memops.filter(pl.col("kind").cast(pl.String).is_in(["HtoD", "DtoH", "PtoP"]))
    yield f"for {ms(length(subtract(spans(moving), computed)))}", "memops less kernels: start, end"
    yield f"{moving['bytes'].sum() / 1e9:,.2f} GB", "memops: bytes"


def warm_up(profile: Profile, row: dict[str, Any]) -> Recount:
    table = steps(profile)
    firsts = table.filter(pl.col("warm_up").fill_null(False))
    more = firsts.join(
        later_steps(profile).group_by("process").agg(pl.col("time").median().alias("usual")),
        on="process",
    ).select("process", (pl.col("time") - pl.col("usual")).alias("more"))
    most = more.group_by("process").agg(pl.col("more").sum())["more"].max()
    yield f"{ms(float(most))} more", "steps(): time, warm_up"  # type: ignore[arg-type]


def iteration_range(profile: Profile, row: dict[str, Any]) -> Recount:
    counts = steps(profile).group_by("process").len()["len"].to_list()
    recorded = re.search(r"'s ([\d,]+) recorded", row["finding"])
    assert recorded is not None
    assert int(recorded[1].replace(",", "")) in counts
    yield f"{recorded[1]} recorded step", "steps()"


def of_steps(profile: Profile, row: dict[str, Any]) -> Recount:
    """The steps' time, and that the device idles in them for at least the time claimed."""
    table = later_steps(profile)
    yield (
        f"{ms(int(table.group_by('step').agg(pl.col('time').max())['time'].sum()))}",
        "steps(): time",
    )
    work = pl.concat(profile.trace[name].select("start", "end") for name in ("kernels", "memops"))
    idle = length(subtract(spans(table), spans(work)))
    several = profile.trace["kernels"].select("process", "device").n_unique()
    if several == 1:
        assert row["time"] <= idle, (row["time"], idle)
        yield None, f"steps() less kernels and memops: {ms(idle)} idle"


def sync_calls(profile: Profile, row: dict[str, Any]) -> Recount:
    table, marked = profile.trace["calls"], spans(later_steps(profile))
    waiting = table.filter(
        pl.col("name").cast(pl.String).str.contains("(?i)Synchronize|Memcpy")
    ).sort("start")
    inside = length(intersect(spans(waiting), marked))
    assert row["time"] <= inside * 1.01, (row["time"], inside)
    yield None, f"calls named Synchronize or Memcpy, in steps(): {ms(inside)}"


def underutilized_gpu(profile: Profile, row: dict[str, Any]) -> Recount:
    ran, table = spans(profile.trace["kernels"]), steps(profile)
    busy = length(intersect(ran, spans(table))) if len(table) else length(ran)
    use = profile.device_use()
    yield (
        f"{ms(use['kernel_busy'][0])} of {ms(use['window'][0])}",
        "device_use(): kernel_busy, window",
    )
    assert busy <= use["kernel_busy"][0] * 1.001
    yield None, f"kernels in steps: {ms(busy)} busy"


def of_collectives(profile: Profile, row: dict[str, Any]) -> Recount:
    """Communication, and the part with no kernel of another kind beside it, by names of kernels."""
    table = profile.trace["kernels"]
    names = table["name"].cast(pl.String)
    talks = pl.Series([bool(is_kernel(name or "")) for name in names], dtype=pl.Boolean)
    process = profile.communication()["process"][0]
    mine = table.filter(talks, pl.col("process") == process)
    others = table.filter(~talks, pl.col("process") == process)
    if mine.is_empty():
        return
    window = spans(steps(profile))
    inside = spans(mine)
    if len(window[0]):
        whole = merge(window[0][:1], window[1][-1:])
        inside = intersect(inside, whole)
    exposed = length(subtract(inside, spans(others)))
    said = [float(one.replace(",", "")) for one in re.findall(r"([\d,.]+) ms", row["finding"])]
    near = min(said, key=lambda one: abs(one - exposed / MS))
    assert abs(near - exposed / MS) <= 0.02 * max(exposed / MS, 1), (near, exposed)
    yield None, f"kernels by name, start, end: {ms(exposed)} beside no other kernel"


def by_family(*families: str) -> Callable[[Profile, dict[str, Any]], Recount]:
    """That a finding is about no more time than kernels (on a CPU: ops) of these families take."""

    def recount(profile: Profile, row: dict[str, Any]) -> Recount:
        totals = profile.op_totals().filter(pl.col("op_type").is_in(families))
        name = "self_time" if profile.cpu_only else "device_time"
        whole = int(totals[name].sum() or 0)
        assert row["time"] <= whole, (row["time"], whole)
        yield None, f"op_totals(): {ms(whole)} in {', '.join(families)}"

    return recount


def double_precision(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile).filter(pl.col("dtypes").str.contains("f64|c128"))
    yield ms(table["took"].sum()), "kernels(): dtypes"


def no_fusion(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile).filter(
        pl.col("op_type").is_in(["elementwise", "activation", "dropout"]),
        pl.col("direction").ne_missing("optimizer"),
    )
    if len(table):
        yield (
            f"{len(table):,} elementwise kernels take {ms(table['took'].sum())}",
            "kernels(): op_type",
        )


def unfused_optimizer(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile).filter(pl.col("direction") == "optimizer")
    assert row["time"] <= int(table["took"].sum() or row["time"])
    yield None, f"kernels(): {len(table):,} of direction optimizer, {ms(table['took'].sum() or 0)}"


def layout_conversions(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile)
    named = table.filter(pl.col("name").str.contains(r"(?i)nchwToNhwc|nhwcToNchw"))
    if len(named):
        yield f"{len(named):,} kernels", "kernels: name"
        yield ms(named["took"].sum()), "kernels: start, end"


def of_memory(profile: Profile, row: dict[str, Any]) -> Recount:
    peak = profile.memory().filter(pl.col("device") >= 0)["peak_memory"].max()
    if peak:
        events = (
            profile.trace["allocations"].filter(pl.col("device") >= 0)
            if profile.trace.has("allocations")
            else None
        )
        top = None if events is None else events["total"].max()
        found = [f"{peak / 1e9:.{digits}f}" for digits in (1, 2)]
        assert any(one in row["finding"] for one in found), (row["finding"], found)
        assert top is None or top <= peak
        yield None, f"memory(): peak_memory {peak / 1e9:.2f} GB"


def data_loader(profile: Profile, row: dict[str, Any]) -> Recount:
    waits = profile.input_waits().filter(pl.col("input_wait").is_not_null())
    if waits["process"].n_unique() == 1:
        yield (
            f"{ms(waits['input_wait'].sum())} of {ms(waits['duration'].sum())}",
            "input_waits(): input_wait",
        )


def unfused_attention(profile: Profile, row: dict[str, Any]) -> Recount:
    calls = re.search(r"\(([\d,]+) softmax", row["finding"])
    assert calls is not None
    table = kernels(profile).filter(pl.col("name").str.contains("(?i)softmax"))
    if len(table):
        assert int(calls[1].replace(",", "")) <= len(table)
        yield None, f"kernels: {len(table):,} of a name with softmax"


def cudnn_benchmark(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile).filter(pl.col("op").str.contains("convolution"))
    if len(table):
        yield ms(table["took"].sum()), "kernels(): op, start, end"


def imbalanced_gpus(profile: Profile, row: dict[str, Any]) -> Recount:
    """The time of the busiest device and of the least busy one in kernels that by name communicate nothing."""
    table = profile.trace["kernels"]
    names = table["name"].cast(pl.String)
    table = table.filter(pl.Series([not is_kernel(name or "") for name in names], dtype=pl.Boolean))
    busy = [length(spans(part)) for part in table.partition_by("process", "device")]
    for time in (max(busy), min(busy)):
        yield ms(time), "kernels by name, start, end"


def of_ranges(pattern: str) -> Callable[[Profile, dict[str, Any]], Recount]:
    """That a finding is about no more time than ranges (each moment of a thread once) of this text take."""

    def recount(profile: Profile, row: dict[str, Any]) -> Recount:
        table = profile.trace["ranges"]
        table = table.filter(table["text"].cast(pl.String).str.contains(pattern))
        whole = sum(length(spans(part)) for part in table.partition_by("process", "thread"))
        assert 0 < row["time"] <= whole, (row["time"], whole)
        yield None, f"ranges of text {pattern}: {ms(whole)}"

    return recount


def recomputed_casts(profile: Profile, row: dict[str, Any]) -> Recount:
    table = kernels(profile).filter(pl.col("op").str.contains("copy|cast|convert|(?i)to"))
    assert row["time"] <= int(table["took"].sum())
    yield None, f"kernels(): {len(table):,} of a cast or copy, {ms(table['took'].sum())}"


def slow_api_flags(profile: Profile, row: dict[str, Any]) -> Recount:
    table = profile.trace["calls"]
    took = int((table["end"] - table["start"]).sum())
    assert row["time"] <= took, (row["time"], took)
    yield None, f"calls: {len(table):,}, {ms(took)}"


def data_parallel(profile: Profile, row: dict[str, Any]) -> Recount:
    devices = profile.trace["kernels"].group_by("process").agg(pl.col("device").n_unique())
    yield f"on {devices['device'].max()} devices", "kernels: device"


def uneven_ranks(profile: Profile, row: dict[str, Any]) -> Recount:
    waiting = int(profile.collectives()["waiting_time"].sum())
    yield f"({ms(waiting)} of all ranks)", "collectives(): waiting_time"


def uneven_experts(profile: Profile, row: dict[str, Any]) -> Recount:
    """The busiest rank's split over the mean, or the busiest expert's FLOPs over the mean of its layer."""
    records = [json.loads(text) for text in profile.trace["kernels"]["attrs"].drop_nulls()]
    splits = [[json.loads(str(each[key])) for key in ("in_split", "out_split")] for each in records]
    ratios = [max(max(part) * len(part) / sum(part) for part in pair) for pair in splits]
    if "All-to-alls" in row["finding"]:
        yield f"{sum(ratios) / len(ratios):.2f} times the mean", "kernels: attrs"
        yield f"{max(ratios):.2f} at most", "kernels: attrs"
        return
    totals = profile.op_totals().with_columns(
        layer=pl.col("layer").cast(pl.String).str.extract(r"^(.*experts?)[._]\d+"),
        expert=pl.col("layer").cast(pl.String).str.extract(r"experts?[._](\d+)"),
    )
    each = totals.drop_nulls("layer").group_by("layer", "expert").agg(pl.col("flops").sum())
    worst = each.group_by("layer").agg(pl.col("flops").max() / pl.col("flops").mean())
    yield f"{worst['flops'].max():.2f} times the mean", "op_totals(): layer, flops"


def value_reads(profile: Profile, row: dict[str, Any]) -> Recount:
    """The reads a step, and that they are no further apart than the time of loops that is claimed."""
    table, counted = profile.ops(), later_steps(profile)
    reads = table.filter(
        pl.col("op").cast(pl.String).str.contains("item|_local_scalar_dense|is_nonzero"),
        pl.col("step").is_in(counted["step"].implode()),
        pl.col("direction").cast(pl.String).ne_missing("optimizer"),
    )
    yield f"{len(reads) / len(counted):,.0f} a step", "ops(): op, step"
    spread = reads.group_by("thread", "step").agg(pl.col("end").max() - pl.col("start").min())
    assert row["time"] <= int(spread["end"].sum()), (row["time"], spread)
    yield (
        None,
        f"ops(): {len(reads):,} reads, {ms(int(spread['end'].sum()))} from the first to the last of a step",
    )


def cast_round_trips(profile: Profile, row: dict[str, Any]) -> Recount:
    """Casts to more bits whose next one on the thread or stream takes their result back."""
    cpu = profile.cpu_only
    lane, table = ("thread", profile.ops()) if cpu else ("stream", profile.kernels())
    table = table.sort("process", lane, "start").with_columns(
        pl.col("inputs", "outputs").cast(pl.String)
    )
    back = (pl.col("inputs") == pl.col("outputs").shift(-1)) & (
        pl.col("outputs") == pl.col("inputs").shift(-1)
    )
    source, to = (
        pl.col(name).str.extract(r"^\w*?f(\d+)").cast(pl.Int64) for name in ("inputs", "outputs")
    )
    pairs = table.filter(back.fill_null(False) & (source < to).fill_null(False))
    yield f"{2 * len(pairs):,} casts", f"{'ops' if cpu else 'kernels'}(): inputs, outputs"


def memory_growth(profile: Profile, row: dict[str, Any]) -> Recount:
    """What is in use at the end of the last step, and that the growth is no more than from least to most."""
    held = profile.memory_steps().sort("start")["in_use"].drop_nulls()
    if len(held):
        yield f"to {size(held[-1])}", "memory_steps(): in_use"
        grown = re.search(r"by ([\d,.]+) (\w+) in", row["finding"])
        assert grown is not None
        unit = {"MB": 1e6, "GB": 1e9, "kB": 1e3}[grown[2]]
        most = (held.max() - held.min()) / unit  # type: ignore[operator]
        assert float(grown[1].replace(",", "")) <= 1.1 * most, (grown[0], most)


def starved(profile: Profile, row: dict[str, Any]) -> Recount:
    """The mean of the samples of waiting, of the steps' time."""
    waits = profile.trace["samples"].filter(
        pl.col("name").cast(pl.String).str.starts_with("waiting for a processor")
    )
    took = int(steps(profile)["time"].sum())
    waited = float(waits["value"].mean() or 0) / 100 * took  # type: ignore[arg-type]
    assert abs(row["time"] - waited) <= 0.1 * waited, (row["time"], waited)
    yield f"of {ms(took)}", "steps(): time"
    yield None, f"samples: {100 * waited / took:.1f} % in the mean"


def evaluation_share(profile: Profile, row: dict[str, Any]) -> Recount:
    """From the first op to the last of each stretch behind a step in which nothing is differentiated."""
    table, ops = steps(profile).sort("start"), profile.ops().filter(pl.col("depth") == 0)
    ends = [*table["start"][1:], max(ops["end"].max(), table["end"].max()) + 1]  # type: ignore[type-var]
    total = count = 0
    for begin, end in zip(table["end"], ends, strict=True):
        inside = ops.filter(pl.col("start").is_between(begin, end, closed="left"))
        ways = set(inside["direction"].cast(pl.String).drop_nulls())
        if ways == {"forward"} and len(inside) >= 4:
            count += 1
            total += inside["end"].max() - inside["start"].min()  # type: ignore[operator]
    yield f"{count:,} evaluations", "ops(): direction; steps(): start, end"
    yield f"{ms(total)}, beside {ms(int(table['time'].sum()))}", "ops() and steps(): start, end"


def padding(profile: Profile, row: dict[str, Any]) -> Recount:
    """The places of batches and the elements in them, by the shapes of the ops that pack."""
    places = filled = 0
    table = profile.ops().select(pl.col("op", "inputs", "outputs").cast(pl.String))
    for _, inputs, outputs in table.filter(pl.col("op").str.contains("pad|Ragged")).rows():
        shapes = [
            [int(size) for size in text.split(",")]
            for text in re.findall(r"\w+\[([\d,]+)\]", f"{inputs}, {outputs}")
        ]
        dense = max(shapes, key=len)
        packed = next(shape for shape in shapes if shape[1:] == dense[2:] and len(shape) > 1)
        places, filled = places + dense[0] * dense[1], filled + packed[0]
    yield f"{100 * (places - filled) / places:.1f} % of the places", "ops(): inputs, outputs"


#: The names of an engine's steps in these traces: requests in a prefill, requests that decode.
ENGINE_STEP = re.compile(r"context_(\d+)\(.*?\)_generation_(\d+)\(|decode\[bs=()(\d+)")


def engine_ranges(profile: Profile) -> pl.DataFrame:
    """The ranges that name an engine's steps, by begin: start, end, next (ns), prefill, decode, text."""
    ranges = profile.trace["ranges"].with_columns(pl.col("text").cast(pl.String)).sort("start")
    rows = []
    for start, end, text in ranges.select("start", "end", "text").rows():
        match = ENGINE_STEP.search(text or "")
        if match:
            prefill, decode = (
                (match.group(1), match.group(2)) if match.group(1) else (0, match.group(4))
            )
            rows.append((start, end, int(prefill), int(decode), text))
    frame = pl.DataFrame(rows, schema=["start", "end", "prefill", "decode", "text"], orient="row")
    return frame.with_columns(
        pl.col("start").shift(-1).fill_null(pl.col("end").max()).alias("next")
    )


def decode_outside_graphs(profile: Profile, row: dict[str, Any]) -> Recount:
    steps = engine_ranges(profile).filter((pl.col("prefill") == 0) & (pl.col("decode") > 0))
    yield f"of {len(steps)} decode steps", "ranges"


def graph_padding(profile: Profile, row: dict[str, Any]) -> Recount:
    sizes = [re.search(r"bs=(\d+)/(\d+)", text) for text in engine_ranges(profile)["text"]]
    pairs = [(int(match.group(1)), int(match.group(2))) for match in sizes if match]
    padded = sum(rows for _, rows in pairs)
    yield f"{100 * (padded - sum(asked for asked, _ in pairs)) / padded:.1f} %", "ranges"


def prefill_stalls(profile: Profile, row: dict[str, Any]) -> Recount:
    steps = engine_ranges(profile)
    between = (
        (pl.col("decode") == 0) & (pl.col("decode").shift(1) > 0) & (pl.col("decode").shift(-1) > 0)
    )
    yield (
        ms(steps.filter(between).select((pl.col("next") - pl.col("start")).sum()).item()),
        "ranges",
    )


def late_scheduler(profile: Profile, row: dict[str, Any]) -> Recount:
    steps = engine_ranges(profile)
    going_on = steps.filter((pl.col("decode") > 0) & (pl.col("decode").shift(-1) > 0))
    gaps = merge(going_on["end"].to_numpy(), going_on["next"].to_numpy())
    start, end = subtract(gaps, spans(profile.trace["kernels"]))
    yield ms(int((end - start).sum())), "ranges and kernels()"


def cached_attention(profile: Profile, row: dict[str, Any]) -> Recount:
    kernels = profile.kernels().filter(pl.col("op").str.contains("attention"))
    yield ms(kernels["duration"].sum()), "kernels()"


def host_sampling(profile: Profile, row: dict[str, Any]) -> Recount:
    copies = profile.memops().filter(pl.col("kind") == "DtoH")
    assert copies["bytes"].n_unique() == 1, "copies of several sizes"
    yield size(copies["bytes"][0]), "memops()"


#: The recount of each detector's findings.
RECOUNTS: dict[str, Callable[[Profile, dict[str, Any]], Recount]] = {
    "batch_size": of_memory,
    "cached_attention": cached_attention,
    "cast_round_trips": cast_round_trips,
    "communication_share": of_collectives,
    "cpu_decoding": of_ranges("(?i)decode|jpeg|resize|augment|transform|normali[sz]e|crop"),
    "cudnn_benchmark": cudnn_benchmark,
    "data_loader": data_loader,
    "data_parallel": data_parallel,
    "ddp_without_nccl": of_ranges("^(gloo|mpi|ucc):"),
    "evaluation_share": evaluation_share,
    "decode_outside_graphs": decode_outside_graphs,
    "double_precision": double_precision,
    "elementwise_chains": by_family("elementwise", "activation", "dropout"),
    "fp32_under_autocast": by_family("elementwise", "activation", "dropout", "norm", "softmax"),
    "fragmentation": of_memory,
    "graph_breaks": of_ranges("^[a-z_]+::"),
    "graph_padding": graph_padding,
    "host_bound": of_steps,
    "host_sampling": host_sampling,
    "imbalanced_gpus": imbalanced_gpus,
    "iteration_range": iteration_range,
    "late_scheduler": late_scheduler,
    "launch_bound": of_steps,
    "layout_conversions": layout_conversions,
    "memory_growth": memory_growth,
    "memory_near_limit": of_memory,
    "mixed_precision": by_family("gemm", "conv", "attention"),
    "no_fusion": no_fusion,
    "no_iterations": no_iterations,
    "no_ranges": no_ranges,
    "padding": padding,
    "pageable_copies": pageable_copies,
    "prefill_stalls": prefill_stalls,
    "slow_gemms": by_family("gemm", "conv", "attention"),
    "recompilations": of_ranges("(?i)compil|torchdynamo|jit|retrac"),
    "recomputed_casts": recomputed_casts,
    "slow_api_flags": slow_api_flags,
    "starved": starved,
    "sync_calls": sync_calls,
    "tensor_shapes": by_family("gemm", "conv", "attention"),
    "tf32_off": by_family("gemm", "conv", "attention"),
    "transfer_bound": transfer_bound,
    "underutilized_gpu": underutilized_gpu,
    "uneven_experts": uneven_experts,
    "uneven_ranks": uneven_ranks,
    "unfused_attention": unfused_attention,
    "unfused_optimizer": unfused_optimizer,
    "unoverlapped_communication": of_collectives,
    "value_reads": value_reads,
    "warm_up": warm_up,
}


def template(text: str) -> str:
    """A sentence without its figures and names."""
    return FIGURE.sub("#", NAMED.sub("…", text)).replace("# µs", "# ms")


def profiles(shared: Path) -> Iterator[tuple[str, Profile]]:
    """The profiles of the traces, by their path in ``shared``, then of the examples of made rows."""
    for path in sorted(shared.glob("*/*")):
        if path.suffix in (".csv", ".txt", ".md"):
            continue
        try:
            profile = opscope.load(path)
        except opscope.errors.BadInput:
            continue  # a folder of another tool's results
        yield str(path.relative_to(shared)), profile
    yield from made_profiles(detectors())


def made_profiles(names: Iterable[str]) -> Iterator[tuple[str, Profile]]:
    """The profiles of these detectors' examples that are of made rows."""
    script = runpy.run_path(str(ROOT / "scripts" / "make_advice_doc.py"))
    for name in names:
        found = script["example"](name)
        if found is not None and callable(found[1]):
            yield f"made: {name}", found[1]()


def claims_of(trace: str, profile: Profile, every: dict[str, dict[str, Claim]]) -> None:
    """Add the sentences that the detectors say of a profile; of a made one only the detector's own."""
    asked = [trace.partition(": ")[2]] if trace.startswith("made: ") else None
    for row in profile.advice(asked).to_dicts():
        if row["outcome"] not in (FOUND, CANNOT_TELL) or row["detector"] not in detectors():
            continue  # a cause that no detector explains is the diagnosis' (docs/diagnosis.md)
        found = row["outcome"] == FOUND
        said = row["finding"] if found else f"cannot tell: {row['reason']}"
        change = f" **Change**: {row['recommendation']}" if found else ""
        mine = every.setdefault(row["detector"], {})
        known = mine.get(template(said + change))
        if known is not None:
            known.traces += 1
        counted, wrong = recounted(profile, row) if found else ([], [])
        if known is None:
            tables = dict.fromkeys(TABLES.findall(row["reasoning"] or ""))
            known = Claim(trace, said + change, ", ".join(tables), counted)
            mine[template(said + change)] = known
        known.wrong += [f"{trace}: {one}" for one in wrong]


def recounted(profile: Profile, row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What was counted again of a finding, and what differs from it."""
    recount = RECOUNTS.get(row["detector"])
    counted, wrong = [], []
    try:
        for text, where in recount(profile, row) if recount else ():
            counted.append(where if text is None else f"{text} ({where})")
            if text is not None and text not in row["finding"]:
                wrong.append(f"{text} ({where}) is not in: {row['finding']}")
    except AssertionError as error:
        wrong.append(f"{row['finding']}: {error}")
    return counted, wrong


def page(every: dict[str, dict[str, Claim]]) -> str:
    """The page's text."""
    lines = [HEAD]
    for name in detectors():
        rows = every.get(name, {})
        lines.append(f"## {name}\n\n{detectors()[name].question}\n\n")
        lines.append("| sentence | trace | rests on | counted again |\n|---|---|---|---|\n")
        for claim in rows.values():
            more = f" and {claim.traces - 1} more" if claim.traces > 1 else ""
            cells = (claim.text, f"{claim.trace}{more}", claim.rests_on, "; ".join(claim.counted))
            lines.append(f"| {' | '.join(cell(one) or '–' for one in cells)} |\n")
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def cell(text: str) -> str:
    """The text for a table's cell."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|*_\[\]`])", r"\\\1", shown).replace("\\*\\*Change\\*\\*", "**Change**")


def main() -> int:
    """Write the page, or compare it; say which figures the recount does not confirm."""
    shared = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"
    every: dict[str, dict[str, Claim]] = {}
    for trace, profile in profiles(shared):
        claims_of(trace, profile, every)
    wrong = [one for rows in every.values() for claim in rows.values() for one in claim.wrong]
    for one in wrong:
        print(one)
    text = page(every)
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print("up to date" if same else f"{PAGE} is not up to date: run scripts/make_claims.py")
        return 0 if same and not wrong else 1
    PAGE.write_text(text, "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
