"""What a single file answers by itself, beside the server's answers to the same questions."""

from __future__ import annotations

import base64
import json
import math
import random

import msgspec
import polars as pl
import pytest

from opscope.profile import Profile
from opscope.viewer import rows, single, tables
from opscope.viewer.embedded import zipped
from opscope.viewer.packed import pack
from opscope.viewer.question import Asked, BadParameter
from opscope.viewer.questions import table
from opscope.viewer.viewed import Viewed
from tests.viewer import in_node


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return in_node.built(tmp_path_factory.mktemp("module"))


def same(one, other) -> bool:
    """Whether two answers are equal; sums of floating point may differ in their last digits."""
    if isinstance(one, float) or isinstance(other, float):
        return one == other or (
            None not in (one, other) and math.isclose(float(one), float(other), rel_tol=1e-12)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def ops(count: int) -> list[dict]:
    """Calls of a few ops, nested, one of them in steps."""
    made = []
    for n in range(count):
        start = 1_700_000_000_000_000_000 + n * 1_000
        made.append(
            {"process": 0, "thread": n % 3, "category": "forward" if n % 2 else "backward",
             "domain": "opscope.torch", "kind": "pushpop", "start": start, "end": start + 10 + n % 700,
             "text": f"aten::op{n % 7}(f32[{n % 5 + 1},64]) @train.py:{n % 11 + 1}"}
        )  # fmt: skip
    return made


def questions_of(viewed: Viewed, seed: int) -> list[dict]:
    """Questions about every table: random rows, orders, searches and conditions."""
    chosen, made = random.Random(seed), []
    for name, kind in tables.kinds().items():
        if name.startswith("diff_"):
            continue
        frame = table.frame_of(kind, Asked(viewed, {}))
        plain = [one for one in frame.columns if not frame.schema[one].is_nested()]
        for n in range(4):
            params = {"name": name, "rows": str(chosen.choice((3, 50, 1000))), "from": str(chosen.choice((0, 0, 2)))}  # fmt: skip
            if n:
                params["sort"] = chosen.choice(("", "-")) + chosen.choice(plain)
            if n > 1:
                params["q"] = chosen.choice(("OP", "aten::", "train.py", "[", "$", "forward", "é"))
            if n > 2 and frame.height:
                column = chosen.choice(plain)
                values = rows.values(frame[column][[chosen.randrange(frame.height)]])
                params["where"] = json.dumps({column: values[0]})
            made.append(params)
    return made


def test_every_table_of_a_file_answers_as_the_server_does(trace_of, tmp_path, module):
    gpu = [{"process": 0, "device": 0, "stream": n % 2, "start": 1_700_000_000_000_000_000 + n * 1_000 + 500,
            "end": 1_700_000_000_000_000_000 + n * 1_000 + 900 + n % 90, "name": f"gemm_{n % 4}"}
           for n in range(300)]  # fmt: skip
    viewed = Viewed(Profile(trace_of(ranges=ops(300), kernels=gpu)), ("made.json",))
    single.write(viewed, tmp_path / "one.html")
    asked = questions_of(viewed, 5)
    found = in_node.answers(module, tmp_path / "one.html", [("table", one) for one in asked])
    filled = 0
    for params, got in zip(asked, found, strict=True):
        want = json.loads(msgspec.json.encode(table.answer(Asked(viewed, params))))
        assert same(want, got.get("answer")), (params, got)
        filled += want["matching"] > 0
    assert filled > 50


def held(frame: pl.DataFrame, folder) -> object:
    """A file that holds this frame as the table ``made``, and nothing else."""
    page = {
        "columns": [{"name": name} for name in frame.columns],
        "total": len(frame),
        "sums_all": {
            name: None for name, dtype in frame.schema.items()
            if dtype.is_integer() or dtype.is_float()
        },
    }  # fmt: skip
    index = {"answers": [], "tables": {"made": {"block": "0", "page": page, "left_out": {}}}}
    path = folder / "made.html"
    text = [
        f'<script type="application/octet-stream" id="opscope-{name}">{base64.b64encode(zipped(data)).decode()}</script>'
        for name, data in (("index", json.dumps(index).encode()), ("0", pack(frame)))
    ]
    path.write_text("\n".join(text))
    return path


def many(values: list, dtype: pl.DataType | type, count: int) -> pl.Series:
    return pl.Series((values * count)[:count], dtype=dtype)


@pytest.mark.parametrize("count", [11, 2_200])  # ways to be smaller are tried from 1,000 rows on
def test_numbers_and_texts_of_every_size_come_back_in_their_order(tmp_path, module, count):
    top = 2**63 - 1
    frame = pl.DataFrame(
        {
            "small": many([1, 0, None, -1, 255, 256, -(2**31), 2**31], pl.Int64, count),
            "edge": many([2**53, 2**53 + 1, -(2**53), -(2**53) - 1, None, 2**53 - 1], pl.Int64, count),
            "all": many([top, -top - 1, 0, None, 1, -1, top - 1], pl.Int64, count),
            "unsigned": many([2**64 - 1, 0, 2**63, None, 5], pl.UInt64, count),
            "time": pl.Series([1_700_000_000_000_000_000 + 37 * n**2 for n in range(count)]),
            "end": pl.Series([1_700_000_000_000_000_000 + 37 * n**2 + n % 5 for n in range(count)]),
            "real": many([0.1, -0.0, 1e308, None, math.nan, math.inf, 5e-324, -2.5], pl.Float64, count),
            "dense": pl.Series([math.sin(n) for n in range(count)]),
            "same": many([None], pl.Int64, count),
            "flag": many([True, None, False], pl.Boolean, count),
            "text": many(["b", "a", None, "", "B", "\U0001f642", "\uffff", "é", "e\u0301", "Straße", "</script>", "__proto__"],
                         pl.String, count),
            "kind": many(["x", None, "K", "\u212a"], pl.Categorical, count),
            "list": many([["a", "b"], [], None], pl.List(pl.String), count),
        }
    )  # fmt: skip
    clean = frame.with_columns(
        pl.col("kind").cast(pl.String),
        pl.when(pl.col("real").is_finite()).then(pl.col("real")).alias("real"),
    )
    wanted = {"": clean}
    for name in clean.columns:
        if name != "list":
            wanted[name] = clean.sort(name, nulls_last=True, maintain_order=True)
            wanted[f"-{name}"] = clean.sort(name, descending=True, nulls_last=True, maintain_order=True)  # fmt: skip
    asked = [("table", {"name": "made", "sort": sort, "rows": 1000}) for sort in wanted]
    found = in_node.answers(module, held(frame, tmp_path), asked)
    for (sort, want), got in zip(wanted.items(), found, strict=True):
        first = want.head(1000)
        values = {name: rows.values(first[name]) for name in first.columns}
        for name, these in values.items():
            assert got["answer"]["values"][name] == these, (sort, name)
        assert got["answer"]["matching"] == count
        numbers = list(got["answer"]["sums"])
        assert same(rows.sums(clean, numbers), got["answer"]["sums"])


@pytest.mark.parametrize("q", ["s", "STRASSE", "straße", "k", "\u212a", ".", "\\", "(?i)", "É", "\u017f", "i", "İ", "\0"])  # fmt: skip
def test_a_search_is_literal_and_folds_case_as_the_server_does(tmp_path, module, q):
    texts = ["Straße", "STRASSE", "\u212aelvin", "kelvin", "a.b", "a\\b", "(?i)", "é", "\u017f", "İ", "I", "ı", "\0", None]  # fmt: skip
    frame = pl.DataFrame({"text": texts, "other": [None] * 13 + ["s"]})
    condition = rows.containing(frame, q)
    want = frame.filter(condition)["text"].to_list()
    (got,) = in_node.answers(module, held(frame, tmp_path), [("table", {"name": "made", "q": q})])
    assert got["answer"]["values"]["text"] == want


@pytest.mark.parametrize(
    ("question", "params", "status"),
    [
        ("table", {"name": "__proto__"}, 404),
        ("table", {"name": "none"}, 404),
        ("table", {"name": "made", "sort": "none"}, 400),
        ("table", {"name": "made", "sort": "list"}, 400),
        ("table", {"name": "made", "where": "{"}, 400),
        ("table", {"name": "made", "where": '{"__proto__": 1}'}, 400),
        ("table", {"name": "made", "rows": "1001"}, 400),
        ("table", {"name": "made", "from": "-1"}, 400),
        ("flame", {}, 404),
    ],
)
def test_what_a_file_cannot_answer_is_said(tmp_path, module, question, params, status):
    frame = pl.DataFrame({"a": [1], "list": [["a"]]})
    (got,) = in_node.answers(module, held(frame, tmp_path), [(question, params)])
    assert got["status"] == status
    assert got["message"]


def test_the_server_refuses_the_same_orders(trace_of):
    viewed = Viewed(Profile(trace_of(ranges=ops(3))), ("made.json",))
    with pytest.raises(BadParameter):
        table.answer(Asked(viewed, {"name": "each_op", "sort": "none"}))
