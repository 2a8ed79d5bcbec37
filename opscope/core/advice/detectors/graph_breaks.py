"""Functions that torch.compile splits where it meets code that it cannot trace."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import polars as pl

from opscope.core.advice.compilers import reasons_of
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.advice.work import device_time
from opscope.core.analysis.summary.summary import compiles
from opscope.core.tables.columns import distinct_values

#: torch.compile's name of the function in which it goes on after a break, with the line of the break.
_RESUMED: Final = r"torch_dynamo_resume_in_(.+?)_at_(\d+)"
_PLACE: Final = re.compile(_RESUMED + r"(?:.*?@([^<]*?):\d+)?")
#: Function, line and file of a break.
Place: TypeAlias = tuple[str, str, str | None]
_REGION: Final = r"\ATorch-Compiled Region: (\d+)/"
_RECOMMENDED: Final = (
    "TORCH_LOGS=graph_breaks python train.py names each cause; torch.compile(model, fullgraph=True)"
    " raises at the"
    " first. Usual causes: .item() and print of tensors, data-dependent if, calls into other libraries:"
    " move them out of the compiled function or use torch.where, torch.cond."
)


def find(answers: Answers) -> Answer:
    """Return one finding for all breaks that the names of resumed functions prove."""
    places = _places(answers)
    return [_finding(answers, places)] if places else _none(answers)


def breaks(answers: Answers) -> list[str] | CannotTell:
    """Return the places of the breaks, as ``train.py:12 in forward``; none, or the reason why they are not
    known."""
    places = _places(answers)
    none = [] if places else _none(answers)
    return none if isinstance(none, CannotTell) else _said(places)


def _places(answers: Answers) -> list[Place]:
    """Return the function, line and file of each break that the name of a resumed function proves."""
    texts = distinct_values(answers.trace["ranges"]["text"]).cast(pl.String).drop_nulls()
    resumed = texts.filter(texts.str.contains(_RESUMED))
    matches = [match.groups() for text in resumed if (match := _PLACE.search(text))]
    return [(name, line, file) for name, line, file in sorted(set(matches))]


def _said(places: list[Place]) -> list[str]:
    return [f"{file or name}:{line} in {name}" for name, line, file in places]


def _none(answers: Answers) -> Answer:
    """Return whether it is certain that there are no breaks, where no name proves one."""
    compiled = answers.compiled()
    numbers = compiled["region"].cast(pl.String).str.extract(_REGION).drop_nulls().unique()
    if len(numbers) > 1:
        parts = _between(answers)
        if parts is not None and len(parts):
            return CannotTell(
                f"{len(numbers):,} compiled functions run, with {len(parts):,} eager ops between them in"
                " all:"
                " breaks of one function, or functions compiled apart. Record from the start of the"
                " program with"
                " opscope, which records what was compiled, or set TORCH_LOGS=graph_breaks"
            )
    if len(numbers):
        return []
    if not compiled.is_empty():
        return CannotTell(
            "the compiled regions have no numbers (an older torch.compile, or another compiler), so the"
            " parts of"
            " one function cannot be told from functions compiled apart: set TORCH_LOGS=graph_breaks"
        )
    phases = compiles(answers.trace)["text"].cast(pl.String)
    if phases.str.contains(r"\Acompile .*\d+/\d+").any():
        return []
    if len(phases):
        return CannotTell(
            "the profile has compilations, and no name tells which functions they are of"
        )
    return CannotTell("it is about torch.compile, and the profile shows no use of it")


def _between(answers: Answers) -> pl.DataFrame | None:
    """Return the eager forward ops that lie between two compiled functions of one step and thread; None where
    no functions were recorded."""
    ops = answers.ops(categories=True).filter(
        pl.col("direction").cast(pl.String).is_null()
        | (pl.col("direction").cast(pl.String) == "forward")
    )
    number = pl.col("op").cast(pl.String).str.extract(_REGION)
    regions = ops.filter(number.is_not_null()).select(
        "process", "thread", "step", "start", "end", number.alias("number")
    )
    if regions.is_empty():
        return None
    order = ["process", "thread", "start"]
    same = [
        pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in ("process", "thread", "step")
    ]
    gaps = (
        regions.sort(order)
        .with_columns(
            pl.col("start").shift(-1).alias("next"), pl.col("number").shift(-1).alias("then")
        )
        .filter(*same, pl.col("number") != pl.col("then"), pl.col("next") > pl.col("end"))
        .select("process", "thread", pl.col("end").alias("start"), "next")
    )
    eager = ops.filter(pl.col("leaf"), pl.col("self_time") > 0).sort("start")
    inside = eager.join_asof(
        gaps.sort("start"), on="start", by=["process", "thread"], check_sortedness=False
    )
    return inside.filter(pl.col("start") < pl.col("next"))


def _finding(answers: Answers, places: list[Place]) -> Finding:
    said = _said(places)
    eager = _between(answers)
    is_measured = eager is not None and not eager.is_empty()
    time = int(eager["self_time"].sum()) if eager is not None else 0
    total = device_time(answers)
    cost = (
        f"; eager ops between the parts take {ms(time)} on the host"
        + (f", {share(time, total)} of the device's time" if answers.cpu_only else "")
        if is_measured
        else ""
    )
    return Finding(
        what=f"torch.compile split functions at {len(places):,} place{'s' * (len(places) != 1)}{cost}",
        evidence="; ".join(said[:5])
        + (f"; and {len(said) - 5:,} more" if len(said) > 5 else "")
        + reasons_of(answers, "graph breaks"),
        recommendation=_RECOMMENDED,
        time=time,
        saving_least=0,
        saving_most=time if is_measured else None,
        reasoning="Proved by the names of the functions in which torch.compile goes on after a break"
        " (torch_dynamo_resume_in_…), in the texts of ranges. "
        + (
            "At most the host's time in eager ops (self_time of ops()) between two compiled regions of"
            " one step and"
            " thread; what fusing over the break saves on the device is not counted."
            if is_measured
            else "Nothing bounds the saving: compiled regions, or eager ops between them, were not recorded."
        ),
        confidence="high" if is_measured else "medium",
        rows=with_rest(pl.DataFrame(
            {"source": [f"{file or name}:{line}" for name, line, file in places],
             "detail": [f"break in {name}" for name, _, _ in places]}
        )),
    )  # fmt: skip


DETECTOR = Detector(
    name="graph_breaks",
    question="Does torch.compile split functions because of code that it cannot trace?",
    find=find,
    fires="one break",
    looks_at="The names of compiled and resumed functions in the texts of ranges (compilations that opscope"
    " recorded, or Python stacks); compiled() and ops() for what runs between the parts.",
    abstains="Where torch.compile was not used; where several compiled functions run with eager ops"
    " between them"
    " and no name tells whether they are parts of one.",
)
