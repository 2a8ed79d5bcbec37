"""Which texts are URLs, and that no credential of one is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.remote.urls import is_pattern, is_url, name_of, shown


@pytest.mark.parametrize(
    "path", ["s3://b/k", "GS://b/k", "az://c/x", "https://h/x", "abfss://c@a.x/y"]
)
def test_urls_of_known_schemes_are_opened(path):
    assert is_url(path)


@pytest.mark.parametrize(
    "path", ["file:///x", "a:b", "s3:/b/k", "C:\\x", "ftp://h/x", "memory://x", Path("s3://b")]
)
def test_no_other_text_is_a_url(path):
    assert not is_url(path)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://me:pass@h/a.json?X-Amz-Signature=abc#x", "https://h/a.json"),
        ("https://h?sig=abc", "https://h"),
        ("s3://key:secret@b/k", "s3://b/k"),
        ("abfss://c@account.dfs.core.windows.net/k", "abfss://c@account.dfs.core.windows.net/k"),
        ("run.json?x", "run.json?x"),
    ],
)
def test_a_url_is_named_without_its_credentials(url, text):
    assert shown(url) == text


@given(st.text())
def test_the_name_of_a_copy_stays_in_its_folder(text):
    name = name_of(f"s3://bucket/{text}")
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert "\0" not in name


def test_stars_of_a_web_address_are_no_pattern():
    assert is_pattern("s3://b/*.json")
    assert not is_pattern("https://h/a?b=*")
