"""`opscope run --backend nsys` with the real Nsight Systems, where that is installed: a real training's report.

``OPSCOPE_NSYS=/a/nsys:/b/nsys pytest -m slow tests/on_torch/test_run_under_nsys.py`` tries several versions.
No GPU is needed: without one the ranges are recorded, and no kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.backends.nsys import tool as nsys_tool
from opscope.backends.nsys.versions import RELEASES
from opscope.profile import Profile
from tests import fake_nsys
from tests import nsight_tool as tool

ROOT = tool.ROOT
LENET = ROOT / "examples" / "torch_lenet.py"
RANKS = ROOT / "examples" / "torch_ranks.py"

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("nsys", tool.skip_without())]


def run(nsys: str, folder: Path, *words: object, tries: int = tool.TRIES) -> str:
    """Run opscope with this nsys; return what it prints on stderr. See ``nsight_tool.profile`` for retries."""
    hidden = ("NVTX_", "QUADD_", "NSYS_", "OPSCOPE_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    env |= {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "nsys").unlink(missing_ok=True)
    (folder / "bin" / "nsys").symlink_to(Path(nsys).resolve())
    command = [sys.executable, "-m", "opscope", "run", "--no-report", "-f", *map(str, words)]
    for _ in range(tries):
        done = subprocess.run(
            command, env=env, cwd=folder, capture_output=True, text=True, timeout=570, check=False
        )
        assert done.returncode == 0, done.stderr
        if "has no range and no kernel" not in done.stderr:
            break
    return done.stderr


def loaded(folder: Path, name: str, said: str) -> Profile:
    """Return the profile; skip where this installation of nsys cannot import its own events."""
    if "could not import what it recorded" in said:
        assert list(folder.glob("*.qdstrm"))
        pytest.skip("this nsys has no importer that runs; the raw events were kept")
    return opscope.load(folder / name)


def ops(profile: Profile, steps: range | None = None) -> Counter[tuple[object, ...]]:
    """Each op with its arguments, results, direction, layer and step, and how often it is there."""
    columns = ["op", "inputs", "outputs", "params", "direction", "layer", "step", "source", "depth"]
    frame = profile.ops()
    if steps is not None:
        frame = frame.filter(pl.col("step").is_in(list(steps)))
    return Counter(frame.select(columns).rows())


def test_a_real_training_has_the_ops_steps_and_layers_that_the_recorder_has(
    nsys: str, tmp_path: Path
) -> None:
    python = ("--", sys.executable, LENET)
    said = run(nsys, tmp_path, "--backend", "nsys", "-o", "under", *python)
    under = loaded(tmp_path, "under.opscope", said)
    run(nsys, tmp_path, "--backend", "recorder", "-o", "alone", *python)
    alone = opscope.load(tmp_path / "alone.opscope")
    assert sum(ops(under).values()) > 2000
    assert ops(under) == ops(alone)
    for profile in (under, alone):
        assert profile.summary()["steps"].item() == 8
    layers = [set(one.ops()["layer"].drop_nulls().cast(pl.String)) for one in (under, alone)]
    assert layers[0] == layers[1]
    assert len(layers[0]) == 6
    summaries = [one.summary().row(0, named=True) for one in (under, alone)]
    assert summaries[0]["flops_share"] == summaries[1]["flops_share"] == 1


def test_steps_of_a_real_training_are_exactly_those_steps(nsys: str, tmp_path: Path) -> None:
    python = ("--", sys.executable, LENET)
    said = run(nsys, tmp_path, "--backend", "nsys", "--steps", "3:5", "-o", "under", *python)
    under = loaded(tmp_path, "under.opscope", said)
    run(nsys, tmp_path, "--backend", "recorder", "-o", "alone", *python)
    alone = opscope.load(tmp_path / "alone.opscope")
    assert under.summary()["steps"].item() == 2
    assert ops(under) == ops(alone, range(3, 5))
    assert not under.trace["ranges"].filter(pl.col("text").cast(pl.String) == "work").height


def test_ranks_around_a_launcher_and_rank_by_rank(nsys: str, tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
    said = run(nsys, tmp_path, "--backend", "nsys", "-o", "all", "--", *launcher, RANKS)
    whole = loaded(tmp_path, "all.opscope", said)
    ranks = whole.trace["processes"].drop_nulls("rank").sort("rank")
    assert ranks.select("rank", "world_size").rows() == [(0, 2), (1, 2)]


def test_the_environment_of_the_program_is_not_in_its_profile(
    nsys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN_OF_MINE", "hunter2-and-more")
    said = run(nsys, tmp_path, "--backend", "nsys", "-o", "under", "--", sys.executable, LENET)
    loaded(tmp_path, "under.opscope", said)
    for path in (tmp_path / "under.opscope").iterdir():
        text = path.read_text() if path.suffix == ".json" else str(pl.read_parquet(path).rows())
        assert "hunter2" not in text
        assert "A_TOKEN_OF_MINE" not in text


def test_a_part_of_a_run_leaves_the_program_running(nsys: str, tmp_path: Path) -> None:
    program = (
        "import time, opscope\nwith opscope.annotate('early'): time.sleep(0.2)\n"
        "time.sleep(4)\nopen('end', 'w').close()\n"
    )
    (tmp_path / "program.py").write_text(program)
    words = ("--backend", "nsys", "--duration", "2", "-o", "x", "--", sys.executable, "program.py")
    said = run(nsys, tmp_path, *words)
    assert (tmp_path / "end").exists()
    ranges = loaded(tmp_path, "x.opscope", said).trace["ranges"]
    assert "early" in ranges["text"].cast(pl.String).to_list()


def test_the_table_of_versions_and_the_stand_in_are_what_this_nsys_says(
    nsys: str, tmp_path: Path
) -> None:
    found = nsys_tool.ask(nsys)
    told = subprocess.run([nsys, "profile", "--help"], capture_output=True, text=True, check=True)
    helped = nsys_tool.by_help(told.stdout, RELEASES[0])
    assert helped is not None
    rows = {row.version: row for row in RELEASES if row.measured}
    if found.version not in rows:
        pytest.skip(f"Nsight Systems {found.full} has no measured row")
    row = rows[found.version]
    assert row.options <= helped.options
    assert row.traces == helped.traces
    assert row.ends == helped.ends
    options, sets, suffix, _ = fake_nsys.KNOWN[found.full]
    assert {one.rstrip("=") for one in options.split()} <= helped.options | {"help", "verbose"}
    assert set(sets.split()) == helped.traces
    assert suffix == row.suffix
    exports = subprocess.run([nsys, "export", "--help"], capture_output=True, text=True, check=True)
    for kind in row.exports:
        assert kind in exports.stdout


def test_what_nsys_writes_into_the_export_is_what_the_table_says(nsys: str, tmp_path: Path) -> None:
    said = run(nsys, tmp_path, "--backend", "nsys", "-o", "x", "--", sys.executable, LENET)
    loaded(tmp_path, "x.opscope", said)
    meta = json.loads((tmp_path / "x.opscope" / "meta.json").read_text())
    assert "nsys" in json.dumps(meta)
    report = next(tmp_path.glob(f"x{nsys_tool.ask(nsys).can.suffix}"))
    tool.export(nsys, report, tmp_path / "x.sqlite")
    import sqlite3

    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    about = {"EXPORT_META_DATA", "META_DATA_EXPORT"}
    assert tables & about == nsys_tool.ask(nsys).can.tables & about
