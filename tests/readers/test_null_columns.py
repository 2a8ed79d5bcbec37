"""A column of kernels or copies that a file lacks: each answer says what it does not know, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opscope.core.question.registry import reports
from opscope.core.tables.doubled import without_doubles
from opscope.core.tables.impossible import without_impossible
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.readers.sound import sound_trace
from tests import traces
from tests.command import opscope

#: The smallest real trace of each reader that has kernels or copies.
REAL = {
    "Kineto JSON": "kineto/alexnet_cuda_sync_a100.json.gz",
    "nsys SQLite": "dlprof/nsys_profile.sqlite",
    "nvprof": "nvprof/language_model.sqlite",
    "DLProf": "dlprof/dlprof_dldb.sqlite",
    "Nsight Compute": "ncu/cuda_learning_mojo_profile.ncu-rep",
    "rocprofv3": "rocm/rocprofv3_docs",
    "rocprofiler-compute": "rocm/rocprofiler-compute_vcopy_MI200",
    "rocmProfileData": "rocm/rpd",
    "XPlane": "xplane/jax_conv_mi300.xplane.pb",
    "MindSpore": "mindspore/mindinsight_run2_ascend910",
    "ONNX Runtime JSON": "onnxruntime/resnet_inference_gemmini.json",
    "TensorRT": "tensorrt/cookbook_trt10.16",
}
COLUMNS = [
    (table, column)
    for table in ("kernels", "memops")
    for column in ("start", "end", "stream", "device", "name", "bytes")
    if (table, column) not in (("kernels", "bytes"), ("memops", "name"))
]
EXPORTS = ("chrome", "perfetto", "speedscope", "flamegraph", "otlp", "prometheus", "html")
#: Frames of few rows, each of which is of one process, device or step.
JUDGED = (
    "summary",
    "steps",
    "idle",
    "overlap",
    "device_use",
    "lost_kernels",
    "bandwidth",
    "communication",
)
#: What says why a figure is not known, or what it rests on.
TOLD = {
    "start": "their times were not recorded", "end": "their times were not recorded", "name": "without a name",
    "stream": "stream is not known", "device": "device.* not known", "bytes": "(bytes|size).*not|not.*(bytes|size)",
}  # fmt: skip
FRAMES = (*JUDGED, "kernel_launches", "idle_steps", "queue", "advice")
#: Figures of what is known: 0 is that nothing is.
OF_THE_KNOWN = (
    "device_unattributed_time",
    "flops_share",
    "bytes_share",
    "grid_known",
    "occupancy_known",
    "lost_share",
    "lost_kernels",
)


def nulled(trace: Trace, table: str, column: str) -> Trace:
    """The trace as its reader gives it where no row has a value in the column."""
    tables = {name: trace[name] for name in trace.present - {"notes"}}
    frame = tables[table]
    tables[table] = frame.with_columns(pl.lit(None, frame.schema[column]).alias(column))
    made = sound_trace(tables, trace.origin)
    for note in trace["notes"].select("severity", "what", "how_many").rows():
        made.note(*note)
    return without_impossible(without_doubles(made))


def texts(profile: Profile) -> set[str]:
    """What the profile says of itself, and the reasons beside the figures of the frames."""
    said = set(profile.notes()["what"].cast(pl.String))
    for frame in (*(getattr(profile, name)() for name in FRAMES), profile.idle("stream")):
        for reason in frame.columns:
            if "reason" in reason or reason == "unknown":
                said |= set(frame[reason].drop_nulls().cast(pl.String))
    return said


def zeros(whole: Profile, lacking: Profile) -> Iterator[str]:
    """Figures that are 0 for want of the column, in rows without a reason."""
    for name in JUDGED:
        before, after = (getattr(profile, name)() for profile in (whole, lacking))
        if len(before) != len(after):
            continue
        for was, row in zip(before.to_dicts(), after.to_dicts(), strict=True):
            if any(row[key] for key in row if "reason" in key or key == "unknown"):
                continue
            undetermined = bool(row.get("tensor_core_undetermined_time"))
            yield from (
                f"{name}.{key}"
                for key, value in row.items()
                if type(value) in (int, float, bool) and not value and was.get(key)
                if key not in OF_THE_KNOWN and not (undetermined and key.startswith("tensor_core"))
            )


def cases() -> Iterator[Any]:
    for reader in REAL:
        for table, column in COLUMNS:
            yield pytest.param(reader, table, column, id=f"{reader}, {table}.{column}")


@pytest.mark.parametrize(("reader", "table", "column"), [*cases()])
def test_a_column_that_is_null_in_whole_is_told(
    reader: str, table: str, column: str, shared: Path, tmp_path: Path
) -> None:
    path = shared / REAL[reader]
    whole = traces.load(path)
    values = whole.trace[table][column]
    if values.null_count() == len(values):
        pytest.skip("the trace has no such values")
    lacking = Profile(nulled(whole.trace, table, column))
    lacking.save(saved := tmp_path / "lacking.opscope")
    for words in (
        ["report", saved], ["report", saved, "--json"], ["report", saved, "--reports", ",".join(reports())],
        ["advise", saved, "--all"], ["whatif", saved, "--copies=0"], ["iterations", saved],
        ["kernels", saved, "--each"],
        ["dlprof", f"--database={saved}", "--reports=all", f"--output_path={tmp_path}"],
        *(["export", saved, "--to", to, "-o", tmp_path / to] for to in EXPORTS),
    ):  # fmt: skip
        done = opscope(*words)
        refused = done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert done.returncode == 0 or (refused and str(saved) in done.stderr), (words, done.stderr)
    assert not [*zeros(whole, lacking)]
    if column != "stream" or not lacking.trace.origin.get("times"):  # totals are laid end to end
        assert any(re.search(TOLD[column], text) for text in texts(lacking))
