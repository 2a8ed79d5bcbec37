"""Which files an agent may open: those in the folders that its user named, and nothing that leads out of them."""

from __future__ import annotations

import os

import pytest

from opscope.agents.runs import NotOpened, Reading, Runs
from opscope.readers.errors import BadInput
from tests.planted_truths import made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roots")
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "out").mkdir()
    made.make("healthy", 0, folder / "in")
    made.make("late rank", 0, folder / "in" / "deep")
    made.make("healthy", 0, folder / "out")
    (folder / "in" / "away.json").symlink_to(folder / "out" / "healthy-kineto-8x2.json")
    (folder / "in" / "linked").mkdir()
    (folder / "in" / "linked" / "away.json").symlink_to(folder / "out" / "healthy-kineto-8x2.json")
    return folder


def refused(runs: Runs, *files: str) -> str:
    with pytest.raises(NotOpened) as error:
        runs.open(list(files))
    return str(error.value)


@pytest.mark.parametrize(
    "file",
    ["../out/healthy-kineto-8x2.json", "../out/absent.json", "/etc/passwd", "/etc/absent", "absent.json",
     "away.json", "linked", "../out/*.json", "deep/../../out/*.json", "/etc/*"],
)  # fmt: skip
def test_what_lies_outside_is_refused_in_the_words_of_what_is_not_there(folder, file):
    said = refused(Runs((folder / "in",)), file)
    assert said == f"{file}: no such file in the folders that were named, or it leads out of them"


@pytest.mark.parametrize("url", ["https://example.org/a.json", "s3://bucket/a.json", "HTTP://a/b"])
def test_a_url_is_refused(folder, url):
    assert "a URL is not opened" in refused(Runs((folder / "in",)), url)


def test_a_name_that_no_file_has_is_refused(folder):
    assert refused(Runs((folder / "in",)), "a\0b") == "this is not the name of a file"
    assert refused(Runs((folder / "in",))) == "no file was named"


def test_files_of_the_folder_are_opened_by_their_names_by_whole_paths_and_by_patterns(folder):
    runs = Runs((folder / "in",))
    run = runs.open(["healthy-kineto-8x2.json"])
    assert runs.open([str(folder / "in" / "healthy-kineto-8x2.json")]) == run
    assert (run.number, run.name) == (1, "1: healthy-kineto-8x2.json")
    ranks = runs.open(["deep/late_rank-*rank?.json"])
    assert (ranks.number, len(ranks.paths)) == (2, 2)
    assert runs.profile(ranks).trace["processes"]["rank"].to_list() == [0, 1]
    assert [runs.run(name).number for name in (None, "1", "2", "healthy-kineto-8x2.json")] == [
        2,
        1,
        2,
        1,
    ]
    assert runs.run("deep/*rank1.json").number == 3, "what is not open is opened"


def test_without_a_run_the_only_file_is_it_and_of_a_folder_none(folder):
    assert Runs((folder / "in" / "healthy-kineto-8x2.json",)).run(None).number == 1
    with pytest.raises(NotOpened, match="no run is open"):
        Runs((folder / "in",)).run(None)


def test_a_file_is_a_root_of_its_own(folder):
    runs = Runs((folder / "in" / "healthy-kineto-8x2.json",))
    assert runs.open(["healthy-kineto-8x2.json"]).number == 1
    assert "no such file" in refused(runs, "deep/late_rank-kineto-8x2-rank0.json")
    assert runs.source_roots == ()


def test_the_list_has_what_looks_like_a_trace_and_leads_nowhere_else(folder):
    names = [name for name, _ in Runs((folder / "in",)).traces()]
    assert "healthy-kineto-8x2.json" in names
    assert os.path.join("deep", "late_rank-kineto-8x2-rank0.json") in names
    assert not any("away" in name for name in names)


def test_a_profile_that_was_given_up_is_read_again(folder):
    runs = Runs((folder / "in",))
    first = runs.open(["healthy-kineto-8x2.json"])
    profile = runs.profile(first)
    for number in range(4):
        runs.open(["healthy-kineto-8x2.json"], gpu=["A100 40GB", "T4", "L4", "H100 SXM"][number])
    again = runs.profile(first)
    assert again is not profile
    assert again.summary().equals(profile.summary())


def test_a_file_that_cannot_be_read_opens_no_run(folder):
    (folder / "in" / "bad.json").write_text("{}")
    runs = Runs((folder / "in",), reading=Reading())
    with pytest.raises(BadInput):
        runs.open(["bad.json"])
    assert runs.opened == []


@pytest.mark.parametrize("file", ["\ud800", "a\0b"])
def test_what_can_be_no_files_name_is_refused(folder, file):
    assert refused(Runs((folder / "in",)), file) == "this is not the name of a file"
