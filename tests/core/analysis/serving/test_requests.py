"""Requests of a server's log: their shares of engine steps add up, and what broke their limits is found."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.analysis.serving.shares import split
from opscope.core.tables.trace import Trace
from opscope.errors import BadInput
from opscope.profile import Profile
from opscope.readers.power_samples import with_power
from opscope.readers.request_logs import with_requests
from tests.command import opscope as opscope_command
from tests.draws import dear
from tests.made_server import ATTENTION, PRODUCT, US, Step, served, serving

MS = 1000 * US
UNIX = 1_790_000_000_000_000_000


@given(st.data())
def test_parts_are_whole_and_add_up_to_all_of_it(data):
    amounts = data.draw(st.lists(st.integers(0, 2**45), min_size=1, max_size=6))
    of = np.array(
        [*range(len(amounts)), *data.draw(st.lists(st.integers(0, len(amounts) - 1), max_size=40))]
    )
    weights = np.array(
        data.draw(st.lists(st.integers(0, 2**62), min_size=len(of), max_size=len(of)))
    )
    parts = split(np.array(amounts), of, weights)
    sums = [int(parts[of == group].sum()) for group in range(len(amounts))]
    assert sums == amounts
    assert (parts >= 0).all()


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=30), st.integers(0, 10**12))
def test_each_part_is_its_exact_share_rounded_up_or_down(weights, amount):
    parts = split(np.array([amount]), np.zeros(len(weights), int), np.array(weights))
    shared = [weight or (not any(weights)) for weight in weights]
    exact = [amount * weight / sum(shared) for weight in shared]
    assert all(
        abs(part - share) < 1 + 1e-3 for part, share in zip(parts.tolist(), exact, strict=True)
    )


def with_log(tmp_path, trace: Trace, text: str, name: str = "requests.csv") -> Profile:
    path = tmp_path / name
    path.write_text(text)
    return Profile(with_requests(trace, path))


def csv(rows, header="id,arrival_ns,first_token_ns,end_ns,prompt_tokens,output_tokens") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def unix(trace: Trace) -> Trace:
    """The trace with a clock that tells Unix time."""
    clocks = pl.DataFrame(
        {"clock_domain": [0], "to_unix_ns": [UNIX]},
        schema={"clock_domain": pl.Int32, "to_unix_ns": pl.Int64},
    )
    return trace.replace(clocks=clocks)


#: Two requests in three prefills and 15 decodes of two: ``b`` waits from 2 ms until the second prefill.
TWO = [("a", 900 * US, 5_900 * US, 10 * MS, 800, 5), ("b", 2 * MS, 16 * MS, 21_200 * US, 800, 6)]


@dear
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 30), st.integers(0, 2000)),
        max_size=12,
    )
)
def test_shares_of_any_log_add_up_to_the_engine(logged):
    trace = served(serving(2, 5, requests=3))
    table = pl.DataFrame(
        {
            "id": [str(n) for n in range(len(logged))],
            "arrival": [at * MS for at, *_ in logged],
            "first_token": [(at + first) * MS for at, first, *_ in logged],
            "finished": [(at + first + rest) * MS for at, first, rest, _ in logged],
            "prompt_tokens": [prompt for *_, prompt in logged],
        },
        schema={name: pl.String if name == "id" else pl.Int64 for name in ("id", "arrival", "first_token", "finished", "prompt_tokens")},
    )  # fmt: skip
    profile = Profile(trace.replace(requests=table))
    rows, steps = profile.serving_requests(), profile.serving_phases()
    if logged:
        for name in ("device_time", "time"):
            assert rows[name].sum() == steps[name].sum()


def test_a_request_has_its_part_of_each_batch(tmp_path):
    profile = with_log(tmp_path, served(serving(3, 5, requests=2)), csv(TWO))
    rows = {row["id"]: row for row in profile.serving_requests().rows(named=True)}
    # of its prefill all, of each decode of two requests the half
    assert rows["a"]["device_time"] == 3 * MS + 4 * 150 * US
    assert rows["b"]["device_time"] == 3 * MS + 5 * 150 * US
    assert (rows["b"]["prefill_steps"], rows["b"]["decode_steps"]) == (1, 5)
    assert rows["b"]["queue"] == 11_120 * US - 2 * MS
    for row in (rows["a"], rows["b"]):
        assert row["queue"] + row["prefill"] == row["ttft"]
        assert row["reason"] is None
    assert "not tell" in rows[None]["reason"]


def test_prefills_share_by_their_prompts_and_decodes_equally(tmp_path):
    steps = [
        Step("execute_context_2(400)_generation_2(2)", 3 * MS, tokens=402),
        *[Step("execute_context_0(0)_generation_4(4)", tokens=4) for _ in range(3)],
    ]
    log = [
        ("p", 0, 4 * MS, 9 * MS, 100, 4),
        ("q", 0, 4 * MS, 9 * MS, 300, 4),
    ]
    profile = with_log(tmp_path, served(steps), csv(log))
    rows = {row["id"]: row for row in profile.serving_requests().rows(named=True)}
    mixed, decodes = 300 * US, 3 * 300 * US // 4
    prefill = mixed * 400 // 402 + 1  # 298,507.46 and 1,492.54: the larger remainder is rounded up
    assert rows[None]["device_time"] in (
        mixed - prefill + 2 * decodes,
        mixed - prefill + 1 + 2 * decodes,
    )
    quarter = rows["p"]["device_time"] - decodes
    assert abs(rows["q"]["device_time"] - decodes - 3 * quarter) <= 3


@pytest.mark.parametrize("tokens", [True, False])
def test_a_chunk_of_a_prefill_has_its_tokens_part_of_a_mixed_step(tmp_path, tokens):
    # new and running requests, tokens of prefill and decode: ``p`` comes in three chunks
    plan = [
        (2, 0, 200, 0),
        (0, 2, 0, 2),
        (1, 2, 2048, 2),
        (0, 3, 2048, 2),
        (0, 3, 2048, 2),
        (0, 3, 0, 3),
    ]
    chunk = ((PRODUCT, 8 * MS), (ATTENTION, MS))
    steps = [
        Step(
            f"execute_context_{new or min(fresh, 1)}({fresh})_generation_{old}({old})" if tokens
            else f"execute_new_{new}_cached_{cached}",
            20 * MS, tokens=fresh + old, work=chunk if fresh else ((PRODUCT, 3 * MS),),
        )
        for new, cached, fresh, old in plan
    ]  # fmt: skip
    begun = [MS + place * (20 * MS + 20 * US) for place in range(len(plan) + 1)]
    log = [
        *((name, begun[0] - 2, begun[0] + 10 * MS, begun[6], 100, 6) for name in ("d", "e")),
        ("p", begun[2] - 1, begun[4] + 10 * MS, begun[6], 3 * 2048, 2),
        ("waiting", begun[3] + 1, begun[6] + 9 * MS, begun[6] + 10 * MS, 500, 1),
    ]
    profile = with_log(tmp_path, served(steps), csv(log))
    rows = {row["id"]: row for row in profile.serving_requests().rows(named=True)}
    each = 9 * MS / 2050
    assert abs(rows["p"]["device_time"] - (3 * 2048 * each + MS)) <= 4
    assert abs(rows["d"]["device_time"] - (4.5 * MS + 1.5 * MS + 3 * each + MS)) <= 4
    assert (rows["p"]["prefill_steps"], rows["p"]["decode_steps"]) == (3, 1)
    assert rows["waiting"]["device_time"] in (0, None)
    for name in ("device_time", "time"):
        assert profile.serving_requests()[name].sum() == profile.serving_phases()[name].sum()


@pytest.mark.parametrize(
    ("header", "scale"),
    [
        ("request_id,arrival,first_token,end", 10**9),
        ("id;arrival_ms;first_token_ms;end_ms", 10**6),
        ("id\tarrival_us\tfirst_token_us\tend_us", 10**3),
        ("id,arrival,first_token,end", 1),
    ],
)
def test_times_of_a_csv_are_read_to_the_ns(tmp_path, header, scale):
    separator = next(mark for mark in ",;\t" if mark in header)
    digits = len(str(scale)) - 1

    def text(time: int) -> str:
        whole, rest = divmod(UNIX + time, scale)
        return f"{whole}.{rest:0{digits}}" if digits else str(whole)

    times = (900_001, 5_900_002, 10_000_003)
    line = separator.join(["a", *map(text, times)])
    profile = with_log(tmp_path, unix(served(serving())), f"{header}\n{line}\n")
    assert profile.trace["requests"].select("arrival", "first_token", "finished").row(0) == times


def test_times_may_be_written_out(tmp_path):
    text = "id,arrival,first_token,end\na,2026-09-21T14:13:20.001Z,2026-09-21 16:13:20.002+02:00,2026-09-21T14:13:20.003\n"
    profile = with_log(tmp_path, unix(served(serving())), text)
    assert profile.trace["requests"].select("arrival", "first_token", "finished").row(0) == (
        MS,
        2 * MS,
        3 * MS,
    )


def span(name, start, end, **values) -> dict:
    attributes = [
        {"key": key.replace("__", "."), "value": {"doubleValue" if isinstance(value, float) else "stringValue" if isinstance(value, str) else "intValue": value}}
        for key, value in values.items()
    ]  # fmt: skip
    return {
        "name": name,
        "startTimeUnixNano": str(UNIX + start),
        "endTimeUnixNano": str(UNIX + end),
        "attributes": attributes,
    }


def export(*spans) -> dict:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


VLLM = span(
    "llm_request", 900 * US, 10 * MS, gen_ai__request__id="a", gen_ai__usage__prompt_tokens="800",
    gen_ai__usage__completion_tokens="5", gen_ai__latency__time_to_first_token=0.005,
    gen_ai__latency__e2e=0.0091, gen_ai__latency__time_in_queue=0.0001, gen_ai__latency__time_in_model_decode=0.0041,
    gen_ai__new__field=1,
)  # fmt: skip
SGLANG = span(
    "Req 1f", 2 * MS, 22 * MS, gen_ai__request__id="b", gen_ai__usage__prompt_tokens=800,
    gen_ai__usage__completion_tokens=6, gen_ai__usage__cached_tokens=0,
    gen_ai__latency__time_to_first_token=0.014, gen_ai__latency__e2e=0.0192,
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(export(VLLM, SGLANG, span("Tokenize", 0, 5))),
        json.dumps(export(VLLM)) + "\n" + json.dumps(export(SGLANG)) + "\n" + '{"resourceSp',
        json.dumps([export(VLLM), export(SGLANG)], indent=1),
    ],
    ids=["an export", "lines, the last cut off", "a list"],
)
def test_spans_are_read_as_the_same_csv(tmp_path, text):
    trace = unix(served(serving(3, 5, requests=2)))
    profile = with_log(tmp_path, trace, text, "spans.json")
    shifted = [
        (name, *(UNIX + time for time in times), *tokens)
        for name, *rest in TWO
        for times, tokens in [(rest[:3], rest[3:])]
    ]
    known = with_log(tmp_path, trace, csv(shifted))
    shares = (
        "id",
        "arrival",
        "first_token",
        "finished",
        "prompt_tokens",
        "output_tokens",
        "device_time",
        "time",
    )
    assert profile.serving_requests().select(shares).equals(known.serving_requests().select(shares))
    assert any("gen_ai.new.field" in what for what in profile.notes()["what"])


def test_spans_of_jaeger_are_read(tmp_path):
    tags = [
        {"key": "gen_ai.request.id", "value": "a"},
        {"key": "gen_ai.latency.time_to_first_token", "value": 0.005},
    ]
    jaeger = {
        "data": [
            {
                "spans": [
                    {
                        "operationName": "llm_request",
                        "startTime": UNIX // 1000 + 900,
                        "duration": 9100,
                        "tags": tags,
                    }
                ]
            }
        ]
    }
    profile = with_log(tmp_path, unix(served(serving())), json.dumps(jaeger), "jaeger.json")
    assert profile.trace["requests"].select("arrival", "first_token", "finished").row(0) == (
        900 * US,
        5_900 * US,
        10 * MS,
    )


def test_vllms_log_is_read_to_the_second_and_says_so(tmp_path):
    text = """(APIServer pid=1) INFO 09-21 14:13:20 [logger.py:40] Received request cmpl-1: prompt: 'x\\n: y', params: z
INFO 09-21 14:13:20 [async_llm.py:3] Added request cmpl-1.
INFO 09-21 14:13:21 [logger.py:71] Generated response cmpl-1 (streaming delta): output: 'y'
INFO 09-21 14:13:22 [logger.py:71] Generated response cmpl-1 (streaming complete): output: 'yz', finish_reason: stop
INFO:     127.0.0.1 - "POST /v1/completions HTTP/1.1" 200 OK
"""
    profile = with_log(tmp_path, unix(served(serving())), text, "server.log")
    row = profile.trace["requests"].row(0, named=True)
    assert (row["id"], row["arrival"], row["first_token"], row["finished"]) == (
        "cmpl-1",
        0,
        10**9,
        2 * 10**9,
    )
    assert any("to the second" in what for what in profile.notes()["what"])
    with pytest.raises(BadInput, match="no year"):
        with_log(tmp_path, served(serving()), text, "server.log")


def test_another_clock_is_told_and_never_shifted(tmp_path):
    shifted = [
        (name, *(UNIX + 10**15 + time for time in rest[:3]), *rest[3:]) for name, *rest in TWO
    ]
    profile = with_log(tmp_path, unix(served(serving(3, 5, requests=2))), csv(shifted))
    assert any("no request overlaps the trace" in what for what in profile.notes()["what"])
    rows = profile.serving_requests().filter(pl.col("id").is_not_null())
    assert rows["device_time"].to_list() == [None, None]
    assert rows["tpot"].drop_nulls().len() == 2


def test_engines_with_other_batches_have_no_shares(tmp_path):
    one, other = served(serving(2, 5)), served(serving(2, 6), process=1)
    trace = one.replace(
        **{
            name: pl.concat([one[name], other[name]])
            for name in ("ranges", "calls", "kernels", "devices", "processes")
        }
    )
    rows = with_log(tmp_path, trace, csv(TWO)).serving_requests()
    assert rows["device_time"].null_count() == len(rows) == 2
    assert "several engines" in rows["reason"][0]


def test_limits_are_judged_and_the_steps_that_broke_them_are_named(tmp_path):
    profile = with_log(
        tmp_path, served(serving(3, 5, requests=2)), csv([*TWO, ("c", 1 * MS, "", 9 * MS, 3, 3)])
    )
    row = profile.serving_goodput(ttft="6ms", tpot="1030us").row(0, named=True)
    assert (row["requests"], row["good"], row["late"], row["over_tpot"], row["untold"]) == (
        3,
        1,
        1,
        1,
        1,
    )
    assert row["goodput"] is None
    broken = profile.serving_slo_steps(ttft="6ms", tpot="1030us")
    # b waits from 2 to 16 ms: the first prefill, its five decodes and its own prefill
    assert broken.filter(pl.col("late") > 0)["step"].sort().to_list() == list(range(7))
    assert broken["step"][0] in (0, 6)
    assert profile.serving_slo_steps().is_empty()


def test_energy_and_cost_add_up_by_kind(tmp_path):
    trace = served(serving(3, 5, requests=2))
    (tmp_path / "power.csv").write_text("time_ms,power\n0,300\n10,500\n20,500\n40,100\n")
    profile = Profile(with_power(trace, tmp_path / "power.csv"))
    every, *kinds = profile.serving_costs(price="2.49/h").rows(named=True)
    assert every["kind"] == "all"
    for name in ("energy", "cost"):
        assert round(sum(row[name] for row in kinds) * 1e9) == round(every[name] * 1e9)
    begin, end = (trace["kernels"][name].to_numpy() for name in ("start", "end"))
    time = np.linspace(begin.min(), end.max(), 100_001)
    power = np.interp(time / MS, [0, 10, 20, 40], [300, 500, 500, 100])
    energy = float((power[1:] + power[:-1]).sum() / 2 * (time[1] - time[0]) / 1e9)
    assert every["energy"] == pytest.approx(energy, rel=1e-6)
    assert every["token_energy"] == pytest.approx(every["energy"] / 30)
    assert every["cost"] == pytest.approx(2.49 * every["time"] / 3.6e12, abs=1e-9)
    assert every["million_cost"] == pytest.approx(2.49 * every["time"] / 3.6e12 / 30 * 1e6)


def test_steps_without_samples_have_no_energy(tmp_path):
    (tmp_path / "power.csv").write_text("time_ms,power,device\n0,300,0\n10,500,0\n")
    profile = Profile(with_power(served(serving(3, 5)), tmp_path / "power.csv"))
    every = profile.serving_costs().row(0, named=True)
    assert 0 < every["sampled_steps"] < every["steps"]
    assert every["cost"] is None


def test_samples_of_nvidia_smi_are_read(tmp_path):
    text = "timestamp, index, power.draw [W]\n2026/09/21 14:13:20.010, 3, 312.50 W\n2026/09/21 14:13:20.030, 3, [N/A]\n"
    (tmp_path / "smi.csv").write_text(text)
    trace = with_power(unix(served(serving())), tmp_path / "smi.csv")
    assert trace["samples"].select("time", "device", "value").rows() == [(10 * MS, 0, 312.5)]
    assert any("without a time or a power" in what for what in trace["notes"]["what"])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no CSV"),
        ("a,b\n1,2\n", "has no requests"),
        ("id,arrival,end\na,x,y\n", "no request"),
        ('{"traceEvents": []}', "resourceSpans"),
        (json.dumps(export(span("HTTP", 0, 1))), "none of a request"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_log_is_refused_by_name(tmp_path, text, what):
    with pytest.raises(BadInput, match=what) as error:
        with_log(tmp_path, served(serving()), text)
    assert "requests.csv" in str(error.value)


def test_the_command_answers_what_was_given(shared, tmp_path):
    case = shared.parent / "cases" / "server_steps" / "trace.json"
    if not case.is_file():
        pytest.skip(f"no {case}")
    log = tmp_path / "r.csv"
    log.write_text(
        "id,arrival_us,first_token_us,end_us,output_tokens\na,1000,6000,37000,17\nb,2000,15000,37000,13\n"
    )
    power = tmp_path / "p.csv"
    power.write_text("time,power\n0,300\n0.05,500\n")
    given = ("--requests", log, "--slo", "ttft=6ms,tpot=2ms", "--price", "2.49/h", "--power", power)
    printed = opscope_command("report", case, *given, "--width", "160").stdout
    for title in (
        "Requests that kept ttft 6 ms",
        "Steps that broke",
        "Energy and cost",
        "a million tokens",
    ):
        assert title in printed
    (row,) = json.loads(opscope_command("report", case, *given, "--json").stdout)["serving_goodput"]
    assert (row["good"], row["late"]) == (1, 1)
    chosen = opscope_command(
        "report", case, *given, "--reports", "serving_goodput", "--json"
    ).stdout
    assert [*json.loads(chosen)][1:] == ["serving_goodput"]


def test_requests_stay_in_a_saved_profile(tmp_path):
    profile = with_log(tmp_path, served(serving(3, 5, requests=2)), csv(TWO))
    profile.save(tmp_path / "saved")
    again = opscope.load(tmp_path / "saved")
    assert again.serving_requests().equals(profile.serving_requests())


def test_a_csv_of_another_tool_is_read_as_it_means_it(tmp_path):
    """Rows without an id are requests of their own, counts may be written as floats, zones without minutes."""
    text = (
        "id,arrival,end,output_tokens\n"
        ",2026-09-21T14:13:20.001+00,2026-09-21T16:13:20.004+02,12.0\n"
        ",2026-09-21T14:13:20.002,2026-09-21T14:13:20.005Z,\n"
    )
    profile = with_log(tmp_path, unix(served(serving())), text)
    kept = profile.trace["requests"]
    assert kept["id"].n_unique() == 2
    assert kept["output_tokens"].to_list() == [12, None]
    assert kept["finished"].to_list() == [4 * MS, 5 * MS]


def test_all_times_of_a_csv_are_in_one_unit(tmp_path):
    """A clock since the machine's start passes from 14 digits (ms, by size alone) to 15 (µs) in one log."""
    rows = [(99_999_999_000_000 + n * MS, 99_999_999_000_000 + (n + 2) * MS) for n in range(4)]
    lines = "".join(f"{n},{first},{last}\n" for n, (first, last) in enumerate(rows))
    profile = with_log(tmp_path, served(serving()), f"id,arrival,end\n{lines}")
    kept = profile.trace["requests"]
    assert (kept["finished"] - kept["arrival"]).n_unique() == 1


def test_columns_of_the_same_name_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no CSV"):
        with_log(tmp_path, served(serving()), "id,arrival,Arrival,end\na,1,2,3\n")
