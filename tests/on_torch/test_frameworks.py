"""One model in every framework: this one's columns are those of docs/frameworks.md."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.frameworks import assert_as_written


@pytest.mark.parametrize("way", ["PyTorch", "Keras on PyTorch"])
def test_the_columns_are_those_of_the_page(tmp_path, way):
    assert_as_written(way, tmp_path)
