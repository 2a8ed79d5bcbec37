"""Mixture of experts in which experts, or the ranks that hold them, get uneven numbers of tokens."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.advice.communicated import as_int, collective_kernels
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import framework, ms
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.ranks.splits import record, split
from opscope.core.tables.columns import any_matches, matching

#: The busiest expert or rank must get at least this many times the mean.
LEAST: Final = 1.25
#: Names of ops, layers and ranges that show experts.
_EXPERTS: Final = r"(?i)experts?\b|\bmoe\b|_moe|moe_|MoE|grouped_mm|group_gemm|topk_softmax"
#: The number of an expert in a layer's path: ``model.layers.3.mlp.experts.5.w1``.
_NUMBERED: Final = r"^(.*?\bexperts?)[._](\d+)(?:\.|$)"


def find(answers: Answers) -> Answer:
    """Return a finding for uneven splits of all-to-alls, and one for uneven experts of layers."""
    ranges = answers.trace["ranges"]
    if ranges.is_empty():
        return CannotTell("no ops or ranges were recorded, so that experts cannot be told")
    names = summed_columns(
        answers,
        (
            "op",
            "layer",
        ),
    ).select("op", "layer")
    named = any(
        any_matches(column, _EXPERTS) for column in (names["op"], names["layer"], ranges["text"])
    )
    if not named:
        kinds = answers.collectives()["kind"].cast(pl.String)
        if (kinds == "all_to_all").any():
            return CannotTell(
                "the profile has all-to-alls, and no name of an op, layer or range shows that they carry"
                " tokens to experts"
            )
        return []
    splits, cut = _splits(answers)
    layers = _layers(
        summed_columns(
            answers,
            (
                "op",
                "layer",
                "device_time",
                "self_time",
                "flops",
            ),
        ).select("op", "layer", "device_time", "self_time", "flops")
    )
    if splits.is_empty() and layers.is_empty():
        return CannotTell(
            "the profile has experts, but neither the splits of all-to-alls nor a layer for each expert: how"
            " many rows each expert of a fused or grouped product got is data that no trace records"
        )
    findings = []
    if len(splits) and _number(splits["ratio"].mean()) > LEAST:
        findings.append(_of_splits(answers, splits, cut))
    worst = layers.filter(pl.col("ratio") > LEAST)
    if len(worst):
        findings.append(_of_layers(answers, layers, worst))
    return findings


def _splits(answers: Answers) -> tuple[pl.DataFrame, int]:
    """Return process and ratio, the largest split over the mean, of each all-to-all; and how many have cut
    splits. Splits are recorded on the range, the kernel, or both; kernels' splits are preferred."""
    for name in ("kernels", "ranges"):
        table = answers.trace[name]
        attrs = table["attrs"].cast(pl.String)
        wanted = attrs.str.contains("_split").fill_null(False) & attrs.str.contains(
            r"(?i)all_?to_?all"
        ).fill_null(False)
        rows = table.select("process").with_columns(attrs.alias("attrs")).filter(wanted)
        texts = {text: _ratio(text) for text in rows["attrs"].unique().to_list()}
        read = rows.with_columns(
            pl.col("attrs")
            .replace_strict(
                list(texts), list(texts.values()), default=None, return_dtype=pl.Float64
            )
            .alias("ratio")
        )
        rated = read.filter(pl.col("ratio").is_not_null()).select("process", "ratio")
        if len(rated):
            return rated, len(read) - len(rated)
    return pl.DataFrame(schema={"process": pl.Int32, "ratio": pl.Float64}), 0


def _ratio(text: str) -> float | None:
    """Return the largest split of a collective over the mean, of sent or of received tokens. Tokens go out by
    the splits of the sent ones, and come back by the same splits, then of the received ones."""
    params = record(text)
    ratios = []
    for name in ("in_split", "out_split"):
        sizes = split(params.get(name))
        if sizes is not None and len(sizes) > 1 and sum(sizes) > 0:
            ratios.append(max(sizes) * len(sizes) / sum(sizes))
    return max(ratios, default=None)


def _number(value: Any) -> float:
    return float(value or 0)


def _layers(totals: pl.DataFrame) -> pl.DataFrame:
    """Return one row per layer of experts: experts with tokens, the busiest one, ratio and time (ns)."""
    table = totals.filter(pl.col("layer").is_not_null())
    device = bool((table["device_time"] > 0).any())
    time = pl.col("device_time" if device else "self_time").fill_null(0)
    layer = pl.col("layer").cast(pl.String)
    each = (
        table.filter(pl.Series(matching(table["layer"], _NUMBERED), dtype=pl.Boolean))
        .with_columns(
            layer.str.extract(_NUMBERED, 1).alias("moe"),
            layer.str.extract(_NUMBERED, 2).alias("expert"),
        )
        .group_by("moe", "expert")
        .agg(pl.col("flops").fill_null(0).sum().alias("flops"), time.sum().alias("time"))
    )
    work = pl.when(pl.col("flops").sum().over("moe") > 0).then("flops").otherwise("time")
    return (
        each.with_columns(work.alias("work"))
        .sort("work", "expert", descending=[True, False])
        .group_by("moe", maintain_order=True)
        .agg(
            pl.len().alias("experts"),
            pl.col("expert").first().alias("busiest"),
            (pl.col("work").max() / pl.col("work").mean()).alias("ratio"),
            pl.col("time").sum(),
            (pl.col("time").max() - pl.col("time").mean()).cast(pl.Int64).alias("over"),
        )
        .filter(pl.col("experts") > 1)
        .sort("time", "moe", descending=[True, False])
    )


def _of_splits(answers: Answers, splits: pl.DataFrame, cut: int) -> Finding:
    mean, most = _number(splits["ratio"].mean()), _number(splits["ratio"].max())
    kernels = collective_kernels(answers)
    moved = kernels.filter(pl.col("collective") == "all_to_all")
    time = moved.group_by("process").agg(pl.col("duration").sum())["duration"].max()
    total = as_int(time)
    rest = f"; splits of {cut:,} others are cut short" if cut else ""
    return Finding(
        what=f"All-to-alls send the busiest rank {mean:.2f} times the mean of the ranks ({most:.2f} at"
        f" most): the others have less to compute until the next",
        evidence=f"{len(splits):,} all-to-alls of {splits['process'].n_unique():,} ranks with their"
        f" splits{rest}; the all-to-alls take {ms(total)} of the rank with most",
        recommendation=_recommendation(framework(answers)),
        time=total,
        saving_least=0,
        saving_most=None,
        reasoning="kernels or ranges: attrs in_split and out_split of each all-to-all, the largest split over"
        " the mean of its splits. Nothing bounds the saving: the busiest rank's experts compute longer too,"
        " while all others wait.",
        confidence="medium",
    )


def _of_layers(answers: Answers, layers: pl.DataFrame, worst: pl.DataFrame) -> Finding:
    total, over = int(layers["time"].sum()), int(worst["over"].sum())
    ranks = answers.trace["processes"]["world_size"].max()
    several = as_int(ranks) > 1
    first = worst.row(0, named=True)
    return Finding(
        what=f"{len(worst):,} of {len(layers):,} layers of experts are uneven: in {first['moe']} expert"
        f" {first['busiest']} does {first['ratio']:.2f} times the mean of {first['experts']:,} experts",
        evidence="; ".join(
            f"{row['moe']}: expert {row['busiest']}, {row['ratio']:.2f} times the mean ({ms(row['time'])})"
            for row in worst.head(3).rows(named=True)
        )
        + "; experts without a token in the profile are not counted",
        recommendation=_recommendation(framework(answers)),
        time=total,
        saving_least=0,
        saving_most=over if several else 0,
        reasoning="op_totals(): flops of the ops of each expert's layer (else their device_time, else"
        " self_time), the largest over the mean of a layer's experts."
        + (
            " At most, over the layers, the time of the busiest expert above the mean: the other ranks wait"
            " for it."
            if several
            else " One process runs its experts one after another: even ones take as long, so that no time"
            " is saved here; on several ranks the busiest would hold up the others."
        ),
        confidence="medium" if several else "low",
        rows=with_rest(
            worst.select(
                pl.col("moe").alias("layer"),
                pl.col("experts").cast(pl.Int64).alias("count"),
                "time",
                pl.format(
                    "expert {}: {} times the mean", "busiest", pl.col("ratio").round(2)
                ).alias("detail"),
            )
        ),
    )


def _recommendation(used: str | None) -> str:
    torch = " (in Hugging Face: output_router_logits=True and router_aux_loss_coef)"
    return (
        "Add a load-balancing loss to the router"
        f"{torch if used == 'torch' else ''}, or a bias for each expert that is adjusted by its load; bound"
        " what an expert gets by a capacity factor; place the busiest experts on different ranks, or copies"
        " of them on several."
    )


DETECTOR = Detector(
    name="uneven_experts",
    question="Do experts, or the ranks that hold them, get uneven numbers of tokens?",
    find=find,
    fires="more than 1.25 times the mean of an expert or rank",
    needs_all_kernels=True,
    looks_at="The splits of each all-to-all in the attrs of kernels and ranges; op_totals(): FLOPs and"
    " time of"
    " layers that are named by expert (experts.5). It fires where the busiest gets 1.25 times the mean.",
    abstains="When no ops were recorded; when there are all-to-alls, but no name shows experts; when"
    " there are"
    " experts, but neither splits nor a layer for each expert, as in fused and grouped products.",
    known_as=(),
)
