"""What a profile hands out: texts are String, and one may ask for categories instead."""

from __future__ import annotations

import inspect

import polars as pl
import pytest

from opscope.core.tables.columns import as_text
from opscope.profile import Profile

OP = "aten::mm(f16[64,32], f16[32,16]) -> f16[64,16] on cuda:0 @train.py:42"


@pytest.fixture
def profile(trace_of) -> Profile:
    where = {"process": 0, "thread": 1, "kind": "pushpop"}
    return Profile(
        trace_of(
            processes=[{"process": 0, "clock_domain": 0}],
            clocks=[{"clock_domain": 0, "kind": "unix"}],
            ranges=[
                {**where, "domain": "opscope.step", "category": "step", "text": "step 0",
                 "start": 0, "end": 100},
                {**where, "domain": "opscope.user", "text": "mine", "start": 1, "end": 90},
                {**where, "domain": "opscope.torch", "category": "forward", "text": OP,
                 "start": 2, "end": 50},
            ],
            calls=[{"process": 0, "thread": 1, "start": n, "end": n + 1, "correlation": n}
                   for n in (5, 6, 95)],
            kernels=[{"process": 0, "device": 0, "stream": 7, "start": 10 * n, "end": 10 * n + 9,
                      "name": "gemm", "correlation": n} for n in (5, 95)],
            memops=[{"process": 0, "device": 0, "stream": 7, "start": 200, "end": 210,
                     "kind": "HtoD", "correlation": 6}],
        )
    )  # fmt: skip


def optional(parameter: inspect.Parameter) -> bool:
    """Whether a call may leave the parameter out."""
    given = parameter.default is not inspect.Parameter.empty
    return given or parameter.kind is inspect.Parameter.VAR_POSITIONAL


def frames(profile: Profile) -> dict[str, pl.DataFrame]:
    """Every public method's frame that needs no argument."""
    found = {}
    for name, method in inspect.getmembers(profile, inspect.ismethod):
        parameters = inspect.signature(method).parameters.values()
        own = [one for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
        if name not in ("save", "select") and not name.startswith("_") and all(map(optional, own)):
            found[name] = method()
    return found


def test_every_text_that_is_handed_out_is_a_string(profile, tmp_path):
    profile.save(tmp_path / "run.opscope")
    import opscope

    for one in (profile, opscope.load(tmp_path / "run.opscope")):
        made = frames(one) | {
            f"efficiency {by}": one.efficiency(by) for by in ("op", "kernel", "range", "layer")
        }
        assert {"ops", "kernels", "memops", "op_totals", "efficiency", "clocks"} <= set(made)
        for name, frame in made.items():
            texts = {str(dtype) for dtype in frame.dtypes if not dtype.is_numeric()}
            assert texts <= {"String", "Boolean"}, name


def test_the_first_thing_one_types_works(profile):
    assert len(profile.op_totals().filter(pl.col("op").str.contains("mm"))) == 1
    assert profile.kernels()["inputs"].to_list() == ["f16[64,32], f16[32,16]", None]
    assert profile.memops()["range"].to_list() == ["mine"]


@pytest.mark.parametrize("name", ["ops", "kernels", "memops"])
def test_long_frames_keep_their_categories_where_they_are_asked_to(profile, name):
    plain, kept = getattr(profile, name)(), getattr(profile, name)(categories=True)
    assert kept.schema["op"] == pl.Categorical
    assert as_text(kept).equals(plain)
    assert getattr(profile, name)() is plain  # made once


@pytest.mark.parametrize("many", [9, 20_000])
def test_texts_are_the_same_by_either_way(many):
    texts = ["a", None, "b" * 100, ""]
    column = pl.Series("x", [texts[n % 4] for n in range(many)])
    frame = pl.DataFrame([column.cast(pl.Categorical), pl.Series("y", range(many))])
    assert as_text(frame).equals(pl.DataFrame([column, frame["y"]]))
    assert as_text(frame.head(0)).schema == {"x": pl.String, "y": pl.Int64}
