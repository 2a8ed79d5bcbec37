"""What each call answers on traces whose truth is known, and what it refuses."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope
from opscope.agents import calls, catalogue, hints
from opscope.agents.answering import reply
from opscope.agents.runs import Runs
from opscope.core.advice.detectors import EXPLAINS
from opscope.core.question import index
from opscope.core.question.registry import reports
from opscope.core.tables.trace import Trace
from opscope.profile.profile import Profile
from tests.planted_truths import made

LOADER = "slow_loader-kineto-8x2.json"
READS = "synchronising_reads-nsys-8x2.sqlite"
HEALTHY = "healthy-kineto-8x2.json"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    for cause in (
        "slow loader",
        "synchronising reads",
        "healthy",
        "late rank",
        "lost kernels",
        "cannot tell",
    ):
        made.make(cause, 0, folder)
    text = "\n".join(f"line {number}" for number in range(1, 121))
    (folder / "train.py").write_text(
        text.replace("line 92", 'token = "hf_' + "aB3dE5gH7jK9" * 3 + '"')
    )
    return Runs((folder,))


@pytest.fixture
def asked(runs):
    def asked(call, run=LOADER, /, **arguments):
        answer = reply(runs, call, {"run": run, **arguments} if run else arguments)
        assert not answer.error, answer.content
        assert json.loads(answer.text) == answer.content
        return answer.content

    return asked


@pytest.fixture
def refused(runs):
    def refused(call, **arguments):
        answer = reply(runs, call, arguments)
        assert answer.error
        return answer.content["error"]

    return refused


def test_opening_says_what_a_run_is_and_what_to_ask(asked):
    made_answer = asked("open", None, files=[LOADER])
    assert made_answer["said"][0].endswith(f"{LOADER}: kineto")
    values = {name: (value, unit) for name, value, unit in made_answer["rows"]}
    assert values["steps"] == (8, "count")
    assert values["wall_time"][1] == "ns"
    assert made_answer["next"][0]["call"] == "diagnose"


def test_without_files_those_that_may_be_opened_are_listed(asked):
    rows = asked("open", None)["rows"]
    assert [LOADER, "kineto"] in rows
    assert [READS, "nsys"] in rows


def test_the_diagnosis_is_that_of_the_profile(asked, runs):
    row = opscope.load(runs.run(LOADER).paths[0]).diagnosis().row(0, named=True)
    answer = asked("diagnose")
    assert answer["verdict"] == "cause"
    assert answer["cause"] == {
        "name": "input-bound", "share": float(f"{row['share']:.4g}"), "of": row["of"],
        "detector": "data_loader", "confidence": row["confidence"], "lost_ns": row["lost"],
    }  # fmt: skip
    assert row["text"] in answer["said"][0]
    assert answer["next"][0]["arguments"]["detectors"] == ["data_loader"]


def test_a_healthy_run_is_healthy_and_one_that_nobody_can_judge_cannot_be_told(asked):
    healthy = asked("diagnose", HEALTHY)
    assert healthy["verdict"] == "healthy"
    assert "cause" not in healthy
    unknown = asked("diagnose", "cannot_tell-nsys-8x2.sqlite")
    assert unknown["verdict"] == "cannot tell"
    assert "fewer than 10 kernels" in unknown["said"][0]


def test_what_the_data_lacks_is_in_every_answer(asked):
    lost = "lost_kernels-kineto-8x2.json"
    for call, arguments in (("open", {"files": [lost]}), ("advise", {"run": lost}),
                            ("ask", {"run": lost, "question": "op_totals"})):  # fmt: skip
        answer = asked(call, None, **arguments)
        assert any("25 of 224 kernels" in text for text in answer["cannot_tell"]), call


def test_the_question_of_the_diagnosis_has_its_sentences(asked):
    answer, diagnosed = asked("ask", question="diagnosis"), asked("diagnose")
    assert {**answer, "call": "diagnose"} == diagnosed
    assert asked("ask", question="diagnosis", columns=["finding"])["rows"] == [["input-bound"]]


def test_a_detector_s_evidence_has_rows_units_bounds_and_the_place(asked):
    answer = asked("advise", READS, detectors=["sync_calls"])
    assert answer["where"]["source"] == "train.py:90"
    assert answer["where"]["op"] == "aten::_local_scalar_dense"
    assert answer["columns"]["time"] == "ns"
    bounds = answer["finding"]
    assert bounds["saving_least_ns"] <= bounds["saving_ns"] <= bounds["saving_most_ns"]
    assert answer["next"][0] == {
        "call": "source", "arguments": {"at": "train.py:90", "run": READS}, "why": "the program's text there",
    }  # fmt: skip


def test_all_advice_has_a_row_a_finding_and_what_no_detector_could_tell(asked):
    answer = asked("advise", "late_rank-kineto-8x2-rank*.json")
    assert {"uneven_ranks", "host_bound"} <= {row[0] for row in answer["rows"]}
    assert any(text.startswith("batch_size: ") for text in answer["cannot_tell"])


def test_a_source_line_has_its_text_its_time_and_no_secret(asked):
    answer = asked("source", READS, at="train.py:90")
    rows = {row[0]: dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]}
    assert rows[90]["text"] == "line 90"
    assert (rows[90]["calls"], rows[89]["calls"]) == (96, None), (
        "two ops, one in the other, 48 times"
    )
    assert "aB3dE5gH7jK9" not in json.dumps(answer)
    assert any("secrets" in text for text in answer["cannot_tell"])


def test_a_file_that_the_trace_does_not_name_is_not_shown(asked):
    assert asked("source", READS, at="other.py:3")["cannot_tell"] == [
        "no op was called from other.py, and no time outside ops was seen in it"
    ]


def test_a_source_outside_the_folders_is_not_shown_but_its_times_are(tmp_path):
    made.make("synchronising reads", 0, tmp_path)
    (tmp_path / "empty").mkdir()
    runs = Runs((tmp_path,), tmp_path / "empty")
    answer = reply(runs, "source", {"run": READS, "at": "train.py:90"}).content
    assert "no such file below" in answer["cannot_tell"][0]
    assert 90 in [row[0] for row in answer["rows"]]
    hinted = reply(runs, "advise", {"run": READS, "detectors": ["sync_calls"]}).content["next"]
    assert [hint["call"] for hint in hinted] == ["ask"]


def test_the_rows_of_a_question_are_those_of_its_report(asked, runs):
    frame = reports()["detail"].frame(opscope.load(runs.run(LOADER).paths[0]))
    answer = asked(
        "ask", question="op_totals", columns=["op", "device_time", "calls"], tokens=6_000
    )
    assert [tuple(row) for row in answer["rows"]] == frame.select(
        "op", "device_time", "calls"
    ).rows()
    assert answer["columns"] == {"op": "text", "device_time": "ns", "calls": "count"}


def test_rows_match_are_sorted_selected_and_begin_where_they_are_asked_for(asked):
    gelu = asked("ask", question="op_totals", match="GELU", sort="calls", columns=["op", "calls"])[
        "rows"
    ]
    assert {row[0] for row in gelu} >= {"aten::gelu", "aten::gelu_backward"}
    assert all("gelu" in row[0].lower() for row in gelu)
    assert [row[1] for row in gelu] == sorted((row[1] for row in gelu), reverse=True)
    half = asked(
        "ask", question="op_totals", match="aten::gelu_backward", steps="0:3", columns=["calls"]
    )
    assert half["rows"] == [[8]], "two layers in four steps"
    by_key = asked("ask", question="iterations", key="aten::_fused_adamw_", columns=["iteration"])
    assert len(by_key["rows"]) == 16, "it runs once for each of two layers, in eight steps"
    assert asked("ask", question="steps", **{"from": 6})["shown"] == "rows 6 to 7 of 8"
    assert asked("ask", question="op_totals", match="nothing has this")["said"] == [
        "no row has 'nothing has this'"
    ]


def test_columns_without_any_value_are_named_as_unknown(asked):
    answer = asked("ask", question="op_totals")
    assert {"layer", "source"} <= set(answer["unknown"])
    assert not {"layer", "source"} & set(answer["columns"])


def test_a_question_takes_its_parameters(asked):
    answer = asked("ask", question="idle", **{"with": {"by": "stream"}})
    assert "stream" in answer["columns"]
    assert answer["rows"] == asked("ask", question="idle:by=stream")["rows"]


def test_a_question_is_described_with_units_and_meanings(asked):
    answer = asked("ask", question="short_kernels", describe="yes")
    rows = {row[0]: row[1:] for row in answer["rows"]}
    assert rows["parameter below"][0].startswith("a time")
    assert any(unit == "ns" for unit, _ in rows.values())


def test_every_question_has_a_name_that_answers(asked):
    for name in catalogue.names():
        answer = asked("ask", question=name)
        assert answer.get("rows") or answer.get("said") or answer.get("cannot_tell"), name


def test_the_list_of_questions_has_each_once(asked):
    rows, first = [], 0
    while first is not None:
        part = asked("ask", question="questions", **{"from": first})
        rows += part["rows"]
        first = part.get("rest", {}).get("from")
    assert [row[0] for row in rows] == catalogue.names()
    assert set(index.REPORTS) <= {row[0] for row in rows}


def test_words_that_name_no_question_get_those_that_are_alike(asked):
    answer = asked("ask", question="which ranks are late?")
    named = [hint["arguments"].get("question") for hint in answer["next"]]
    assert {"late_causes", "rank_outliers"} & set(named)
    assert answer["next"][-1]["call"] == "diagnose"
    assert "rows" not in answer, "what was meant is not guessed"


#: How strangers ask, and a question, detector or call that answers.
ASKED = {
    "which layer is slowest?": "by_layer",
    "why is my GPU idle": "idle",
    "where is the time going": "wall_time",
    "how much memory does it use": "memory",
    "is the data loader slow": "data_preparation",
    "what are the slowest kernels": "kernel",
    "how many flops do we get": "utilization",
    "are tensor cores used": "by_dtype",
    "which rank is late": "late_causes",
    "how long does each step take": "steps",
    "is communication overlapped with compute": "overlap",
    "what changed between the runs": "diff",
    "which lines of code are slow": "by_source",
    "any recompilations?": "recompilations",
    "how much time do copies take": "memops",
    "is fp16 used": "by_dtype",
    "what should I optimise first": "diagnose",
    "how big is the batch": "batch_size",
    "memory leak?": "memory_growth",
    "gpu utilization": "utilization",
}


@pytest.mark.parametrize("words", ASKED)
def test_words_of_strangers_lead_to_what_answers_them(asked, words):
    named = []
    for hint in asked("ask", question=words)["next"]:
        given = hint["arguments"]
        named += [hint["call"], given.get("question"), *given.get("detectors", ())]
    assert ASKED[words] in named


def test_a_replay_is_that_of_the_profile(asked, runs):
    answer = asked("whatif", ops=["aten::mm=0"])
    frame = opscope.load(runs.run(LOADER).paths[0]).what_if(ops={"aten::mm": 0.0})
    columns = list(answer["columns"])
    assert [row[columns.index("new_wall_time")] for row in answer["rows"]] == frame[
        "new_wall_time"
    ].to_list()


def test_a_difference_says_what_explains_it(asked):
    answer = asked("diff", HEALTHY, other=LOADER)
    assert "data loader" in answer["said"][0]
    assert answer["rows"][0][0] == "data loader"
    assert answer["next"][0]["arguments"]["by"] == "cause"
    assert asked("diff", HEALTHY, other=LOADER, by="cause")["next"][0]["arguments"]["by"] == "op"


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        ("nothing", {}, "no call named 'nothing'"),
        ("diagnose", {"step": "3"}, "did you mean 'steps'"),
        ("diagnose", {"run": LOADER, "steps": "a"}, "steps is 'a'"),
        ("diagnose", {"run": LOADER, "steps": "90:99"}, "the trace has steps 0 to 7"),
        ("diagnose", {"run": LOADER, "tokens": 10}, "must be from 300 to 20000"),
        ("diagnose", {"run": ["a"]}, "run must be a text"),
        ("ask", {}, "question is needed"),
        ("ask", {"run": LOADER, "question": "steps", "sort": "tme"}, "did you mean 'time'"),
        ("ask", {"run": LOADER, "question": "steps", "columns": ["x"]}, "no column named 'x'"),
        ("ask", {"run": LOADER, "question": "idle", "with": {"by": "x"}}, "no value named 'x'"),
        ("ask", {"run": LOADER, "question": "qqq zzz"}, "no question named 'qqq zzz'"),
        ("ask", {"run": LOADER, "question": "diff"}, "a call of its own"),
        ("advise", {"run": LOADER, "detectors": ["data_loadr"]}, "did you mean 'data_loader'"),
        ("source", {"run": LOADER, "at": "train.py"}, "FILE:LINE"),
        ("diff", {"run": LOADER, "other": LOADER}, "name the same run"),
        ("diff", {"run": LOADER, "other": HEALTHY, "by": "x"}, "no table named 'x'"),
        ("whatif", {"run": LOADER}, "nothing to change"),
        ("whatif", {"run": LOADER, "ops": ["aten::mm"]}, "not NAME=FACTOR"),
        ("whatif", {"run": LOADER, "ops": ["no::op=0"]}, "no::op"),
        ("whatif", {"run": LOADER, "copies": -1}, "must be from 0 to 1000"),
        ("open", {"files": ["absent.json"]}, "no such file"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(refused, call, arguments, said):
    assert said in refused(call, **arguments)


def test_an_error_names_no_folder_of_the_machine(tmp_path):
    (tmp_path / "bad.json").write_text('{"a": 1}')
    answer = reply(Runs((tmp_path,)), "open", {"files": ["bad.json"]})
    assert answer.error
    assert answer.content["error"].startswith("bad.json: ")
    assert str(tmp_path) not in answer.text


def test_every_cause_has_a_question_with_its_evidence():
    causes = {cause for named in EXPLAINS.values() for cause in named}
    assert causes <= set(hints.LOOK_AT)
    assert {question for question, _ in hints.LOOK_AT.values()} <= set(index.REPORTS)


def test_every_call_has_a_schema_of_its_arguments():
    for call in calls.calls():
        schema = call.schema()
        assert list(schema["properties"]) == list(call.arguments)
        assert set(call.needs) <= set(schema["properties"])
        assert call.subject is None or call.subject in call.arguments
        assert all(each["description"] for each in schema["properties"].values())


def test_where_something_is_are_the_columns_that_say_so():
    rows = pl.DataFrame({"process": [1], "op": ["a"], "layer": [None], "time": [3]})
    assert hints.where(rows, {1: 7}) == {"rank": 7, "op": "a"}
    assert hints.where(rows.clear()) == {}


def test_a_line_that_calls_no_op_is_shown_and_the_hint_prefers_the_line_of_the_steps(tmp_path):
    ms = 1_000_000
    stack = f"{tmp_path}/own.py\t%d\tmain"
    text = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
    ranges = [(0, 7, 90 * ms, 91 * ms, "opscope.torch", "forward", text, "pushpop"),
              (0, 7, 60 * ms, 99 * ms, "opscope", "step", "step 0", "startend")]  # fmt: skip
    samples = [(0, 7, 0, 60 * ms, stack % 1, 1), (0, 7, 60 * ms, 90 * ms, stack % 2, 1)]
    tables = {
        name: pl.DataFrame(rows, schema=columns.split(), orient="row")
        for name, rows, columns in (
            ("ranges", ranges, "process thread start end domain category text kind"),
            ("host_samples", samples, "process thread start end stack samples"),
        )
    }
    tables["ranges"] = tables["ranges"].with_row_index("id")
    tables["processes"] = pl.DataFrame({"process": [0], "framework": ["torch"]})
    Profile(Trace.of(tables, {"format": "made"})).save(tmp_path / "own.opscope")
    (tmp_path / "own.py").write_text("import slow\nwork()\n")
    runs = Runs((tmp_path,))
    lines = reply(runs, "ask", {"run": "own.opscope", "question": "host_lines"}).content
    assert [row[0].rpartition(":")[2] for row in lines["rows"][:2]] == ["1", "2"]
    assert lines["next"][0]["arguments"]["at"] == f"{tmp_path}/own.py:2"
    shown = reply(runs, "source", lines["next"][0]["arguments"]).content
    assert shown["rows"][1][:2] == [2, "work()"]
    assert dict(zip(shown["columns"], shown["rows"][1], strict=True))["outside_ops"] == 30 * ms
