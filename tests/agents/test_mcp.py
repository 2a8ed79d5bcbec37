"""``opscope mcp`` driven by the SDK's own client: tools, answers, refusals, and that nothing is written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.planted_truths import made
from tests.planted_truths.driver import drive, score

pytest.importorskip("mcp", reason="the SDK is not here: pip install 'opscope[mcp]'")

import anyio
from mcp import Client, StdioServerParameters, stdio_client

import opscope
from opscope.agents import calls
from opscope.agents.answer import tokens
from opscope.agents.answering import reply
from opscope.agents.runs import Runs
from opscope.agents.server import server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    truths = [
        made.make(cause, 0, folder)
        for cause in ("late rank", "synchronising reads", "lost kernels")
    ]
    opscope.load(folder / "lost_kernels-kineto-8x2.json").save(folder / "saved.opscope")
    return folder, {truth.cause: truth for truth in truths}


def within(runs: Runs, asking):
    """Return what ``asking`` a client of a server in this process returns."""

    async def run():
        async with Client(server(runs)) as client:
            return await asking(client)

    return anyio.run(run)


def test_each_call_is_a_tool_that_only_reads(folder):
    listed = within(Runs((folder[0],)), lambda client: client.list_tools())
    assert [tool.name for tool in listed.tools] == list(calls.NAMES)
    for tool, call in zip(listed.tools, calls.calls(), strict=True):
        assert tool.input_schema == call.schema()
        assert tool.annotations.read_only_hint
    whole = json.dumps(
        [tool.model_dump(exclude_none=True) for tool in listed.tools], separators=(",", ":")
    )
    assert tokens(whole) <= 2_000, "what a model reads before it asks"


def test_a_tool_answers_as_the_call_does_and_an_error_is_marked(folder):
    given = {"run": "lost_kernels-kineto-8x2.json"}

    async def asking(client):
        good = await client.call_tool("diagnose", given)
        return (
            good,
            await client.call_tool("diagnose", {"run": "../x"}),
            await client.call_tool("none", {}),
        )

    good, outside, unknown = within(Runs((folder[0],)), asking)
    assert good.content[0].text == reply(Runs((folder[0],)), "diagnose", given).text
    assert not good.is_error
    assert outside.is_error
    assert "no such file" in outside.content[0].text
    assert unknown.is_error
    assert "choose from: open" in unknown.content[0].text


def test_a_fault_of_opscope_ends_the_call_and_not_the_server(folder, monkeypatch):
    def broken(*given):
        raise TypeError("inside")

    monkeypatch.setattr("opscope.agents.server.reply", broken)

    async def asking(client):
        first = await client.call_tool("diagnose", {})
        monkeypatch.undo()
        return first, await client.call_tool("open", {})

    failed, after = within(Runs((folder[0],)), asking)
    assert failed.is_error
    assert "opscope failed (TypeError)" in failed.content[0].text
    assert not after.is_error


def test_a_client_follows_the_hints_of_a_server_to_the_cause_and_nothing_is_written(
    folder, tmp_path
):
    here, truths = folder
    (here / "report.nsys-rep").write_bytes(b"NSYS")
    tool = tmp_path / "nsys"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    tool.chmod(0o755)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in here.rglob("*"))
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "opscope", "mcp", str(here)], env=environ, cwd=str(here)
    )

    async def run():
        async with Client(stdio_client(command)) as client:
            saved = await client.call_tool("advise", {"run": "saved.opscope"})
            assert not saved.is_error
            report = await client.call_tool("open", {"files": ["report.nsys-rep"]})
            assert report.is_error
            assert "nsys export --type sqlite" in report.content[0].text
            claims = {}
            for cause, files in (("late rank", "late_rank-*rank*.json"),
                                 ("synchronising reads", "synchronising_reads-nsys-8x2.sqlite")):  # fmt: skip
                claims[cause] = await anyio.to_thread.run_sync(drive, made_by(client), files)
            return claims

    def made_by(client):
        def make(call, given):
            answer = anyio.from_thread.run(client.call_tool, call, dict(given))
            return answer.content[0].text

        return make

    for cause, claim in anyio.run(run).items():
        assert score(truths[cause], claim).reached, claim
    assert sorted((path.name, path.stat().st_mtime_ns) for path in here.rglob("*")) == before
    assert not (tmp_path / "ran").exists(), "no program was run"
