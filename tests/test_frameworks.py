"""docs/frameworks.md: the same model in every framework has equal columns, and the page shows them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.frameworks import doc, equal_columns, table


def test_the_page_shows_every_framework_as_it_was_measured():
    assert list(table()) == list(doc.WAYS)
    assert doc.DOCUMENT.read_text(encoding="utf-8") == doc.document(table())


@pytest.mark.parametrize("way", doc.WAYS)
def test_the_columns_are_those_of_every_other_framework(way):
    told, others = equal_columns(way, table()[way]), equal_columns(way, as_if("PyTorch", way))
    assert set(others) - set(told) <= {"act forward"}  # may be fused into the convolution
    assert told == {part: others[part] for part in told}


@pytest.mark.parametrize("way", doc.WAYS)
def test_what_only_runs_a_model_has_no_backward_rows(way):
    backward = {part for part in table()[way]["parts"] if part.endswith("backward")}
    assert len(backward) == (len(doc.PARTS) if doc.WAYS[way].trains else 0)


@pytest.mark.parametrize("way", doc.WAYS)
def test_a_column_that_a_framework_cannot_fill_is_empty_in_some_row(way):
    """Else the page gives a reason for nothing."""
    for column in doc.WAYS[way].without:
        assert column in doc.EQUAL
        assert any(not row[column] for row in table()[way]["parts"].values()), column


def as_if(measured: str, way: str) -> dict:
    """Return the values of ``measured`` for the parts that ``way`` has."""
    kept = tuple(doc.directions(doc.WAYS[way]))
    parts = table()[measured]["parts"]
    return {"parts": {part: row for part, row in parts.items() if part.endswith(kept)}}


def test_the_page_says_which_framework_only_runs_models_and_what_it_cannot_tell(monkeypatch):
    reason = "its program is prepared before it runs, so no op has a line"
    only = doc.Way("made_net", ("made",), trains=False, without={"line": reason})
    monkeypatch.setitem(doc.WAYS, "Made", only)
    parts = as_if("PyTorch", "Made")["parts"]
    made = {
        "steps": doc.STEPS,
        "parts": {part: {**row, "line": False} for part, row in parts.items()},
    }
    page = doc.document({**table(), "Made": made})
    assert "- Made runs models and does not train them: it has no backward rows.\n" in page
    assert f"- Made: {reason}.\n" in page
    sections = page.split("\n## ")[1:]
    assert [part.partition("\n")[0] for part in sections if "| Made |" in part] == [
        "conv, forward", "act, forward", "fc, forward",
    ]  # fmt: skip
    assert equal_columns("Made", made)["conv forward"].keys() == set(doc.EQUAL) - {"line"}


def test_a_way_says_what_its_environment_lacks(monkeypatch):
    monkeypatch.setitem(doc.WAYS, "Made", doc.Way("made_net", ("polars", "made_up")))
    assert doc.lacking("Made") == "made_up not installed"
    monkeypatch.setitem(doc.WAYS, "Made", doc.Way("made_net", ("polars",), {"numpy": "<1"}))
    assert doc.lacking("Made").startswith("needs numpy <1, not ")
    monkeypatch.setitem(doc.WAYS, "Made", doc.Way("made_net", ("polars",), {"numpy": ">1"}))
    assert doc.lacking("Made") == ""


def test_a_way_that_fails_keeps_its_values_and_the_others_are_written(
    tmp_path, monkeypatch, capsys
):
    values = table()
    monkeypatch.setattr(doc, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(doc, "DOCUMENT", tmp_path / "page.md")
    doc.TABLE.write_text(json.dumps({"PyTorch": values["PyTorch"]}))
    monkeypatch.setattr(doc, "lacking", lambda way: "")

    def measured(way, folder):
        if way == "PyTorch":
            raise subprocess.CalledProcessError(3, "python")
        return values[way]

    monkeypatch.setattr(doc, "measured", measured)
    assert doc.main([]) == 1
    assert json.loads(doc.TABLE.read_text()) == values
    assert "PyTorch: the program failed with status 3" in capsys.readouterr().out
    assert doc.main(["Torch"]) == 2


def test_the_matrix_flops_are_those_of_the_formulas():
    convolution, dense = 2 * 8 * 14 * 14 * 8 * 3 * 3 * 3, 2 * 8 * 8 * 14 * 14 * 10
    flops = {part: row["matrix_flops"] for part, row in table()["PyTorch"]["parts"].items()}
    assert flops == {
        "conv forward": convolution, "conv backward": convolution, "act forward": 0,
        "act backward": 0, "fc forward": dense, "fc backward": 2 * dense,
    }  # fmt: skip
    # the gradient of the weights, and of the bias a sum over 8 × 14 × 14 for each of 8
    assert table()["PyTorch"]["parts"]["conv backward"]["flops"] == convolution + 8 * (1568 - 1)
