"""What really comes through NVTX, heard by a tool built from our own C source."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.core.rangetext import format_call, parse, parse_result
from opscope.core.schema import CATEGORY_ID, OpCall, TensorSpec
from tests.nvtx_tool import Heard, build, hear

F32 = TensorSpec("f32", (2, 3))
CALL = OpCall("aten::relu", (F32,), None, (("inplace", False),), "cuda:0", (("a.py", 3),))
COMPLETE = OpCall(CALL.name, CALL.inputs, (F32,), CALL.params, CALL.device, CALL.frames)

SETUP = """
from opscope.core.capture import session
from opscope.core.schema import OpCall, TensorSpec
emitter = session.emitter("torch")
f32 = TensorSpec("f32", (2, 3))
def call(outputs):
    return OpCall("aten::relu", (f32,), outputs, (("inplace", False),), "cuda:0", (("a.py", 3),))
bare, complete = emitter.prepare(call(None), "forward"), emitter.prepare(call((f32,)), "forward")
"""


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tool"))


@pytest.fixture(scope="session")
def refusing_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose extension entry point fails, so that the nvtx package hands out dummy domains."""
    return build(tmp_path_factory.mktemp("refusing"), "-DOPSCOPE_REFUSE")


def test_domain_categories_registered_text_and_payload(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        SETUP
        + """
emitter.push(complete, seq=41, fwd_thread=2); emitter.pop()
emitter.push(complete); emitter.pop()
emitter.push(complete, seq=2**64 - 1, fwd_thread=1); emitter.pop()
emitter.push(complete, seq=5, fwd_thread=1 << 15); emitter.pop()
emitter.push(complete, seq=2**48 - 1, fwd_thread=2**15 - 1); emitter.pop()
result = emitter.active
""",
        tool,
        tmp_path,
    )
    assert heard.result is True
    assert [e.domain for e in heard.of("domain")] == ["opscope.torch"]
    assert {e.text: e.category for e in heard.of("category")} == dict(CATEGORY_ID)
    pushes = heard.of("push")
    assert [e.payload for e in pushes] == [2 << 48 | 41, None, None, None, 2**63 - 1]
    assert {e.message for e in pushes} == {"registered"}
    assert {e.category for e in pushes} == {CATEGORY_ID["forward"]}
    assert [parse(e.text) for e in pushes] == [COMPLETE] * 5
    assert len(heard.of("pop")) == 5
    # once each, however often pushed: without outputs, with them, the result mark, and the process
    assert len(heard.of("string")) == len({e.text for e in heard.of("string")}) == 4


def test_result_mark_and_complete_text_give_the_same_call(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        SETUP + "emitter.push(bare); emitter.pop(complete); emitter.push(complete); emitter.pop()",
        tool,
        tmp_path,
    )
    assert heard.of("mark")[0].text.startswith("process/facts = process() {host=")
    events = heard.of("push", "mark", "pop")[1:]
    assert [e.kind for e in events] == ["push", "mark", "pop", "push", "pop"]
    first, mark, _, second, _ = events
    assert mark.category == CATEGORY_ID["result"]
    assert mark.text == "-> f32[2,3]"
    told = parse(first.text)
    assert told.outputs is None
    merged = OpCall(
        told.name,
        told.inputs,
        parse_result(mark.text).outputs,
        told.params,
        told.device,
        told.frames,
    )
    assert merged == parse(second.text) == COMPLETE


def test_nesting_across_threads_and_domains(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        SETUP
        + """
import threading
def work():
    with session.annotate("thread"):
        emitter.push(complete); emitter.pop()
session.step()
with session.annotate("outer"), session.phase("inner"):
    emitter.push(complete); emitter.pop()
    other = threading.Thread(target=work); other.start(); other.join()
    session.step()
session.end_step()
""",
        tool,
        tmp_path,
    )
    main = heard.of("push")[0].thread
    assert len({e.thread for e in heard.of("push")}) == 2
    open_now: dict[tuple[int, str], list[str]] = {}
    told = []
    for event in heard.of("push", "pop"):
        stack = open_now.setdefault((event.thread, event.domain), [])
        if event.kind == "push":
            stack.append(event.text)
            told.append((event.thread == main, event.domain, len(stack), event.text))
        else:
            stack.pop()
    assert not any(open_now.values())
    relu = format_call(COMPLETE)
    assert told == [
        (True, "opscope.step", 1, "step"),
        (True, "opscope.user", 1, "outer"),
        (True, "opscope.user", 2, "inner"),
        (True, "opscope.torch", 1, relu),
        (False, "opscope.user", 1, "thread"),
        (False, "opscope.torch", 1, relu),
        (True, "opscope.step", 1, "step"),
    ]
    categories = {e.text: e.category for e in heard.of("push")}
    assert categories["step"] == CATEGORY_ID["step"]
    assert [e.payload for e in heard.of("push", domain="opscope.step")] == [0, 1]
    assert categories["inner"] == CATEGORY_ID["phase"]
    assert categories["outer"] == 0


def test_a_long_text_is_cut_for_nvtx_and_whole_for_the_recorder(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        SETUP
        + """
from opscope.backends.recorder import RecorderCapture
from opscope.readers.recording.reader import collect
long = OpCall("aten::cat", tuple(TensorSpec("f32", (n, 7)) for n in range(1000)), ())
session.start(RecorderCapture("out"))
prepared = emitter.prepare(long, "forward")
emitter.push(prepared, 3, 1); emitter.pop()
emitter.push(bare); emitter.pop(complete)
emitter.mark(emitter.prepare("graph/key = f()", "spec"))
odd = emitter.prepare("a\\0b\\udc80" + "é" * 5000)
emitter.push(odd); emitter.pop()
session.stop()
emitter.push(bare); emitter.pop()
trace = collect("out")
result = [prepared.text, trace["ranges"].select("text", "seq", "fwd_thread", "kind", "category").rows()]
""",
        tool,
        tmp_path,
    )
    whole, rows = heard.result  # type: ignore[misc]
    cut = parse(heard.of("push")[0].text)
    assert len(heard.of("push")[0].text.encode()) <= 4096
    assert cut.truncated
    assert cut.inputs == parse(whole).inputs[: len(cut.inputs)]
    assert rows[:3] == [
        [whole, 3, 1, "pushpop", "forward"],
        [format_call(COMPLETE), None, None, "pushpop", "forward"],
        ["graph/key = f()", None, None, "mark", "spec"],
    ]
    assert len(rows) == 4
    assert len(heard.of("push")) == 4
    odd = heard.of("push")[2].text
    assert odd.startswith("a\\0b?é")
    assert odd.endswith("<cut>")
    assert len(odd.encode()) <= 4096


def test_past_the_bound_only_the_name_is_registered(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        """
from opscope.core.capture import nvtx_sink
nvtx_sink.MAX_REGISTERED = 4
from opscope.core.capture import session
from opscope.core.schema import OpCall, TensorSpec
emitter = session.emitter("torch")  # which tells of the process: one text
for n in range(9):
    call = OpCall("aten::relu", (TensorSpec("f32", (n,)),), device="cpu", frames=(("a.py", n // 4),))
    emitter.push(emitter.prepare(call))
    emitter.pop()
for n in range(9):
    with session.annotate(f"batch {n} of 9"):
        pass
""",
        tool,
        tmp_path,
    )
    texts = [e.text for e in heard.of("push", domain="opscope.torch")]
    assert texts[:3] == [f"aten::relu(f32[{n}]) on cpu @a.py:0" for n in range(3)]
    assert texts[3] == "aten::relu()<cut> on cpu @a.py:0"
    assert texts[4:8] == ["aten::relu()<cut> on cpu @a.py:1"] * 4
    # the room for those is full too
    assert parse(texts[8]) == OpCall("aten::relu", truncated=True)
    assert len(heard.of("string", domain="opscope.torch")) == 7
    users = [e.text for e in heard.of("push", domain="opscope.user")]
    assert users == [f"batch {n} of 9" for n in range(3)] + ["batch <cut>"] * 6
    assert "distinct texts" in heard.stderr


def test_a_hundred_thousand_steps_are_one_text(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        """
from opscope.core.capture import session
for n in range(100_000):
    session.step()
session.step(-7)
session.step(1 << 70)
""",
        tool,
        tmp_path,
    )
    steps = heard.of("push", domain="opscope.step")
    assert [e.payload for e in steps] == [*range(100_000), -7, None]
    assert {e.text for e in steps[:-1]} == {"step"}
    assert steps[-1].text == f"step {1 << 70}"


LEAVING = (
    SETUP
    + """
session.step()
emitter.push(complete); emitter.pop()
"""
)


@pytest.mark.parametrize(
    "leaving", ["", "import opscope; opscope.shutdown()", "import sys; session.step(); sys.exit(0)"]
)
def test_the_last_step_is_closed_and_said_to_have_no_end(
    tool: Path, tmp_path: Path, leaving: str
) -> None:
    program = LEAVING + "import json; print(json.dumps(None), flush=True)\n" + leaving
    heard = hear(program, tool, tmp_path)
    events = heard.of("push", "pop", "mark", domain="opscope.step")
    kinds = [e.kind for e in events if not e.text.startswith("process/")]
    assert kinds.count("push") == kinds.count("pop")
    assert kinds[-2:] == ["mark", "pop"]
    assert events[-2].text == "unended"
    assert events[-2].category == CATEGORY_ID["result"]


FORKING = (
    SETUP
    + """
import os
session.step()
emitter.push(complete, 1, 1); emitter.pop()
child = os.fork()
if child:
    os.waitpid(child, 0)
session.step()
with session.annotate("a"):
    emitter.push(complete, 2, 1); emitter.pop()
if not child:
    {leave}
"""
)


@pytest.mark.parametrize("leave", ["os._exit(0)", "raise SystemExit"])
def test_a_forked_child_names_its_domains_and_texts_anew(
    tool: Path, tmp_path: Path, leave: str
) -> None:
    """What its parent has registered stands for something else there, under Nsight Systems."""
    heard = hear(FORKING.format(leave=leave), tool, tmp_path)
    told = [e.text.split(" = ", 1)[1] for e in heard.of("mark") if "process/facts" in e.text]
    facts = {call.param("pid"): call.param("parent") for call in map(parse, told)}
    assert len(facts) == 2
    assert set(facts.values()) & set(facts), "one of them is the other's parent"
    domains = [e.domain for e in heard.of("domain")]
    assert domains.count("opscope.torch") == 2
    texts = [e.text for e in heard.of("string", domain="opscope.torch")]
    assert texts.count(format_call(COMPLETE)) == 2
    steps = heard.of("push", domain="opscope.step")
    assert sorted(e.payload for e in steps) == [0, 1, 1]


def test_the_dummy_domain_is_replaced_when_a_tool_is_there(
    refusing_tool: Path, tmp_path: Path
) -> None:
    heard = hear(
        "import nvtx; plain = type(nvtx.get_domain('plain')).__name__\n"
        + SETUP
        + "emitter.push(complete, 1, 1); emitter.pop()\nresult = [plain, emitter.active, emitter.nvtx]",
        refusing_tool,
        tmp_path,
    )
    assert heard.result == ["DummyDomain", True, True], "the trap itself, then our way out of it"
    (push,) = [e for e in heard.of("push", domain="opscope.torch") if e.category]
    assert parse(push.text) == COMPLETE
    assert push.payload == 1 << 48 | 1
    assert len(heard.of("push")) == len(heard.of("pop"))


def test_a_dummy_that_cannot_be_replaced_warns_once(refusing_tool: Path, tmp_path: Path) -> None:
    heard = hear(
        """
import nvtx._lib.lib as lib
del lib.DomainHandle
"""
        + SETUP
        + """
session.emitter("user")
emitter.push(complete); emitter.pop(complete); emitter.mark(complete)
result = emitter.active
""",
        refusing_tool,
        tmp_path,
    )
    assert heard.result is False
    assert heard.stderr.count("no NVTX range will be recorded") == 1


@pytest.mark.parametrize("environ", [{}, {"NVTX_INJECTION64_PATH": "/nowhere/tool.so"}])
def test_without_a_tool_nothing_breaks(tmp_path: Path, environ: dict[str, str]) -> None:
    heard = hear(
        SETUP
        + """
emitter.push(bare, 1, 1); emitter.pop(complete); emitter.mark(bare)
session.step(); session.end_step()
with session.annotate("a"), session.phase("b"): pass
result = [emitter.active, emitter.nvtx, session.stop(), session.current_step()]
""",
        None,
        tmp_path,
        **environ,
    )
    assert heard.result == [False, False, None, 0]
    assert heard.stderr == ""


def test_nvtx_disable_is_respected(tool: Path, tmp_path: Path) -> None:
    heard: Heard = hear(SETUP + "result = emitter.active", tool, tmp_path, NVTX_DISABLE="1")
    assert heard.result is False
    assert heard.events == []


def test_an_nvtx_that_is_too_old_is_said_once(tool: Path, tmp_path: Path) -> None:
    heard = hear(
        "from opscope.core.capture import nvtx_sink; nvtx_sink.MIN_NVTX = (99, 0, 0)\n"
        + SETUP
        + "session.emitter('user'); emitter.push(bare); emitter.pop(); result = emitter.active",
        tool,
        tmp_path,
    )
    assert heard.result is False
    assert heard.stderr.count("too old") == 1
