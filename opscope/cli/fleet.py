"""``opscope merge --fleet``: add jobs to a dataset of what many jobs cost."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from opscope.remote.urls import is_url

from . import common

if TYPE_CHECKING:
    from opscope.profile import Merged, Profile


def add(
    profiles: Sequence[tuple[str, Profile | Merged]],
    fleet: str,
    job: str | None,
    day: date | None,
    labels: dict[str, str],
    gpu_hours: float | None,
) -> None:
    """Add each profile, given with its files' name, to the dataset in ``fleet``, and print that."""
    if len(profiles) > 1 and (job is not None or gpu_hours is not None):
        common.fail("--job and --gpu-hours are of one job: add the jobs one by one")
    from opscope.scale.fleet import add as add_run

    for of, profile in profiles:
        try:
            added = add_run(
                profile,
                fleet,
                job=job or job_of(of),
                day=day,
                labels=labels,
                gpu_hours=gpu_hours,
            )
        except ValueError as error:
            common.fail(f"{of}: {error} ({'--day' if 'day' in str(error) else '--job'})")
        common.say(f"{'wrote' if added.new else 'there already:'} {added.path}")


def job_of(location: str) -> str:
    """Return the name of the job whose profile or partials are at ``location``: the file's or folder's."""
    full_path = location if is_url(location) else os.path.abspath(location)  # "." has a name too
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", common.stem(full_path)).strip("-._")
    return clean[:100] or "job"


def labels_of(given: Sequence[str]) -> dict[str, str]:
    """Return the labels of texts ``key=value``; the command ends at another text or a key given twice."""
    labels: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            common.fail(f"--label {text!r}: a label is KEY=VALUE")
        if key in labels:
            common.fail(f"--label {key}= is given twice")
        labels[key] = value
    return labels


def day_of(text: str | None) -> date | None:
    """Return the day that ``text`` (YYYY-MM-DD) names; the command ends at another text."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        common.fail(f"--day {text!r}: a day is YYYY-MM-DD")
