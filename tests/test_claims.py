"""docs/reference/claims.md: each sentence of the detectors, with figures that are counted again without them."""

from __future__ import annotations

import pytest

from opscope.core.advice.ask import detectors
from tests import traces
from tests.script import ROOT, module_at

PAGE = ROOT / "docs" / "reference" / "claims.md"
#: Traces of which the page is held up to date here; scripts/make_claims.py --check holds all of it.
CHECKED = (
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/sampled_rank0.json.gz",
    "mindspore/msprof_device0",
    "nsys/cudf_2020.sqlite",
)


@pytest.fixture(scope="module")
def claims():
    if not PAGE.is_file() or not (ROOT / "scripts" / "make_claims.py").is_file():
        pytest.skip("the source distribution has no scripts")
    return module_at("scripts/make_claims.py")


def test_the_page_has_each_detector():
    if not PAGE.is_file():
        pytest.skip("the page is not here")
    page = PAGE.read_text("utf-8")
    for name, one in detectors().items():
        if one.find.__module__.startswith("opscope."):
            assert f"## {name}\n" in page, "run scripts/make_claims.py"


def test_each_detector_has_a_recount_and_its_example_is_counted_again(claims):
    mine = [name for name, one in detectors().items() if one.find.__module__.startswith("opscope.")]
    assert sorted(claims.RECOUNTS) == sorted(mine)
    made = claims.made_profiles(("uneven_experts", "value_reads", "starved", "padding"))
    every: dict = {}
    for trace, profile in made:
        claims.claims_of(trace, profile, every)
    said = [claim for rows in every.values() for claim in rows.values() if claim.counted]
    assert len(said) == 4
    assert [one for claim in said for one in claim.wrong] == []


@pytest.mark.parametrize("trace", CHECKED)
def test_figures_of_a_real_trace_are_counted_again_and_its_sentences_are_on_the_page(
    claims, shared, trace
):
    every: dict = {}
    claims.claims_of(trace, traces.load(shared / trace), every)
    said = [claim for rows in every.values() for claim in rows.values()]
    assert any(claim.counted for claim in said)
    assert [one for claim in said for one in claim.wrong] == []
    page = PAGE.read_text("utf-8")
    shown = {claims.template(line) for line in page.splitlines()}
    for claim in said:
        text = claims.template(claims.cell(claim.text))
        assert any(text in line for line in shown), f"{claim.text}: run scripts/make_claims.py"


def test_a_figure_that_the_tables_do_not_have_is_wrong(claims, shared, monkeypatch):
    row = {"detector": "no_ranges", "finding": "7 kernels (1.0 ms) were recorded", "time": 1}
    profile = traces.load(shared / "rocm" / "rocprofv1_mi250_laplacian")
    counted, wrong = claims.recounted(profile, row)
    assert len(counted) == len(wrong) == 1
    assert "1,004 kernels (2,610.8 ms)" in wrong[0]
