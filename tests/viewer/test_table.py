"""Tables: what a page shows is what ``opscope report --json`` gives, found, sorted and added up rightly."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.question import registry as questions
from opscope.reports import files, registry
from opscope.viewer import rows, tables
from opscope.viewer.order import order
from opscope.viewer.viewed import Viewed
from tests.command import opscope
from tests.viewer.traces import TRACES


def whole(app, name: str, **given) -> dict:
    """All rows of a table, page by page, as one answer."""
    answer = app.ask("table", name=name, rows=1_000, **given)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    while len(next(iter(made["values"].values()))) < made["matching"]:
        at = len(next(iter(made["values"].values())))
        more = app.ask("table", name=name, rows=1_000, **{**given, "from": at}).json()
        for key, column in more["values"].items():
            assert column, "a page without rows"
            made["values"][key] += column
    return made


def as_number(value, like):
    """A whole number that was sent as text, as it does not fit into JavaScript's."""
    return int(value) if isinstance(value, str) and isinstance(like, int) else value


@pytest.mark.parametrize("trace", TRACES)
def test_every_report_is_the_same_to_the_digit_as_in_json(of, asking, trace):
    profile = of(trace)
    app = asking(Viewed(profile, (trace,)))
    printed = json.loads(files.as_json("report", registry.frames(profile, questions.reports())))
    # every analysis may add to the notes
    printed["notes"] = json.loads(files.rows_as_json(profile.notes()))
    for name, report in questions.reports().items():
        got = whole(app, name)
        want = printed[name]
        if report.single:
            want = [] if want is None else [want]
        assert [column["name"] for column in got["columns"]] == [
            one.name for one in report.holds.columns
        ]
        assert (got["total"], got["matching"]) == (len(want), len(want)), name
        for column in got["columns"]:
            key = column["name"]
            expected = [row[key] for row in want]
            values = [as_number(a, b) for a, b in zip(got["values"][key], expected, strict=True)]
            assert values == expected, (name, key)


@pytest.mark.parametrize(
    "trace", ["kineto/ddp_rank3of8_a100_stacks.json.gz", "nvprof/language_model.sqlite"]
)
def test_sums_that_are_parts_of_a_whole_add_up_to_the_summary(of, asking, trace):
    profile = of(trace)
    app = asking(Viewed(profile, (trace,)))
    summary = profile.summary().row(0, named=True)
    for name, column, of_all in (("by_kind", "device_time", "device_time"), ("by_op", "device_time", "device_time"),
                                 ("kernel", "total", "kernel_time"), ("kernel", "calls", "kernels"),
                                 ("each_kernel", "duration", "kernel_time"),
                                 ("unattributed", "time", "device_unattributed_time")):  # fmt: skip
        got = app.ask("table", name=name, rows=0).json()
        assert (got["sums_all"][column] or 0) == summary[of_all], (name, column)


def test_each_op_kernel_and_copy_has_a_row(app, small):
    assert app.ask("table", name="each_kernel").json()["total"] == len(small.kernels()) == 6
    assert app.ask("table", name="each_op").json()["total"] == len(small.ops())
    assert app.ask("table", name="each_copy").json()["total"] == 0


EACH_TRACES = [
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
]


@pytest.mark.parametrize("trace", EACH_TRACES)
@pytest.mark.parametrize(("name", "command", "sort"), [("each_op", "ops", "-device_time"), ("each_kernel", "kernels", "-duration")])  # fmt: skip
def test_each_call_and_execution_is_a_row_of_the_command_s_json(
    of, asking, shared, trace, name, command, sort
):
    app = asking(Viewed(of(trace), (trace,)))
    got = whole(app, name, sort=sort)
    want = json.loads(opscope(command, shared / trace, "--each", "--json").stdout)
    assert got["total"] == got["matching"] == len(want) > 100
    for key, values in got["values"].items():
        expected = [row[key] for row in want]
        assert [as_number(a, b) for a, b in zip(values, expected, strict=True)] == expected, key


@pytest.mark.parametrize("trace", EACH_TRACES)
def test_each_copy_is_a_row_as_json_has_it(of, asking, trace):
    got = whole(asking(Viewed(of(trace), (trace,))), "each_copy")
    want = json.loads(files.rows_as_json(of(trace).memops()))
    assert got["total"] == got["matching"] == len(want)
    for key, values in got["values"].items():
        expected = [row[key] for row in want]
        assert [as_number(a, b) for a, b in zip(values, expected, strict=True)] == expected, key


def test_every_column_of_every_table_sorts_by_what_it_holds(of, asking):
    """Numbers by their size also where they are sent as text, texts by their code points, unknown last."""
    app = asking(Viewed(of(EACH_TRACES[1]), ("a",)))
    sorted_columns = 0
    for name in [*questions.reports(), "each_op", "each_kernel", "each_copy"]:
        plain = whole(app, name)
        kinds = {column["name"]: column["kind"] for column in plain["columns"]}
        if not 1 < plain["total"] <= 3_000:
            continue
        for column, kind in kinds.items():
            if kind == "list":
                assert app.ask("table", name=name, sort=column).status_code == 400
                continue
            values = plain["values"][column]
            for sort in (column, f"-{column}"):
                got = whole(app, name, sort=sort)["values"]
                down = sort[0] == "-"
                known = [row for row, value in enumerate(values) if value is not None]
                keys = {row: key_of(values[row], kind) for row in known}
                rows_ = sorted(known, key=keys.__getitem__, reverse=down)
                rows_ += [row for row, value in enumerate(values) if value is None]
                for other in kinds:  # equal rows in their order: whole rows are compared
                    held = plain["values"][other]
                    assert got[other] == [held[row] for row in rows_], (name, sort, other)
            sorted_columns += 1
    assert sorted_columns > 300


def key_of(value, kind):
    """What a value is sorted by: a number also where it is sent as text, a text by its bytes."""
    if kind == "text":
        return value.encode()
    return int(value) if isinstance(value, str) else value


def test_search_is_literal_in_any_case_over_every_text_column(app):
    def found(q: str) -> int:
        return app.ask("table", name="each_kernel", q=q).json()["matching"]

    assert found("RELU") == 2
    assert found("ünsafe</B> &") == 2
    assert found("TRAIN.py:1") == 2
    assert found("kernel_aten::mm") == 2
    assert found("k.rnel") == found("kernel|x") == found("(") == 0 < found("[4,4]")


def test_sorting_puts_null_last_either_way_and_keeps_the_order_of_equals():
    frame = pl.DataFrame({"a": [3, None, 1, 3, 2], "b": ["x", "B", None, "a", "x"]})
    assert order(frame, "a", False).tolist() == [2, 4, 0, 3, 1]
    assert order(frame, "a", True).tolist() == [0, 3, 4, 2, 1]
    assert order(frame, "b", False).tolist() == [1, 3, 0, 4, 2]


def test_conditions_search_and_order_work_together(app):
    got = app.ask(
        "table",
        name="each_kernel",
        where='{"device":0,"reason":null}',
        q="mm",
        sort="-start",
        rows=1,
    )
    made = got.json()
    assert (made["total"], made["matching"]) == (6, 2)
    assert made["values"]["name"] == ["kernel_aten::mm"]
    assert made["values"]["start"] == [113_000_000]
    assert made["sums"]["duration"] == 2_000_000
    assert made["sums_all"]["duration"] == 6_000_000 + 2 * (0 + 1 + 2)


def test_a_selection_is_that_of_the_report_and_is_given_up_when_others_follow(app, small):
    before = set(small._selections)  # other tests ask the same profile through servers of their own
    for step in (0, 1):
        got = app.ask("table", name="each_kernel", steps=step).json()
        assert got["total"] == 3
    assert app.ask("table", name="each_kernel", steps="0-1", device="0").json()["total"] == 4
    for device in ("0,1", "1", "0", "1,0", "0"):
        for steps in ("0", "1", "0-1", "0-"):
            app.ask("table", name="summary", device=device, steps=steps)
    assert len(set(small._selections) - before) <= 4


@given(
    st.data(),
    st.sampled_from([pl.Int64, pl.UInt64, pl.Int8, pl.Float64, pl.Float32, pl.Boolean, pl.String, pl.Int128, pl.Decimal(10, 2)]),
    st.booleans(), st.integers(1, 40),
)  # fmt: skip
def test_the_order_is_that_of_a_stable_sort_with_null_last_either_way(
    data, dtype, descending, repeated
):
    values = {
        pl.Int64: st.integers(-(2**63), 2**63 - 1), pl.UInt64: st.integers(0, 2**64 - 1), pl.Int8: st.integers(-128, 127),
        pl.Float64: st.floats(), pl.Float32: st.floats(width=32), pl.Boolean: st.booleans(), pl.String: st.text(max_size=3),
        pl.Int128: st.integers(-(2**100), 2**100), pl.Decimal(10, 2): st.integers(-9, 9),
    }[dtype]  # fmt: skip
    held = data.draw(st.lists(st.none() | values, max_size=12)) * repeated
    held += data.draw(st.lists(st.none() | values, max_size=12))
    frame = pl.DataFrame({"a": pl.Series(held, dtype=dtype, strict=False)})
    plain = [None if isinstance(one, float) and one != one else one for one in frame["a"].to_list()]
    key = (lambda n: plain[n].encode()) if dtype == pl.String else (lambda n: plain[n])
    known = sorted((n for n, one in enumerate(plain) if one is not None), key=key)
    if descending:
        known = sorted((n for n, one in enumerate(plain) if one is not None), key=key, reverse=True)
    wanted = known + [n for n, one in enumerate(plain) if one is None]
    assert order(frame, "a", descending).tolist() == wanted


@pytest.mark.parametrize("bits", [1, 20, 45, 63])
def test_the_order_of_many_numbers_is_that_of_polars(bits):
    """Of many rows not all bits of a number and its row fit into one."""
    import numpy as np

    numbers = np.random.default_rng(1)
    many = 70_000
    whole = numbers.integers(0, 1 << bits, many, dtype=np.int64)
    for values in (
        whole,
        whole[::-1] // 3 * 3,
        numbers.random(many) * 1e-3 + 1.0,
        np.repeat(numbers.random(many // 2), 2),
    ):
        frame = pl.DataFrame({"a": values})
        for descending in (False, True):
            wanted = frame.select(pl.arg_sort_by("a", descending=descending, maintain_order=True))[
                "a"
            ]
            assert np.array_equal(order(frame, "a", descending), wanted.to_numpy())


def test_what_is_no_number_is_unknown_and_last_either_way(trace_of, asking, monkeypatch):
    """NaN, infinity and null: sent as null, found as null, and left out of the sums."""
    from opscope.profile import Profile

    profile = Profile(trace_of(kernels=[
        {"process": 0, "device": 0, "stream": 1, "start": n * 10, "end": n * 10 + 1, "name": f"k{n}"} for n in range(5)
    ]))  # fmt: skip
    odd = [2.0, float("nan"), None, float("inf"), 1.0]
    frame = profile.kernels().with_columns(flops=pl.Series(odd, dtype=pl.Float64))
    monkeypatch.setattr(profile, "kernels", lambda: frame)
    app = asking(Viewed(profile, ("a",)))
    for sort, wanted in (("flops", ["k4", "k0"]), ("-flops", ["k0", "k4"])):
        got = app.ask("table", name="each_kernel", sort=sort).json()
        assert got["values"]["name"] == [*wanted, "k1", "k2", "k3"]
        assert got["values"]["flops"][2:] == [None] * 3
        assert got["sums_all"]["flops"] == 3.0
    unknown = app.ask("table", name="each_kernel", where='{"flops":null}').json()
    assert (unknown["matching"], unknown["sums"]["flops"]) == (3, None)


def test_numbers_beyond_javascript_are_sent_as_text_and_infinity_as_null():
    frame = pl.DataFrame({"n": [1, 2**60, None], "x": [0.5, float("inf"), float("nan")]})
    assert rows.values(frame["n"]) == [1, str(2**60), None]
    assert rows.values(frame["x"]) == [0.5, None, None]
    wide = pl.DataFrame({"n": [2**62, 2**62, 2**62]})
    assert rows.sums(wide, ["n"]) == {"n": str(3 * 2**62)}
    assert rows.sums(pl.DataFrame({"n": [None]}, schema={"n": pl.Int64}), ["n"]) == {"n": None}


@given(
    st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | st.integers(-3, 3)), max_size=30),
    st.text(max_size=3), st.sampled_from(["", "n", "-n", "t", "-t"]), st.none() | st.integers(-3, 3), st.booleans(),
)  # fmt: skip
def test_the_rows_found_are_those_that_a_loop_finds(table, text, sort, value, conditioned):
    frame = pl.DataFrame(table, schema={"t": pl.String, "n": pl.Int64}, orient="row")
    conditions = rows.equal(frame, {"n": value}) if conditioned else []
    wanted = rows.containing(frame, text)
    if wanted is not None:
        conditions.append(wanted)
    column = sort.removeprefix("-")
    by = order(frame, column, sort.startswith("-")) if sort else None
    found = rows.find(frame, conditions, by, ["n"])
    numbers = list(range(len(table)))
    if sort:
        place = 0 if column == "t" else 1
        known = sorted((n for n in numbers if table[n][place] is not None),
                       key=lambda n: table[n][0].encode() if place == 0 else table[n][1])  # fmt: skip
        if sort.startswith("-"):  # of equals the first stays first
            key = (lambda n: table[n][0].encode()) if place == 0 else (lambda n: table[n][1])
            known = sorted(known, key=key, reverse=True)
        numbers = known + [n for n in numbers if table[n][place] is None]
    expected = [
        n for n in numbers
        if (not conditioned or table[n][1] == value)
        and (not text or (table[n][0] is not None and matches(table[n][0], text)))
    ]  # fmt: skip
    got = list(range(len(table))) if found.rows is None else found.rows.tolist()
    assert got == expected
    values = [table[n][1] for n in expected if table[n][1] is not None]
    assert found.sums["n"] == (sum(values) if values else None)


def matches(text: str, part: str) -> bool:
    """Whether ``text`` holds ``part`` in any case, letter by letter."""

    def folded(letter: str) -> str:
        small = letter.lower()
        return small if len(small) == 1 else letter

    def same(a: str, b: str) -> bool:
        return (
            a == b
            or folded(a) == folded(b)
            or (a.casefold() == b.casefold() and len(a.casefold()) == 1)
            or (len(a.upper()) == 1 and a.upper() == b.upper())
        )

    return any(
        all(same(a, b) for a, b in zip(text[at:], part, strict=False))
        and len(text) - at >= len(part)
        for at in range(len(text) - len(part) + 1)
    )


@pytest.mark.parametrize(
    "given",
    [{}, {"name": "nothing"}, {"name": "detail", "rows": 1_001}, {"name": "detail", "rows": -1},
     {"name": "detail", "rows": "1e3"}, {"name": "detail", "rows": "٣"}, {"name": "detail", "from": -1},
     {"name": "detail", "from": 10**12}, {"name": "detail", "sort": "nothing"}, {"name": "detail", "sort": "--op"},
     {"name": "detail", "q": "x" * 2_000}, {"name": "detail", "where": "{"}, {"name": "detail", "where": "[]"},
     {"name": "detail", "where": '{"nothing":1}'}, {"name": "detail", "where": '{"op":1}'},
     {"name": "detail", "where": '{"calls":"x"}'}, {"name": "detail", "where": '{"calls":true}'},
     {"name": "detail", "where": '{"op":{}}'}, {"name": "detail", "where": '{"op":"\\ud800"}'},
     {"name": "detail", "where": "[" * 5_000}, {"name": "detail", "where": json.dumps({str(n): 1 for n in range(9)})},
     {"name": "detail", "steps": "x"}, {"name": "detail", "steps": "-"}, {"name": "detail", "steps": "5-3"},
     {"name": "detail", "steps": "99"}, {"name": "detail", "device": "7"}, {"name": "detail", "device": "x"},
     {"name": "detail", "rank": "9"}, {"name": "detail", "rank": "0,"}, {"name": "detail", "steps": "٣"}],
)  # fmt: skip
def test_a_bad_parameter_is_refused_in_words(app, given):
    answer = app.ask("table", **given)
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert 5 < len(answer.text) < 4_000


def test_a_report_with_parameters_is_a_table_of_its_own(app, small):
    as_it_is, of_all, of_none = (
        app.ask("table", name=f"short_kernels{given}").json()
        for given in ("", ":below=1s", ":below=1ns")
    )
    assert as_it_is["total"] == len(small.short_kernels())
    assert of_all["total"] == len(small.short_kernels(below=10**9)) > 0
    assert of_none["total"] == 0
    assert len({page["title"] for page in (as_it_is, of_all, of_none)}) == 3


def test_a_wrong_parameter_of_a_report_is_refused_by_its_name(app):
    answer = app.ask("table", name="short_kernels:belwo=5us")
    assert answer.status_code == 400
    assert "belwo" in answer.text


def test_without_a_second_run_there_is_no_difference(app):
    answer = app.ask("table", name="diff_part")
    assert answer.status_code == 404
    assert "--compare" in answer.text


def test_the_difference_of_two_runs_is_that_of_diff(asking, of):
    one, other = of("kineto/sampled_rank0.json.gz"), of("kineto/sampled_rank1.json.gz")
    app = asking(Viewed(one, ("a",), other, ("b",)))
    for by in ("part", "cause", "op", "kernel", "run"):
        got = whole(app, f"diff_{by}")
        want = json.loads(files.rows_as_json(one.diff(other, by)))
        assert got["total"] == len(want)
        for key, values in got["values"].items():
            expected = [row[key] for row in want]
            assert [as_number(a, b) for a, b in zip(values, expected, strict=True)] == expected, (
                by,
                key,
            )


def test_notes_that_an_analysis_adds_are_there_when_they_are_asked_for_again(asking, trace_of):
    from opscope.profile import Profile

    profile = Profile(trace_of(ranges=[]))
    app = asking(Viewed(profile, ("a",)))
    before = app.ask("table", name="notes").json()["total"]
    profile.trace.note("warning", "found later", 1)
    assert app.ask("table", name="notes").json()["total"] == before + 1


def test_every_table_names_its_columns_and_sums_only_numbers():
    for name, kind in tables.kinds().items():
        known = {column.name: column for column in kind.columns}
        assert set(kind.shown) <= set(known), name
        summed = {column for column in known if kind.additive(column)}
        units = {known[column].unit for column in summed}
        assert units <= {"ns", "bytes", "FLOP", "count", "J"}, (name, units)


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "-1",
            "0",
            "1e9",
            "9" * 30,
            "NaN",
            "null",
            "../..",
            "%00",
            "{}",
            '{"op":null}',
            "detail",
            "-op",
        ]
    ),
)


@given(
    st.dictionaries(
        st.sampled_from(["name", "from", "rows", "sort", "q", "where", "steps", "device", "rank", "x", "part"]),
        HOSTILE, max_size=6,
    ),
    st.sampled_from(["table", "about", "overview"]),
)  # fmt: skip
def test_no_parameters_make_the_server_fail(fixed, given, question):
    given = {"name": "detail", **given} if question == "table" else given
    answer = fixed.ask(question, **given)
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        assert answer.headers["content-type"].startswith("text/plain")


@pytest.fixture(scope="module")
def fixed(small):
    from tests.viewer.asking import Asking

    made = Asking(Viewed(small, ("run",)))
    yield made
    made.close()
