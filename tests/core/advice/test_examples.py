"""Every detector's example, which docs/advice.md shows, says what is kept beside the tests."""

from __future__ import annotations

import runpy

import pytest

from opscope.core.advice.ask import detectors
from tests import traces
from tests.script import ROOT

SCRIPT = ROOT / "scripts" / "make_advice_doc.py"


@pytest.fixture(scope="module")
def script():
    if not SCRIPT.is_file():
        pytest.skip("the source distribution has no scripts")
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("name", sorted(detectors()))
def test_the_example_of_each_detector_says_what_the_page_shows(name, script, request, monkeypatch):
    monkeypatch.setattr("opscope.load", traces.load)  # as the script asks for it
    found = script["example"](name)
    if found is None:
        pytest.skip(f"tests/core/advice/test_{name}.py has no EXAMPLE")
    needed = not callable(found[1])
    said = script["said"](name, request.getfixturevalue("shared") if needed else ROOT)
    if said is None:
        pytest.skip(f"the trace of the example is absent: {found[1]}")
    kept = script["EXAMPLES"] / f"{name}.txt"
    again = f"python scripts/make_advice_doc.py --run {name}"
    assert kept.is_file(), again
    assert said == kept.read_text("utf-8"), again


@pytest.mark.parametrize("name", sorted(detectors()))
def test_each_detector_says_what_it_looks_at_and_when_it_cannot_tell(name):
    one = detectors()[name]
    assert one.question.endswith("?")
    for text in (one.looks_at, one.abstains):
        assert text.strip().endswith((".", "…")), f"{name}: a full sentence is missing"


def test_an_example_in_which_nothing_is_found_is_refused(script, monkeypatch):
    monkeypatch.setitem(script["said"].__globals__, "example", lambda name: None)
    with pytest.raises(LookupError, match="no EXAMPLE"):
        script["said"]("pageable_copies", ROOT)
