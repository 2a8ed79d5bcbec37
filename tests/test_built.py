"""Native parts of adapters: made once by the user's compiler, whole or not at all, in a cache."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opscope.adapters.shared import compiled
from opscope.adapters.shared.compiled import BuildError, built, cached, make

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="native parts are for Linux"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and beside it the temporary folder that is taken where it cannot be written."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    """A C file that has a number from the header beside it."""
    if compiled.find_compiler("CC", ("cc", "gcc", "clang")) is None:
        pytest.skip("no C compiler")
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "number_is.h").write_text("#define NUMBER 1\n")
    (folder / "number.c").write_text(
        '#include "number_is.h"\n'
        "#ifndef MORE\n#define MORE 0\n#endif\n"
        '__attribute__((visibility("default"))) int number(void) { return NUMBER + MORE; }\n'
    )
    return folder / "number.c"


@pytest.fixture
def compiler(tmp_path):
    """What ``make`` is given: a compiler's command line, the compiler a shell script."""

    def of(script):
        program = tmp_path / "compiler"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return lambda output: [str(program), str(output)]

    return of


def left_in(folder):
    return sorted(one.name for one in folder.iterdir())


def number_in(path):
    return ctypes.CDLL(str(path)).number()


def test_source_header_and_flags_each_make_another_library(cache, source):
    first = built(source)
    assert number_in(first) == 1
    assert built(source) == first
    flagged = built(source, ("-DMORE=10",))
    (source.parent / "number_is.h").write_text("#define NUMBER 2\n")
    headed = built(source)
    source.write_text(source.read_text().replace("NUMBER + MORE", "NUMBER + 100"))
    assert [number_in(one) for one in (flagged, headed, built(source))] == [11, 2, 102]
    assert number_in(first) == 1  # others do not take its place
    assert {one.suffix for one in cache.iterdir()} == {".so", ".lock"}


def test_the_compilers_first_error_is_told(cache, source):
    source.write_text("int number(void) { return no_such_number; }\n")
    with pytest.raises(BuildError, match=r"error: .*no_such_number"):
        built(source)
    assert [name.rpartition(".")[2] for name in left_in(cache)] == ["lock"]


@pytest.mark.parametrize(
    ("script", "why", "timeout"),
    [
        (
            'echo half > "$1"; echo "x.c:1: error: broken" >&2; exit 1',
            r"failed \(1\): .*broken",
            600,
        ),
        ('echo half > "$1"; kill -9 $$', r"failed \(-9\)", 600),
        ('echo half > "$1"; exec sleep 60', "took longer than 0.5 s", 0.5),
    ],
)
def test_what_is_half_written_is_never_taken_for_the_library(script, why, timeout, cache, compiler):
    with pytest.raises(BuildError, match=why):
        make("one.so", compiler(script), timeout=timeout)
    assert left_in(cache) == ["one.so.lock"]
    assert cached("one.so") is None
    path = make("one.so", compiler('echo whole > "$1"'))
    assert path.read_text() == "whole\n"


def test_the_library_appears_when_it_is_whole(cache, compiler):
    """While the compiler writes there is nothing of that name."""
    path = make(
        "one.so", compiler('echo half > "$1"; ls "${1%/*}" > "$0.seen"; echo whole >> "$1"')
    )
    seen = (Path(compiler("")(None)[0] + ".seen")).read_text().split()
    assert [one.endswith((".tmp", ".lock")) for one in seen] == [True, True]
    assert path.read_text() == "half\nwhole\n"


def process_that_makes(environ, command):
    code = (
        "import sys\nfrom pathlib import Path\nfrom opscope.adapters.shared.compiled import make\n"
        f"print(make('one.so', lambda output: [{command!r}, str(output)]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


def until(true):
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_a_process_killed_at_it_is_in_nobodys_way(cache, compiler):
    command = compiler('echo half > "$1"; echo $$ > "$0.pid"; exec sleep 60')("")[0]
    killed = process_that_makes({}, command)
    until(Path(f"{command}.pid").is_file)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    try:
        assert any(name.endswith(".tmp") for name in left_in(cache))
        path = make("one.so", compiler('echo whole > "$1"'), timeout=20)
    finally:
        os.kill(int(Path(f"{command}.pid").read_text()), signal.SIGKILL)
    assert path.read_text() == "whole\n"
    assert left_in(cache) == ["one.so", "one.so.lock"]


def test_two_processes_at_once_make_it_once(cache, compiler):
    command = compiler('echo ran >> "$0.log"; sleep 0.3; echo whole > "$1"')("")[0]
    both = [process_that_makes({}, command) for _ in range(2)]
    assert {one.communicate(timeout=60)[0] for one in both} == {f"{cache / 'one.so'}\n"}
    assert Path(f"{command}.log").read_text() == "ran\n"


def test_one_that_another_holds_too_long_is_given_up(cache, compiler):
    command = compiler('echo whole > "$1"')
    make("one.so", command).unlink()
    with (
        compiled._locked(cache / "one.so.lock", 1),
        pytest.raises(BuildError, match="another process holds the lock"),
    ):
        make("one.so", command, timeout=0.2)


def test_the_tool_that_observes_us_is_not_loaded_into_the_compiler(cache, compiler, monkeypatch):
    for name in ("LD_PRELOAD", "NVTX_INJECTION64_PATH"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("KEPT", "yes")
    path = make("one.so", compiler('env > "$1"'))
    names = {line.partition("=")[0] for line in path.read_text().splitlines()}
    assert "KEPT" in names
    assert not names & {"LD_PRELOAD", "NVTX_INJECTION64_PATH"}


READ_ONLY = """
import sys, tempfile
from pathlib import Path
tempfile.tempdir = sys.argv[2]
from opscope.adapters.shared.compiled import BuildError, built
try:
    print(built(Path(sys.argv[1])))
except BuildError as error:
    print("BuildError:", error)
"""


@pytest.mark.parametrize("state", ["built", "to the temporary folder", "nowhere"])
def test_a_cache_that_is_read_only(state, cache, source, tmp_path, bound_by_modes):
    temporary = tmp_path / "temporary"
    cache.mkdir()
    if state == "built":
        built(source)
    before = left_in(cache)
    closed = [cache, *([temporary] if state != "to the temporary folder" else [])]
    for folder in closed:
        folder.chmod(0o555)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    if state == "built":
        environ["CC"] = "no-such-compiler"
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(source), str(temporary)],
            env=environ,
            preexec_fn=bound_by_modes,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for folder in closed:
            folder.chmod(0o755)
    told = done.stdout.strip()
    assert left_in(cache) == before
    if state == "built":
        assert number_in(told) == 1
        assert Path(told).parent == cache
    elif state == "nowhere":
        assert told.startswith("BuildError: no cache folder can be written: ")
        assert str(cache) in told
        assert str(temporary) in told
    else:
        assert Path(told).is_relative_to(temporary)
        assert number_in(told) == 1
    shutil.rmtree(temporary)


# ------------------------------------------------------------------------------ other users' files


def planted(folder, name, source, number):
    """A library of another's making, at the place where ours would be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-DNUMBER_OF={number}", "-x", "c", "-", "-o", folder / name],
        input="int number(void) { return NUMBER_OF; }\n",
        text=True,
        check=True,
    )
    return folder / name


def only_temporary(cache):
    """The folder in the temporary directory, where the cache itself cannot be made."""
    cache.write_text("a file is in its place")
    return Path(compiled.cache.folders()[1])


def folder_is_others(how):
    return how in ("another's folder", "linked folder")


@pytest.mark.parametrize("where", ["cache", "temporary"])
@pytest.mark.parametrize(
    "how", ["another's file", "another's folder", "group may write", "link", "linked folder"]
)
def test_a_library_that_another_user_could_have_laid_is_not_loaded(
    how, where, cache, source, tmp_path
):
    name = compiled.library_name(source)
    folder = only_temporary(cache) if where == "temporary" else cache
    lies = tmp_path / "lies"
    if how == "link":
        folder.mkdir(mode=0o700)
        (folder / name).symlink_to(planted(lies, name, source, 666))
    elif how == "linked folder":
        planted(lies, name, source, 666)
        folder.symlink_to(lies)
        if where == "cache":  # the user named it: where it leads is checked instead
            lies.chmod(0o777)
    else:
        path = planted(folder, name, source, 666)
        if how == "group may write":
            path.chmod(0o775)
        elif os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        else:
            os.chown(path if how == "another's file" else folder, 12345, 12345)
    assert cached(name) is None
    with pytest.raises(
        OSError, match=r"another user|other users may write|is a link|symbolic links"
    ):
        compiled.cache.load(folder.resolve() / name if where == "cache" else folder / name)
    if where == "temporary" and folder_is_others(how):
        with pytest.raises(
            BuildError, match=r"another user|is a link|[Nn]ot a directory|File exists"
        ):
            built(source)
    else:
        assert compiled.cache.load(built(source)).number() == 1


def test_a_file_exchanged_after_it_was_checked_is_not_loaded(cache, source, monkeypatch):
    path, evil = built(source), planted(cache, "evil.so", source, 666)
    check = compiled.cache.owned_folder.check

    def check_then_exchange(descriptor, checked, private=False):
        check(descriptor, checked, private)
        if checked == path:
            evil.replace(path)

    monkeypatch.setattr(compiled.cache.owned_folder, "check", check_then_exchange)
    assert compiled.cache.load(path).number() == 1


def test_two_libraries_loaded_through_the_same_descriptor_number_are_two(cache, source):
    first = compiled.cache.load(built(source))
    second = compiled.cache.load(built(source, ("-DMORE=10",)))
    assert [first.number(), second.number()] == [1, 11]


def test_a_pipe_in_the_librarys_place_does_not_hang(cache, source):
    cache.mkdir(mode=0o700)
    os.mkfifo(cache / compiled.library_name(source))
    assert cached(compiled.library_name(source)) is None


def test_what_is_built_under_a_umask_of_002_is_found_again(cache, source):
    before = os.umask(0o002)
    try:
        assert cached(built(source).name) is not None
    finally:
        os.umask(before)
