"""A fleet: what many jobs cost, as a dataset of small Parquet files by job, day and run."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.columns import as_text, to_write
from opscope.profile import Merged, Profile
from opscope.readers.errors import BadInput
from opscope.remote.urls import is_url

from . import places
from .fleet_tables import start_time, tables

#: Names that are valid folder names on every file system and need no escapes in a URL.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: The table that is written last if a folder cannot be renamed: a run without it is incomplete and ignored.
LAST: Final = "jobs.parquet"


@dataclass(frozen=True, slots=True)
class Added:
    """Where a run is in the fleet, and whether it existed already."""

    path: str
    new: bool


def add(
    profile: Profile | Merged,
    fleet: str | os.PathLike[str],
    *,
    job: str,
    day: date | None = None,
    labels: Mapping[str, str] | None = None,
    gpu_hours: float | None = None,
) -> Added:
    """Add a profile, or a job's merged one, to the dataset in the folder ``fleet`` (path or URL).

    It gets a folder ``job=JOB/day=YYYY-MM-DD/run=ID`` with a Parquet file per table, which appears completely
    or not at all; ``tables`` documents their content. The run's ID is its time of day and a digest of its
    figures, so a run that exists already is not written again. ``day`` (UTC) is the day of the first event;
    give it if no clock of the profile shows the day. Raises ValueError if the job's name cannot be a folder
    name, and if the day is not known; opscope.errors.BadInput for what the disk or store refuses.
    """
    if not _NAME.fullmatch(job):
        raise ValueError(
            f"{job!r} cannot name a job: a name has up to 100 letters, digits, '.', '_' and '-', and"
            " begins with a letter or digit"
        )
    began = start_time(profile)
    if day is None and began is None:
        raise ValueError("no clock of the profile tells its day; give the day")
    tables_of_run = tables(profile, labels, gpu_hours)
    run = f"{'000000' if began is None else began.strftime('%H%M%S')}-{_digest(tables_of_run)}"
    when = day or began.date()  # type: ignore[union-attr]
    folder = f"job={job}/day={when.isoformat()}/run={run}"
    location = places.join(fleet, folder)
    if places.exists(location, LAST):
        return Added(location, False)
    _write(location, {name: as_text(frame) for name, frame in tables_of_run.items()})
    return Added(location, True)


def _digest(tables_of_run: Mapping[str, pl.DataFrame]) -> str:
    """Return a digest of the run's figures, which distinguishes runs of the same second."""
    digest = hashlib.sha256()
    for name in ("jobs", "ops", "labels"):
        digest.update(as_text(tables_of_run[name]).write_csv().encode())
    return digest.hexdigest()[:10]


def _write(location: str, tables_of_run: Mapping[str, pl.DataFrame]) -> None:
    if is_url(location):
        from opscope.remote.copied import scratch  # lazy: few fleets are at URLs
        from opscope.remote.written import write_folder

        with scratch() as local:
            source = local / "run"
            source.mkdir()
            _write_tables(source, tables_of_run)
            with places.told(location):
                write_folder(source, location, force=True, last=LAST)
        return
    target = Path(location)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write_tables(temporary, tables_of_run)
        os.replace(temporary, target)
    except OSError as error:
        if target.joinpath(LAST).is_file():
            return  # another process has just added the same run
        raise BadInput(target, f"cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_tables(folder: Path, tables_of_run: Mapping[str, pl.DataFrame]) -> None:
    for name, frame in tables_of_run.items():
        frame.write_parquet(to_write(folder / f"{name}.parquet"), compression="zstd")
