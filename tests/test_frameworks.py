"""docs/frameworks.md: the same model in every framework has equal columns, and the page shows them."""

from __future__ import annotations

import pytest

from tests.frameworks import doc, equal_columns, table


def test_the_page_shows_every_framework_as_it_was_measured():
    assert list(table()) == list(doc.WAYS)
    assert doc.DOCUMENT.read_text(encoding="utf-8") == doc.document(table())


@pytest.mark.parametrize("way", doc.WAYS)
def test_the_columns_are_those_of_every_other_framework(way):
    told, others = equal_columns(table()[way]), equal_columns(table()["PyTorch"])
    assert set(others) - set(told) <= {"act forward"}  # may be fused into the convolution
    assert told == {part: others[part] for part in told}


def test_the_matrix_flops_are_those_of_the_formulas():
    convolution, dense = 2 * 8 * 14 * 14 * 8 * 3 * 3 * 3, 2 * 8 * 8 * 14 * 14 * 10
    flops = {part: row["matrix_flops"] for part, row in table()["PyTorch"]["parts"].items()}
    assert flops == {
        "conv forward": convolution, "conv backward": convolution, "act forward": 0,
        "act backward": 0, "fc forward": dense, "fc backward": 2 * dense,
    }  # fmt: skip
    # the gradient of the weights, and of the bias a sum over 8 × 14 × 14 for each of 8
    assert table()["PyTorch"]["parts"]["conv backward"]["flops"] == convolution + 8 * (1568 - 1)
