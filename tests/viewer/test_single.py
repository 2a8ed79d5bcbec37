"""The single file: what may run in it, what it holds beside the pages, and that it is the same each time."""

from __future__ import annotations

import re

import pytest

from opscope.viewer import single
from opscope.viewer.viewed import Viewed

HOSTILE = "</script><script>alert(1)</script><!--"


@pytest.fixture
def made(small):
    return lambda name="run.opscope": single.page(Viewed(small, (name,)))[0].decode()


def test_it_holds_the_licences_of_the_packages_in_its_script(made):
    text = made()
    [notices] = re.findall(
        r'<script type="text/plain" id="opscope-licences">(.*?)</script>', text, re.S
    )
    for package in ("preact", "uplot"):
        assert package in notices.lower()
    assert "Permission is hereby granted" in notices


def test_only_its_own_script_and_style_may_run_and_nothing_is_asked_for(made):
    text = made()
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"<(?:link|img|iframe|object)\b|\bsrc=", text.partition("<script>")[0])


def test_the_name_of_a_file_is_text(made):
    text = made(f"{HOSTILE}.json")
    assert "alert(1)</script>" not in text
    assert "&lt;" in text.partition("</title>")[0]


def test_the_same_profile_makes_the_same_bytes(made):
    assert made() == made()


def test_a_file_appears_whole_or_not_at_all(small, tmp_path, monkeypatch):
    target = tmp_path / "run.html"
    target.write_text("before")

    def broken(*args, **kwargs):
        raise ValueError("no")

    monkeypatch.setattr(single, "page", broken)
    with pytest.raises(ValueError, match="no"):
        single.write(Viewed(small, ("a",)), target)
    assert target.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]
