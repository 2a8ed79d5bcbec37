"""The counters of CUPTI's range profiler, with the operators around each kernel's launch."""

from __future__ import annotations

TITLE = "hardware counters with operators"


def ours(profile):
    """Return the number of kernels, and of each its operator stack and its values."""
    if profile.trace["counters"].is_empty():
        return {"kernels": 0}
    return _figures(profile.counters(names="hta"))


def theirs(analysis):
    """Return the same of ``get_cupti_counter_data_with_operators``."""
    frames = analysis.get_cupti_counter_data_with_operators(ranks=[0])
    return _figures(frames[0]) if frames else {"kernels": 0}


def _figures(frame):
    names = [name for name in frame.columns if name.endswith(".sum")]
    found = {"kernels": len(frame), "counters": len(names)}
    stacks = zip(frame["op_stack"], frame["top_level_op"], frame["bottom_level_op"], strict=True)
    for number, (stack, top, bottom) in enumerate(stacks):
        found[f"#{number}: stack"] = " | ".join(stack)
        found[f"#{number}: top and bottom"] = f"{top} | {bottom}"
    for name in sorted(names):
        for number, value in enumerate(frame[name]):
            found[f"#{number}: {name}"] = float(value)
    return found
