"""The Nsight Systems reader on rows made for one question each."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import polars as pl
import pytest

from opscope.core.analysis.summary.summary import ended_steps
from opscope.profile import Profile
from opscope.readers import sqlite
from opscope.readers.errors import BadInput
from opscope.readers.nsys import reader as nsys


def texts(trace) -> list[str | None]:
    return trace["ranges"]["text"].cast(pl.String).to_list()


def test_text_is_plain_or_registered(nsys_file, event):
    rows = [event(0, 9, textId=1), event(1, 2, text="plain"), event(3, 4), event(5, 6, textId=77)]
    trace = nsys.read(nsys_file(("no", "registered"), NVTX_EVENTS=rows))
    assert texts(trace) == ["registered", "plain", None, None]
    assert trace["ranges"]["id"].to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize("rare", [False, True])
def test_the_numbers_that_pytorch_gives_a_call_are_in_columns(nsys_file, event, rare):
    own = event(0, None, eventType=75, domainId=1, text="mine")
    told = ["aten::mm, seq = 5, op_id = 9, sizes = [[2, 3]]", "aten::empty, op_id = 3", "my range"]
    rows = [own, *(event(n, n + 1, text=text) for n, text in enumerate(told))]
    rows.append(event(4, 5, domainId=1, text=told[0]))
    twice = "a, seq = 1, op_id = 2, seq = 3"
    rows.append(event(5, 6, text=twice))
    rows += [event(n, n + 1, textId=0) for n in range(6, 300 if rare else 7)]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows))
    ranges = trace["ranges"][:5].select(pl.col("text").cast(pl.String), "seq").rows()
    assert ranges == [
        ("aten::mm, seq = *, sizes = [[2, 3]]", 5),
        ("aten::empty, seq = *", None),
        ("my range", None),
        (told[0], None),  # a domain that is not PyTorch's
        (twice, None),
    ]
    assert Profile(trace).ops().filter(pl.col("op") == "aten::mm")["seq"].to_list() == [5]


@pytest.mark.parametrize("plain", [1, 40, 200])
def test_plain_texts_are_read_whether_rare_or_not(nsys_file, event, plain):
    rows = [event(n, n + 1, textId=0) for n in range(200)]
    for n in range(plain):
        rows[n].update(text=f"t{n}", textId=None)
    got = texts(nsys.read(nsys_file(NVTX_EVENTS=rows)))
    assert got == [f"t{n}" if n < plain else "kernel" for n in range(200)]


def test_domains_and_categories_belong_to_a_process(nsys_file, event, ids):
    other = ids.gtid(ids.other, ids.other)
    rows = [
        event(0, None, eventType=75, domainId=1, text="first"),
        event(0, None, eventType=75, domainId=1, text="second", globalTid=other),
        event(0, None, eventType=33, domainId=1, category=5, text="five"),
        event(1, 2, domainId=1, category=5, text="a"),
        event(1, 2, domainId=1, category=5, text="b", globalTid=other),
        event(3, 4, category=0, text="c"),
        event(9, None, eventType=76, domainId=1),
    ]
    ranges = nsys.read(nsys_file(NVTX_EVENTS=rows))["ranges"]
    got = ranges.select(pl.col("process", "domain", "category", "text").cast(pl.String)).rows()
    assert got == [("0", "first", "five", "a"), ("1", "second", "5", "b"), ("0", "", None, "c")]


def test_our_payload_is_a_sequence_and_a_thread(nsys_file, event):
    packed = (3 << 48) | 41
    rows = [
        event(0, None, eventType=75, domainId=1, text="opscope.torch"),
        event(1, 2, domainId=1, int64Value=packed),
        event(2, 3, domainId=1, int64Value=7),
        event(3, 4, domainId=1, int64Value=-1),
        event(4, 5, domainId=0, int64Value=packed),
        event(5, 6, domainId=1, int64Value=None),
    ]
    ranges = nsys.read(nsys_file(NVTX_EVENTS=rows))["ranges"]
    assert ranges.select("seq", "fwd_thread", "payload").rows() == [
        (41, 3, packed), (7, None, 7), (None, None, -1), (None, None, packed), (None, None, None),
    ]  # fmt: skip


def test_payloads_of_every_type(nsys_file, event):
    rows = [
        event(0, 1, uint64Value=5), event(1, 2, int64Value=-6), event(2, 3, uint32Value=7),
        event(3, 4, int32Value=-8), event(4, 5, doubleValue=1.5), event(5, 6, floatValue=0.25),
        event(6, 7, jsonText='{"a": [1, 2]}'), event(7, 8, jsonTextId=1), event(8, 9),
        event(9, 10, jsonText="not json"),
    ]  # fmt: skip
    ranges = nsys.read(nsys_file(("x", "[3]"), NVTX_EVENTS=rows))["ranges"]
    assert ranges["payload"].to_list() == [5, -6, 7, -8, *[None] * 6]
    attrs = [None if text is None else json.loads(text) for text in ranges["attrs"]]
    assert attrs == [
        None, None, None, None, {"payload": 1.5}, {"payload": 0.25}, {"a": [1, 2]},
        {"payload": [3]}, None, {"payload": "not json"},
    ]  # fmt: skip


def test_marks_starts_ends_and_what_never_ended(nsys_file, event, ids):
    rows = [
        event(10, None, eventType=34, text="mark"),
        event(10, 20, eventType=60, rangeId=1, text="se", endGlobalTid=ids.gtid(4009)),
        event(11, None, text="open"),
        event(12, 15, text="closed"),
    ]
    calls = [{"start": 5, "end": 90, "globalTid": ids.gtid(), "correlationId": 1, "nameId": 0}]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows, CUPTI_ACTIVITY_KIND_RUNTIME=calls))
    got = trace["ranges"].select(
        pl.col("kind", "text").cast(pl.String), "start", "end", "thread", "end_thread"
    )
    assert got.rows() == [
        ("mark", "mark", 10, 10, 4000, None),
        ("startend", "se", 10, 20, 4000, 4009),
        ("pushpop", "open", 11, 90, 4000, None),
        ("pushpop", "closed", 12, 15, 4000, None),
    ]
    assert trace["notes"].filter(pl.col("what").str.contains("still open"))["how_many"][0] == 1


def test_what_was_open_at_the_captures_end_is_cut_where_its_thread_ended(nsys_file, event, ids):
    other = ids.gtid(4009)
    rows = [
        event(10, 1_000_000, text="step", category=7, int64Value=3),
        event(20, 30, text="inside"),
        event(40, 1_000_000, text="alone", globalTid=other),
        event(
            50, 1_000_000, eventType=60, rangeId=1, text="start and end", globalTid=ids.gtid(4010)
        ),
        event(60, 999_999, text="ended in time", globalTid=ids.gtid(4010)),
    ]
    calls = [{"start": 35, "end": 90, "globalTid": ids.gtid(), "correlationId": 1, "nameId": 0}]
    trace = nsys.read(
        nsys_file(
            NVTX_EVENTS=rows,
            CUPTI_ACTIVITY_KIND_RUNTIME=calls,
            ANALYSIS_DETAILS=[{"globalVid": 1, "duration": 1_000_000}],
        )
    )
    got = trace["ranges"].select(pl.col("text").cast(pl.String), "start", "end", "attrs")
    unclosed = '{"unclosed":true}'
    assert sorted(got.rows()) == [
        ("alone", 40, 41, unclosed),
        ("ended in time", 60, 999_999, None),
        ("inside", 20, 30, None),
        ("start and end", 50, 999_999, unclosed),
        ("step", 10, 90, unclosed),
    ]
    (note,) = trace["notes"].filter(pl.col("what").str.contains("still open")).iter_rows(named=True)
    assert note["how_many"] == 3


OWN = {"category": 7, "domainId": 5}


def own_domain(event, ids, pid=None):
    """What names our domain of steps, number 5, and its categories, in a process."""
    where = {} if pid is None else {"globalTid": ids.gtid(pid, pid)}
    return [
        event(1, None, eventType=75, text="opscope.step", domainId=5, **where),
        event(1, None, eventType=33, text="step", category=7, domainId=5, **where),
        event(1, None, eventType=33, text="result", category=10, domainId=5, **where),
        event(1, None, eventType=33, text="spec", category=9, domainId=5, **where),
    ]


def test_a_steps_number_is_its_payload_or_in_its_text(nsys_file, event, ids):
    rows = [
        *own_domain(event, ids),
        event(10, 20, text="step", int64Value=70_001, **OWN),
        event(30, 40, text="step", int64Value=-3, **OWN),
        event(50, 60, text="step 5", **OWN),
        event(70, 80, text="step", int64Value=9),
    ]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows))
    ranges = trace["ranges"].select(pl.col("text").cast(pl.String), "seq")
    assert ranges.rows() == [
        ("step 70001", None),
        ("step -3", None),
        ("step 5", None),
        ("step", None),
    ]


def test_a_step_that_nothing_ended_is_marked_so(nsys_file, event, ids):
    rows = [
        *own_domain(event, ids),
        event(10, 20, text="step", int64Value=0, **OWN),
        event(20, 40, text="step", int64Value=1, **OWN),
        event(39, None, eventType=34, text="unended", domainId=5, category=10),
    ]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows))
    got = trace["ranges"].select(pl.col("text").cast(pl.String), "attrs").rows()
    assert got == [("step 0", None), ("step 1", '{"unclosed":true}')]
    assert ended_steps(trace["ranges"]).height == 1


def facts(pid, parent, more=""):
    return f'process/facts = process() {{host="h", pid={pid}, parent={parent}{more}}}'


@pytest.mark.parametrize("told", [True, False])
def test_a_forked_process_has_the_names_of_its_parents_domains(nsys_file, event, ids, told):
    child = ids.gtid(7001, 7001)
    rows = [
        *own_domain(event, ids),
        event(10, 20, text="step", int64Value=0, **OWN),
        event(30, 40, text="step", int64Value=1, globalTid=child, **OWN),
    ]
    if told:
        own = ids.gtid() >> 24 & 0xFFFFFF
        # another process calls its domain of that number otherwise
        other = ids.gtid(7002, 7002)
        rows += [
            event(1, None, eventType=75, text="theirs", domainId=5, globalTid=other),
            event(2, 3, text="x", domainId=5, globalTid=other),
            event(29, None, eventType=34, text=facts(7001, own), domainId=5, category=9,
                  globalTid=child),
        ]  # fmt: skip
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows))
    steps = trace["ranges"].filter(pl.col("text").cast(pl.String).str.starts_with("step"))
    got = steps.select(pl.col("domain", "category", "text").cast(pl.String)).rows()
    assert got == [("opscope.step", "step", "step 0"), ("opscope.step", "step", "step 1")]
    if told:
        parents = trace["processes"].filter(pl.col("pid") == 7001)["parent"].to_list()
        of = trace["processes"].filter(pl.col("pid") == own)["process"].to_list()
        assert parents == of


def test_forked_processes_that_were_not_traced_are_counted(nsys_file, event, ids):
    own = ids.gtid() >> 24 & 0xFFFFFF
    where = {"domainId": 5, "category": 9}
    rows = [
        *own_domain(event, ids),
        event(5, None, eventType=34, text=facts(own, 1), **where),
        *(event(n, None, eventType=34, text="process/fork = fork()", **where) for n in (6, 7, 8)),
        event(
            9, None, eventType=34, text=facts(7001, own), globalTid=ids.gtid(7001, 7001), **where
        ),
    ]
    notes = nsys.read(nsys_file(NVTX_EVENTS=rows))["notes"]
    (note,) = notes.filter(pl.col("what").str.contains("trace-fork")).iter_rows(named=True)
    assert note["how_many"] == 2
    traced = [row for row in rows if row["text"] != "process/fork = fork()"]
    notes = nsys.read(nsys_file(NVTX_EVENTS=traced))["notes"]
    assert notes.filter(pl.col("what").str.contains("trace-fork")).is_empty()


def test_a_number_that_two_processes_use_otherwise_names_nothing(nsys_file, event, ids):
    rows = [
        *own_domain(event, ids),
        event(1, None, eventType=75, text="theirs", domainId=5, globalTid=ids.gtid(7002, 7002)),
        event(2, 3, text="x", domainId=5, globalTid=ids.gtid(7002, 7002)),
        event(30, 40, text="y", globalTid=ids.gtid(7001, 7001), **OWN),
    ]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows))
    (row,) = trace["ranges"].filter(pl.col("text") == "y").iter_rows(named=True)
    assert (row["domain"], row["category"]) == ("domain 5", "7")


def test_a_process_tells_its_rank(nsys_file, event, ids):
    own = ids.gtid() >> 24 & 0xFFFFFF
    more = ', rank=3, world_size=8, name="train.py", versions=["python 3.11", "torch 2.13"]'
    rows = [
        *own_domain(event, ids),
        event(5, None, eventType=34, text=facts(own, 1, more), domainId=5, category=9),
    ]
    (row,) = nsys.read(nsys_file(NVTX_EVENTS=rows))["processes"].iter_rows(named=True)
    assert (row["rank"], row["world_size"], row["framework"]) == (3, 8, "torch")
    assert json.loads(row["versions"])["torch"] == "2.13"


@pytest.mark.parametrize(
    "text",
    [
        "process/facts = process() {pid=1e99, rank=[1], versions=7}",
        "process/facts = process() {rank=99999999999999999999, world_size=-9999999999}",
        "process/facts = process(",
        "process/facts = ",
    ],
)
def test_odd_facts_are_no_facts(nsys_file, event, ids, text):
    rows = [
        *own_domain(event, ids),
        event(5, None, eventType=34, text=text, domainId=5, category=9),
    ]
    (row,) = nsys.read(nsys_file(NVTX_EVENTS=rows))["processes"].iter_rows(named=True)
    assert (row["rank"], row["world_size"]) == (None, None)


def test_ranges_that_lost_their_texts_are_counted(nsys_file, event, ids):
    rows = [
        event(1, None, eventType=75, text="opscope.torch", domainId=5),
        event(10, 20, text="aten::add(f32[2],<cut> on cpu @a.py:1", domainId=5),
        event(20, 30, text="aten::add(<cut> on cpu", domainId=5),
        event(30, 40, text="batch <cut>", domainId=5),
        event(40, 50, text='"a(b"(<cut>', domainId=5),
        event(50, 60, text="aten::add(f32[2])", domainId=5),
    ]
    notes = nsys.read(nsys_file(NVTX_EVENTS=rows))["notes"]
    counts = {row["what"][:22]: row["how_many"] for row in notes.iter_rows(named=True)}
    assert counts["ranges whose text was "] == 1
    assert counts["ranges that lost their"] == 3


def test_that_a_domain_is_live_is_no_op(nsys_file, event, ids):
    rows = [
        event(1, None, eventType=75, text="opscope.jax", domainId=5),
        event(10, 20, text="opscope: the domain is live", domainId=5),
    ]
    assert Profile(nsys.read(nsys_file(NVTX_EVENTS=rows))).ops().is_empty()


def test_a_file_of_marks_only(nsys_file, event):
    ranges = nsys.read(
        nsys_file(NVTX_EVENTS=[event(5, None, eventType=34), event(900, None, eventType=34)])
    )["ranges"]
    assert ranges.select("start", "end", pl.col("kind").cast(pl.String)).rows() == [
        (5, 5, "mark"), (900, 900, "mark"),
    ]  # fmt: skip


def nccl_tables(rows):
    """NCCL's collective and communicator schemas as Nsight exports them, with an enumeration."""
    schema, init, enum = (1 << 24) + 7, (1 << 24) + 2, (1 << 24) + 16
    entries = [
        (schema, 0, 18, "NCCL communicator ID", None),
        (schema, 1, 22, "Message size [bytes]", 8),
        (schema, 2, enum, "Reduction operation", 16),
        (init, 0, 18, "NCCL communicator ID", None),
        (init, 1, 5, "No. of ranks", 8),
        (init, 2, 5, "Rank", 12),
        (init, 3, 5, "CUDA device", 16),
    ]
    return {
        "NVTX_EVENTS": rows,
        "NVTX_PAYLOAD_SCHEMAS": [
            {"domainId": 1, "schemaId": one, "type": 1, "numEntries": 3, "payloadSize": 24}
            for one in (schema, init, schema)
        ],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
            {"domainId": 1, "schemaId": one, "idx": idx, "flags": None, "type": kind, "name": name,
             "arrayOrUnionDetail": None, "offset": offset}
            for one, idx, kind, name, offset in [*entries, *entries]
        ],
        "NVTX_PAYLOAD_ENUM_ENTRIES": [
            {"domainId": 1, "schemaId": enum, "idx": 0, "name": "Sum", "value": 0},
            {"domainId": 1, "schemaId": enum, "idx": 1, "name": "Max", "value": 2},
        ],
    }  # fmt: skip


def blob(schema: int, payload: bytes, last: int | None = None) -> bytes:
    return struct.pack("<4Q", 1, schema, len(payload), 32 if last is None else last) + payload


def test_nccl_payloads_are_decoded(nsys_file, event):
    schema, init = (1 << 24) + 7, (1 << 24) + 2
    collective = struct.pack("<QQiI", 2**64 - 5, 4096, 2, 0)
    rows = [
        event(0, None, eventType=75, domainId=1, text="NCCL"),
        event(1, 2, domainId=1, text="ncclAllReduce", binaryData=blob(schema, collective)),
        event(2, 3, domainId=1, text="ncclGroupStart"),
        # another version's header ends with the whole's length
        event(3, 4, domainId=1, text="ncclMax", binaryData=blob(schema, collective, 56)),
        event(4, 5, domainId=1, text="ncclCommInitRank",
              binaryData=blob(init, struct.pack("<Q4i", 9, 8, 3, 1, 0))),
        event(5, 6, domainId=1, text="short", binaryData=blob(schema, b"12345678")),
        event(6, 7, domainId=1, text="unknown", binaryData=blob(99, collective)),
        event(7, 8, domainId=1, text="cut", binaryData=b"abc"),
    ]  # fmt: skip
    trace = nsys.read(nsys_file(**nccl_tables(rows)))
    attrs = [None if text is None else json.loads(text) for text in trace["ranges"]["attrs"]]
    full = {
        "NCCL communicator ID": 2**64 - 5, "Message size [bytes]": 4096,
        "Reduction operation": "Max",
    }  # fmt: skip
    assert attrs[:4] == [
        full, None, full,
        {"NCCL communicator ID": 9, "No. of ranks": 8, "Rank": 3, "CUDA device": 1},
    ]  # fmt: skip
    assert attrs[4:] == [None, None, None]
    assert trace["notes"].filter(pl.col("severity") == "warning")["how_many"].sum() == 3


def test_schemas_with_arrays_structs_and_padding(nsys_file, event):
    outer, inner = (1 << 24) + 1, (1 << 24) + 2
    entries = [
        (inner, 0, 0, 12, "byte", None, None),
        (inner, 1, 0, 20, "real", None, None),  # at 8, by C's alignment
        (outer, 0, 0, 15, "number", None, 0),
        (outer, 1, 1 << 4, 14, "pair", 2, 4),
        (outer, 2, 1 << 4, 1, "text", 8, 8),
        (outer, 3, 0, inner, "inner", None, 16),
    ]
    payload = struct.pack("<iHH8sB7xd", -3, 7, 8, b"name", 200, 2.5)
    tables = {
        "NVTX_EVENTS": [event(0, 1, domainId=1, binaryData=blob(outer, payload))] * 3,
        "NVTX_PAYLOAD_SCHEMAS": [
            {"domainId": 1, "schemaId": one, "type": 1, "payloadSize": size}
            for one, size in ((outer, 32), (inner, 16))
        ],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
            {"domainId": 1, "schemaId": one, "idx": idx, "flags": flags, "type": kind, "name": name,
             "arrayOrUnionDetail": detail, "offset": offset}
            for one, idx, flags, kind, name, detail, offset in entries
        ],
    }  # fmt: skip
    ranges = nsys.read(nsys_file(**tables))["ranges"]
    want = {"number": -3, "pair": [7, 8], "text": "name", "inner.byte": 200, "inner.real": 2.5}
    assert [json.loads(text) for text in ranges["attrs"]] == [want] * 3


def kernel(start: int, end: int, correlation: int, ids, **columns):
    row = {
        "start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": ids.gpid(), "demangledName": 0, "gridX": 5,
        "gridY": 65_535, "gridZ": 3, "blockX": 1024, "blockY": 2, "blockZ": 1,
    }  # fmt: skip
    return {**row, **columns}


def test_extents_at_their_limits(nsys_file, ids):
    rows = [kernel(1, 2, 1, ids, gridX=2**31 - 2), kernel(3, 4, 2, ids, gridX=0)]
    kernels = nsys.read(nsys_file(CUPTI_ACTIVITY_KIND_KERNEL=rows))["kernels"]
    assert kernels["grid"].cast(pl.String).to_list() == ["2147483646,65535,3", None]
    assert kernels["block"].cast(pl.String).to_list() == ["1024,2,1"] * 2
    assert kernels["registers"].null_count() == 2  # a version without the column


@pytest.mark.parametrize("table", ["CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"])
def test_graph_nodes_of_both_tables(nsys_file, ids, table):
    rows = [
        {"start": 5, "end": 6, "globalTid": ids.gtid(4003), "nameId": 0, "graphNodeId": 11,
         "originalGraphNodeId": None},
        {"start": 7, "end": 8, "globalTid": ids.gtid(4003), "nameId": 0, "graphNodeId": 12,
         "originalGraphNodeId": 11},
    ]  # fmt: skip
    trace = nsys.read(
        nsys_file(
            CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1, ids, graphNodeId=12, graphId=3)],
            **{table: rows},
        )
    )
    nodes = trace["graph_nodes"].select("node", "original_node", "thread", "time")
    assert nodes.rows() == [(11, None, 4003, 5), (12, 11, 4003, 7)]
    assert trace["kernels"].select("graph", "graph_node").rows() == [(3, 12)]


@pytest.mark.parametrize("many", [0, 1, 30, 200])
def test_what_few_kernels_have_is_read_as_what_all_have(nsys_file, ids, many):
    """A sample tells how a column is asked for, never whether it is read."""
    theirs = {
        "graphId": 3,
        "graphNodeId": 12,
        "clusterX": 2**31 - 1,
        "clusterY": 65_535,
        "clusterZ": 1,
    }
    without = {**dict.fromkeys(theirs), "clusterX": 0}
    some = {"clusterY": 2}
    rows = [kernel(n, n + 1, n, ids, **dict.fromkeys(theirs)) for n in range(1, 201)]
    for n in range(many):
        rows[n] |= (theirs, without, some)[n % 3]
    kernels = nsys.read(nsys_file(CUPTI_ACTIVITY_KIND_KERNEL=rows))["kernels"]
    expected = [
        ((3, 12, "2147483647,65535,1"), (None, None, None), (None, None, None))[n % 3]
        if n < many
        else (None, None, None)
        for n in range(200)
    ]
    assert (
        kernels.select("graph", "graph_node", pl.col("cluster").cast(pl.String)).rows() == expected
    )


@pytest.mark.parametrize("devices", [[0, 1, 0], [None, 0, 0], [-1, 0, 1], [None, None, None]])
def test_each_device_that_ran_something_counts_once(nsys_file, ids, devices):
    rows = [kernel(n, n + 5, n, ids, deviceId=device) for n, device in enumerate(devices)]
    summary = Profile(nsys.read(nsys_file(CUPTI_ACTIVITY_KIND_KERNEL=rows))).summary()
    seen = {device for device in devices if device is not None}
    assert summary["devices"].item() == (len(seen) or None)  # what ran somewhere is not nowhere


def test_graph_and_node_zero_are_none(nsys_file, ids):
    """CUPTI says 0 of what no graph launched; an export may keep it where others leave null."""
    none = {"graphNodeId": 0, "graphId": 0}
    copy = {
        "start": 5, "end": 6, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 2,
        "globalPid": ids.gpid(), "bytes": 4, "copyKind": 1, "graphNodeId": 0,
    }  # fmt: skip
    node = {"start": 5, "end": 6, "globalTid": ids.gtid(4003), "nameId": 0, "graphNodeId": 11,
            "originalGraphNodeId": 0}  # fmt: skip
    trace = nsys.read(
        nsys_file(
            CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1, ids, **none)],
            CUPTI_ACTIVITY_KIND_MEMCPY=[copy],
            CUDA_GRAPH_NODE_EVENTS=[node],
        )
    )
    assert trace["kernels"].select("graph", "graph_node").rows() == [(None, None)]
    assert trace["memops"]["graph_node"].to_list() == [None]
    assert trace["graph_nodes"]["original_node"].to_list() == [None]


def test_graphs_traced_as_a_whole_are_told_and_counted(nsys_file, ids):
    graph = {
        "start": 10, "end": 90, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 2,
        "globalPid": ids.gpid(), "graphId": 4, "graphExecId": 5,
    }  # fmt: skip
    path = nsys_file(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1, ids)], CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[graph]
    )
    trace = nsys.read(path)
    row = trace["kernels"].filter(pl.col("correlation") == 2).row(0, named=True)
    assert (row["name"], row["end"] - row["start"], row["graph"]) == ("CUDA graph 4", 80, 4)
    assert json.loads(row["attrs"]) == {"graph_trace": True}
    assert any("as a whole" in what for what in trace["notes"]["what"])


def test_copies_and_sets(nsys_file, ids):
    place = {"deviceId": 1, "contextId": 1, "streamId": 7, "globalPid": ids.gpid(), "start": 1}
    copies = [
        {**place, "end": 2, "correlationId": 1, "bytes": 100, "copyKind": 1, "srcKind": 1,
         "dstKind": 2, "srcDeviceId": None, "dstDeviceId": None},
        {**place, "end": 3, "correlationId": 2, "bytes": 7, "copyKind": 10, "srcKind": 2,
         "dstKind": 2, "srcDeviceId": 0, "dstDeviceId": 1},
    ]  # fmt: skip
    sets = [{**place, "end": 4, "correlationId": 3, "bytes": 8, "value": 0, "memKind": 4}]
    path = nsys_file(CUPTI_ACTIVITY_KIND_MEMCPY=copies, CUPTI_ACTIVITY_KIND_MEMSET=sets)
    memops = nsys.read(path)["memops"].select(
        pl.col("kind", "src_kind", "dst_kind").cast(pl.String), "peer", "bytes"
    )
    assert memops.rows() == [
        ("HtoD", "pinned", "device", None, 100),
        ("PtoP", "device", "device", 0, 7),
        ("memset", None, "managed", None, 8),
    ]


def test_samples_allocations_and_diagnostics(nsys_file, ids):
    trace = nsys.read(
        nsys_file(
            ("main", "hot"),
            GPU_METRICS=[
                {"timestamp": 5, "typeId": 0x1001, "metricId": 2, "value": 40},
                {"timestamp": 6, "typeId": 0x1001, "metricId": 9, "value": 1.5},
            ],
            TARGET_INFO_GPU_METRICS=[
                {"typeId": 0x1001, "metricId": 2, "metricName": "SMs Active [Throughput %]"}
            ],
            COMPOSITE_EVENTS=[{"id": 1, "start": 8, "cpu": 0, "globalTid": ids.gtid()}],
            SAMPLING_CALLCHAINS=[
                {"id": 1, "symbol": 1, "stackDepth": 0},
                {"id": 1, "symbol": 0, "stackDepth": 1},
            ],
            CUDA_GPU_MEMORY_USAGE_EVENTS=[
                {"start": 1, "globalPid": ids.gpid(), "deviceId": 0, "address": 64, "bytes": 100,
                 "memoryOperationType": 0},
                {"start": 2, "globalPid": ids.gpid(), "deviceId": 0, "address": 64, "bytes": 100,
                 "memoryOperationType": 1},
            ],
            DIAGNOSTIC_EVENT=[{"timestamp": 1, "severity": 2, "text": "buffers were lost"}] * 3,
        )
    )  # fmt: skip
    samples = trace["samples"].select("device", "time", pl.col("name").cast(pl.String), "value")
    assert samples.rows() == [
        (1, 5, "SMs Active [Throughput %]", 40.0), (1, 6, "metric 9", 1.5), (None, 8, "cpu: hot", 1.0),
    ]  # fmt: skip
    assert trace["allocations"].select("bytes", "total").rows() == [(100, 100), (-100, 0)]
    assert ("warning", "Nsight Systems: buffers were lost", 3) in trace["notes"].rows()


def test_what_the_scheduler_recorded_of_a_thread_is_its_states(nsys_file, event, ids):
    """Of processes that did something; from one event to the next of the thread."""
    sched = {"cpu": 0, "globalTid": ids.gtid(), "threadState": 0}
    trace = nsys.read(
        nsys_file(
            ("x",),
            NVTX_EVENTS=[event(start=1, end=90, text="range")],
            ENUM_SCHEDULING_THREAD_BLOCK=[
                {"id": 0, "name": "NonBlocked", "label": "NonBlocked"},
                {"id": 7, "name": "CondVar", "label": "CondVar"},
            ],
            SCHED_EVENTS=[
                {**sched, "start": 30, "isSchedIn": 1, "threadBlock": 0},
                {**sched, "start": 10, "isSchedIn": 1, "threadBlock": 0},
                {**sched, "start": 20, "isSchedIn": 0, "threadBlock": 7},
                {**sched, "start": 50, "isSchedIn": 0, "threadBlock": 0},
                {**sched, "start": 60, "isSchedIn": 1, "threadBlock": None},
                {**sched, "start": 70, "isSchedIn": 1, "globalTid": (77 << 24) + 1},
                {**sched, "start": 80, "isSchedIn": 0, "globalTid": (77 << 24) + 1},
            ],
        )
    )
    states = trace["thread_states"].select("start", "end", pl.col("state").cast(pl.String))
    assert states.rows() == [
        (10, 20, "running"),
        (20, 30, "off the CPU: condvar"),
        (30, 50, "running"),
        (50, 60, "off the CPU"),
    ]
    assert len(trace["processes"]) == 1


def test_the_command_is_kept_without_its_secrets(nsys_file, event):
    words = ["--lr=1", "--api-key=abc", "--hf-token", "xyz", "train"]
    rows = [{"name": "PROCESS_0:COMMAND", "value": "python"}]
    rows += [{"name": f"PROCESS_0:ARGUMENT_{n}", "value": w} for n, w in enumerate(words)]
    rows.append({"name": "PROCESS_0:ENVIRONMENT_0", "value": "HOME=/root"})
    trace = nsys.read(nsys_file(NVTX_EVENTS=[event(0, 1)], META_DATA_CAPTURE=rows))
    assert trace.origin["command"] == [
        "python", "--lr=1", "--api-key=<redacted>", "--hf-token", "<redacted>", "train",
    ]  # fmt: skip
    assert "HOME" not in repr(trace.origin)


def test_records_without_a_time_are_left_out_and_told(nsys_file, ids):
    rows = [kernel(10, 20, 1, ids), kernel(30, 0, 2, ids)]
    trace = nsys.read(nsys_file(CUPTI_ACTIVITY_KIND_KERNEL=rows))
    assert trace["kernels"]["correlation"].to_list() == [1]
    what = "rows of kernels whose end is missing or before its start (a negative duration), left out: their times were not recorded"
    assert ("warning", what, 1) in trace["notes"].rows()


def test_pieces_joined_equal_the_whole(nsys_file, event, ids, monkeypatch):
    rows = [event(0, None, eventType=75, domainId=1, text="lib")]
    for n in range(300):
        rows.append(
            event(n, n + 5, text=f"r{n % 7}", domainId=n % 2, eventType=60 if n % 11 == 0 else 59,
                  globalTid=ids.gtid(4000 + n % 3, 4000 + n % 2),
                  jsonText="{}" if n % 50 == 3 else None, endGlobalTid=None)
        )  # fmt: skip
    kernels = [kernel(n, n + 3, n, ids, gridX=n % 5 + 1) for n in range(300)]
    path = nsys_file(NVTX_EVENTS=rows, CUPTI_ACTIVITY_KIND_KERNEL=kernels)
    whole = nsys.read(path)
    monkeypatch.setattr(sqlite, "PIECE", 17)
    monkeypatch.setattr(sqlite.os, "cpu_count", lambda: 4)
    pieces = nsys.read(path)
    for table in ("ranges", "kernels", "processes", "threads"):
        assert pieces[table].equals(whole[table]), table


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_folders_of_parquet_and_arrow_give_the_same(nsys_file, event, ids, tmp_path, kind):
    rows = [
        event(0, None, eventType=75, domainId=1, text="lib"),
        event(1, 9, domainId=1, textId=0, int64Value=4),
        event(2, 3, text="t", doubleValue=0.5),
    ]
    path = nsys_file(
        NVTX_EVENTS=rows,
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2, 1, ids)],
        TARGET_INFO_SYSTEM_ENV=[{"name": "Hostname", "value": "h"}, {"name": "X", "value": "y"}],
    )
    folder = tmp_path / "export"
    folder.mkdir()
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master").fetchall():
            cursor = db.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            frame = pl.DataFrame(cursor.fetchall(), schema=names, orient="row")
            if kind == "parquet":
                frame.write_parquet(folder / f"{table}.parquet")
            elif kind == "arrow":
                frame.write_ipc(folder / f"{table}.arrow")
            else:
                frame.write_ipc_stream(folder / f"{table}.arrow")
    assert nsys.recognise(folder)
    ours, theirs = nsys.read(folder), nsys.read(path)
    for table in theirs.present:
        assert ours[table].equals(theirs[table]), table


def test_reports_need_nsys(tmp_path, monkeypatch):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x01\x02binary")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"run\.nsys-rep: .*not on PATH.*nsys export"):
        nsys.read(report)


def test_reports_are_exported_where_nsys_is(nsys_file, event, tmp_path, monkeypatch):
    made = nsys_file(NVTX_EVENTS=[event(0, 1, text="through nsys")])
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "export --type sqlite" ] && cp {made} "$5"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"binary")
    trace = nsys.read(report)
    assert texts(trace) == ["through nsys"]
    assert trace.origin["paths"] == [str(report)]
    tool.write_text("#!/bin/sh\necho 'cannot read it' >&2\nexit 3\n")
    with pytest.raises(BadInput, match="nsys export failed: cannot read it"):
        nsys.read(report)


def test_bad_files(tmp_path: Path, nsys_file, event):
    cases = {
        "missing.sqlite": (None, "no such file"),
        "empty.sqlite": (b"", "empty"),
        "text.sqlite": (b"hello", "not an SQLite"),
        "header.sqlite": (sqlite.MAGIC + b"\0" * 50, "database"),
    }
    for name, (content, says) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert not nsys.recognise(path)
        with pytest.raises(BadInput, match=says) as caught:
            nsys.read(path)
        assert str(path) in str(caught.value)
    whole = nsys_file(NVTX_EVENTS=[event(n, n + 1, text="x" * 50) for n in range(2000)])
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(BadInput):
        nsys.read(cut)


WRONG_TIMES = (
    "yesterday",
    b"\xff\xfe",
    float("inf"),
    float("-inf"),
    0.5,
    2**62,
    -(2**63),
    2**63 - 1,
    1e300,
    None,
)


@pytest.mark.parametrize("time", WRONG_TIMES)
@pytest.mark.parametrize("first", [True, False])
def test_a_time_that_cannot_be_costs_its_row_and_no_other(nsys_file, event, time, first):
    rows = [event(time, 2, text="lost"), event(0, 1, text="a"), event(5, 9, text="b")]
    trace = nsys.read(nsys_file(NVTX_EVENTS=rows if first else rows[::-1]))
    assert sorted(texts(trace)) == ["a", "b"]
    notes = trace["notes"].filter(pl.col("what").str.starts_with("rows of ranges"))
    assert notes["how_many"].to_list() == [1]


def test_values_of_another_kind_are_counted_by_column(nsys_file, event):
    rows = [event(n, n + 1, text="a", category=value) for n, value in enumerate(["x", 7, b"\x00"])]
    notes = nsys.read(nsys_file(NVTX_EVENTS=rows))["notes"]
    what = "values of NVTX_EVENTS.category of the wrong type, read as null"
    assert notes.filter(pl.col("what") == what)["how_many"].to_list() == [2]


def test_a_whole_number_that_was_written_as_a_real_is_a_time(nsys_file, event):
    trace = nsys.read(nsys_file(NVTX_EVENTS=[event(1.0, 2.0, text="a")]))
    assert trace["ranges"].select("start", "end").rows() == [(1, 2)]


def test_a_generated_column_is_not_computed(nsys_file, event):
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="a"), event(1, 2, text="b")])
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE NVTX_EVENTS RENAME COLUMN text TO was")
        db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN text AS (printf('%.*c', 900000000, 'x'))")
    assert texts(nsys.read(path)) == [None, None]


@pytest.mark.parametrize("value", [2**40, -1, 2**62, "many", b"\xff", float("inf")])
def test_a_device_attribute_that_cannot_be_is_not_known(nsys_file, event, value):
    gpu = {"id": 0, "cuDevice": 0, "name": "NVIDIA H100", "smCount": value, "totalMemory": value,
           "clockRate": value, "maxWarpsPerSm": value, "threadsPerWarp": 32, "computeMajor": 9,
           "computeMinor": 0, "memoryBandwidth": 3_000_000_000_000}  # fmt: skip
    kernel = {"start": 0, "end": 5, "globalPid": 1 << 24, "deviceId": 0, "streamId": 7,
              "contextId": 1, "correlationId": 1, "demangledName": 0}  # fmt: skip
    path = nsys_file(CUPTI_ACTIVITY_KIND_KERNEL=[kernel], TARGET_INFO_GPU=[gpu])
    trace = nsys.read(path)
    row = trace["devices"].row(0, named=True)
    assert (row["name"], row["cc"], row["sm_count"]) == ("NVIDIA H100", "9.0", None)
    assert row["mem_bandwidth"] == 3_000_000_000_000
    assert row["max_threads_per_sm"] is None
    assert trace["notes"].filter(pl.col("what").str.contains("read as null"))["how_many"].sum() >= 2


def test_texts_that_are_not_utf8(nsys_file, event):
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="good"), event(1, 2, text="bad")])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE NVTX_EVENTS SET text = CAST(x'61ff62' AS TEXT) WHERE text = 'bad'")
    assert texts(nsys.read(path)) == ["good", "a\ufffdb"]


def test_views_are_not_run(nsys_file, event):
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="a")])
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS WITH RECURSIVE n(start) AS (SELECT 1 UNION "
            "ALL SELECT start + 1 FROM n) SELECT start, start AS end, 0 AS globalTid FROM n"
        )
    assert not nsys.read(path).has("calls")


def test_tables_without_row_numbers(nsys_file, event):
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="a"), event(2, 3, textId=0)])
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE NVTX_EVENTS RENAME TO old")
        db.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end, eventType, globalTid, "
            "domainId, text, textId, category) WITHOUT ROWID"
        )
        db.execute(
            "INSERT INTO NVTX_EVENTS SELECT start, end, eventType, globalTid, domainId, text, "
            "textId, category FROM old"
        )
    assert texts(nsys.read(path)) == ["a", "kernel"]


@pytest.mark.parametrize("column", ["start", "end", "globalTid"])
def test_a_table_without_a_column_that_all_have(nsys_file, event, column):
    call = {"start": 1, "end": 2, "globalTid": 5 << 24 | 7, "correlationId": 1, "nameId": 0}
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="a")], CUPTI_ACTIVITY_KIND_RUNTIME=[call])
    with sqlite3.connect(path) as db:
        db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN {column}")
    trace = nsys.read(path)
    assert len(trace["ranges"]) == 1
    assert len(trace["calls"]) == (column == "globalTid")
    told = trace["notes"]["what"].str.starts_with(
        "rows of calls whose end is missing or before its start"
    )
    assert told.any() == (column != "globalTid")


def test_a_column_whose_default_would_fill_the_memory(nsys_file, event):
    path = nsys_file(NVTX_EVENTS=[event(0, 1, text="a")])
    with sqlite3.connect(path) as db:
        db.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN jsonText TEXT DEFAULT '{'x' * 100_000}'")
    with pytest.raises(BadInput, match="NVTX_EVENTS has a column with an oversized default"):
        nsys.read(path)


def test_a_parquet_column_of_another_kind_costs_its_values(tmp_path, event):
    folder = tmp_path / "made_pqtdir"
    folder.mkdir()
    pl.DataFrame({"id": [0], "value": ["kernel"]}).write_parquet(folder / "StringIds.parquet")
    rows = pl.DataFrame([event(0, 1, text="a"), event(5, 9, text="b"), event(10, 11, text="c")])
    times = {"start": [0.0, float("inf"), 0.5], "category": [[1], [2], [3]]}
    texts_ = pl.Series("text", [b"\xff", b"b", None], dtype=pl.Binary)
    rows.with_columns(*pl.DataFrame(times, strict=False), texts_).write_parquet(
        folder / "NVTX_EVENTS.parquet"
    )
    trace = nsys.read(folder)
    assert texts(trace) == ["\ufffd"]
    told = dict(trace["notes"].select("what", "how_many").rows())
    assert told["values of NVTX_EVENTS.start of the wrong type, read as null"] == 2
    assert told["values of NVTX_EVENTS.category of the wrong type, read as null"] == 3
