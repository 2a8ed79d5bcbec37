"""Results that are kept in a saved profile's folder: the same as computed ones, and harmless where they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opscope
from opscope.core.analysis.steps import detected_iterations
from opscope.core.attribution.found import NAMES as LINKED
from opscope.profile import Profile
from opscope.profile import profile as profiles
from opscope.profile.stored import STORED

#: Methods whose frames are stored; what reading alone is asked of them too.
FRAMES = [name for name in STORED if name not in ("op_sums", "linking_notes", "detected_steps")]
ALL = [*FRAMES, "iterations"]
#: What is kept once ``ALL`` were asked for.
KEPT = {*STORED, *LINKED} - {"op_sums"}


def tables() -> dict[str, list[dict]]:
    """Two ops, three launches, a kernel without a launch, a copy."""
    place = {"process": 0, "thread": 1}
    on_gpu = {"process": 0, "device": 0, "stream": 7}
    texts = ["aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]", "mystery::op(f32[2])"]
    return {
        "ranges": [
            {**place, "text": text, "domain": "opscope.torch", "category": "forward",
             "kind": "pushpop", "start": 100 * n, "end": 100 * n + 90}
            for n, text in enumerate(texts)
        ],
        "calls": [
            {**place, "start": 100 * n + 5, "end": 100 * n + 9, "name": "cudaLaunchKernel", "correlation": n}
            for n in range(3)
        ],
        "kernels": [
            {**on_gpu, "start": 1000 + 50 * n, "end": 1040 + 50 * n, "name": f"k{n}", "correlation": n}
            for n in range(4)
        ],
        "memops": [{**on_gpu, "start": 2000, "end": 2010, "kind": "HtoD", "bytes": 64, "correlation": 1}],
    }  # fmt: skip


@pytest.fixture
def path(trace_of, tmp_path: Path) -> Path:
    """A profile that was saved straight after reading."""
    path = tmp_path / "p.opscope"
    Profile(trace_of(**tables())).save(path)
    return path


@pytest.fixture
def whole(trace_of) -> Profile:
    return Profile(trace_of(**tables()))


def kept(path: Path) -> set[str]:
    return {file.name for file in path.glob("kept.*")}


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def ask_all(profile: Profile) -> None:
    for name in (*ALL, "notes"):
        getattr(profile, name)()


def assert_answers(profile: Profile, whole: Profile, frames: list[str] = FRAMES) -> None:
    for name in [*frames, "notes"]:
        ours, theirs = getattr(profile, name)(), getattr(whole, name)()
        assert_frame_equal(ours, theirs, categorical_as_str=True, check_row_order=True, check_exact=True)  # fmt: skip


def test_saving_computes_nothing(whole, tmp_path):
    whole.save(tmp_path / "p.opscope")
    assert "attribution" not in vars(whole)
    assert not whole._frames
    head = json.loads((tmp_path / "p.opscope" / "meta.json").read_text())
    assert head["extra"] == {}


def test_saving_writes_what_was_computed(whole, tmp_path):
    ask_all(whole)
    whole.save(tmp_path / "p.opscope")
    head = json.loads((tmp_path / "p.opscope" / "meta.json").read_text())
    assert set(head["extra"]) == KEPT
    again = opscope.load(tmp_path / "p.opscope")
    assert_answers(again, whole)
    assert "attribution" not in vars(again)
    assert not kept(tmp_path / "p.opscope")


def test_what_was_saved_answers_the_same_before_and_after_results_are_kept(path, whole):
    before = contents(path)
    first = opscope.load(path)
    assert_answers(first, whole, ALL)
    assert {f"kept.{name}.parquet" for name in KEPT} <= kept(path)
    assert {name: data for name, data in contents(path).items() if name in before} == before
    after = opscope.load(path)
    assert_answers(after, whole)
    assert "attribution" not in vars(after)  # all of it was there
    assert after.ops().equals(whole.ops())


def test_real_profiles_answer_the_same_before_and_after_results_are_kept(shared, tmp_path):
    names = (
        "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
        "kineto/vllm_decode_cudagraph_capture.json.gz",
        "nsys/cudf_2020.sqlite",
        "nvprof/language_model.sqlite",
        "xplane/jax_conv_mi300.xplane.pb",
    )
    for number, name in enumerate(names):
        whole = opscope.load(shared / name)
        folder = tmp_path / f"{number}.opscope"
        opscope.load(shared / name).save(folder)
        frames = [*FRAMES, "ops", "critical_path", "steps", "advice"]
        for _ in range(2):
            assert_answers(opscope.load(folder), whole, frames)
        assert kept(folder)


def test_an_attribution_that_was_kept_is_used(path, whole):
    first = opscope.load(path).attribution
    again = opscope.load(path)
    assert again._found() is not None
    for one, other in ((first, again.attribution), (whole.attribution, again.attribution)):
        assert one.kernels.op.tolist() == other.kernels.op.tolist()
        assert one.parent.tolist() == other.parent.tolist()


def test_a_saved_copy_has_what_was_kept(path, whole, tmp_path):
    ask_all(opscope.load(path))
    opscope.load(path).save(tmp_path / "copy.opscope")
    head = json.loads((tmp_path / "copy.opscope" / "meta.json").read_text())
    assert set(head["extra"]) >= KEPT
    assert_answers(opscope.load(tmp_path / "copy.opscope"), whole)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_in_a_folder_that_is_not_writable_nothing_is_kept(path, whole, monkeypatch):
    before = contents(path)
    path.chmod(0o555)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
    try:
        assert_answers(opscope.load(path), whole)
        assert contents(path) == before
    finally:
        path.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such owners here")
def test_in_the_folder_of_another_user_nothing_is_kept(path, whole, monkeypatch):
    before = contents(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert_answers(opscope.load(path), whole)
    assert contents(path) == before


def test_keeping_can_be_switched_off(path, whole, monkeypatch):
    before = contents(path)
    monkeypatch.setenv("OPSCOPE_KEEP", "0")
    assert_answers(opscope.load(path), whole)
    assert contents(path) == before


def test_a_full_disk_is_no_error_and_leaves_nothing(path, whole, monkeypatch):
    before = contents(path)
    profile = opscope.load(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert_answers(profile, whole)
    assert contents(path) == before


def test_a_link_in_the_folder_is_replaced_and_not_followed(path, whole, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"not ours to touch")
    (path / "kept.summary.parquet").symlink_to(other)
    assert_answers(opscope.load(path), whole)
    assert other.read_bytes() == b"not ours to touch"
    assert not (path / "kept.summary.parquet").is_symlink()


def _truncate(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty(file: Path, _: Path) -> None:
    file.write_bytes(b"")


def _damage(file: Path, _: Path) -> None:
    """Damage the data and leave the footer."""
    data = file.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    file.write_bytes(b"PAR1" + b"\xff" * (len(data) - length - 4) + data[-length:])


def _rewrite(file: Path, **changes: object) -> None:
    """Write the file anew with the same label and changed columns."""
    label = pl.read_parquet_metadata(file)["opscope"]
    frame = pl.read_parquet(file).with_columns(**changes)
    frame.write_parquet(file, metadata={"opscope": label})


def _more_columns(file: Path, _: Path) -> None:
    _rewrite(file, more=pl.lit(1))


def _other_types(file: Path, _: Path) -> None:
    _rewrite(file, **{pl.read_parquet(file).columns[0]: pl.lit(b"x")})


def _other_version(file: Path, _: Path) -> None:
    label = json.loads(pl.read_parquet_metadata(file)["opscope"])
    label["analysis"] += 1
    pl.DataFrame({"wrong": [1]}).write_parquet(file, metadata={"opscope": json.dumps(label)})


def _of_other_tables(file: Path, _: Path) -> None:
    label = json.loads(pl.read_parquet_metadata(file)["opscope"])
    label["tables"] = "0" * 32
    pl.read_parquet(file).head(0).write_parquet(file, metadata={"opscope": json.dumps(label)})


def _no_label(file: Path, _: Path) -> None:
    pl.read_parquet(file).head(0).write_parquet(file)


def _pipe(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _huge(file: Path, _: Path) -> None:
    """A few bytes that fill the memory."""
    label, frame = pl.read_parquet_metadata(file)["opscope"], pl.read_parquet(file)
    if not len(frame):
        frame = pl.DataFrame({name: [None] for name in frame.columns}, schema=frame.schema)
    rows = 40_000_000
    same = pl.select(pl.repeat(0, rows, dtype=pl.Int8).alias("x")).lazy()
    first = frame.columns[0]
    same.with_columns(x=pl.lit(1)).rename({"x": first}).sink_parquet(
        file, metadata={"opscope": label}
    )


@pytest.mark.parametrize(
    "harm",
    [_truncate, _empty, _damage, _more_columns, _other_types, _other_version, _of_other_tables, _no_label,
     _pipe, _huge],
)  # fmt: skip
def test_a_kept_file_that_is_not_right_is_computed_anew_and_replaced(harm, path, whole, tmp_path):
    if harm is _pipe and not hasattr(os, "mkfifo"):
        pytest.skip("no pipes here")
    ask_all(opscope.load(path))
    harmed = ("summary", "kernels", "op_totals", "kinds", "launched_kernels", "enclosing_ops",
              "detected_steps")  # fmt: skip
    for name in harmed:
        harm(path / f"kept.{name}.parquet", tmp_path)
    broken = opscope.load(path)
    assert_answers(broken, whole, ALL)
    assert broken.attribution.kernels.op.tolist() == whole.attribution.kernels.op.tolist()
    assert broken.ops().equals(whole.ops())
    mended = opscope.load(path)
    assert mended._found() is not None
    assert set(harmed) <= set(mended._stored)
    assert_answers(mended, whole)
    assert mended._kept >= set(harmed)
    assert not list(path.glob(".*"))


@pytest.fixture
def repeating(trace_of, tmp_path: Path) -> Path:
    """A profile of a process that marks no steps and repeats five ops, and of one without ops."""
    place = {
        "process": 0,
        "thread": 1,
        "domain": "opscope.torch",
        "category": "forward",
        "kind": "pushpop",
    }
    ranges = [
        {**place, "text": f"aten::{'abcde'[n % 5]}(f32[2])", "start": 100 * n, "end": 100 * n + 90}
        for n in range(200)
    ]
    kernel = {"process": 1, "device": 0, "stream": 7, "start": 0, "end": 9, "name": "k"}
    path = tmp_path / "repeating.opscope"
    Profile(trace_of(ranges=ranges, kernels=[kernel])).save(path)
    return path


def test_detected_iterations_are_detected_once(repeating, monkeypatch):
    whole = opscope.load(repeating)
    found = whole.iterations()
    assert len(found.filter(pl.col("process") == 0)) > 30
    assert found.filter(pl.col("process") == 1)["reason"].is_not_null().all()
    real = detected_iterations.detected

    def asked(ops, processes):  # of an empty profile the columns are asked for
        assert not processes
        return real(ops, processes)

    monkeypatch.setattr(detected_iterations, "detected", asked)
    assert_frame_equal(opscope.load(repeating).iterations(), found)
    assert_frame_equal(opscope.diff(repeating, repeating), whole.diff(whole))


@pytest.mark.parametrize(
    "wrong",
    [
        pl.lit(7, pl.Int32).alias("process"),
        pl.when(pl.col("step") != 0).then("process").alias("process"),
        pl.lit(None, pl.Int64).alias("start"),
        pl.col("start").alias("end"),
        pl.lit(None, pl.String).alias("doubt"),
        pl.lit(float("nan")).alias("confidence"),
        pl.when(pl.col("step") < 1).then(None).otherwise("step").alias("step"),
    ],
    ids=str,
)
def test_detected_iterations_that_cannot_be_are_detected_again(repeating, wrong):
    found = opscope.load(repeating).iterations()
    file = repeating / "kept.detected_steps.parquet"
    label = {
        name: text for name, text in pl.read_parquet_metadata(file).items() if name == "opscope"
    }
    pl.read_parquet(file).with_columns(wrong).write_parquet(file, metadata=label)
    assert_frame_equal(opscope.load(repeating).iterations(), found)


def test_results_of_another_profile_are_not_used(path, trace_of, whole, tmp_path):
    ask_all(opscope.load(path))
    other = tables()
    other["kernels"] = other["kernels"][:2]
    Profile(trace_of(**other)).save(tmp_path / "other.opscope")
    for file in path.glob("kept.*"):
        (tmp_path / "other.opscope" / file.name).write_bytes(file.read_bytes())
    assert_answers(opscope.load(tmp_path / "other.opscope"), Profile(trace_of(**other)))


def test_two_profiles_of_the_same_shape_are_told_apart(path, trace_of, tmp_path):
    ask_all(opscope.load(path))
    longer = tables()
    longer["kernels"][0]["end"] += 5
    Profile(trace_of(**longer)).save(tmp_path / "other.opscope")
    for file in path.glob("kept.*"):
        (tmp_path / "other.opscope" / file.name).write_bytes(file.read_bytes())
    assert_answers(opscope.load(tmp_path / "other.opscope"), Profile(trace_of(**longer)))


def test_a_profile_that_was_replaced_meanwhile_gets_no_result_of_the_older_one(path, trace_of):
    opened = opscope.load(path)
    for name in opened.trace.tables:
        opened.trace[name]
    Profile(trace_of(**tables())).save(path, force=True)
    ask_all(opened)
    assert not kept(path)


def test_a_result_of_another_version_is_replaced(path, whole, monkeypatch):
    ask_all(opscope.load(path))
    for module in (opscope.profile, profiles):
        monkeypatch.setattr(module, "ANALYSIS", profiles.ANALYSIS + 1)
    newer = opscope.load(path)
    assert not newer._kept
    assert_answers(newer, whole, ALL)
    assert opscope.load(path)._kept >= KEPT


def test_a_selection_and_another_gpu_keep_nothing(path):
    part = opscope.load(path).select(device=0)
    ask_all(part)
    linking = {f"kept.{name}.parquet" for name in LINKED}
    assert kept(path) <= linking
    named = opscope.load(path, gpu="H100 SXM")
    ask_all(named)
    assert kept(path) <= linking


def test_what_is_stored_for_an_unnamed_gpu_is_not_used_for_a_named_one(path, trace_of):
    named = Profile(trace_of(**tables()))
    from opscope.core.perf.devices.unnamed import name_devices

    name_devices(named.trace, "H100 SXM")
    ask_all(opscope.load(path))
    assert_answers(opscope.load(path, gpu="H100 SXM"), named)


def test_two_processes_at_once(path, whole):
    code = (
        "import sys, opscope\n"
        "sys.stdin.readline()\n"
        "for _ in range(5):\n"
        "    p = opscope.load(sys.argv[1])\n"
        f"    for name in {FRAMES!r}: getattr(p, name)()\n"
        "    for file in __import__('pathlib').Path(sys.argv[1]).glob('kept.*'): file.unlink(missing_ok=True)\n"
    )  # each removes what the other may be about to open
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    assert [one.wait(300) for one in both] == [0, 0]
    for one in both:
        one.stdin.close()
    assert not list(path.glob(".*"))
    assert_answers(opscope.load(path), whole)
    assert_answers(opscope.load(path), whole)
