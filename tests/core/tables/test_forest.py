"""Levels, totals and like ancestors of a forest are those that walking from node to node gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables.forest import Forest


@st.composite
def forests(draw) -> list[int]:
    """Parents of up to thirty nodes, numbered in any order."""
    many = draw(st.integers(0, 30))
    above = [draw(st.integers(-1, node - 1)) for node in range(many)]
    names = draw(st.permutations(range(many)))
    parents = [0] * many
    for node, parent in enumerate(above):
        parents[names[node]] = -1 if parent < 0 else names[parent]
    return parents


def ancestors(parents: list[int], node: int) -> list[int]:
    found = []
    while (node := parents[node]) >= 0:
        found.append(node)
    return found


@given(forests(), st.data())
def test_a_forest_answers_as_walking_from_node_to_node_does(parents, data):
    many = len(parents)
    forest = Forest(np.array(parents, np.int64))
    above = [ancestors(parents, node) for node in range(many)]
    inside = [[node] + [n for n in range(many) if node in above[n]] for node in range(many)]
    assert forest.level.tolist() == [len(one) for one in above]
    assert forest.size.tolist() == [len(one) for one in inside]
    values = np.array([data.draw(st.integers(-9, 9)) for _ in range(many)], np.int64)
    assert forest.with_inside(values).tolist() == [sum(values[n] for n in one) for one in inside]
    code = [data.draw(st.integers(0, 3)) for _ in range(many)]
    alike = [any(code[n] == code[node] for n in above[node]) for node in range(many)]
    assert forest.inside_alike(np.array(code, np.int64)).tolist() == alike


@given(forests())
def test_what_is_inside_a_node_directly_follows_it(parents):
    forest = Forest(np.array(parents, np.int64))
    assert sorted(forest.place.tolist()) == list(range(len(parents)))
    for node in range(len(parents)):
        span = range(forest.place[node], forest.place[node] + forest.size[node])
        inside = [n for n in range(len(parents)) if forest.place[n] in span]
        assert all(n == node or node in ancestors(parents, n) for n in inside)


@pytest.mark.parametrize("many", [0, 1, 60_000])
def test_a_chain_of_any_length_has_its_totals(many):
    forest = Forest(np.arange(-1, many - 1))
    assert forest.with_inside(np.ones(many, np.int64)).tolist() == list(range(many, 0, -1))


@pytest.mark.parametrize("many", [1, 3, 16, 17, 18, 19, 60_000])
def test_an_op_any_number_of_levels_below_one_of_its_code_is_inside_it(many):
    forest = Forest(np.arange(-1, many, dtype=np.int32))
    assert forest.level.tolist() == list(range(many + 1))
    code = np.arange(many + 1)
    assert not forest.inside_alike(code).any()
    code[-1] = 0
    assert np.flatnonzero(forest.inside_alike(code)).tolist() == [many]
    assert forest.inside_alike(code, np.array([0, many])).tolist() == [False, True]
