"""Mixture of experts in which experts, or the ranks that hold them, get uneven numbers of tokens."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.advice.communicated import as_int, collective_kernels
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import framework, ms
from opscope.core.advice.served import LEAST as LEAST_STEPS
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.ranks.splits import split
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.literals import json_object
from opscope.core.tables.columns import any_matches, matching

#: The busiest expert or rank must get at least this many times the mean.
LEAST: Final = 1.25
#: Names of ops, layers and ranges that show experts.
_EXPERTS: Final = r"(?i)experts?\b|\bmoe\b|_moe|moe_|MoE|grouped_mm|group_gemm|topk_softmax"
#: The number of an expert in a layer's path: ``model.layers.3.mlp.experts.5.w1``.
_NUMBERED: Final = r"^(.*?\bexperts?)[._](\d+)(?:\.|$)"


def find(answers: Answers) -> Answer:
    """Return a finding each for uneven splits of all-to-alls, uneven experts of layers, and late ranks of a
    server."""
    ranges = answers.trace["ranges"]
    if ranges.is_empty():
        return CannotTell("no ops or ranges were recorded, so experts cannot be recognised")
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
    served = _ranks_of_server(answers)
    if splits.is_empty() and layers.is_empty() and served is None:
        return CannotTell(
            "the profile has experts, but neither the splits of all-to-alls, nor a layer for each expert, nor"
            " the same engine steps on several ranks: how many rows each expert of a fused or grouped product"
            " got is data that no trace records"
        )
    findings = []
    if len(splits) and _number(splits["ratio"].mean()) > LEAST:
        findings.append(_of_splits(answers, splits, cut))
    worst = layers.filter(pl.col("ratio") > LEAST)
    if len(worst):
        findings.append(_of_layers(answers, layers, worst))
    if served is not None and (late := _late_rank(answers, *served)) is not None:
        findings.append(late)
    return findings


def _splits(answers: Answers) -> tuple[pl.DataFrame, int]:
    """Return process and ratio (the largest split over the mean) of each all-to-all; and how many all-to-alls
    have splits that were cut off. Splits are recorded on the range, the kernel, or both; kernels' splits are
    preferred."""
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
    the splits of what is sent, and come back by the same splits, which are then those of what is received."""
    params = json_object(text)
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


# ------------------------------------------------------------------------------------ ranks of a server


def _ranks_of_server(answers: Answers) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return the time (ns) of experts and of the rest, in the steady steps that all ranks of a server have:
    for each step the largest and the mean, and the sums by process; None if no ranks exchange tokens in these
    steps."""
    if answers.merged_of is not None or answers.trace["processes"]["process"].n_unique() < 2:
        return None
    if not (answers.collectives()["kind"].cast(pl.String) == "all_to_all").any():
        return None  # each rank has its own experts only where they exchange tokens
    own = pl.col("experts_part"), pl.col("attention_part") + pl.col("products_part")
    steps = (
        answers.of(step_sums)
        .filter(~pl.col("warm_up").fill_null(False) & pl.col("experts_part").is_not_null())
        .select("process", "rank", "step", "kind", own[0].alias("experts"), own[1].alias("rest"))
    )
    ranks = steps["process"].n_unique()
    each = steps.group_by("step").agg(
        pl.len().alias("ranks"),
        pl.col("kind").n_unique().alias("kinds"),
        pl.col("experts").max().alias("most"),
        pl.col("experts").mean().alias("mean"),
    )
    shared = each.filter((pl.col("ranks") == ranks) & (pl.col("kinds") == 1) & (pl.col("most") > 0))
    if ranks < 2 or len(shared) < LEAST_STEPS:
        return None
    sums = (
        steps.join(shared.select("step"), on="step", how="semi")
        .group_by("process", "rank")
        .agg(pl.col("experts", "rest").sum())
    )
    return shared, sums.sort("experts", "process", descending=[True, False])


def _late_rank(answers: Answers, steps: pl.DataFrame, sums: pl.DataFrame) -> Finding | None:
    """Return the finding that the experts of a rank are late, by more than the rest of its work is slower."""
    mean, most = _number(steps["mean"].sum()), as_int(steps["most"].sum())
    late = sums.row(0, named=True)
    ratio = late["experts"] / _number(sums["experts"].mean())
    rest = late["rest"] / (_number(sums["rest"].mean()) or 1)
    if most <= LEAST * mean or ratio <= LEAST * max(rest, 1.0):
        return None
    name = f"rank {late['rank']}" if late["rank"] is not None else f"process {late['process']}"
    return Finding(
        what=f"the experts of {name} take {ratio:.2f} times the mean of {len(sums):,} ranks in engine steps:"
        " the others wait for it in the next all-to-all",
        evidence=f"{len(steps):,} steps that all ranks have; experts by rank: "
        + ", ".join(ms(time) for time in sums["experts"].head(8)),
        recommendation="Let the server spread its busiest experts anew: vLLM --enable-eplb, SGLang"
        " --enable-eplb with redundant experts, TensorRT-LLM moe_config.load_balancer.",
        time=late["experts"],
        saving_least=0,
        saving_most=most - int(mean),
        reasoning="serving: the experts' part of each engine step, after the warm-up, the largest of the"
        " ranks over their mean; attention and products of the same rank are not as much slower. At most the"
        " difference, added up over the steps: the ranks wait for the latest.",
        confidence="medium",
    )


def _recommendation(used: str | None) -> str:
    torch = " (in Hugging Face: output_router_logits=True and router_aux_loss_coef)"
    return (
        f"Add a load-balancing loss to the router{torch if used == 'torch' else ''}, or a bias for"
        " each expert that is adjusted by its load; bound what an expert gets by a capacity factor;"
        " place the busiest experts on different ranks, or copies of them on several."
    )


DETECTOR = Detector(
    name="uneven_experts",
    question="Do experts, or the ranks that hold them, get uneven numbers of tokens?",
    find=find,
    fires="more than 1.25 times the mean of an expert or rank",
    needs_all_kernels=True,
    looks_at="The splits of each all-to-all in the attrs of kernels and ranges; op_totals(): FLOPs and"
    " time of layers that are named by expert (experts.5); the experts' part of the engine steps"
    " of a server's ranks. It fires where the busiest gets 1.25 times the mean.",
    abstains="When no ops were recorded; when there are all-to-alls, but no name shows experts; when"
    " there are experts, but neither splits nor a layer for each expert, as in fused and grouped"
    " products, nor the same engine steps on several ranks.",
    known_as=(),
)
