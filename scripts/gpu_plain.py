"""Read what plain torch.profiler recorded of a program; gpu_results.py compares opscope's profile with it."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import polars as pl

import opscope

#: The share of kernel time whose op must be one that torch.profiler has there too.
AGREED = 0.99
_WORK = {"kernel": "kernels", "gpu_memcpy": "copies", "gpu_memset": "sets"}


def counts(path):
    """Count each kernel, copy and set in the file itself: {"kernels": {name: count}, …}."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file)["traceEvents"]
    found = {kind: Counter() for kind in _WORK.values()}
    for event in events:
        kind = _WORK.get(event.get("cat"))
        if kind is not None:
            found[kind][event["name"]] += 1
    return found


def names(frame):
    return Counter(frame["name"].cast(pl.String).to_list())


def differences(ours, theirs, most=5):
    """Return ``name: ours against theirs`` for the greatest differences, the greatest first."""
    apart = {name: ours[name] - theirs[name] for name in ours.keys() | theirs.keys()}
    worst = sorted((name for name in apart if apart[name]), key=lambda name: -abs(apart[name]))
    return [f"{name[:80]}: {ours[name]} against {theirs[name]}" for name in worst[:most]]


def chains(profile):
    """Return for each kernel name the ops that torch.profiler has around its launches, at any depth."""
    ops = profile.ops().select("op_id", "parent_id", base("op").alias("op"))
    above = {row[0]: (row[1], row[2]) for row in ops.iter_rows()}
    kernels = profile.kernels().select(pl.col("name").cast(pl.String), "op_id").unique()
    found = {}
    for name, op in kernels.drop_nulls().iter_rows():
        into = found.setdefault(name, set())
        while op in above:
            op, text = above[op]
            into.add(text)
    return found


def base(column):
    """An op's name without its overload, which torch.profiler does not write."""
    text = pl.col(column).cast(pl.String)
    return text.str.replace(r"^(\w+::\w+)\.\w+$", "${1}")


def compared(profile, path, times=1):
    """Return checks and facts that compare ``profile`` with the plain trace at ``path``.

    A kernel that ran once in the plain trace ran ``times`` times in the profile.
    """
    theirs = counts(path)
    kernels = profile.kernels()
    ours = names(kernels)
    expected = Counter({name: n * times for name, n in theirs["kernels"].items()})
    wrong = differences(ours, expected)
    plain = chains(opscope.load(path))
    agreed = whole = 0
    strange = Counter()
    for name, op, time in (
        kernels.filter(pl.col("op_id").is_not_null())
        .group_by(pl.col("name").cast(pl.String), base("op").alias("op"))
        .agg(pl.col("duration").sum())
        .iter_rows()
    ):
        if not plain.get(name):  # torch.profiler has no op either: the replay of a CUDA graph
            continue
        whole += time
        if op in plain[name] or op == name:
            agreed += time
        else:
            strange[f"{name[:60]} of {op}, not of {', '.join(sorted(plain[name]))[:80]}"] += time
    memops = profile.memops()
    moved = sum(theirs["copies"].values()) + sum(theirs["sets"].values())
    checks = {
        f"the kernels are the same as torch.profiler's ({sum(ours.values())} of {sum(expected.values())})": (
            sum(expected.values()) > 0 and not wrong
        ),
        f"as many copies and sets as torch.profiler's ({len(memops)} of {moved * times})": len(
            memops
        )
        == moved * times,
        "kernels have ops that torch.profiler also has around them": (
            None if not whole else agreed >= AGREED * whole
        ),
    }
    facts = [f"differs: {one}" for one in wrong]
    facts += [f"another op: {what}" for what, _ in strange.most_common(5)]
    return checks, facts
