"""Collectives: what NCCL's payloads and Kineto's fields tell becomes the op's parameters and cost."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from opscope.profile import Profile
from tests import traces


def nccl(start: int, name: str, process: int = 0, **payload: object) -> dict:
    names = {"communicator": "NCCL communicator ID", "bytes": "Message size [bytes]",
             "peer": "Peer rank", "ranks": "No. of ranks", "reduction": "Reduction operation"}  # fmt: skip
    return {
        "process": process, "thread": 1, "start": start, "end": start + 8, "domain": "NCCL",
        "kind": "pushpop", "text": name,
        "attrs": json.dumps({names[key]: value for key, value in payload.items()}) if payload else None,
    }  # fmt: skip


def launch(start: int, correlation: int, process: int = 0) -> tuple[dict, dict]:
    return (
        {"process": process, "thread": 1, "start": start, "end": start + 1,
         "name": "cudaLaunchKernel", "correlation": correlation},
        {"process": process, "device": 0, "start": start + 100, "end": start + 200,
         "name": "ncclDevKernel", "correlation": correlation},
    )  # fmt: skip


def params(profile: Profile) -> list[tuple[str, str | None, int | None]]:
    frame = profile.kernels().sort("process", "start")
    return frame.select(pl.col("op", "params").cast(pl.String), "bytes").rows()


def test_payloads_give_size_and_the_communicator_its_ranks(trace_of):
    """One communicator id in two processes is two communicators: 4 ranks in one, 8 in the other."""
    ranges = [
        nccl(0, "ncclCommInitRank", communicator=7, ranks=4),
        nccl(10, "ncclAllReduce", communicator=7, bytes=1000, reduction="Sum"),
        nccl(20, "ncclAllGather", communicator=7, bytes=1000),
        nccl(30, "ncclAllReduce", communicator=9, bytes=1000),
        nccl(0, "ncclCommInitRank", 1, communicator=7, ranks=8),
        nccl(10, "ncclAllReduce", 1, communicator=7, bytes=1000),
    ]
    pairs = [launch(11, 1), launch(21, 2), launch(31, 3), launch(11, 1, 1)]
    calls, kernels = ([pair[side] for pair in pairs] for side in (0, 1))
    found = params(Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels)))
    assert found == [
        # 2·3/4 of 1000 bytes out, as many in
        ("ncclAllReduce", 'communicator=7, bytes=1000, reduction="Sum", ranks=4', 2 * 1500),
        # 1000 bytes of each rank: 3 of 4 shares
        ("ncclAllGather", "communicator=7, bytes=1000, ranks=4", 2 * 3000),
        ("ncclAllReduce", "communicator=9, bytes=1000", None),
        ("ncclAllReduce", "communicator=7, bytes=1000, ranks=8", 2 * 1750),
    ]


def test_a_group_has_its_calls_peers_and_sizes(trace_of):
    ranges = [
        nccl(0, "ncclGroupStart"),
        nccl(10, "ncclSend", communicator=7, bytes=100, peer=1),
        nccl(20, "ncclRecv", communicator=7, bytes=30, peer=1),
        nccl(30, "ncclSend", communicator=7, bytes=100, peer=3),
        nccl(40, "ncclGroupEnd"),
        nccl(50, "ncclGroupStart"),
        nccl(60, "ncclSend"),
        nccl(70, "ncclGroupEnd"),
    ]
    calls, kernels = ([pair[side] for pair in (launch(41, 1), launch(71, 2))] for side in (0, 1))
    grouped, unknown = params(Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels)))
    assert grouped == (
        "ncclSend+ncclRecv",
        "ncclSend=2, ncclRecv=1, communicator=7, peers=[1, 3], bytes=230, sent=200, received=30",
        230,
    )
    assert unknown == ("ncclSend", "ncclSend=1", None)


@pytest.mark.parametrize("attrs", ["[", "[1]", "{}", '{"NCCL communicator ID": {}}', "null"])
def test_a_damaged_record_changes_nothing(trace_of, attrs):
    ranges = [{**nccl(10, "ncclAllReduce"), "attrs": attrs}]
    call, kernel = launch(11, 1)
    found = params(Profile(trace_of(ranges=ranges, calls=[call], kernels=[kernel])))
    assert found == [("ncclAllReduce", None, None)]


def test_kineto_s_fields_of_the_kernel(shared: Path):
    """Two ranks: an all-reduce sends its buffer once; the sizes are those of plain JSON."""
    path = shared / "kineto/nccl_meta.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    width = {"Float": 4, "Long": 8}
    sizes = sorted(
        (
            event["args"]["Collective name"],
            event["args"]["In msg nelems"] * width[event["args"]["dtype"]],
        )
        for event in events
        if event.get("cat") == "kernel" and "Collective name" in event["args"]
    )
    kernels = traces.load(path).kernels().filter(pl.col("op_type") == "communication")
    read = pl.col("params").cast(pl.String)
    ours = kernels.select(
        name=read.str.extract(r"collective=['\"]?(\w+)"),
        size=read.str.extract(r"bytes=(\d+)").cast(pl.Int64),
        ranks=read.str.extract(r"ranks=(\d+)"),
        group=read.str.extract(r"group=['\"]?(\w+)"),
        bytes="bytes",
    ).rows()
    assert sorted(row[:2] for row in ours) == sizes
    assert len(sizes) == 21
    assert {row[2:4] for row in ours} == {("2", "0")}
    assert all(row[4] == 2 * row[1] for row in ours)


def test_every_element_type_of_a_collective_has_its_bytes() -> None:
    """Of those that PyTorch's headers list and whose width is no matter of packing."""
    from opscope.core.attribution.collectives import _kineto

    widths = {
        "Byte": 1, "Char": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "Float": 4, "Double": 8,
        "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "Bool": 1, "BFloat16": 2,
        "Float8_e5m2": 1, "Float8_e4m3fn": 1, "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1,
        "Float8_e8m0fnu": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8,
    }  # fmt: skip
    for name, width in widths.items():
        told = dict(_kineto({"in_nelems": 10, "out_nelems": 30, "dtype": name}))
        assert (name, told.get("bytes")) == (name, 30 * width)
    assert "bytes" not in dict(_kineto({"in_nelems": 10, "out_nelems": 30, "dtype": "Undefined"}))


def test_a_collective_that_only_a_replay_of_a_cuda_graph_describes_has_its_size(trace_of):
    """Kineto describes the kernel; the op captured it and launched none."""
    record = json.dumps({"collective": "allreduce", "in_nelems": 10, "out_nelems": 10, "dtype": "Float",
                         "group_size": 4})  # fmt: skip
    on_thread = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    names = ("cudaStreamBeginCapture_v10000", "cudaLaunchKernel", "cudaStreamEndCapture_v10000",
             "cudaGraphInstantiate_v12000", "cudaGraphLaunch_v10000")  # fmt: skip
    calls = [{"process": 0, "thread": 1, "name": name, "start": 10 * place, "end": 10 * place + 2,
              "correlation": place} for place, name in enumerate(names)]  # fmt: skip
    kernel = {"process": 0, "device": 0, "stream": 7, "start": 100, "end": 200, "name": "ncclDevKernel",
              "correlation": 4, "graph_node": 2 << 32, "attrs": record}  # fmt: skip
    ranges = [
        {**on_thread, "text": "CUDA graph 1 capture", "category": "graph", "start": 1, "end": 21},
        {**on_thread, "text": "c10d::allreduce_(f32[10])", "category": "communication",
         "start": 5, "end": 15},
        {**on_thread, "text": "CUDA graph 1 replay", "category": "graph", "start": 39, "end": 43},
    ]  # fmt: skip
    ((op, told, _),) = params(Profile(trace_of(ranges=ranges, calls=calls, kernels=[kernel])))
    assert op == "c10d::allreduce_"
    assert {"bytes=40", "ranks=4"} <= set((told or "").split(", "))
