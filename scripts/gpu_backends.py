"""Compare the profiles that several backends made of one of gpu_check.sh's programs.

Usage: python scripts/gpu_backends.py NAME FOLDER
Reads from FOLDER NAME.BACKEND.opscope and NAME.BACKEND.json (the program's own figures) of each backend, and
NAME.bare.json and NAME.plain.json. Writes NAME.checks.json, as gpu_results.py. Each backend had a run of its
own, as CUPTI has one subscriber at a time; so kernels are compared by name and number, their times as medians.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path

import polars as pl

import opscope

try:
    from gpu_plain import differences, names
    from gpu_results import attribution
except ImportError:  # run as a module of the tests
    from scripts.gpu_plain import differences, names
    from scripts.gpu_results import attribution

#: The backends that record kernels, in the order in which the others are compared with them.
BACKENDS = ("kineto", "xplane", "cupti", "nsys")
#: Kernel names whose times are shown.
SHOWN = 12
#: Programs whose compiler tries kernels, more or fewer of them in each run: their later steps are compared.
COMPILED = ("compiled", "jax", "tensorflow")
#: Its compiler chooses kernels anew in each run, by their times: they are compared by number.
CHOOSING = ("jax",)
#: Backends that see no operations of a framework, by the name of the case.
BLIND = {("jax", "cupti")}


def named(profile, name=""):
    """Count the kernels, and the copies and sets, by name: those of a program that has a compiler by step."""
    kernels, moved = profile.kernels(), profile.memops()
    if name.startswith(COMPILED):
        kernels, moved = (one.filter(pl.col("step") > 0) for one in (kernels, moved))
    if name.startswith(CHOOSING):
        kernels = kernels.with_columns(name=pl.lit("any"))
    return {
        "kernels": names(kernels),
        "copies and sets": names(moved.rename({"kind": "name"})),
    }


def of_one(way, profile, name=""):
    """The checks of one backend's profile."""
    blind = any(name.startswith(one) and way == other for one, other in BLIND)
    checks = {
        f"{way}: {what}": None if blind and what.endswith("has an op") else held
        for what, held in attribution(profile).items()
    }
    rated = profile.efficiency()
    over = rated.filter((pl.col("efficiency") > 1) & pl.col("over_reason").is_null())
    checks[f"{way}: no op is faster than its roof without a reason"] = not len(over)
    return checks


def between(profiles, name=""):
    """The checks and facts of each pair of backends."""
    checks, facts = {}, []
    counts = {way: named(profile, name) for way, profile in profiles.items()}
    for one, other in combinations(profiles, 2):
        for what in ("kernels", "copies and sets"):
            ours, theirs = counts[one][what], counts[other][what]
            wrong = differences(ours, theirs)
            number = f"{sum(ours.values())} and {sum(theirs.values())}"
            checks[f"{one} and {other} have the same {what} ({number})"] = not wrong and (
                what != "kernels" or sum(ours.values()) > 0
            )
            facts += [f"{what}, {one} against {other}: {line}" for line in wrong]
    return checks, facts


def medians(profiles):
    """Return lines with the median time of the longest kernels by backend."""
    tables = [
        profile.kernels()
        .group_by(pl.col("name").cast(pl.String))
        .agg(pl.col("duration").median().alias(way), pl.col("duration").sum().alias("total"))
        for way, profile in profiles.items()
    ]
    if not tables:
        return []
    joined = tables[0]
    for one in tables[1:]:
        joined = joined.join(one.drop("total"), on="name", how="left")
    ways = list(profiles)
    lines = [f"median ns of a kernel: {', '.join(ways)}"]
    for row in joined.sort("total", descending=True).head(SHOWN).iter_rows(named=True):
        times = "  ".join("-" if row[way] is None else f"{row[way]:,.0f}" for way in ways)
        lines.append(f"  {times}  {row['name'][:80]}")
    return lines


def step_times(folder, name, ways):
    """Return the time of a step alone, under torch.profiler and under each backend, as one line."""
    found = {}
    for way in ("bare", "plain", *ways):
        path = folder / f"{name}.{way}.json"
        if path.exists():
            time = json.loads(path.read_text(encoding="utf-8")).get("step_ms")
            if time is not None:
                shown = {"bare": "alone", "plain": "torch.profiler"}.get(way, way)
                found[shown] = time
    said = ", ".join(f"{way} {time:.3f}" for way, time in found.items())
    return [f"ms a step: {said}"] if found else []


def checked(folder, name):
    """Return the checks and facts of a program's profiles."""
    checks, facts, profiles = {}, [], {}
    for way in BACKENDS:
        path = folder / f"{name}.{way}.opscope"
        if not path.exists():
            continue
        try:
            profiles[way] = opscope.load(path)
            checks |= of_one(way, profiles[way], name)
        except Exception as error:  # noqa: BLE001 - the results so far are still written
            profiles.pop(way, None)
            checks[f"{way}: its profile could be read ({type(error).__name__}: {error})"] = False
    checks["at least two backends recorded the program"] = len(profiles) >= 2 or None
    if not profiles:
        checks["a backend recorded the program"] = False
    more, lines = between(profiles, name)
    checks |= more
    facts += lines + medians(profiles) + step_times(folder, name, profiles)
    for way, profile in profiles.items():
        facts += [f"{way}: note: {what}" for what in profile.notes()["what"].cast(pl.String)]
    return checks, facts


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    checks, facts = checked(folder, name)
    text = json.dumps({"checks": checks, "facts": facts}, indent=1, default=str)
    (folder / f"{name}.checks.json").write_text(text, encoding="utf-8")
    sys.exit(not all(one is not False for one in checks.values()))


if __name__ == "__main__":
    main()
