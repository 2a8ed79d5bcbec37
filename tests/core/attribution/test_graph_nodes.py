"""Replays of CUDA graphs whose nodes have numbers, as CUPTI gives them: parallel branches, copies, clones.

The numbers are as they were measured on CUDA 13.0 and as PyTorch's own tools rest on (see
``opscope/core/attribution/cuda_graphs.py``): a graph, a capture, a clone and an executable graph take the next number,
instantiating takes one more; a node's has its graph's in the high half and its place in the low half.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.attribution.attribute import REASONS, attribute

CALLS = {"kernel": "cudaLaunchKernel", "copy": "cudaMemcpyAsync", "set": "cudaMemsetAsync"}
AT_ONCE = "replayed from a CUDA graph that runs nodes concurrently and does not number them"
SEVERAL = "replayed from a CUDA graph that any of several captures may have made"
NOT_CAPTURED = "replayed from a CUDA graph whose capture is not in the trace"


@dataclass
class Graph:
    number: int | None
    nodes: list[tuple[str, str]]
    exec_id: int
    children: dict[str, Graph] = field(default_factory=dict)


class Cuda:
    """A process that captures and replays; every node is in an op of its own, which says whose it is."""

    def __init__(self, named=True, ids=True, process=0):
        self.named, self.ids, self.process = named, ids, process
        self.time, self.id, self.graph = 1000, process * 1_000_000, 0
        self.ranges, self.calls, self.ran, self.want = [], [], [], {}
        self.captures = 0

    def _range(self, text, start, end, category=None, thread=1):
        self.ranges.append(
            {"process": self.process, "thread": thread, "domain": "opscope.torch", "kind": "pushpop",
             "category": category, "text": text, "start": start, "end": end}
        )  # fmt: skip

    def _call(self, name, thread=1):
        self.time += 10
        self.id += 1
        self.calls.append(
            {"process": self.process, "thread": thread, "name": name, "start": self.time,
             "end": self.time + 2, "correlation": self.id}
        )  # fmt: skip
        return self.id

    def capture(self, nodes, children=(), begin=True, threads=None, again=None):
        """``nodes``: kinds, of a kernel, a copy or a set; a ``Graph`` becomes part of this one."""
        self.captures += 1
        number = self.captures if again is None else again
        self.graph += 1
        if begin:
            self._call("cudaStreamBeginCapture_v10000")
        since, made, parts = self.time + 1, [], []
        for place, kind in enumerate(nodes):
            before = self.time + 5
            thread = 1 if threads is None else threads[place]
            if isinstance(kind, Graph):
                self._call("cudaGraphLaunch_v10000", thread)
                self._range(f"CUDA graph {kind.number} replay", before, self.time + 3, "graph")
                parts.append(kind)
                made.append(("child", ""))
            else:
                self._call(CALLS[kind], thread)
                op = f"op_{self.process}_{number}_{place}()"
                self._range(op, before, self.time + 3, thread=thread)
                made.append((kind, op))
        self._call("cudaStreamEndCapture_v10000")
        if self.named:
            self._range(f"CUDA graph {number} capture", since, self.time + 3, "graph")
        graph = Graph(number, made, 0)
        self.instantiate(graph)
        for part in parts:
            self.graph += 1
            graph.children[str(self.graph)] = Graph(part.number, part.nodes, self.graph)
        return graph

    def instantiate(self, graph):
        self._call("cudaGraphInstantiate_v12000")
        self.graph += 2  # itself, and what the driver launches from
        graph.exec_id = self.graph - 1
        return graph

    def replay(self, graph, order=None, thread=1, overlapping=False, lost=()):
        """Its nodes run in ``order``, one after the other or at once."""
        before = self.time + 5
        launch = self._call("cudaGraphLaunch_v10000", thread)
        if self.named:
            self._range(f"CUDA graph {graph.number} replay", before, self.time + 3, "graph", thread)
        self._range("CUDAGraph.replay()", before - 1, self.time + 4, thread=thread)
        nodes = [(graph, place) for place in range(len(graph.nodes))]
        nodes += [(c, place) for c in graph.children.values() for place in range(len(c.nodes))]
        nodes = [(g, p) for g, p in nodes if g.nodes[p][0] != "child" and (g, p) not in lost]
        begin = self.time + 100
        for step, place in enumerate(order if order is not None else range(len(nodes))):
            one, low = nodes[place]
            kind, op = one.nodes[low]
            start = begin + step * (5_000 if overlapping else 20_000)
            row = {"process": self.process, "device": 0, "stream": 7 + step % 2, "start": start,
                   "end": start + 15_000, "correlation": launch, "kind": kind,
                   "graph_node": (one.exec_id << 32) | low if self.ids else None}  # fmt: skip
            self.ran.append((row, op))

    def tables(self):
        kernels = [
            ({k: v for k, v in row.items() if k != "kind"} | {"name": "k"}, op)
            for row, op in self.ran
            if row["kind"] == "kernel"
        ]
        memops = [
            (row | {"kind": "memset" if row["kind"] == "set" else "DtoD", "bytes": 8}, op)
            for row, op in self.ran
            if row["kind"] != "kernel"
        ]
        return kernels, memops


def owners(trace_of, *processes, **more):
    """(op found, op that captured it, why there is none, inferred) of all that ran."""
    kernels, memops = ([], [])
    for one in processes:
        for into, part in zip((kernels, memops), one.tables(), strict=True):
            into.extend(part)
    tables = {
        "ranges": [r for one in processes for r in one.ranges],
        "calls": [c for one in processes for c in one.calls],
    }
    for name, rows in (("kernels", kernels), ("memops", memops)):
        if rows:
            tables[name] = [row for row, _ in rows]
    trace = trace_of(**tables, **more)
    result = attribute(trace)
    texts = trace["ranges"]["text"].cast(str)
    found = []
    for launched, rows in ((result.kernels, kernels), (result.memops, memops)):
        for place, (_, op) in enumerate(rows):
            row = launched.op[place]
            found.append(
                (
                    None if row < 0 else texts[int(row)],
                    op,
                    REASONS[launched.reason[place]],
                    bool(launched.inferred[place]),
                )
            )
    return found


def right(found, inferred=False):
    return bool(found) and all(one == (one[1], one[1], None, inferred) for one in found)


def nothing(found, why):
    return bool(found) and all(one == (None, one[1], why, False) for one in found)


MIXED = ["kernel", "copy", "kernel", "set", "kernel", "kernel", "copy"]


def test_nodes_of_parallel_branches_go_to_the_ops_that_captured_them(trace_of):
    cuda = Cuda()
    graph = cuda.capture(MIXED)
    for seed in range(3):
        order = random.Random(seed).sample(range(len(MIXED)), len(MIXED))
        cuda.replay(graph, order, overlapping=True)
    assert right(owners(trace_of, cuda))


def test_a_copy_in_a_replay_is_not_of_the_op_that_replays(trace_of):
    cuda = Cuda()
    cuda.replay(cuda.capture(["copy", "set"]))
    assert right(owners(trace_of, cuda))


kinds = st.sampled_from(["kernel", "copy", "set"])


@given(st.lists(st.lists(kinds, min_size=1, max_size=8), min_size=1, max_size=5), st.randoms())
def test_every_node_of_every_named_graph_has_its_op_in_whatever_order_it_runs(
    trace_of, shapes, rnd
):
    cuda = Cuda()
    graphs = [cuda.capture(shape, threads=[rnd.choice([1, 2]) for _ in shape]) for shape in shapes]
    for graph in rnd.choices(graphs, k=8):
        if rnd.random() < 0.2:
            cuda.instantiate(graph)
        order = rnd.sample(range(len(graph.nodes)), len(graph.nodes))
        cuda.replay(graph, order, thread=rnd.choice([1, 3]), overlapping=rnd.random() < 0.5)
    assert right(owners(trace_of, cuda))


def test_a_graph_captured_anew_after_a_reset_is_another(trace_of):
    cuda = Cuda()
    first = cuda.capture(["kernel", "copy"])
    cuda.replay(first, [1, 0])
    second = cuda.capture(["copy", "kernel"])
    cuda.replay(second, [1, 0])
    cuda.replay(second)
    assert right(owners(trace_of, cuda))


def test_records_that_are_lost_cost_no_other_its_op(trace_of):
    cuda = Cuda()
    graph = cuda.capture(MIXED)
    cuda.replay(graph, lost=[(graph, 0), (graph, 3)])
    assert right(owners(trace_of, cuda), inferred=True)
    cuda.replay(graph)  # which has what lacked before
    assert right(owners(trace_of, cuda))


def test_records_that_are_lost_beside_a_child_graph_move_no_other(trace_of):
    cuda = Cuda()
    child = cuda.capture(["kernel"])
    parent = cuda.capture(["kernel", child, "kernel", "kernel"])
    cuda.replay(parent, lost=[(parent, 3)])
    assert all(one[0] in (one[1], None) for one in owners(trace_of, cuda))


def test_a_child_graphs_nodes_are_of_the_ops_that_captured_the_child(trace_of):
    cuda = Cuda()
    child = cuda.capture(["kernel", "copy"])
    parent = cuda.capture(["kernel", child, "kernel", "kernel"])
    cuda.replay(parent, [4, 0, 3, 1, 2])
    found = owners(trace_of, cuda)
    assert [one[0] for one in found] == [one[1] for one in found]
    assert {one[3] for one in found if one[1].startswith("op_0_2")} == {False}
    assert {one[3] for one in found if one[1].startswith("op_0_1")} == {True}


def test_a_child_that_may_be_its_parent_is_not_guessed_at(trace_of):
    cuda = Cuda()
    child = cuda.capture(["kernel", "kernel"])
    parent = cuda.capture(["kernel", child, "kernel"])
    cuda.replay(parent)
    assert nothing(owners(trace_of, cuda), SEVERAL)


def test_without_names_several_graphs_of_one_length_are_told_apart_by_their_numbers(trace_of):
    cuda = Cuda(named=False)
    graphs = [cuda.capture(["kernel", "copy", "kernel"]) for _ in range(3)]
    for graph in (graphs[2], graphs[0], graphs[1], graphs[2]):
        cuda.replay(graph, [2, 0, 1])
    assert right(owners(trace_of, cuda), inferred=True)


def test_without_names_graphs_of_which_some_never_ran_are_not_guessed_at(trace_of):
    cuda = Cuda(named=False)
    graphs = [cuda.capture(["kernel", "kernel"]) for _ in range(3)]
    for graph in graphs[1:]:
        cuda.replay(graph)
    assert nothing(owners(trace_of, cuda), SEVERAL)


def test_without_names_the_time_of_the_first_replay_tells_a_capture_from_a_later_one(trace_of):
    cuda = Cuda(named=False)
    first = cuda.capture(["kernel", "kernel"])
    cuda.replay(first)
    second = cuda.capture(["kernel", "kernel"])
    cuda.replay(second)
    cuda.replay(first)
    assert right(owners(trace_of, cuda), inferred=True)


def test_one_capture_instantiated_twice_has_the_replays_of_both(trace_of):
    for named in (True, False):
        cuda = Cuda(named=named)
        graph = cuda.capture(MIXED)
        cuda.replay(graph)
        cuda.replay(cuda.instantiate(graph), [3, 2, 1, 0, 6, 5, 4])
        assert right(owners(trace_of, cuda), inferred=not named)


def test_a_named_graph_that_was_captured_before_the_trace_takes_no_other_of_its_length(trace_of):
    cuda = Cuda()
    cuda.capture(["kernel", "kernel"])
    unseen = Graph(77, [("kernel", "before()")] * 2, 500)
    cuda.replay(unseen)
    assert nothing(owners(trace_of, cuda), NOT_CAPTURED)


def test_copies_that_do_not_fit_have_no_op_and_the_kernels_keep_theirs(trace_of):
    """A copy that the capture's trace did not see: which of the others is whose cannot be told."""
    cuda = Cuda()
    graph = cuda.capture(["copy", "kernel", "copy", "kernel"])
    cuda.calls = [c for c in cuda.calls if c["correlation"] != 2]  # the first copy's
    cuda.replay(graph, [3, 2, 1, 0])
    found = owners(trace_of, cuda)
    assert right([one for one in found if one[1] in ("op_0_1_1()", "op_0_1_3()")])
    assert nothing([one for one in found if one[1] in ("op_0_1_0()", "op_0_1_2()")], NOT_CAPTURED)


def test_without_numbers_what_runs_at_once_has_no_op_and_what_does_not_is_inferred(trace_of):
    cuda = Cuda(ids=False)
    graph = cuda.capture(MIXED)
    cuda.replay(graph, overlapping=True)
    assert nothing(owners(trace_of, cuda), AT_ONCE)
    cuda.ran.clear()
    cuda.replay(graph)
    assert right(owners(trace_of, cuda), inferred=True)


def test_times_that_overlap_by_less_than_their_jitter_are_one_by_one(trace_of):
    cuda = Cuda(ids=False)
    cuda.replay(cuda.capture(["kernel", "kernel"]))
    cuda.ran[0][0]["end"] = cuda.ran[1][0]["start"] + 600
    assert right(owners(trace_of, cuda), inferred=True)


@pytest.mark.parametrize(
    ("overlap", "took", "known"), [(1_024, 60_000, True), (1_024, 1_500, False)]
)
def test_long_kernels_may_overlap_by_more_than_short_ones(trace_of, overlap, took, known):
    """An H200 gave two kernels of 60 us an overlap of 1,024 ns; two that are hardly longer ran at once."""
    cuda = Cuda(ids=False)
    cuda.replay(cuda.capture(["kernel", "kernel"]))
    first, second = cuda.ran[0][0], cuda.ran[1][0]
    first["end"] = first["start"] + took
    second["start"] = first["end"] - overlap
    second["end"] = second["start"] + took
    found = owners(trace_of, cuda)
    assert right(found, inferred=True) if known else nothing(found, AT_ONCE)


def test_a_runtime_call_and_the_driver_call_inside_it_made_one_node(trace_of):
    cuda = Cuda()
    graph = cuda.capture(["kernel", "copy", "kernel"])
    inside = {"cudaLaunchKernel": "cuLaunchKernel", "cudaMemcpyAsync": "cuMemcpyDtoDAsync_v2"}
    cuda.calls += [
        {**c, "name": inside[c["name"]], "start": c["start"] + 1}
        for c in cuda.calls
        if c["name"] in inside
    ]
    cuda.replay(graph, [2, 0, 1])
    assert right(owners(trace_of, cuda))


def test_two_captures_at_once_have_what_their_own_threads_launched(trace_of):
    """A third thread's launches could be of either: then neither is taken."""
    for third in (False, True):
        cuda = Cuda()
        one = cuda.capture(["kernel", "kernel"])
        begin = cuda.time
        other = cuda.capture(["kernel", "copy", "kernel"], threads=[2, 2, 3 if third else 2])
        shift = begin - 1000
        # the second as it were at the first's time, on thread 2
        for rows in (cuda.ranges, cuda.calls):
            for row in rows:
                if row["start"] > begin:
                    row["start"] -= shift
                    row["end"] -= shift
                    row["thread"] = 2 if row["thread"] == 1 else row["thread"]
        cuda.time += 1000
        cuda.replay(one, [1, 0])
        cuda.replay(other, [2, 1, 0])
        found = owners(trace_of, cuda)
        assert right([f for f in found if f[1].startswith("op_0_1")])
        assert right([f for f in found if f[1].startswith("op_0_2")]) is not third


@pytest.mark.parametrize("created", [False, True])
@pytest.mark.parametrize("deep", [1, 3])
def test_node_events_of_copies_lead_to_their_ops_through_every_clone(trace_of, deep, created):
    """``created``: clones have a row of their creation too, before the one that calls them clones."""
    cuda = Cuda(named=False)
    graph = cuda.capture(["copy", "kernel"])
    cuda.replay(graph)
    nodes, ids = [], {0: 1, 1: 2}
    times = {c["name"]: c["start"] for c in cuda.calls}
    for low, name in ((0, "cudaMemcpyAsync"), (1, "cudaLaunchKernel")):
        nodes.append({"process": 0, "node": ids[low], "thread": 1, "time": times[name]})
        for clone in range(1, deep + 1):
            number = (graph.exec_id << 32) | low if clone == deep else 100 * clone + low
            if created:
                nodes.append({"process": 0, "node": number, "thread": 1, "time": 4990 + clone})
            nodes.append(
                {"process": 0, "node": number, "original_node": ids[low], "thread": 1,
                 "time": 5000 + clone}
            )  # fmt: skip
            ids[low] = number
    assert right(owners(trace_of, cuda, graph_nodes=nodes))


def test_a_clone_whose_original_was_made_before_the_trace_is_of_no_op_it_was_cloned_in(trace_of):
    cuda = Cuda(named=False)
    graph = Graph(1, [("kernel", "before()")], 9)
    cuda._range("instantiating()", 1000, 1100)
    cuda.time = 2000
    cuda.replay(graph)
    nodes = [{"process": 0, "node": 9 << 32, "original_node": 5, "thread": 1, "time": 1050}]
    assert nothing(owners(trace_of, cuda, graph_nodes=nodes), NOT_CAPTURED)


def test_a_node_that_was_captured_outside_any_op_says_so(trace_of):
    for events in (False, True):
        cuda = Cuda()
        graph = cuda.capture(["kernel", "copy"])
        cuda.ranges = [r for r in cuda.ranges if "op_0_1_0" not in r["text"]]
        cuda.replay(graph)
        more = {}
        if events:
            more["graph_nodes"] = [
                {"process": 0, "node": (graph.exec_id << 32) | low, "thread": 1,
                 "time": next(c["start"] for c in cuda.calls if c["name"] == CALLS[kind])}
                for low, kind in enumerate(("kernel", "copy"))
            ]  # fmt: skip
        kernel, copy = owners(trace_of, cuda, **more)
        assert nothing([kernel], "launched outside any op range")
        assert right([copy])


def test_a_whole_graph_in_one_row_is_none_of_its_nodes_but_of_its_launch(trace_of):
    cuda = Cuda(named=False, ids=False)
    cuda.replay(cuda.capture(["kernel"]))
    cuda.ran[0][0]["attrs"] = '{"graph_trace":true}'
    ((op, _, reason, inferred),) = owners(trace_of, cuda)
    assert (op, reason, inferred) == ("CUDAGraph.replay()", None, False)
    cuda.ranges = [one for one in cuda.ranges if "replay()" not in one["text"]]
    assert nothing(owners(trace_of, cuda), NOT_CAPTURED)


def test_kinetos_files_keep_the_numbers_of_kernels_and_copies(trace_of, tmp_path):
    """Written as Kineto does, 64 bits and all, and beside the ranges that a recorder would have."""
    import opscope
    from tests.kineto_writer import Call, KinetoWriter, Work, memcpy_name

    cuda = Cuda()
    graph = cuda.capture(MIXED)
    graph.exec_id = (1 << 31) - 1
    cuda.replay(graph, [6, 5, 4, 3, 2, 1, 0], overlapping=True)
    names = {
        "kernel": ("kernel", "k"),
        "copy": ("gpu_memcpy", memcpy_name("DtoD", "Device", "Device")),
        "set": ("gpu_memset", "Memset (Device)"),
    }
    path = tmp_path / "trace.json"
    KinetoWriter(pid=7, base=0).write(
        path,
        [
            Call(c["name"].split("_v")[0], c["start"], c["end"], 1, c["correlation"])
            for c in cuda.calls
        ],
        [
            Work(
                *names[row["kind"]], row["start"], row["end"], row["correlation"], bytes=8,
                graph=graph.exec_id, graph_node=row["graph_node"],
            )
            for row, _ in cuda.ran
        ],
        end=10**6,
    )  # fmt: skip
    trace = opscope.load(path).trace.replace(ranges=trace_of(ranges=cuda.ranges)["ranges"])
    kernels, memops = cuda.tables()
    result = attribute(trace)
    texts = trace["ranges"]["text"].cast(str)
    for launched, name, rows in (
        (result.kernels, "kernels", kernels),
        (result.memops, "memops", memops),
    ):
        of_node = {row["graph_node"]: op for row, op in rows}
        want = [of_node[node] for node in trace[name]["graph_node"]]
        assert [texts[int(row)] for row in launched.op] == want
        assert not launched.inferred.any()
