"""Engine steps of servers: kinds, tokens and times that add up, of marked and of unmarked processes."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops.ops import op_index, served_words
from opscope.core.analysis.serving.engine_steps import STEPS, engine_steps
from opscope.core.analysis.serving.notes import step_lines
from opscope.core.analysis.serving.parts import parts_of
from opscope.core.analysis.serving.step_sums import TIMES, step_sums
from opscope.core.dialects.serving import NAMED, engine_step
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.command import opscope as opscope_command
from tests.made_server import PRODUCT, SAMPLER, US, Step, served, serving

MS = 1000 * US


def phases(profile: Profile) -> dict[str, dict]:
    return {row["kind"]: row for row in profile.serving_phases().rows(named=True)}


@pytest.fixture(params=["server_steps", "server_steps_varied"])
def case(shared, request):
    path = shared.parent / "cases" / request.param / "trace.json"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path


def test_a_servers_steps_are_four_prefills_of_5_ms_and_sixteen_decodes_of_1_ms(case):
    profile = opscope.load(case)
    found = phases(profile)
    assert (found["prefill"]["steps"], found["prefill"]["step_time"]) == (4, 5 * MS)
    assert (found["decode"]["steps"], found["decode"]["step_time"]) == (16, 1 * MS)
    assert found["prefill"]["device_time"] == 12 * MS
    assert found["decode"]["device_time"] == 9_600 * US
    assert sum(row["time"] for row in found.values()) == 4 * 5 * MS + 16 * MS - 20 * US


@pytest.mark.parametrize("rows", [True, False])
def test_steps_that_nothing_marks_are_told_by_rows_or_times(case, tmp_path, rows):
    """The rows of products where they differ, else the device time; both with little confidence."""
    trace = json.loads(case.read_bytes())
    marks = [event for event in trace["traceEvents"] if event["cat"] == "user_annotation"]
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] != "user_annotation"]
    for event in trace["traceEvents"]:
        if rows and event["cat"] == "cpu_op":
            (mark,) = (m for m in marks if m["ts"] <= event["ts"] < m["ts"] + m["dur"])
            of = re.findall(r"\((\d+)", mark["name"])
            event["args"]["Input Dims"] = [[sum(map(int, of)), 1024], [1024, 1024]]
    path = tmp_path / "unmarked.json"
    path.write_text(json.dumps(trace))
    profile = opscope.load(path)
    found = phases(profile)
    assert (found["prefill"]["steps"], found["prefill"]["step_time"]) == (4, 5 * MS)
    assert (found["decode"]["steps"], found["decode"]["step_time"]) == (16, 1 * MS)
    assert 0 < found["decode"]["confidence"] < 0.5
    assert (found["decode"]["output_tokens"] is not None) == rows
    listed = profile.iterations().filter(pl.col("found_by") == "bursts: prefill")
    assert listed["duration"].to_list() == [5 * MS] * 4
    assert not listed["is_step"].any()


@pytest.mark.parametrize("multiplies", [True, False])
def test_launches_alone_are_steps_where_kernels_multiply_matrices(case, tmp_path, multiplies):
    trace = json.loads(case.read_bytes())
    kept = ("kernel", "cuda_runtime")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] in kept]
    for event in trace["traceEvents"]:
        if not multiplies and event["cat"] == "kernel":
            event["name"] = "fill_kernel"
    path = tmp_path / "launches.json"
    path.write_text(json.dumps(trace))
    counts = {kind: row["steps"] for kind, row in phases(opscope.load(path)).items()}
    assert counts == ({"prefill": 4, "decode": 16} if multiplies else {})


def test_every_moment_of_the_engine_counts_once():
    steps = serving()
    for step in steps[::2]:
        step.outside = [(SAMPLER, 700 * US)]  # runs into the next step
    profile = Profile(served(steps))
    sums = profile.of(step_sums)
    kernels = profile.trace["kernels"]
    last = max(sums["next"].max(), kernels["end"].max())
    assert sums["time"].sum() == last - sums["start"].min()
    assert sums.select(pl.sum_horizontal(TIMES)).to_series().to_list() == sums["time"].to_list()
    assert sums["device_time"].sum() == (kernels["end"] - kernels["start"]).sum()


def test_the_parts_of_a_step_are_its_attention_products_and_sampling():
    steps = serving(1, 5)
    for step in steps[1:]:
        step.outside = [(SAMPLER, 30 * US)]
    (decode,) = (row for kind, row in phases(Profile(served(steps))).items() if kind == "decode")
    assert decode["attention_part"] == 5 * 100 * US
    assert decode["products_part"] == 5 * 200 * US
    assert decode["sampling_part"] == 5 * 30 * US
    assert decode["experts_part"] == 0


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("aiter::fmoe_bf16_blockscaleFp8_g1u1", "experts"),
        ("tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel", "experts"),
        ("tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel", "experts"),
        ("bmm_E4m3_E4m3_Fp32_t128x8x256u2_s5_swiGlu_dynBatch_sm100f", "experts"),
        ("build_tree_kernel_efficient", "sampling"),
        ("fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDense", "attention"),
        ("deep_ep::internode_ll::combine<true>", "communication"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "products"),
    ],
)
def test_a_servers_kernels_are_sorted_by_their_names(kernel, part):
    assert parts_of([(None, None)], [kernel]) == [part]


def test_steps_carry_what_their_names_tell():
    name = (
        "execute_32_context_1(sq10sk110sqsq100sqsk1100)_generation_22(sq22sk55086sqsq22sqsk55086)"
    )
    table = engine_steps(Profile(served([Step(name)])))
    assert table.schema == pl.Schema(STEPS)
    (row,) = table.rows(named=True)
    assert (row["kind"], row["requests"], row["new_tokens"], row["output_tokens"]) == (
        "mixed",
        23,
        32,
        22,
    )
    assert row["cached_tokens"] == 110 + 55086 - 32
    assert (row["sum_qq"], row["sum_qk"]) == (122, 56186)
    assert (row["source"], row["confidence"]) == ("vLLM", 1.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("step[MIXED bs=9 toks=136]", (9, 136, None)),
        ("step[MIXED bs=9 toks=136 c=1 g=8]", (9, 136, None)),
        ("decode[bs=9/16 tok=136 sk=900 sqsq=1 sqsk=2 p=1 d=8]", (9, 136, 900 - 136)),
    ],
)
def test_a_mixed_steps_tokens_are_known_together(name, told):
    row = engine_steps(Profile(served([Step(name)]))).row(0, named=True)
    assert row["kind"] == "mixed"
    assert (row["requests"], row["new_tokens"], row["cached_tokens"]) == told


def test_drafts_beside_named_steps_are_steps_of_their_own():
    made = [Step(name) for name in ("draft", "step[TARGET_VERIFY bs=4]", "draft_extend") * 2]
    kinds = engine_steps(Profile(served(made)))["kind"].to_list()
    assert kinds == ["draft", "verify", "draft"] * 2


def test_a_range_named_draft_alone_is_no_step():
    assert engine_steps(Profile(served([Step("draft")] * 4))).is_empty()


def test_tokens_are_a_second_and_apart():
    steps = serving(1, 6, requests=10)
    (row,) = Profile(served(steps)).serving_tokens().rows(named=True)
    assert (row["output_tokens"], row["prefill_tokens"]) == (60, 800)
    assert row["token_p50"] == row["token_p99"] == 1_020 * US
    assert row["window"] == 5_020 * US + 5 * 1_020 * US + 1_000 * US
    assert row["tokens_per_second"] == pytest.approx(60 / (row["window"] / 1e9))
    assert row["device_per_token"] == 6 * 300 * US / 60


def test_tokens_of_verified_drafts_are_not_known():
    verify, beside = (
        "execute_context_0(0)_generation_8(24)",
        "execute_context_1(90)_generation_8(24)",
    )
    for made in (
        [Step(verify)] * 5,
        [Step("execute_context_0(0)_generation_8(8)"), Step(beside)] * 3,
    ):
        profile = Profile(served(made))
        (row,) = profile.serving_tokens().rows(named=True)
        assert row["output_tokens"] is None
        assert "accepted" in row["reason"]
        # a step may give a request several tokens: its time is no time of a token
        assert (row["token_mean"], row["token_p50"], row["token_p99"]) == (None, None, None)
        assert "accepted" in profile.serving_costs()["reason"][0]


def test_decode_steps_are_listed_by_batch():
    made = [
        Step(f"execute_context_0(0)_generation_{n}({n})", n * 100 * US, tokens=n)
        for n in (8, 16, 8, 16, 8, 16, 16)
    ]
    rows = Profile(served(made)).serving_batches().rows(named=True)
    assert [(row["decode_requests"], row["steps"]) for row in rows] == [(8, 3), (16, 4)]
    assert [row["step_time"] for row in rows] == [820 * US, 1_620 * US]
    assert rows[0]["tokens_per_second"] == pytest.approx(8 / 820e-6)


def test_graphs_are_listed_with_the_batches_that_they_ran():
    made = []
    for requests, graph in ((6, 1), (8, 1), (15, 2), (16, 2), (40, None)):
        name = f"execute_context_0(0)_generation_{requests}({requests})"
        made.append(Step(name, tokens=requests, graph=graph, outside=[(SAMPLER, 30 * US)]))
    rows = Profile(served(made)).serving_graphs().rows(named=True)
    told = [(row["graph"], row["requests_least"], row["requests_most"]) for row in rows]
    assert told == [(1, 6, 8), (2, 15, 16), (None, 40, 40)]
    assert rows[0]["outside_time"] == 2 * 30 * US
    assert rows[0]["in_graphs"] == pytest.approx(4 / 6)
    assert rows[2]["in_graphs"] == 0


def test_what_the_host_does_between_steps_is_named():
    made = serving(1, 6)
    for step in made:
        step.after, step.between = 100 * US, "schedule: make_output 7"
    rows = Profile(served(made)).serving_host().rows(named=True)
    assert [(row["what"], row["time"]) for row in rows] == [
        ("nothing that the trace shows", 6 * 50 * US),
        ("schedule: make_output *", 6 * 50 * US),
    ]
    assert rows[0]["between"] == rows[0]["device_waits"] == 6 * 100 * US


def test_a_training_has_no_engine_steps(shared):
    profile = opscope.load(shared / "kineto" / "resnet50_nw0_step_span1.pt.trace.json.gz")
    assert profile.engine_steps().is_empty()


def test_steps_that_the_program_marks_keep_kind_and_counts(tmp_path, fresh_steps):
    path = tmp_path / "marked.opscope"
    with opscope.capture(path, force=True):
        opscope.step(kind="prefill", requests=1, new_tokens=100, cached_tokens=20)
        for _ in range(3):
            opscope.step(kind="decode", requests=8, cached_tokens=1_000)
        opscope.step(kind="mixed", requests=5, new_tokens=44, cached_tokens=300)
        opscope.step()
    opscope.shutdown()
    table = opscope.load(path).engine_steps()
    assert table["kind"].to_list()[:4] == ["prefill", *["decode"] * 3]
    assert table["sum_qk"].to_list()[:2] == [12_000, 1_008]
    assert table["output_tokens"].to_list()[:2] == [None, 8]
    sums = table.select("requests", "new_tokens", "cached_tokens", "prefill_tokens").rows()
    assert sums[4] == (5, 44, 300, None)
    assert set(table["source"]) == {"opscope"}


@pytest.mark.parametrize(
    "wrong", [{"kind": "training"}, {"kind": "decode", "requests": -1}], ids=["kind", "count"]
)
def test_a_wrong_kind_or_count_is_refused(wrong):
    with pytest.raises(ValueError, match=r"kind=|requests="):
        opscope.step(**wrong)


def test_attention_tells_decodes_of_one_query_from_prefills():
    def work(queries: int, keys: int):
        call = f"aten::scaled_dot_product_attention(f32[2,4,{queries},64], f32[2,4,{keys},64], f32[2,4,{keys},64])"
        return (((call, "flash_fwd_kernel"), 100 * US), (PRODUCT, 50 * US))

    made = []
    for _ in range(2):
        made.append(Step(None, work=work(12, 12), tokens=24))
        made += [Step(None, work=work(1, 13 + n), tokens=2) for n in range(6)]
    table = engine_steps(Profile(served(made)))
    assert set(table["source"]) == {"attention"}
    decode = table.filter(pl.col("kind") == "decode")
    assert decode["requests"].unique().to_list() == [2]
    assert decode["cached_tokens"].to_list()[:2] == [2 * 12, 2 * 13]


def test_without_kernels_nothing_is_known_of_the_device():
    trace = served(serving())
    profile = Profile(trace.replace(kernels=trace["kernels"].clear()))
    for row in phases(profile).values():
        assert row["device_time"] is None
        assert row["attention_part"] is None
        assert row["host_part"] is None
        assert row["time"] > 0
    (host,) = profile.serving_host().rows(named=True)
    assert host["device_waits"] is None
    assert host["between"] == 17 * 20 * US


def test_the_first_screen_counts_the_servers_steps(case):
    printed = opscope_command("report", case, "--width", "120").stdout
    assert printed.count("20 engine steps (16 decode, 4 prefill)") == 3
    assert "no steps" not in printed
    assert "--reports serving_phases," in printed


SUMMED = [
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
    "execute_7_context_2(sq4sk7sqsq8sqsk14)_generation_3(sq3sk61sqsq3sqsk61) and more",
    "transformers execute_5_context_1(sq5sk5sqsq25sqsk25)_generation_0(sq0sk0sqsq0sqsk0)",
    "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)",
    "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq4sk40sqsq8sqsk80)",
    # too many tokens: a pair of words, which counts only in a process without better names; too long a text
    "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq1234567890123sk40sqsq8sqsk80)",
    "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq4sk40sqsq8sqsk80)" + "x" * 500,
    "a execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq4sk40sqsq8sqsk80)",
]


def test_names_with_sums_are_read_in_columns_as_one_by_one():
    """The columns hold what ``engine_step`` reads, for each kind and for names that no server writes."""
    made = Profile(served([Step(name) for name in SUMMED]))
    table = made.of(op_index).served_steps.sort("start")
    read = [step for step in map(engine_step, SUMMED) if step and step.server != NAMED]
    assert len(read) == 6
    assert table["source"].to_list() == [step.server for step in read]
    assert table["kind"].to_list() == [
        step.kind.replace("prefill and decode", "mixed") for step in read
    ]
    for phase in ("prefill", "decode"):
        columns = [f"{phase}_{name}" for name in ("requests", "queries", "keys", "qq", "qk")]
        assert table.select(columns).rows() == [tuple(getattr(step, phase)) for step in read]


def test_the_decodes_beside_verified_drafts_are_the_draft_models():
    made = [
        Step(f"step[{mode} bs=4]") for mode in ("DECODE", "TARGET_VERIFY", "DRAFT_EXTEND_V2") * 3
    ]
    profile = Profile(served(made))
    assert {kind: row["steps"] for kind, row in phases(profile).items()} == {
        "draft": 6,
        "verify": 3,
    }
    assert phases(profile)["draft"]["confidence"] == 0.9
    assert phases(Profile(served([Step("step[DECODE bs=4]")])))["decode"]["confidence"] == 1


def engines(crossing: bool) -> Profile:
    """An engine of a process, and a second of four steps on another thread, a third of a step later."""
    steps = [Step(f"execute_context_0(0)_generation_{n}({n})") for n in (4, 5, 4, 5, 4, 5)]
    trace = served(steps)
    tables = {name: trace[name] for name in ("ranges", "calls", "kernels", "devices", "processes")}
    of_first = pl.col("start") < trace["ranges"]["start"].min() + 4 * 1_020 * US
    moved = 300 * US if crossing else 0
    correlations = tables["calls"].filter(of_first)["correlation"].implode()
    for name in ("ranges", "calls", "kernels"):
        of_step = of_first if name != "kernels" else pl.col("correlation").is_in(correlations)
        other = tables[name].filter(of_step).with_columns(pl.col("start", "end") + moved)
        if name != "kernels":
            other = other.with_columns(pl.lit(12, pl.Int64).alias("thread"))
        if name != "ranges":
            other = other.with_columns(pl.col("correlation") + 1_000)
        tables[name] = pl.concat([tables[name], other])
    count = len(tables["ranges"])
    tables["ranges"] = tables["ranges"].with_columns(
        pl.int_range(count, dtype=pl.Int64).alias("id")
    )
    return Profile(Trace.of(tables))


def test_a_second_engine_of_a_process_is_not_mixed_with_the_first():
    """Data-parallel engines in one process: what a second thread launches in steps of its own is no work of
    the first engine's steps, and the table says that it is not shown."""
    profile = engines(crossing=True)
    assert phases(profile)["decode"]["steps"] == 6
    assert phases(profile)["decode"]["device_time"] == 6 * 300 * US
    assert "4 steps of further engines in the same process, on 1 thread: not shown" in step_lines(
        profile
    )
    # the same steps on a thread that only works inside them are the engine's own
    profile = engines(crossing=False)
    assert phases(profile)["decode"]["device_time"] == 10 * 300 * US
    assert not any("further engines" in line for line in step_lines(profile))


def test_a_step_of_several_ranks_is_one_step_of_the_job():
    steps = serving(1, 5)
    ranks = [served(steps, process=number) for number in range(2)]
    profile = Profile(Trace.of({name: pl.concat([one[name] for one in ranks])
                                for name in ("ranges", "calls", "kernels", "devices", "processes")}))  # fmt: skip
    assert served_words(profile) == "6 engine steps (5 decode, 1 prefill)"
    assert "6 engine steps told by vLLM" in step_lines(profile)
    assert profile.serving_phases().group_by("process").agg(pl.col("steps").sum())[
        "steps"
    ].to_list() == [6, 6]
    other = served([*steps, Step("execute_context_0(0)_generation_2(2)")], process=1)
    apart = Profile(Trace.of({name: pl.concat([ranks[0][name], other[name]])
                              for name in ("ranges", "calls", "kernels", "devices", "processes")}))  # fmt: skip
    assert served_words(apart) == "13 engine steps (11 decode, 2 prefill)"
    # the same batches a minute later are of another engine
    minute = 60_000_000 * US
    later = {
        name: ranks[1][name] for name in ("ranges", "calls", "kernels", "devices", "processes")
    }
    later |= {
        name: later[name].with_columns(pl.col("start", "end") + minute)
        for name in ("ranges", "calls", "kernels")
    }
    apart = Profile(
        Trace.of({name: pl.concat([ranks[0][name], frame]) for name, frame in later.items()})
    )
    assert served_words(apart) == "12 engine steps (10 decode, 2 prefill)"


WORDS = ["prefill 0", *(f"decode {n}" for n in range(1, 6))] * 2


def counted(profile: Profile) -> dict[str, int]:
    """Steps by kind, which are the iterations too."""
    counts = {kind: row["steps"] for kind, row in phases(profile).items()}
    listed = profile.iterations().group_by("found_by").len()
    assert dict(listed.rows()) == {f"range: {kind}": steps for kind, steps in counts.items()}
    return counts


@pytest.mark.parametrize("names", [WORDS, [f"execute_new_{n % 2}_cached_4" for n in range(12)]])
def test_the_steps_of_a_pool_of_threads_are_steps_of_one_engine(names):
    trace = served([Step(name, between="take 7") for name in names])
    turn = (pl.col("start") // (1_020 * US)) % 3
    moved = {
        name: trace[name].with_columns((turn + 11).alias("thread").cast(pl.Int64))
        for name in ("ranges", "calls")
    }
    pooled = Profile(trace.replace(**moved))
    assert counted(pooled) == counted(Profile(trace))
    assert sum(counted(pooled).values()) == 12
    assert pooled.serving_host().equals(Profile(trace).serving_host())
    assert not any("further engines" in line for line in step_lines(pooled))


@pytest.mark.parametrize("count", [8, 30])
def test_a_tokenizers_ranges_are_no_steps(count):
    """On a thread of its own: it decodes text, launches nothing, and is no second engine."""
    trace = served([Step(name) for name in WORDS])
    first = trace["ranges"].head(1)
    others = pl.concat(
        first.with_columns(
            thread=pl.lit(77, pl.Int64),
            text=pl.lit(f"decode {n} tokens"),
            start=pl.col("start") + n * 400 * US,
            end=pl.col("start") + (n * 400 + 380) * US,
        )
        for n in range(count)
    )
    ranges = pl.concat(
        [trace["ranges"].cast({"text": pl.String}), others.cast({"text": pl.String})]
    )
    ranges = ranges.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id"))
    profile = Profile(trace.replace(ranges=ranges.cast(dict(trace["ranges"].schema))))
    assert counted(profile) == {"prefill": 2, "decode": 10}
    assert not any("further engines" in line for line in step_lines(profile))


def test_words_without_numbers_are_steps_if_decodes_outnumber_prefills():
    names = [name.split()[0] for name in WORDS]
    assert counted(Profile(served([Step(name) for name in names]))) == {"prefill": 2, "decode": 10}
    for names in (["decode"] * 6, ["prefill", "decode"] * 3, ["prefill", *["decode_wrapper"] * 5]):
        assert engine_steps(Profile(served([Step(name) for name in names]))).is_empty()
