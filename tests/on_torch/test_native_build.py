"""The native observer's binary: one build whoever asks, in a cache that may be read-only or absent."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.readers.recording.reader import collect

torch = pytest.importorskip("torch")

from opscope.adapters.torch.native import binary as building
from opscope.adapters.torch.native.binary import BuildError, build, built, plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that takes a moment, notes that it ran, and writes a file."""
    log = tmp_path / "runs"
    log.touch()
    program = tmp_path / "c++"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {log}
sleep 0.3
while [ "$1" != "-o" ]; do shift; done
echo binary > "$2"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return log


def test_it_is_built_once_and_says_so(compiler, tmp_path, capfd):
    wanted = plan()
    assert built(wanted) is None
    path = build(wanted)
    assert path.parent == tmp_path / "cache"
    assert path.read_text() == "binary\n"
    assert "building the PyTorch observer" in capfd.readouterr().err
    assert build(plan()) == path == built(plan())
    assert capfd.readouterr().err == ""
    (command,) = compiler.read_text().splitlines()
    assert "-DNDEBUG" in command
    assert "observer.cpp" in command
    assert {one.suffix for one in path.parent.iterdir()} == {".so", ".lock"}


def test_many_processes_at_once_build_it_once(compiler):
    code = "from opscope.adapters.torch.native.binary import build, plan; print(build(plan()))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    paths = {rank.communicate(timeout=120)[0] for rank in ranks}
    assert len(paths) == 1
    assert paths.pop().strip()
    assert len(compiler.read_text().splitlines()) == 1


def test_another_source_or_torch_or_headers_is_another_binary(compiler, monkeypatch, tmp_path):
    keys = {plan().key}
    source = tmp_path / "observer.cpp"
    source.write_text("// other")
    monkeypatch.setattr(building, "SOURCE", source)
    keys.add(plan().key)
    headers = tmp_path if plan().nvtx is None else None
    monkeypatch.setattr(building, "nvtx_headers", lambda: headers)
    keys.add(plan().key)
    assert len(keys) == 3
    assert all(key.startswith(torch.__version__.replace("+", "-")) for key in keys)


VERSION = """
__version__ = '2.9.1+cpu'
git_version = 'abc'
"""


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """The files of a PyTorch by which a binary is told from others; the real one is not looked at."""
    root = tmp_path / "site" / "torch"
    (root / "lib").mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "version.py").write_text(VERSION)
    (root / "lib" / "libtorch_cpu.so").write_bytes(b"1234")
    spec = importlib.util.spec_from_file_location("torch", root / "__init__.py")
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: spec)
    return root


def test_the_key_goes_with_version_library_system_and_source(fake_torch, tmp_path, monkeypatch):
    folder = tmp_path / "native"
    shutil.copytree(building.SOURCE.parent, folder)
    monkeypatch.setattr(building, "SOURCE", folder / "observer.cpp")
    monkeypatch.setattr(building, "MEMORY", folder / "memory.cpp")

    def keys():
        return plan(building.SOURCE).key, plan(building.MEMORY).key

    seen = [keys()]
    assert keys() == seen[0]
    assert all(key.startswith("2.9.1-cpu-") for key in seen[0])
    assert plan(building.SOURCE).torch == fake_torch
    for text in (
        VERSION.replace("2.9.1", "2.9.2"),
        VERSION.replace("+cpu", "+cu128"),  # built otherwise: another ABI
        VERSION.replace("abc", "abd"),
    ):
        (fake_torch / "version.py").write_text(text)
        seen.append(keys())
    (fake_torch / "lib" / "libtorch_cpu.so").write_bytes(
        b"12345"
    )  # built again, of the same sources
    seen.append(keys())
    for name, value in (("machine", "riscv64"), ("libc_ver", ("glibc", "9.9"))):
        monkeypatch.setattr(building.platform, name, lambda value=value: value)
        seen.append(keys())
    for column in (0, 1):
        assert len({one[column] for one in seen}) == len(seen)
    observer, memory = keys()
    with (folder / "text.h").open("a") as header:
        header.write("// more\n")
    assert keys()[0] != observer
    assert keys()[1] == memory  # which has no headers of ours
    with (folder / "memory.cpp").open("a") as header:
        header.write("// more\n")
    assert keys()[1] != memory


@pytest.mark.parametrize("missing", ["version.py", "lib/libtorch_cpu.so"])
def test_what_is_no_released_pytorch_is_refused(missing, fake_torch):
    (fake_torch / missing).unlink()
    with pytest.raises(BuildError, match="PyTorch's package lacks a file that releases have"):
        plan()


def test_a_cache_that_cannot_be_written_gives_way_to_the_temporary_folder(compiler, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    path = build(plan())
    assert path.is_relative_to(tmp_path / "temporary")
    assert path.parent.stat().st_mode & 0o077 == 0


def test_what_another_may_have_written_is_not_loaded(compiler):
    path = build(plan())
    path.chmod(0o666)
    assert built(plan()) is None


def test_a_compiler_that_fails_leaves_nothing_and_says_why(compiler, tmp_path, monkeypatch):
    program = Path(os.environ["CXX"])
    program.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 3\n")
    with pytest.raises(BuildError, match=r"failed \(3\): x.cpp:1: error: no such thing"):
        build(plan())
    assert [one.suffix for one in (tmp_path / "cache").iterdir()] == [".lock"]


def test_without_a_compiler_ops_are_seen_from_python_with_one_line_in_the_log(
    compiler, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("OPSCOPE_TORCH_OPS", raising=False)
    for number in range(2):
        opscope.init(frameworks="torch")
        session.start(RecorderCapture(tmp_path / str(number)))
        torch.ones(3) * 2
        session.stop()
    opscope.shutdown()
    texts = collect(tmp_path / "1").tables["ranges"]["text"].to_list()
    assert any(text.startswith("aten::mul.Tensor(f32[3], _)") for text in texts)
    lines = [one.message for one in caplog.records if "observed from Python" in one.message]
    assert len(lines) == 1
    assert "no C++ compiler" in lines[0]


GROUP = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
import torch
import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.readers.recording.reader import collect
from opscope.core.capture import session
opscope.init(["torch"])
for number in range(2):
    session.start(RecorderCapture(f"{sys.argv[1]}/{number}"))
    if number == 0:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    torch.distributed.all_reduce(torch.ones(3))
    session.stop()
    texts = collect(f"{sys.argv[1]}/{number}").tables["ranges"]["text"].cast(str).to_list()
    print("seen", *(one for one in texts if one.startswith("c10d::allreduce_(")))
"""


@pytest.mark.parametrize("built_ahead", [True, False])
def test_what_names_process_groups_is_loaded_with_the_first(built_ahead, tmp_path):
    """Only then: its headers take as long to compile as the observer. Without it a line says what lacks."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    try:
        sources = (building.SOURCE, *([building.GROUPS] if built_ahead else []))
        for source in sources:
            shutil.copy(build(plan(source)), cache)
    except BuildError as error:
        pytest.skip(str(error))
    environ = {
        **os.environ,
        **{"PYTHONPATH": str(ROOT), "OPSCOPE_CACHE": str(cache), "CXX": "no-such-compiler"},
        "OPSCOPE_TORCH_OPS": "native",
    }
    done = subprocess.run(
        [sys.executable, "-c", GROUP, str(tmp_path / "runs")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    seen = [line for line in told if line.startswith("seen c10d::")]
    assert len(seen) == 2
    warnings = [line for line in told if "do not name" in line]
    if built_ahead:
        assert all('process_group="0", reduce_op="sum"' in line for line in seen)
        assert not warnings
    else:
        assert all('process_group="object", reduce_op="object"' in line for line in seen)
        assert len(warnings) == 1


READ_ONLY = """
import logging, sys, tempfile
tempfile.tempdir = sys.argv[2]
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
import torch
import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.readers.recording.reader import collect
from opscope.core.capture import session
opscope.init(["torch"], memory=True)
for number in range(2):
    session.start(RecorderCapture(f"{sys.argv[1]}/{number}"))
    torch.ones(3) * 2
    session.stop()
    tables = collect(f"{sys.argv[1]}/{number}").tables
    text = tables["ranges"]["text"].cast(str).to_list()
    print("seen", sum(one.startswith("aten::mul.Tensor(f32[3], _)") for one in text))
    print("by", *(one for one in tables["own_costs"]["part"] if one.startswith(("ops", "memory"))))
"""


@pytest.mark.parametrize("there", [True, False])
def test_a_read_only_cache(there, tmp_path, bound_by_modes):
    """What is in it is used, without a compiler; else ops are seen from Python, and a line says so."""
    cache, temporary, runs = (tmp_path / name for name in ("cache", "temporary", "runs"))
    for folder in (cache, temporary, runs):
        folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPSCOPE_CACHE": str(cache)}
    environ.pop("OPSCOPE_TORCH_OPS", None)
    if there:
        for source in (building.SOURCE, building.MEMORY):
            try:
                shutil.copy(build(plan(source)), cache)
            except BuildError as error:
                pytest.skip(str(error))
        environ["CXX"] = "no-such-compiler"
    before = sorted(cache.iterdir())
    closed = (cache, temporary)
    for folder in closed:
        folder.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(runs), str(temporary)],
            env=environ,
            preexec_fn=bound_by_modes,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        for folder in closed:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert sorted(cache.iterdir()) == before
    assert not list(temporary.iterdir())
    seen = [line for line in told if line.startswith(("seen", "by"))]
    warnings = [line for line in told if line.startswith("WARNING opscope")]
    if there:
        assert seen == ["seen 1", "by ops, native memory, CPU"] * 2
        assert warnings == []
        assert done.stderr == ""
    else:
        assert seen == ["seen 1", "by ops, dispatch"] * 2
        why = "no cache folder can be written"
        ops, memory = sorted(line for line in warnings if why in line)  # once each
        assert f"the CPU's memory is not recorded: {why}" in memory
        assert "ops are observed from Python" in ops


def test_where_native_is_asked_for_by_name_its_lack_is_no_secret(compiler, monkeypatch, caplog):
    from opscope.adapters.base import Options
    from opscope.adapters.torch.native import native_mode
    from opscope.adapters.torch.state import Threads

    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler"):
        native_mode(session.emitter("torch"), Threads(), Options())


def test_the_command_builds_ahead_and_doctor_shows_it(compiler, tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def opscope_command(*arguments):
        return subprocess.run(
            [sys.executable, "-c", "from opscope.cli import main; main()", *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )

    before = json.loads(opscope_command("doctor", "--json").stdout)
    missing = {row["what"]: row for row in before if row["state"] == "--"}
    whats = ("PyTorch observer", "PyTorch memory observer", "PyTorch process groups")
    for what in whats:
        assert missing[what]["found"].startswith("not built")
        assert "opscope build torch" in missing[what]["advice"]
    done = opscope_command("build", "torch")
    assert done.returncode == 0
    files = [Path(line) for line in done.stdout.split()]
    assert all(file.is_file() and file.parent == tmp_path / "cache" for file in files)
    assert [file.name.split("-")[1] for file in files] == ["observer", "memory", "groups"]
    after = {row["what"]: row for row in json.loads(opscope_command("doctor", "--json").stdout)}
    for what, file in zip(whats, files, strict=True):
        assert after[what]["state"] == "ok"
        assert after[what]["found"].startswith(str(file))
    assert opscope_command("build", "nothing").returncode == 2
