"""Names under which nodes of MindSpore's graphs ran: numbers go on from graph to graph of a process."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.readers.mindspore.numbering import renumbered

SCHEMA = {
    "graph": pl.String,
    "node": pl.String,
    "call": pl.String,
    "layer": pl.String,
    "direction": pl.String,
    "forward": pl.String,
}


def graph(name, many, dtype="f32"):
    """A graph's nodes: for each path so many nodes, and a gradient of each node."""
    rows = []
    for path, count in many.items():
        for number in range(count):
            node = f"Default/{path}-op{number}"
            rows.append((name, node, f"{path}({dtype}[{number + 1}])", None, "forward", None))
            back = f"Gradients/Default/Grad_{path}/{path}Grad-op{number}"
            rows.append((name, back, f"{path}Grad({dtype}[{number + 1}])", None, "backward", node))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def ran(nodes, runs):
    return pl.DataFrame(
        [(node, run) for run in runs for node in nodes], schema=["node", "run"], orient="row"
    )


def moved(nodes, shifts):
    """The names of a graph's nodes, each path's numbers moved on by ``shifts``."""
    found = []
    for node in nodes["node"]:
        path, _, number = node.rpartition("-op")
        found.append(f"{path}-op{int(number) + shifts.get(path.rpartition('/')[2], 0)}")
    return found


def test_the_first_graph_of_a_process_keeps_its_names():
    nodes = graph("a", {"MatMul": 2, "ReLU": 1})
    assert renumbered(nodes, ran(nodes["node"], [0, 1])).equals(nodes)


def test_a_later_graph_has_the_numbers_after_those_of_the_earlier_ones():
    nodes = graph("a", {"MatMul": 2, "ReLU": 1})
    names = moved(nodes, {"MatMul": 2, "MatMulGrad": 2, "ReLU": 1, "ReLUGrad": 1})
    found = renumbered(nodes, ran(names, [0]))
    assert found["node"].to_list() == names
    pairs = dict(found.filter(pl.col("direction") == "backward").select("node", "forward").rows())
    assert pairs["Gradients/Default/Grad_MatMul/MatMulGrad-op3"] == "Default/MatMul-op3"
    assert found["call"].to_list() == nodes["call"].to_list()


def test_of_two_graphs_each_run_has_its_own():
    small, large = graph("a", {"MatMul": 1}), graph("b", {"MatMul": 2, "ReLU": 1}, "f16")
    first = small["node"].to_list()
    second = moved(large, {"MatMul": 1, "MatMulGrad": 1})
    both = pl.concat([ran(first, [0, 2]), ran(second, [1, 3])])
    found = renumbered(pl.concat([small, large]), both)
    calls = dict(found.select("node", "call").rows())
    assert calls["Default/MatMul-op0"] == "MatMul(f32[1])"
    assert calls["Default/MatMul-op1"] == "MatMul(f16[1])"
    assert calls["Default/MatMul-op2"] == "MatMul(f16[2])"


def test_a_graph_that_did_not_run_is_left_out():
    used, idle = graph("a", {"MatMul": 2}), graph("b", {"MatMul": 3})
    found = renumbered(pl.concat([used, idle]), ran(used["node"], [0]))
    assert found["graph"].unique().to_list() == ["a"]


def test_graphs_that_fit_equally_and_differ_are_both_returned():
    one, other = graph("a", {"MatMul": 1}), graph("b", {"MatMul": 1}, "f16")
    found = renumbered(pl.concat([one, other]), ran(one["node"], [0]))
    calls = found.filter(pl.col("node") == "Default/MatMul-op0")["call"]
    assert set(calls) == {"MatMul(f32[1])", "MatMul(f16[1])"}
    same = graph("c", {"MatMul": 1})
    assert len(renumbered(pl.concat([one, same]), ran(one["node"], [0]))) == len(one)


def test_of_nodes_that_did_not_all_run_the_other_paths_tell_the_numbers():
    nodes = graph("a", {"Reshape": 3, "MatMul": 2, "ReLU": 1})
    names = moved(nodes, {path: 2 * many for path, many in
                          {"Reshape": 3, "MatMul": 2, "ReLU": 1, "ReshapeGrad": 3, "MatMulGrad": 2, "ReLUGrad": 1}.items()})  # fmt: skip
    only = [name for name in names if not name.startswith("Default/Reshape") or name.endswith("7")]
    found = renumbered(nodes, ran(only, [0]))
    calls = dict(found.select("node", "call").rows())
    assert calls["Default/Reshape-op7"] == "Reshape(f32[2])"


def test_a_path_whose_numbers_are_not_certain_is_left_out():
    nodes = graph("a", {"Reshape": 3, "MatMul": 2})
    names = [
        name
        for name in moved(nodes, {"Reshape": 4, "ReshapeGrad": 3, "MatMul": 2, "MatMulGrad": 5})
        if not name.endswith("Reshape-op4")
    ]
    found = renumbered(nodes, ran(names, [0]))
    assert not [name for name in found["node"] if name.startswith("Default/Reshape")]
    assert "Default/MatMul-op3" in found["node"].to_list()


def test_where_no_graph_fits_nodes_keep_their_names():
    nodes = graph("a", {"MatMul": 1})
    found = renumbered(nodes, ran(["Default/MatMul-op0", "Default/MatMul-op7"], [0]))
    assert found["node"].to_list() == ["Default/MatMul-op0"]


def test_without_runs_or_graphs_there_are_no_nodes():
    nodes = graph("a", {"MatMul": 1})
    none = ran([], [])
    assert not len(renumbered(nodes, none.cast({"node": pl.String, "run": pl.Int64})))
    assert not len(renumbered(nodes.clear(), ran(nodes["node"], [0])))


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["Add", "Mul", "Sub"]), st.integers(1, 4), min_size=1),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_each_graph_of_a_process_gets_back_the_numbers_that_it_ran_with(graphs, data):
    nodes, names, counted = [], [], {}
    for place, many in enumerate(graphs):
        dtype = ("f32", "f16", "f64", "bf16")[place]
        nodes.append(graph(str(place), many, dtype))
        names.append(moved(nodes[-1], dict(counted)))
        for path, count in many.items():
            for one in (path, f"{path}Grad"):
                counted[one] = counted.get(one, 0) + count
    which = data.draw(st.sets(st.integers(0, len(graphs) - 1), min_size=1))
    runs = pl.concat([ran(names[place], [place, place + 10]) for place in sorted(which)])
    found = renumbered(pl.concat(nodes), runs)
    for place in which:
        mine = found.filter(pl.col("graph") == str(place))
        told = set(mine.select("node", "call").rows())
        assert set(zip(names[place], nodes[place]["call"], strict=True)) <= told
        # another graph takes its place only where it has the same numbers of the same paths
        for other in set(found["graph"]) - {str(one) for one in which}:
            assert any(graphs[int(other)] == graphs[one] for one in which)
