"""A fleet: jobs as one dataset by job and day, whose rows are what each op, layer and advice cost."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import duckdb
import polars as pl
import pytest

import opscope
from opscope.core.tables.trace import Trace
from opscope.errors import BadInput
from opscope.profile import Profile
from opscope.scale import fleet
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests import made_ranks
from tests.command import opscope as command
from tests.made_ranks import rank_files

DAY = date(2026, 5, 4)
TABLES = {"jobs", "labels", "ops", "kinds", "kernels", "advice", "ranks"}


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(made_ranks, "STEPS", 6)  # of fewer than ten kernels no cause is named
    folder = tmp_path / "ranks"
    folder.mkdir()
    return rank_files(folder, 4, slow=1)


@pytest.fixture
def merged(ranks, tmp_path):
    for path in ranks:
        write_partial(path, tmp_path / "parts", advice=True)
    return merge(tmp_path / "parts")


def scan(folder: Path, table: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"*/*/*/{table}.parquet", hive_partitioning=True)


def added(profile, folder, **how) -> Path:
    found = fleet.add(profile, folder, **{"job": "train", "day": DAY, **how})
    assert found.new
    return Path(found.path)


def test_a_run_is_a_folder_by_job_and_day_with_all_tables(merged, tmp_path):
    place = added(merged, tmp_path / "fleet", labels={"team": "vision"})
    assert place.parent == tmp_path / "fleet" / "job=train" / "day=2026-05-04"
    assert place.name.startswith("run=")
    assert {one.stem for one in place.iterdir()} == TABLES
    job = scan(tmp_path / "fleet", "jobs").row(0, named=True)
    assert (job["job"], job["day"], job["ranks_read"], job["ranks_expected"]) == (
        "train",
        DAY,
        4,
        4,
    )
    assert scan(tmp_path / "fleet", "labels").select("key", "value").rows() == [("team", "vision")]


def test_a_merged_job_and_the_same_files_loaded_cost_the_same(merged, ranks, tmp_path):
    by_merge = added(merged, tmp_path / "one")
    by_load = added(opscope.load(ranks), tmp_path / "two")
    for table in sorted(TABLES - {"advice", "jobs"}):
        one, two = (pl.read_parquet(place / f"{table}.parquet") for place in (by_merge, by_load))
        assert one.equals(two), table
    one, two = (pl.read_parquet(place / "jobs.parquet") for place in (by_merge, by_load))
    assert one.drop("files_advised").equals(two.drop("files_advised"))


def test_the_rows_add_up_to_the_job(merged, tmp_path):
    added(merged, tmp_path, gpu_hours=1000.0)
    job = scan(tmp_path, "jobs").row(0, named=True)
    summary = merged.summary().row(0, named=True)
    assert job["device_time"] == summary["device_time"]
    for table in ("ops", "kinds"):
        assert scan(tmp_path, table)["device_time"].sum() == summary["device_time"]
    assert job["gpu_hours"] == 1000.0
    assert job["gpu_hours_of"] == "the job"
    held = summary["devices"] * summary["wall_time"]
    busy = 1000.0 * summary["device_busy"] / held
    assert job["idle_gpu_hours"] == pytest.approx(1000.0 - busy)
    # what ran on one GPU at once is in two rows
    rows = scan(tmp_path, "ops")["gpu_hours"].sum()
    assert rows == pytest.approx(1000.0 * summary["device_time"] / held)
    assert rows >= busy > 0


def test_without_hours_they_are_those_of_the_recorded_time(merged, tmp_path):
    added(merged, tmp_path)
    job = scan(tmp_path, "jobs").row(0, named=True)
    assert job["gpu_hours_of"] == "the recorded time"
    assert job["gpu_hours"] == pytest.approx(job["devices"] * job["wall_time"] / 3.6e12)


def test_advice_of_a_merged_job_is_that_of_its_files(merged, ranks, tmp_path):
    added(merged, tmp_path, gpu_hours=1000.0)
    found = scan(tmp_path, "advice")
    each = pl.concat(opscope.load(path).advice() for path in ranks)
    same = ["detector", "outcome", "finding", "saving", "reason"]
    assert found.select(same).sort(same).equals(each.select(same).sort(same))
    assert scan(tmp_path, "jobs")["files_advised"].item() == 4
    # each file has one GPU, so its saving is that part of what all GPUs were held
    summary = merged.summary().row(0, named=True)
    scale = 1000.0 / (summary["devices"] * summary["wall_time"])
    known = found.drop_nulls("saving")
    assert len(known)
    assert known["gpu_hours"].to_list() == pytest.approx(
        [saving * scale for saving in known["saving"]]
    )


def test_a_job_without_advice_says_so_and_has_no_row_that_says_no(ranks, tmp_path):
    for path in ranks:
        write_partial(path, tmp_path / "plain")
    added(merge(tmp_path / "plain"), tmp_path / "fleet")
    assert scan(tmp_path / "fleet", "jobs")["files_advised"].item() == 0
    assert scan(tmp_path / "fleet", "advice").is_empty()


def test_without_a_gpu_there_are_no_gpu_hours_and_the_reason_is_there(tmp_path):
    ranges = pl.DataFrame(
        {"id": [0], "process": [0], "thread": [1], "start": [0], "end": [50], "domain": ["opscope.torch"],
         "category": ["forward"], "text": ["aten::mm(f32[2,2], f32[2,2]) -> f32[2,2]"], "kind": ["pushpop"]}
    )  # fmt: skip
    processes = pl.DataFrame({"process": [0], "clock_domain": [0]})
    added(Profile(Trace.of({"ranges": ranges, "processes": processes})), tmp_path)
    job = scan(tmp_path, "jobs").row(0, named=True)
    assert job["gpu_hours"] is None
    assert job["idle_gpu_hours"] is None
    assert job["reason"] == "no GPU was used"
    assert scan(tmp_path, "ops")["gpu_hours"].null_count() == len(scan(tmp_path, "ops"))
    assert scan(tmp_path, "ops")["device_time"].sum() == 50


def test_the_same_run_is_there_once(merged, tmp_path):
    place = added(merged, tmp_path)
    again = fleet.add(merged, tmp_path, job="train", day=DAY)
    assert (Path(again.path), again.new) == (place, False)
    added(merged, tmp_path, gpu_hours=5.0)  # other figures: another run
    assert len(scan(tmp_path, "jobs")) == 2


def test_what_could_not_be_written_leaves_nothing(merged, tmp_path, monkeypatch):
    write, made = pl.DataFrame.write_parquet, []

    def full(frame, path, **how):
        made.append(path)
        if len(made) == 3:
            raise OSError(28, "No space left on device")
        write(frame, path, **how)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(BadInput, match="cannot be written: No space left on device"):
        fleet.add(merged, tmp_path / "fleet", job="train", day=DAY)
    assert len(made) == 3
    assert not [one for one in (tmp_path / "fleet").rglob("*") if one.is_file()]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 101, "ä", "a\n"])
def test_a_job_s_name_cannot_lead_elsewhere(merged, tmp_path, name):
    with pytest.raises(ValueError, match="cannot name a job"):
        fleet.add(merged, tmp_path / "fleet", job=name, day=DAY)
    assert not (tmp_path / "fleet").exists()


def test_a_profile_without_a_time_of_day_needs_one(merged, tmp_path):
    assert merged.trace["clocks"]["to_unix_ns"].null_count()
    with pytest.raises(ValueError, match="give the day"):
        fleet.add(merged, tmp_path, job="train")


def test_the_day_is_that_of_the_first_event_in_utc(tmp_path):
    at = 1_777_852_799_000_000_000  # 2026-05-03 23:59:59 UTC
    kernels = pl.DataFrame(
        {"process": [0], "device": [0], "start": [500], "end": [900], "name": ["k"]}
    )
    profile = Profile(
        Trace.of(
            {
                "kernels": kernels,
                "processes": pl.DataFrame({"process": [0], "clock_domain": [0]}),
                "clocks": pl.DataFrame({"clock_domain": [0], "to_unix_ns": [at]}),
            }
        )
    )
    found = fleet.add(profile, tmp_path, job="train")
    assert "day=2026-05-03/run=235959-" in found.path


def test_polars_and_duckdb_answer_alike(merged, ranks, tmp_path):
    added(merged, tmp_path / "fleet", gpu_hours=100.0)
    added(opscope.load(ranks[0]), tmp_path / "fleet", job="other", gpu_hours=10.0)
    by_polars = (
        scan(tmp_path / "fleet", "ops")
        .group_by("job", "op")
        .agg(pl.col("device_time").sum())
        .sort("job", "op", nulls_last=True)
    )
    by_duckdb = duckdb.sql(
        f"""SELECT job, op, sum(device_time)::BIGINT FROM read_parquet(
            '{tmp_path}/fleet/*/*/*/ops.parquet', hive_partitioning = true
        ) GROUP BY ALL ORDER BY job, op NULLS LAST"""
    ).fetchall()
    assert by_polars.rows() == by_duckdb
    assert set(by_polars["job"]) == {"train", "other"}


# ------------------------------------------------------------------------------ the command


def test_the_command_takes_partials_and_profiles(ranks, tmp_path):
    parts, place = tmp_path / "my-job", tmp_path / "fleet"
    made = command("partial", *ranks, "-o", parts, "--advice")
    assert made.returncode == 0, made.stderr
    done = command(
        "merge", parts, ranks[0], "--fleet", place, "--day", "2026-05-04", "--label", "team=a"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("wrote ") == 2
    assert set(scan(place, "jobs")["job"]) == {"my-job", "rank0"}
    again = command("merge", parts, "--fleet", place, "--day", "2026-05-04", "--label", "team=a")
    assert "there already" in again.stderr
    assert len(scan(place, "jobs")) == 2


def test_a_profile_and_a_fleet_at_once(ranks, tmp_path):
    assert command("partial", *ranks, "-o", tmp_path / "parts").returncode == 0
    job, place = tmp_path / "job.opscope", tmp_path / "fleet"
    done = command(
        "merge", tmp_path / "parts", "-o", job, "--fleet", place, "--day", "2026-05-04",
        "--job", "nightly", "--gpu-hours", "12.5",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert opscope.load(job).summary()["processes"].item() == 4
    assert scan(place, "jobs").select("job", "gpu_hours").rows() == [("nightly", 12.5)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "-o JOB.opscope, or --fleet"),
        (("-o", "x.opscope", "--label", "a=b"), "are for --fleet"),
        (("--fleet", "f"), "--day"),
        (("--fleet", "f", "--day", "yesterday"), "YYYY-MM-DD"),
        (("--fleet", "f", "--label", "team"), "KEY=VALUE"),
        (("--fleet", "f", "--label", "a=1", "--label", "a=2"), "twice"),
        (("--fleet", "f", "--day", "2026-05-04", "--job", "../up"), "cannot name a job"),
    ],
)
def test_wrong_usage_is_said_and_writes_nothing(ranks, tmp_path, words, said):
    words = [str(tmp_path / one) if one in ("f", "x.opscope") else one for one in words]
    done = command("merge", ranks[0], *words)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "f").exists()


def test_one_name_for_several_jobs_is_refused(ranks, tmp_path):
    done = command(
        "merge", ranks[0], ranks[1], "--fleet", tmp_path / "f", "--day", "2026-05-04", "--job", "a"
    )
    assert done.returncode == 2
    assert "one by one" in done.stderr
    assert not (tmp_path / "f").exists()


def test_a_folder_without_traces_is_no_partial(tmp_path):
    (tmp_path / "empty").mkdir()
    done = command("partial", tmp_path / "empty", "-o", tmp_path / "parts")
    assert done.returncode == 2
    assert "a folder without traces" in done.stderr
