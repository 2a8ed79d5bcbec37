"""A profile whose ops were called from source files that a test names."""

from __future__ import annotations


def profile_of(trace_of, *files: str, recorded: list | None = None):
    """A profile whose ops were called from these files, a line each."""
    from opscope.core.rangetext import format_call
    from opscope.core.schema import OpCall
    from opscope.profile import Profile

    ranges = [
        {"id": n, "process": 0, "thread": 0, "start": 1_000 * n, "end": 1_000 * n + 500, "domain": "opscope.torch",
         "category": "forward", "kind": "pushpop",
         "text": format_call(OpCall("aten::mm", (), None, (), None, ((file, n + 1),), False))}
        for n, file in enumerate(files)
    ]  # fmt: skip
    return Profile(trace_of({"source_files": recorded or []}, ranges=ranges))
