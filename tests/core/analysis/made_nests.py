"""Made traces for laws: random nests of steps, layers and ops on threads, with kernels and copies."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

OPS = ("aten::mm", "aten::conv2d", "aten::relu", "mystery::op")
LAYERS = ("Net", "Net.blocks.0", "Net.blocks.1.act", "Other/deep/er")


@dataclass(frozen=True)
class Made:
    """The tables of a trace, as ``trace_of`` takes them, and each range's place: its parent's index."""

    tables: dict[str, list[dict]]
    parents: list[int | None]


@st.composite
def nests(draw, gpu: bool | None = None) -> Made:
    """Ranges that nest properly on each of two threads of two processes; half of them with a GPU."""
    ranges: list[dict] = []
    parents: list[int | None] = []
    calls, kernels, memops = [], [], []
    with_gpu = draw(st.booleans()) if gpu is None else gpu

    def inside(lane: dict, start: int, end: int, depth: int, above: int | None) -> None:
        at = start
        while end - at > 12 and draw(st.booleans()):
            begin = at + draw(st.integers(0, 4))
            until = draw(st.integers(begin + 4, end))
            if until > end:
                return
            kind = draw(st.sampled_from(["op", "op", "layer", "user", "phase"]))
            own = {"text": draw(st.sampled_from(OPS)), "domain": "opscope.torch"}
            if kind == "layer":
                own = {
                    "text": draw(st.sampled_from(LAYERS)),
                    "category": "layer",
                    "domain": "opscope.torch",
                }
            elif kind == "user":
                own = {"text": draw(st.sampled_from("ab")), "domain": "opscope.user"}
            elif kind == "phase":
                own = {"text": "forward", "category": "phase", "domain": "opscope.torch"}
            else:
                own["text"] += "(f32[2,3], f32[3,4]) -> f32[2,4]"
                own["category"] = draw(st.sampled_from(["forward", "backward"]))
            here = len(ranges)
            ranges.append({**lane, **own, "kind": "pushpop", "start": begin, "end": until})
            parents.append(above)
            if with_gpu and draw(st.booleans()):
                launch(lane, begin)
            if depth < 5:
                inside(lane, begin + 2, until - 1, depth + 1, here)
            at = until

    def launch(lane: dict, time: int) -> None:
        number = len(kernels) + len(memops)
        if draw(st.integers(0, 4)):  # some have no record of their launch
            calls.append({**lane, "start": time, "end": time + 1, "name": "cudaLaunchKernel",
                          "correlation": number})  # fmt: skip
        ran = {"process": lane["process"], "device": 0, "stream": 7, "start": 1000 + number,
               "end": 1000 + number + draw(st.integers(0, 30)), "correlation": number}  # fmt: skip
        if draw(st.integers(0, 3)):
            kernels.append({**ran, "name": draw(st.sampled_from(["sgemm", "tensorop_gemm", "k"]))})
        else:
            memops.append({**ran, "kind": "HtoD", "bytes": 8})

    for process in (0, 1):
        # in a process without ops, user ranges stand for them
        ranges.append({"process": process, "thread": 3, "kind": "pushpop", "domain": "opscope.torch",
                       "text": "aten::empty() -> f32[2]", "category": "forward", "start": 0, "end": 5})  # fmt: skip
        parents.append(None)
        for thread in (1, 2):
            inside({"process": process, "thread": thread}, 0, draw(st.integers(0, 120)), 0, None)
            if with_gpu and draw(st.booleans()):
                launch({"process": process, "thread": thread}, 500)
    tables: dict[str, list[dict]] = {"ranges": ranges}
    if with_gpu:
        tables |= {"calls": calls, "kernels": kernels, "memops": memops}
    return Made(tables, parents)
