"""Source text: only ``.py`` files that the profile names, below the folder allowed, or unchanged since recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.capture import source_files
from opscope.viewer import source_text
from opscope.viewer.lines import added_up, frames_of
from opscope.viewer.questions.open import command
from opscope.viewer.viewed import Viewed
from tests.viewer.called_from import profile_of

SECRET = "the secret of another folder"


@pytest.fixture
def place(tmp_path):
    """A folder with files, links out of it, and a secret beside it."""
    root = tmp_path / "project"
    (root / "inner").mkdir(parents=True)
    (root / "train.py").write_text("first\r\nsecond\n")
    (root / "inner" / "model.py").write_text("import torch\n")
    (root / "notes.txt").write_text(SECRET)
    (tmp_path / "secret.py").write_text(SECRET)
    (tmp_path / "project-beside").mkdir()
    (tmp_path / "project-beside" / "beside.py").write_text(SECRET)
    (root / "out.py").symlink_to(tmp_path / "secret.py")
    (root / "folder").symlink_to(tmp_path)
    (root / "other.py").symlink_to(root / "notes.txt")
    (root / "good.py").symlink_to(root / "train.py")
    (root / "circle.py").symlink_to(root / "circle.py")
    (root / "folder.py").mkdir()
    os.mkfifo(root / "pipe.py")
    return root


def test_files_below_the_folder_are_shown_with_links_resolved(trace_of, asking, place):
    names = ("train.py", "inner/model.py", "good.py", "/elsewhere/project/inner/model.py")
    app = asking(Viewed(profile_of(trace_of, *names), ("a",), source_root=place))
    listed = {one["file"]: one["reason"] for one in app.ask("source").json()["files"]}
    assert listed == dict.fromkeys(names)
    got = app.ask("source", file="train.py").json()
    assert (got["text"], got["line"], got["note"]) == ("first\nsecond\n", [1], None)
    assert app.ask("source", file="good.py").json()["text"] == "first\nsecond\n"
    far = app.ask("source", file=names[3]).json()
    assert far["text"] == "import torch\n"
    assert "inner/model.py below the folder" in far["note"]


HOSTILE = (
    "out.py", "folder/secret.py", "other.py", "circle.py", "folder.py", "pipe.py", "notes.txt", "../secret.py",
    "inner/../../secret.py", "../project-beside/beside.py", "missing.py", "secret.py/../../secret.py", "In [3]",
    "c:\\secret.py", "\\\\host\\secret.py", "~/secret.py", ".py", "/", "", "x" * 4_500 + ".py", "train.py\n.py",
    "/etc/passwd", "/dev/zero", "/proc/self/environ", "file:///secret.py", "train.py/", "%2e%2e/secret.py",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_elsewhere_is_not_shown(trace_of, asking, place, name):
    app = asking(Viewed(profile_of(trace_of, "train.py", name), ("a",), source_root=place))
    for file in (name, str(place.parent / name)):
        answer = app.ask("source", file=file)
        assert SECRET not in answer.text
        if answer.status_code == 200 and file:
            got = answer.json()
            assert got["text"] is None
            assert got["reason"]
        else:
            assert answer.status_code in (200, 404, 400)


@given(
    st.lists(
        st.sampled_from(
            [
                "..",
                ".",
                "inner",
                "folder",
                "secret.py",
                "out.py",
                "train.py",
                "\0",
                "",
                "/",
                "\\",
                "x",
            ]
        ),
        max_size=7,
    )
)
def test_no_path_leads_out_of_the_folder(trace_of, tmp_path_factory, parts):
    global _PLACE
    if _PLACE is None:
        base = tmp_path_factory.mktemp("walk")
        (base / "project" / "inner").mkdir(parents=True)
        (base / "secret.py").write_text(SECRET)
        (base / "project" / "out.py").symlink_to(base / "secret.py")
        (base / "project" / "folder").symlink_to(base)
        (base / "project" / "train.py").write_text("fine\n")
        _PLACE = base / "project"
    viewed = Viewed(profile_of(trace_of, "train.py"), ("a",), source_root=_PLACE)
    try:
        found = source_text.found(viewed, "/".join(parts))
    except source_text.NotShown:
        return
    assert found.text == "fine\n"
    assert found.path == _PLACE.resolve() / "train.py"


_PLACE: Path | None = None


def test_a_file_that_the_profile_does_not_name_is_not_shown(trace_of, asking, place):
    app = asking(Viewed(profile_of(trace_of, "train.py"), ("a",), source_root=place))
    assert app.ask("source", file="inner/model.py").status_code == 404


def test_without_a_folder_only_files_whose_recorded_hash_matches_are_shown(trace_of, asking, place):
    import hashlib

    path = place / "train.py"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = [{"file": "train.py", "path": str(path), "sha256": digest},
             {"file": "inner/model.py", "path": str(place / "inner" / "model.py"), "sha256": digest},
             {"file": "notes.txt", "path": str(place / "notes.txt"), "sha256": digest},
             {"file": "relative.py", "path": "train.py", "sha256": digest}, {"file": 3}, "x"]  # fmt: skip
    names = ("train.py", "inner/model.py", "notes.txt", "relative.py", "other.py")
    app = asking(Viewed(profile_of(trace_of, *names, recorded=known), ("a",)))
    reasons = {one["file"]: one["reason"] for one in app.ask("source").json()["files"]}
    assert reasons["train.py"] is None
    assert "has changed" in reasons["inner/model.py"]
    assert "only .py" in reasons["notes.txt"]
    assert "where it is" in reasons["relative.py"]
    assert "--source-root" in reasons["other.py"]
    assert app.ask("source", file="train.py").json()["text"] == "first\nsecond\n"
    path.write_text("first\nchanged\n")
    assert app.ask("source", file="train.py").json()["text"] is None


def test_a_recording_keeps_the_hashes_of_the_users_files_and_a_private_one_does_not(tmp_path):
    (tmp_path / "model.py").write_text("def f(session):\n    return session\n")
    code = (
        "import sys, opscope\n"
        "from opscope.adapters.shared.source import Sources\n"
        "from opscope.core.capture.recorder_sink import Recorder\n"
        "import model\n"
        "sources = Sources()\n"
        "recorder = Recorder('recording'); recorder.start()\n"
        "assert sources.shown(model.f.__code__.co_filename) == 'model.py'\n"
        "open('later.py', 'w').write('a = 1')\n"
        "sources.shown('later.py'); open('later.py', 'w').write('a = 1000'); sources.shown('gone.py')\n"
        "recorder.stop()\n"
    )
    root = str(Path(opscope.__file__).parents[1])
    for private in ("0", "1"):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join((root, str(tmp_path))), "OPSCOPE_PRIVATE": private})  # fmt: skip
        held = opscope.load(tmp_path / "recording").trace.origin.get("source_files")
        for file in (tmp_path / "recording").rglob("*.jsonl"):
            assert private == "0" or "model.py" not in file.read_text()
        if private == "0":
            assert [one["file"] for one in held] == [
                "model.py"
            ]  # later.py changed, gone.py is none
            assert held[0]["path"] == str(tmp_path / "model.py")
        else:
            assert held is None
        subprocess.run(["rm", "-r", str(tmp_path / "recording")], check=True)


@pytest.mark.parametrize("how", ["run", "private", "saved", "several"])
def test_a_profile_that_was_written_keeps_the_hashes_so_that_its_source_is_shown(
    tmp_path, how, asking
):
    """From `opscope run`, through the file on the disk, to the page."""
    code = (
        "import opscope\n"
        "from opscope.adapters.shared.source import Sources\n"
        "Sources().shown(__file__)\n"
        "with opscope.annotate('work'):\n"
        "    pass\n"
    )
    (tmp_path / "train.py").write_text(code)
    paths = os.pathsep.join(
        filter(None, (str(Path(opscope.__file__).parents[1]), os.environ.get("PYTHONPATH")))
    )
    env = {**os.environ, "PYTHONPATH": paths, "OPSCOPE_PRIVATE": "1" if how == "private" else "0"}
    words = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        "a.opscope",
        "--",
        sys.executable,
        "train.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = opscope.load(tmp_path / "a.opscope")
    if how == "saved":
        loaded.save(tmp_path / "b.opscope")
        loaded = opscope.load(tmp_path / "b.opscope")
    if how == "several":
        shutil.copytree(tmp_path / "a.opscope", tmp_path / "b.opscope")
        meta = tmp_path / "b.opscope" / "meta.json"
        meta.write_text(meta.read_text().replace(".py", ".other.py"))
        loaded = opscope.load([tmp_path / "a.opscope", tmp_path / "b.opscope"])
    viewed = Viewed(loaded, ("a",))
    if how == "private":
        assert str(tmp_path) not in (tmp_path / "a.opscope" / "meta.json").read_text()
        with pytest.raises(source_text.NotShown, match="--source-root"):
            source_text.found(viewed, "train.py")
    else:
        assert source_text.found(viewed, "train.py").text == code


def test_a_name_that_means_different_files_in_several_profiles_is_not_shown(trace_of, place):
    import hashlib

    path = place / "train.py"
    good = {
        "file": "train.py",
        "path": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    profile = profile_of(trace_of, "train.py")
    for parts, shown in (
        ([{"source_files": [good]}, {"source_files": [good]}], True),
        ([{"source_files": [good]}, {"source_files": [{**good, "sha256": "0" * 64}]}], False),
        (
            [
                {"parts": [{"source_files": [good]}]},
                {"source_files": "x"},
                7,
                {"source_files": [3]},
            ],
            True,
        ),
    ):
        profile.trace.origin = {"format": "several", "parts": parts}
        viewed = Viewed(profile, ("a",))
        if shown:
            assert source_text.found(viewed, "train.py").path == path
        else:
            with pytest.raises(source_text.NotShown, match="--source-root"):
                source_text.found(viewed, "train.py")


def test_a_copy_for_others_in_private_has_no_hashes(trace_of):
    from opscope.core.tables.redacted import redacted

    known = [{"file": "a.py", "path": "/home/me/a.py", "sha256": "0" * 64}]
    trace = trace_of({"source_files": known}, ranges=[])
    assert redacted(trace).origin["source_files"] == known
    assert "source_files" not in redacted(trace, private=True).origin


def test_facts_of_a_stranger_are_checked(tmp_path):
    import json

    from opscope.errors import BadInput
    from opscope.readers.recording.source_files import source_file

    for bad in ({"source_file": 1, "path": "/a", "sha256": "0" * 64}, {"source_file": "a", "path": "/a", "sha256": "x"},
                {"source_file": "a" * 9_999, "path": "/a", "sha256": "0" * 64}):  # fmt: skip
        with pytest.raises(ValueError, match=r"not a source file|no hash"):
            source_file(bad)
    part = tmp_path / "part-host-1-1"
    part.mkdir()
    (part / "meta.json").write_text(
        json.dumps({"format": "opscope-recording", "version": 1, "pid": 1})
    )
    (part / "facts.jsonl").write_text('{"source_file": "a"}\n')
    with pytest.raises(BadInput, match="fact"):
        opscope.load(tmp_path)


def test_noting_a_file_never_fails():
    for path in ("\0", "/nothing/there.py", "/dev/null", "/"):
        source_files.note(path, path)
        assert path not in source_files._seen


def test_a_line_has_its_own_time_and_that_of_what_it_called():
    made = added_up([
        {"source": "a.py:1 < b.py:2 < b.py:9", "device_time": 5, "calls": 1, "op": "x"},
        {"source": "b.py:2 < b.py:2", "device_time": 3, "calls": 2, "op": "y"},
        {"source": '"odd < file.py":7', "device_time": 2, "calls": 1, "op": "z"},
        {"source": None, "device_time": 11, "calls": 1, "op": None},
    ])  # fmt: skip
    assert (made.whole, made.without) == (21, 11)
    assert made.by_file["b.py"][2].time == 8
    assert made.by_file["b.py"][2].self_time == 3
    assert made.by_file["b.py"][9].self_time == 0
    assert made.files["b.py"].time == 8
    assert made.by_file["b.py"][2].op == "x"
    assert made.by_file["odd < file.py"][7].time == 2
    assert sum(file.self_time for file in made.files.values()) + made.without == made.whole


def test_lines_whose_time_nobody_knows_are_not_said_to_take_none(trace_of, asking, monkeypatch):
    """Ops of a GPU's program whose kernels were not captured: no time, and not a time of 0."""
    profile = profile_of(trace_of, "train.py", "model.py")
    unknown = profile.totals_by("source").with_columns(device_time=pl.lit(None, pl.Int64))
    monkeypatch.setattr(type(profile), "totals_by", lambda self, by: unknown)
    app = asking(Viewed(profile, ("a",)))
    whole = app.ask("source").json()
    assert (whole["whole"], whole["without"], whole["empty"]) == (None, None, None)
    assert {(one["time"], one["self_time"], one["share"]) for one in whole["files"]} == {
        (None, None, None)
    }
    one = app.ask("source", file="train.py").json()
    assert (one["line"], one["time"], one["self_time"], one["calls"]) == ([1], [None], [None], [1])


def test_a_profile_with_ops_and_no_lines_is_not_said_to_have_no_ops(of, asking):
    app = asking(Viewed(of("kineto/alexnet_cupti_counters_a100.json.gz"), ("a",)))
    got = app.ask("source").json()
    assert (got["whole"], got["empty"]) == (None, "the profile names no source lines")


def test_times_by_line_are_those_of_the_report(of, asking):
    profile = of("kineto/qwen1.5_0.5b_h100.json.gz")
    app = asking(Viewed(profile, ("a",)))
    got = app.ask("source").json()
    totals = profile.totals_by("source")
    assert got["whole"] == totals["device_time"].sum()
    assert got["without"] + sum(one["self_time"] for one in got["files"]) == got["whole"]
    for one in got["files"]:
        lines = app.ask("source", file=one["file"]).json()
        assert sum(lines["self_time"]) == one["self_time"]
        assert lines["text"] is None
    assert frames_of("a.py:1 < b.py:2") == (("a.py", 1), ("b.py", 2))
    assert frames_of("no line") == ()


@pytest.mark.parametrize(
    ("editor", "expected"),
    [("vi", ["vi", "/a b/{line}.py", "7"]), ("code --goto {file}:{line}", ["code", "--goto", "/a b/{line}.py:7"]),
     ("vi +{line} {file}", ["vi", "+7", "/a b/{line}.py"]), ("'my editor' {file}", ["my editor", "/a b/{line}.py"])],
)  # fmt: skip
def test_the_editor_gets_file_and_line_and_nothing_is_read_as_a_shell_would(editor, expected):
    assert command(editor, "/a b/{line}.py", 7) == expected


def test_an_editor_opens_only_what_may_be_shown_and_is_off_by_default(trace_of, asking, place):
    profile = profile_of(trace_of, "train.py", "out.py")
    off = asking(Viewed(profile, ("a",), source_root=place)).ask("open", file="train.py", line=2)
    assert off.status_code == 404
    assert "--editor" in off.text
    out = place.parent / "opened"
    script = place.parent / "editor.py"
    script.write_text(f"import sys\nopen({str(out)!r} + '.part', 'w').write(repr(sys.argv[1:]))\n"
                      f"import os; os.replace({str(out)!r} + '.part', {str(out)!r})\n")  # fmt: skip
    editor = shlex.join([sys.executable, str(script)])
    app = asking(Viewed(profile, ("a",), source_root=place, editor=editor))
    for file, line in (
        ("out.py", 1),
        ("inner/model.py", 1),
        ("train.py", 0),
        ("train.py", "x"),
        ("$(touch x)", 1),
    ):
        assert app.ask("open", file=file, line=line).status_code in (400, 404)
    assert app.send("GET", "/api/open?file=train.py&line=2").status_code == 403  # no token
    assert app.ask("open", file="train.py", line=2).json() == {"file": "train.py", "line": 2}
    while not out.exists():
        time.sleep(0.02)
    assert out.read_text() == repr([str(place / "train.py"), "2"])
    failing = asking(Viewed(profile, ("a",), source_root=place, editor="/nothing/there"))
    assert failing.ask("open", file="train.py").status_code == 404
