"""One model in every framework: this one's columns are those of docs/frameworks.md."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")

from tests.frameworks import assert_as_written


def test_the_columns_are_those_of_the_page(tmp_path):
    assert_as_written("ONNX Runtime", tmp_path)
