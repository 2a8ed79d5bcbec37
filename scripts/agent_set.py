"""Write twenty runs with planted causes for agents, drive opscope through them, and score a tool's claims.

Usage: python scripts/agent_set.py generate DIR [--tox DIR] [--made-only]
       python scripts/agent_set.py drive DIR [--by ask|mcp|python]
       python scripts/agent_set.py score DIR CLAIMS.json

``generate`` writes made traces, and records programs in the environments below .tox (``--tox DIR``): the runs, each
with a ``.truth.json`` beside it, and ``runs.json``: what a tool is asked, and of which files. ``drive`` has the driver
(``tests/planted_truths/driver.py``) follow opscope's hints and writes ``claims.json``. ``score`` judges it, or the claims
of another tool in the same form: {"NAME": {"verdict": "cause|healthy|cannot tell", "cause": "...", "where": "...",
"calls": 3, "tokens": 900}}. Exits with 1 where a run is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.planted_truths import agent_set, live  # noqa: E402
from tests.planted_truths.driver import Claim, Make, drive, score  # noqa: E402
from tests.planted_truths.truth import Truth  # noqa: E402


def generate(folder: Path, tox: Path, made_only: bool) -> None:
    """Write all runs, and the list of what a tool is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    written = list(agent_set.make(folder))
    for truth in () if made_only else agent_set.truths():
        recorded, _ = live.record(truth, folder, tox)
        recorded.write(folder)
        written.append(recorded)
        print(recorded.name, flush=True)
    runs = {truth.name: agent_set.files_of(truth) for truth in written}
    text = json.dumps({"question": agent_set.QUESTION, "runs": runs}, indent=1)
    (folder / "runs.json").write_text(text + "\n")


@contextmanager
def by_python(folder: Path) -> Iterator[Make]:
    """Make calls in this process, as the server does."""
    from opscope.agents.answering import reply
    from opscope.agents.runs import Runs

    runs = Runs((folder,))
    yield lambda call, given: reply(runs, call, given).text


@contextmanager
def by_ask(folder: Path) -> Iterator[Make]:
    """Make calls by ``opscope ask FILE … --json``."""

    runs: list[str] = []

    def make(call: str, given: Mapping[str, Any]) -> str:
        given = dict(given)
        if "run" in given:  # hints do not repeat the file, which the command has
            runs[:] = [given.pop("run")]
        files = sorted(map(str, folder.glob(runs[0])))
        sets = [
            f"--set={name}={_text(value)}" for name, value in given.items() if name != "question"
        ]
        words = [given["question"] if call == "ask" else call, *sets]
        command = [sys.executable, "-m", "opscope", "ask", *files, *words, "--json"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        return done.stdout.strip()

    yield make


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


@contextmanager
def by_mcp(folder: Path) -> Iterator[Make]:
    """Make calls by the SDK's client of ``opscope mcp``."""
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters, stdio_client

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    args = ["-m", "opscope", "mcp", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=args, env=env)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server))) as client,
    ):

        def make(call: str, given: Mapping[str, Any]) -> str:
            answer = portal.call(client.call_tool, call, dict(given))
            return str(answer.content[0].text)

        yield make


BY: Mapping[str, Callable[[Path], AbstractContextManager[Make]]] = {
    "python": by_python,
    "ask": by_ask,
    "mcp": by_mcp,
}


def claims_of(folder: Path, by: str) -> dict[str, Any]:
    """Drive opscope through all runs, and return the claims by name."""
    runs = json.loads((folder / "runs.json").read_text())["runs"]
    claims = {}
    with BY[by](folder) as make:
        for name, files in runs.items():
            claims[name] = asdict(drive(make, files))
            print(f"{name}: {claims[name]['calls']} calls", flush=True)
    return claims


def report(folder: Path, claims: Mapping[str, Mapping[str, Any]]) -> int:
    """Print a line for each run and what all come to; return how many were not reached."""
    runs = json.loads((folder / "runs.json").read_text())["runs"]
    reached = 0
    for name in runs:
        truth = Truth.read(folder / f"{name}.truth.json")
        claim = Claim(**claims[name]) if name in claims else Claim()
        judged = score(truth, claim)
        reached += judged.reached
        wrong = [part for part, right in asdict(judged).items() if not right]
        said = "reached" if judged.reached else f"NOT reached: {', '.join(wrong)}"
        print(f"{name:40} {truth.cause:22} {claim.calls} calls {claim.tokens:6,} tokens  {said}")
    print(f"{reached} of {len(runs)} reached")
    return len(runs) - reached


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["generate", "drive", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("claims", type=Path, nargs="?")
    parser.add_argument("--by", choices=list(BY), default="python")
    parser.add_argument("--tox", type=Path, default=ROOT / ".tox")
    parser.add_argument("--made-only", action="store_true")
    given = parser.parse_args()
    if given.what == "generate":
        generate(given.folder, given.tox, given.made_only)
        return 0
    if given.what == "score":
        if given.claims is None:
            parser.error("score needs the claims: score DIR CLAIMS.json")
        return int(report(given.folder, json.loads(given.claims.read_text())) > 0)
    claims = claims_of(given.folder, given.by)
    (given.folder / "claims.json").write_text(json.dumps(claims, indent=1) + "\n")
    return int(report(given.folder, claims) > 0)


if __name__ == "__main__":
    sys.exit(main())
