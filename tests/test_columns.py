"""Every column of every frame that a profile returns is documented: its unit and its meaning."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope import errors
from opscope.core.question import methods, registry
from opscope.core.question.column import UNITS
from opscope.core.question.words import WORDS, columns
from opscope.profile import Profile, load

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
FRAMES = {frame.call: frame for frame in registry.frames()}
#: Traces that hold what the others do not: ranks, memory, compiled regions, no GPU, other formats.
TRACES = {
    "a GPU": ["kineto/alexnet_cuda_sync_a100.json.gz"],
    "two ranks": ["kineto/sampled_rank0.json.gz", "kineto/sampled_rank1.json.gz"],
    "memory and compiled regions": ["kineto/ddp_memory_v100.json.gz"],
    "shapes and memory": ["kineto/timesformer_h100.json.gz"],
    "Nsight Systems, two GPUs": ["nsys/fsdp_h100x2_2026.sqlite"],
    "Nsight Systems, no GPU": ["nsys/multiprocessing_nogpu_2020.sqlite"],
    "nvprof": ["nvprof/language_model.sqlite"],
    "XPlane": ["xplane/jax_conv_mi300.xplane.pb"],
}
OP = "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4] on cpu"


def rows_of_ops() -> list[dict]:
    place = {"process": 0, "thread": 1, "kind": "pushpop"}
    return [
        {**place, "domain": "opscope.user", "category": "step", "text": "step 0", "start": 0,
         "end": 500},
        {**place, "domain": "opscope.torch", "category": "phase", "text": "forward", "start": 1,
         "end": 400},
        {**place, "domain": "opscope.user", "text": "mine", "start": 2, "end": 300},
        {**place, "domain": "opscope.torch", "category": "forward", "text": OP, "start": 10,
         "end": 90},
        {**place, "domain": "opscope.torch", "category": "forward", "text": "mystery::op(f32[2])",
         "start": 100, "end": 190},
    ]  # fmt: skip


@pytest.fixture
def on_cpu(trace_of) -> Profile:
    allocations = [
        {"process": 0, "device": -1, "thread": 1, "time": 20 + 10 * n, "address": 7, "bytes": size}
        for n, size in enumerate((64, -64))
    ]
    own = {"process": 0, "part": "recorder", "time": 3, "calls": 2, "one_in": 1, "span": 500,
           "steps_span": 500, "steps_time": 3}  # fmt: skip
    return Profile(trace_of(ranges=rows_of_ops(), allocations=allocations, own_costs=[own]))


@pytest.fixture
def on_gpu(trace_of) -> Profile:
    place = {"process": 0, "thread": 1}
    calls = [
        {**place, "start": at, "end": at + 3, "name": "cudaLaunchKernel", "correlation": n}
        for n, at in enumerate((15, 105, 450))
    ]
    ran = {"process": 0, "device": 0, "stream": 7}
    kernels = [
        {**ran, "start": 1000 + 50 * n, "end": 1040 + 50 * n, "name": name, "correlation": n}
        for n, name in enumerate(("sgemm", "ncclKernel_AllReduce", "stray"))
    ]
    memops = [{**ran, "start": 2000, "end": 2010, "kind": "HtoD", "bytes": 64, "correlation": 1}]
    trace = trace_of(ranges=rows_of_ops(), calls=calls, kernels=kernels, memops=memops)
    return Profile(trace)


def walk(profile: Profile) -> dict[str, pl.DataFrame]:
    """The frame of every documented call."""
    made = {}
    for call in FRAMES:
        form = r'(\w+)\((other)?(?:, )?(?:"(\w+)")?\)'
        name, other, argument = re.fullmatch(form, call).groups()
        given = [*([profile] if other else []), *([argument] if argument else [])]
        made[call] = getattr(profile, name)(*given)
    return made


def complain(profile: Profile) -> list[str]:
    """What the frames of a profile and their documentation disagree about."""
    wrong = []
    for call, frame in walk(profile).items():
        documented = [column.name for column in FRAMES[call].columns]
        wrong += [
            f"{call}: {name} is not documented" for name in frame.columns if name not in documented
        ]
        wrong += [f"{call}: there is no {name}" for name in documented if name not in frame.columns]
        if not wrong and frame.columns != documented:
            wrong.append(f"{call}: another order: {frame.columns}")
        for column in FRAMES[call].columns:
            if column.name in frame.columns and not fits(frame.schema[column.name], column.unit):
                wrong.append(
                    f"{call}: {column.name} in {column.unit} is {frame.schema[column.name]}"
                )
    return wrong


def fits(dtype: pl.DataType, unit: str) -> bool:
    """Whether values of this unit are of this type."""
    if unit == "text":
        return dtype == pl.String
    if unit == "yes/no":
        return dtype == pl.Boolean
    if unit in ("count", "number", "bytes", "FLOP"):
        return dtype.is_integer()
    return dtype.is_numeric() if unit == "ns" else dtype.is_float()


@pytest.mark.parametrize("made", ["on_cpu", "on_gpu"])
def test_the_columns_are_the_documented_ones(made, request, tmp_path):
    profile = request.getfixturevalue(made)
    assert complain(profile) == []
    assert sum(len(frame) > 0 for frame in walk(profile).values()) > 20
    profile.save(tmp_path / "run.opscope")
    assert complain(load(tmp_path / "run.opscope")) == []


@pytest.mark.parametrize("what", TRACES)
def test_the_columns_of_real_traces_are_the_documented_ones(what, shared):
    paths = [shared / name for name in TRACES[what]]
    assert complain(load(paths if len(paths) > 1 else paths[0])) == []


def test_a_trace_in_which_nothing_happened_has_the_same_columns(trace_of):
    assert complain(Profile(trace_of())) == []


def test_combined_groups_have_documented_columns(on_cpu):
    frame = on_cpu.efficiency("op", "layer")
    assert len(frame)
    rest = [column.name for column in FRAMES['efficiency("op")'].columns][1:]
    assert frame.columns == ["op", "layer", *rest]


def test_every_method_that_returns_a_frame_is_documented():
    giving = {
        name
        for name, method in inspect.getmembers(Profile, inspect.isfunction)
        if not name.startswith("_")
        and inspect.signature(method).return_annotation == "pl.DataFrame"
    }
    giving -= {"op_columns", "ask"}  # columns of op_totals(), and any question by its name
    assert giving == {frame.method for frame in FRAMES.values()}


def test_every_column_has_a_unit_and_a_meaning():
    for call, frame in FRAMES.items():
        assert frame.row
        assert len({column.name for column in frame.columns}) == len(frame.columns), call
        for column in frame.columns:
            assert column.unit in UNITS, f"{call}: {column.name}"
            assert len(column.meaning.split()) > 1, f"{call}: {column.name}"
    used = {column.unit for frame in FRAMES.values() for column in frame.columns}
    assert used == set(UNITS)


def test_the_vocabulary_has_the_words_of_several_frames_and_no_other():
    frames = Counter(column.name for frame in FRAMES.values() for column in frame.columns)
    assert {word for word in WORDS if frames[word] < 2} == set()


def test_a_name_of_the_vocabulary_has_its_unit_in_every_frame():
    """But where a GPU's number is a kind of device elsewhere."""
    other = {
        (frame.call, column.name)
        for frame in FRAMES.values()
        for column in frame.columns
        if column.name in WORDS and column.unit != WORDS[column.name].unit
    }
    assert other == {("ops()", "device"), ("meshes()", "device")}


def test_a_column_that_nobody_documented_is_refused():
    with pytest.raises(KeyError, match="beauty"):
        columns("op beauty")
    (own,) = columns("beauty", beauty=("count", "how many found it nice"))
    assert (own.name, own.unit) == ("beauty", "count")


def test_help_lists_the_columns():
    for frame in FRAMES.values():
        said = inspect.getdoc(getattr(Profile, frame.method))
        assert f"``{frame.call}``: {frame.row}." in said
        for column in frame.columns:
            assert re.search(rf"^    {column.name} +{column.unit}: ", said, re.MULTILINE)


def test_docstrings_that_python_left_out_stay_out():
    question = registry.question("summary")
    bare = replace(question, answer=lambda profile: question.answer(profile))
    assert methods.method_of(question).__doc__
    assert methods.method_of(bare).__doc__ is None


# ---------------------------------------------------------------------------------- the interface


def public_docstrings() -> dict[str, str]:
    found = {"opscope": opscope.__doc__, "Profile": Profile.__doc__}
    found |= {name: inspect.getdoc(getattr(opscope, name)) for name in opscope.__all__}
    found |= {name: inspect.getdoc(getattr(errors, name)) for name in errors.__all__}
    for name, member in vars(Profile).items():
        if not name.startswith("_"):
            found[f"Profile.{name}"] = inspect.getdoc(member)
    return found


INSIDE = re.compile(
    r"\b(?:core|readers|adapters|backends|cli|reports|callbacks|schema|analysis|attribute)\.[A-Za-z_]+"
    r"|\bsee ``"
)


def test_public_docstrings_say_what_a_reader_needs_and_point_to_no_internals():
    for name, said in public_docstrings().items():
        assert said, f"{name} has no docstring"
        assert INSIDE.findall(said) == [], name


def test_the_errors_are_those_that_are_raised(tmp_path):
    with pytest.raises(errors.BadInput):
        opscope.load(tmp_path / "missing.json")
    with pytest.raises(opscope.errors.AdapterError):
        opscope.init("cobol")
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), Exception)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        errors.Nonsense  # noqa: B018


def test_the_errors_are_named_without_what_raises_them():
    code = "import sys, opscope.errors; print([n for n in ('polars', 'numpy') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["make_advice_doc.py", "make_api_doc.py", "make_reports_doc.py"])
def test_the_generated_pages_are_up_to_date(name):
    if not (SCRIPTS / name).is_file():
        pytest.skip("the source distribution has no scripts")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_attribute_of_a_profile_is_public_provisional_or_not():
    if not SCRIPTS.is_dir():
        pytest.skip("the source distribution has no scripts")
    import runpy

    lists = runpy.run_path(str(SCRIPTS / "make_api_doc.py"))
    named = [*lists["HELD"], *lists["HELD_PROVISIONALLY"], *lists["HELD_WITHIN"]]
    named += {frame.method for frame in FRAMES.values()}
    there = {name for name in dir(Profile) if not name.startswith("_")} | {"trace"}
    assert sorted(named) == sorted(there)


def test_a_name_that_a_module_imports_under_another_is_not_taken_for_its_own(tmp_path, monkeypatch):
    """A module has a StepRange, and imports another as ``_Range``."""
    if not SCRIPTS.is_dir():
        pytest.skip("the source distribution has no scripts")
    import runpy

    package = tmp_path / "aliased"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text('class StepRange:\n    """The other."""\n')
    own = (
        'from .other import StepRange as _Range\n\n\nclass StepRange(_Range):\n    """Its own."""\n'
    )
    (package / "one.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    docstring = runpy.run_path(str(SCRIPTS / "make_api_doc.py"))["docstring"]
    assert docstring("aliased.one", "StepRange") == "Its own."
    assert docstring("aliased.one", "_Range") == "The other."


def test_a_line_that_begins_with_a_name_in_backquotes_does_not_end_a_description(monkeypatch):
    if not SCRIPTS.is_dir():
        pytest.skip("the source distribution has no scripts")
    import runpy

    frames = runpy.run_path(str(SCRIPTS / "make_api_doc.py"))["frames"]
    told = Profile.summary.__doc__.replace(
        "\n``summary()``:", "\n``wall_time`` is a column.\n\n``summary()``:"
    )
    monkeypatch.setattr(Profile.summary, "__doc__", told)
    (section,) = (text for text in frames() if text.startswith("\n### profile.summary("))
    assert "`wall_time` is a column." in section
    assert "summary()`" not in section
