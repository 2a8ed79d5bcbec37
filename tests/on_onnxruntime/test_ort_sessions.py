"""What opscope does to sessions: nothing that the program sees, no file left, one profile a session."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import polars as pl  # noqa: E402
from onnxruntime.capi import onnxruntime_inference_collection as collection  # noqa: E402

import opscope  # noqa: E402
from opscope.adapters.onnxruntime import creation, known, profiled  # noqa: E402
from opscope.adapters.shared import stripped  # noqa: E402
from tests.on_onnxruntime.conftest import assert_same, files_below  # noqa: E402
from tests.on_onnxruntime.models import cnn, loop, transformer  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
#: What a program can see of its options.
SEEN = [
    name
    for name in dir(ort.SessionOptions())
    if name[0] != "_" and not callable(getattr(ort.SessionOptions(), name))
]


def shown(options):
    return {name: getattr(options, name) for name in SEEN}


def nodes(recorded):
    return recorded.ops.filter(~pl.col("op").str.starts_with("InferenceSession"))


@pytest.fixture
def clean(tmp_path, monkeypatch):
    """Asserts that the working folder and the temporary one are as before."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    scratch = tmp_path / "scratch"  # tests beside this one have their own
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    yield work
    gc.collect()
    assert files_below(work) == set()
    # ONNX Runtime leaves a file of its own there
    assert not [one for one in scratch.iterdir() if one.name.startswith("opscope-")]


def test_the_programs_options_are_as_it_set_them(made, clean):
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.profile_file_prefix = "mine"
    before = shown(options)
    session = made(cnn(), options=options)
    assert {**before, **changed(options)} == shown(options)
    plain = shown(collection.InferenceSession.get_session_options(session))
    opscope.shutdown()
    assert shown(made(cnn(), options=options).get_session_options()) == plain


def changed(options):
    """What the fixture itself sets."""
    names = ("graph_optimization_level", "intra_op_num_threads")
    return {name: getattr(options, name) for name in names}


def test_the_program_sees_no_profile_of_ours(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())

    def run():
        session.run(None, cnn().feed)
        assert session.end_profiling() == ""
        assert session.get_profiling_start_time_ns() == 0
        session.run(None, cnn().feed)

    recorded = record(run)
    assert len(nodes(recorded).filter(pl.col("op") == "Gemm")) == 2
    opscope.shutdown()
    plain = made(cnn())
    assert plain.end_profiling() == ""
    assert plain.get_profiling_start_time_ns() == 0


def test_sessions_are_profiled_only_where_that_is_asked_for(made, record, clean):
    opscope.init()
    session = made(cnn())
    recorded = record(lambda: session.run(None, cnn().feed))
    assert nodes(recorded).is_empty()
    assert profiled.UNASKED in recorded.notes()


def test_a_session_from_before_init_is_said_to_have_no_node_times(made, record, clean):
    session = made(cnn())
    opscope.init(frameworks=["onnxruntime"])
    later = made(loop())

    def run():
        session.run(None, cnn().feed)
        later.run(None, loop().feed)

    recorded = record(run)
    assert "Gemm" not in nodes(recorded)["op"].to_list()
    assert "Loop" in nodes(recorded)["op"].to_list()
    assert profiled.BEFORE in recorded.notes()


def test_of_two_captures_the_first_has_the_node_times_and_the_second_says_so(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])
    session, other = made(cnn()), made(loop())
    session.run(None, cnn().feed)  # before: not in the recording
    first = record(lambda: session.run(None, cnn().feed), "first")

    def both():
        session.run(None, cnn().feed)
        other.run(None, loop().feed)

    second = record(both, "second")
    assert len(nodes(first).filter(pl.col("op") == "Gemm")) == 1
    assert profiled.SPENT not in first.notes()
    assert any("outside the recorded runs" in note for note in first.notes())
    assert "Gemm" not in nodes(second)["op"].to_list()
    assert "Loop" in nodes(second)["op"].to_list()
    assert profiled.SPENT in second.notes()


def test_a_session_that_dies_in_the_capture_has_its_node_times(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])

    def run():
        for _ in range(3):
            session = made(cnn())
            session.run(None, cnn().feed)
            del session
        made(loop())  # never runs

    recorded = record(run)
    assert len(nodes(recorded).filter(pl.col("op") == "Gemm")) == 3
    assert sorted(path.name for path in recorded.folder.glob("part-*/onnxruntime-*")) == [
        "onnxruntime-1", "onnxruntime-2", "onnxruntime-3",
    ]  # fmt: skip


def test_a_session_that_is_made_again_on_other_providers_goes_on(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())
    plain = session.run(None, cnn().feed)
    results = []

    def run():
        results.append(session.run(None, cnn().feed))
        session.set_providers(["CPUExecutionProvider"])
        results.append(session.run(None, cnn().feed))

    recorded = record(run)
    assert len(nodes(recorded).filter(pl.col("op") == "Gemm")) == 2
    for result in results:
        assert_same(result, plain)


def test_a_session_that_is_made_while_it_is_recorded_says_when(made, record):
    opscope.init(frameworks=["onnxruntime"])
    made(loop())  # before
    recorded = record(lambda: made(cnn()).run(None, cnn().feed))
    profile = recorded.profile
    times = profile.trace["process_times"].filter(pl.col("kind").cast(str) == "session")
    assert len(times) == 1
    assert times["start"][0] < times["end"][0]
    wall = profile.wall_time()
    (compiling,) = wall.filter(pl.col("section") == "compiling")["time"]
    assert compiling == times["end"][0] - times["start"][0]


def test_the_programs_own_profile_stays_its_own_and_is_copied(made, record, tmp_path):
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "theirs")
    session = made(cnn(), options=options)
    assert options.enable_profiling
    assert session.get_profiling_start_time_ns() > 0
    ended = []

    def run():
        session.run(None, cnn().feed)
        ended.append(session.end_profiling())

    recorded = record(run)
    assert Path(ended[0]).parent == tmp_path
    assert "model_run" in {one["name"] for one in json.loads(Path(ended[0]).read_text())}
    assert "Gemm" in nodes(recorded)["op"].to_list()
    assert profiled.THEIRS not in recorded.notes()


def test_a_profile_that_the_program_does_not_end_is_said_to_be_missing(made, record, tmp_path):
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "theirs")
    session = made(cnn(), options=options)
    recorded = record(lambda: session.run(None, cnn().feed))
    assert nodes(recorded).is_empty()
    assert profiled.THEIRS in recorded.notes()
    path = session.end_profiling()
    assert Path(path).parent == tmp_path
    assert Path(path).stat().st_size > 0


def test_the_programs_own_optimised_model_is_read_where_it_is(made, record, tmp_path):
    opscope.init(frameworks=["onnxruntime"])
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "mine.onnx")
    options.log_severity_level = 3
    session = made(cnn(), options=options)
    assert options.optimized_model_filepath == str(tmp_path / "mine.onnx")
    kept = (tmp_path / "mine.onnx").read_bytes()
    recorded = record(lambda: session.run(None, cnn().feed))
    [gemm] = nodes(recorded).filter(pl.col("op") == "Gemm").iter_rows(named=True)
    assert gemm["inputs"] == "f32[2,16], f32[10,16], f32[10]"
    assert (tmp_path / "mine.onnx").read_bytes() == kept


def test_a_profile_ends_before_it_is_full(made, record, clean, monkeypatch):
    monkeypatch.setattr(profiled, "MAX_EVENTS", 90)
    opscope.init(frameworks=["onnxruntime"])
    session, unrecorded = made(cnn(), "ORT_DISABLE_ALL"), made(cnn(), "ORT_DISABLE_ALL")
    for _ in range(90):
        unrecorded.run(None, cnn().feed)
    assert unrecorded.get_profiling_start_time_ns() > 0  # no profile is hidden any more

    def run():
        for _ in range(90):
            session.run(None, cnn().feed)
        unrecorded.run(None, cnn().feed)

    recorded = record(run)
    ops = recorded.ops
    assert len(ops.filter(pl.col("op") == "InferenceSession.run")) == 91
    many = len(nodes(recorded).filter(pl.col("op") == "Gemm"))
    # nodes and two more a run, in 1.17 three events a node
    assert many == 90 // (8 * creation._events_of_a_node() + 2)
    assert profiled.FULL in recorded.notes()
    assert any("its profile was full" in note for note in recorded.notes())


def test_a_model_with_large_weights_is_loaded_once_and_that_is_said(
    made, record, clean, monkeypatch
):
    monkeypatch.setattr(creation, "MAX_WEIGHTS", 100)
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())
    recorded = record(lambda: session.run(None, cnn().feed))
    assert "Gemm" in nodes(recorded)["op"].to_list()
    assert any("was not saved" in note for note in recorded.notes())


def test_weights_in_other_files_are_found(record, tmp_path):
    opscope.init(frameworks=["onnxruntime"])
    folder = tmp_path / "external"
    folder.mkdir()
    model = transformer()
    onnx.save(
        model.proto, folder / "block.onnx", save_as_external_data=True, size_threshold=1024, location="w"
    )  # fmt: skip
    session = ort.InferenceSession(str(folder / "block.onnx"))
    recorded = record(lambda: session.run(None, model.feed))
    ops = nodes(recorded)
    assert ops["matrix_flops"].sum() == model.flops
    assert {path.name for path in folder.iterdir()} == {"block.onnx", "w"}


def test_making_a_session_says_nothing_more(tmp_path):
    program = textwrap.dedent(
        """
        import sys, onnxruntime as ort, warnings
        if len(sys.argv) > 2:
            import opscope
            opscope.init(frameworks=["onnxruntime"])
        session = ort.InferenceSession(sys.argv[1], providers=["NoSuchProvider", "CPUExecutionProvider"])
        session = ort.InferenceSession(sys.argv[1])
        try:
            ort.InferenceSession(b"no model")
        except Exception as error:
            print(type(error).__name__, str(error))
        """
    )
    path = cnn().save(tmp_path)
    said = []
    for more in ([], ["observed"]):
        command = [sys.executable, "-c", program, str(path), *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        # the time in ONNX Runtime's own lines differs
        said.append((done.stdout, [line.partition("[")[2] for line in done.stderr.splitlines()]))
    assert said[0] == said[1]
    assert said[0][0]
    assert {path.name for path in tmp_path.iterdir()} == {"cnn.onnx"}


def test_a_model_that_cannot_be_loaded_raises_as_without_opscope(made):
    def error():
        try:
            return ort.InferenceSession(b"no model")
        except Exception as error:  # noqa: BLE001 - whatever ONNX Runtime raises
            return type(error), str(error)

    plain = error()
    opscope.init(frameworks=["onnxruntime"])
    assert error() == plain
    assert isinstance(plain, tuple)
    with pytest.raises(TypeError):
        ort.InferenceSession(7)


def test_nothing_is_hooked_after_shutdown(made, record, clean):
    classes = (collection.InferenceSession, collection.Session, collection.IOBinding)
    before = [dict(vars(one)) for one in classes]
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())
    record(lambda: session.run(None, cnn().feed))
    live = made(loop())
    live.run(None, loop().feed)
    opscope.shutdown()
    assert [dict(vars(one)) for one in classes] == before
    assert live._sess.end_profiling() == ""  # ended
    live.run(None, loop().feed)


def test_hooks_of_runs_are_set_only_while_something_needs_them(made, record, clean):
    plain = collection.Session.run
    opscope.init()
    session = made(cnn())
    assert collection.Session.run is plain
    record(lambda: (session.run(None, cnn().feed), collection.Session.run))
    assert collection.Session.run is plain


def test_shutdown_in_a_capture_keeps_the_node_times(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())

    def run():
        session.run(None, cnn().feed)
        opscope.shutdown()
        session.run(None, cnn().feed)

    recorded = record(run)
    assert len(nodes(recorded).filter(pl.col("op") == "Gemm")) == 1


def test_an_error_of_ours_never_reaches_the_program(made, record, monkeypatch, caplog):
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())
    plain = session.run(None, cnn().feed)
    results = []

    def broken(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("opscope.adapters.onnxruntime.runs.key_of", broken)
    with caplog.at_level(logging.ERROR):
        record(lambda: results.append(session.run(None, cnn().feed)))
    assert_same(results[0], plain)
    assert "no longer observed" in caplog.text


@pytest.mark.parametrize("fault", ["_changed", "KnownSession", "mkdtemp", "of_file"])
def test_a_fault_wherever_a_session_is_made_leaves_the_session(
    made, monkeypatch, clean, fault, caplog
):
    plain = made(cnn()).run(None, cnn().feed)

    def broken(*_, **__):
        raise OSError("a fault of ours") if fault == "mkdtemp" else RuntimeError("a fault of ours")

    opscope.init(frameworks=["onnxruntime"])
    module = known if fault == "KnownSession" else creation
    monkeypatch.setattr(module, fault, broken)
    options = ort.SessionOptions()
    before = shown(options)
    with caplog.at_level(logging.ERROR):
        session = made(cnn(), options=options)
    assert {**before, **changed(options)} == shown(options)
    assert_same(session.run(None, cnn().feed), plain)
    assert not session.get_session_options().enable_profiling
    assert ("no longer observed" in caplog.text) == (fault != "mkdtemp")


def test_a_fault_in_saving_the_model_leaves_the_session(made, monkeypatch, caplog):
    opscope.init(frameworks=["onnxruntime"])

    def broken(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(creation, "of_bytes", broken)
    with caplog.at_level(logging.ERROR):
        session = made(cnn())
    assert session.run(None, cnn().feed)[0].shape == (2, 10)
    assert "no longer observed" in caplog.text


# --------------------------------------------------------------------- whole programs


PROGRAM = """
import os, sys, numpy as np, onnxruntime as ort
{before}
session = ort.InferenceSession(sys.argv[1])
x = np.ones((2, 3, 16, 16), np.float32)
for _ in range(5):
    result = session.run(None, {{"x": x}})
print(result[0].tobytes().hex())
{after}
"""


def program(folder, before="", after=""):
    path = folder / "program.py"
    path.write_text(PROGRAM.format(before=before, after=after))
    return path


def environment():
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run_under_opscope(path, model, folder, *, check=True):
    command = [sys.executable, "-m", "opscope", "run", "-o", "run.opscope", "--", sys.executable]
    return subprocess.run(
        [*command, str(path), str(model)],
        cwd=folder, env=environment(), capture_output=True, text=True, check=check, timeout=300,
    )  # fmt: skip


def test_opscope_run_times_the_nodes_of_an_unchanged_program(tmp_path, clean):
    path, model = program(tmp_path), cnn().save(tmp_path)
    plain = subprocess.run(
        [sys.executable, str(path), str(model)], capture_output=True, text=True, check=True
    )
    done = run_under_opscope(path, model, clean)
    assert plain.stdout.strip() in done.stdout
    profile = opscope.load(clean / "run.opscope")
    ops = profile.ops()
    assert len(ops.filter(pl.col("op") == "InferenceSession.run")) == 5
    assert len(ops.filter((pl.col("op") == "Gemm") & (pl.col("depth") > 0))) == 5
    assert profile.trace["processes"]["framework"].to_list() == ["onnxruntime"]
    import shutil

    shutil.rmtree(clean / "run.opscope")


@pytest.mark.parametrize("after", ["os._exit(0)", "sys.exit(0)"])
def test_a_program_that_leaves_early_has_its_node_times(tmp_path, clean, after):
    path, model = program(tmp_path, after=after), cnn().save(tmp_path)
    run_under_opscope(path, model, clean)
    ops = opscope.load(clean / "run.opscope").ops()
    assert len(ops.filter((pl.col("op") == "Gemm") & (pl.col("depth") > 0))) == 5
    import shutil

    shutil.rmtree(clean / "run.opscope")


def test_a_program_that_is_killed_leaves_its_runs_and_no_file(tmp_path, clean):
    after = f"import time; time.sleep(1.5); os.kill(os.getpid(), {int(signal.SIGKILL)})"
    path, model = program(tmp_path, after=after), cnn().save(tmp_path)
    run_under_opscope(path, model, clean, check=False)
    profile = opscope.load(clean / "run.opscope")
    ops = profile.ops()
    assert ops["op"].to_list() == ["InferenceSession.run"] * 5
    assert any("are lost: the process ended" in note for note in profile.notes()["what"])
    import shutil

    shutil.rmtree(clean / "run.opscope")


def test_a_killed_program_with_init_alone_leaves_no_file(tmp_path, clean):
    before = 'import opscope; opscope.init(frameworks=["onnxruntime"])'
    after = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    path, model = program(tmp_path, before, after), cnn().save(tmp_path)
    done = subprocess.run(
        [sys.executable, str(path), str(model)], cwd=clean, env=environment(), check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_a_forked_child_leaves_its_parents_profile_alone(made, record, clean):
    opscope.init(frameworks=["onnxruntime"])
    session = made(cnn())

    def run():
        session.run(None, cnn().feed)
        child = os.fork()
        if not child:
            gc.collect()
            opscope.shutdown()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        session.run(None, cnn().feed)

    recorded = record(run)
    assert len(nodes(recorded).filter(pl.col("op") == "Gemm")) == 2


# --------------------------------------------------------------------- models without values


def test_a_model_without_values_has_its_nodes_and_sizes(tmp_path):
    model = transformer()
    big = np.zeros((1000, 1000), np.float32)
    model.proto.graph.initializer.append(onnx.numpy_helper.from_array(big, "big"))
    found = stripped.of_bytes(model.proto.SerializeToString())
    again = onnx.ModelProto.FromString(found.data)
    assert list(again.graph.node) == list(model.proto.graph.node)
    assert found.nodes == len(model.proto.graph.node)
    sizes = {one.name: tuple(one.dims) for one in again.graph.initializer}
    assert sizes == {one.name: tuple(one.dims) for one in model.proto.graph.initializer}
    assert len(found.data) < 100_000
    assert found.weights == sum(
        onnx.numpy_helper.to_array(one).nbytes for one in model.proto.graph.initializer
    )
    [kept] = [one for one in again.graph.initializer if one.name == "split"]
    assert onnx.numpy_helper.to_array(kept).tolist() == [0, 0, 4, 8]


def test_nodes_of_bodies_are_counted():
    found = stripped.of_bytes(loop().proto.SerializeToString())
    assert found.nodes == 2 + 4 + 2
    assert onnx.ModelProto.FromString(found.data) == loop().proto


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\x3a\x7f", b"1234ORTM5678"])
def test_what_is_no_model_is_refused(data):
    if not data:
        assert stripped.of_bytes(data).nodes == 0
        return
    with pytest.raises(ValueError):
        stripped.of_bytes(data)
