"""Write docs/claims.md: each distinct sentence of every detector, with its figures counted again.

Usage: python scripts/make_claims.py [--check]

The detectors are asked about every trace of the tests (OPSCOPE_SHARED), and about their examples of made rows. Of
sentences that differ in figures and names alone one is shown: that of the first trace. ``RECOUNTS`` counts what a
finding says again, from the profile's tables and without the detector; a figure that is not in the sentence ends
the script with status 1. ``--check`` writes nothing and compares.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import opscope
from opscope.core.advice.ask import CANNOT_TELL, FOUND, detectors
from opscope.core.communication import is_kernel
from opscope.core.tables.intervals import intersect, merge, subtract
from opscope.profile import Profile

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
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


def ms(time: float) -> str:
    return f"{time / MS:,.1f} ms"


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
    yield f"{recorded[1]} recorded steps", "steps()"


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


#: The recount of each detector's findings; of the others the bounds and columns of the reasoning are shown.
RECOUNTS: dict[str, Callable[[Profile, dict[str, Any]], Recount]] = {
    "batch_size": of_memory,
    "communication_share": of_collectives,
    "data_loader": data_loader,
    "elementwise_chains": by_family("elementwise", "activation", "dropout"),
    "fp32_under_autocast": by_family("elementwise", "activation", "dropout", "norm", "softmax"),
    "fragmentation": of_memory,
    "host_bound": of_steps,
    "iteration_range": iteration_range,
    "launch_bound": of_steps,
    "layout_conversions": layout_conversions,
    "memory_near_limit": of_memory,
    "mixed_precision": by_family("gemm", "conv", "attention"),
    "no_fusion": no_fusion,
    "no_iterations": no_iterations,
    "no_ranges": no_ranges,
    "pageable_copies": pageable_copies,
    "slow_gemms": by_family("gemm", "conv", "attention"),
    "sync_calls": sync_calls,
    "tensor_shapes": by_family("gemm", "conv", "attention"),
    "tf32_off": by_family("gemm", "conv", "attention"),
    "transfer_bound": transfer_bound,
    "underutilized_gpu": underutilized_gpu,
    "unfused_attention": unfused_attention,
    "unfused_optimizer": unfused_optimizer,
    "unoverlapped_communication": of_collectives,
    "warm_up": warm_up,
}


def template(text: str) -> str:
    """A sentence without its figures and names."""
    return FIGURE.sub("#", NAMED.sub("…", text))


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
    script = runpy.run_path(str(ROOT / "scripts" / "make_advice_doc.py"))
    for name in detectors():
        found = script["example"](name)
        if found is not None and callable(found[1]):
            yield f"made: {name}", found[1]()


def claims_of(trace: str, profile: Profile, every: dict[str, dict[str, Claim]]) -> None:
    """Add the sentences that the detectors say of a profile; of a made one only the detector's own."""
    asked = [trace.partition(": ")[2]] if trace.startswith("made: ") else None
    for row in profile.advice(asked).to_dicts():
        if row["outcome"] not in (FOUND, CANNOT_TELL):
            continue
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
