"""Build an NVTX tool (an injection library) and run programs under it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvtx_injection" / "injection.c"
ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path, *flags: str) -> Path:
    """Build the injection library in ``folder``; skip without a compiler or NVTX headers."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the NVTX injection library")
    library = folder / f"injection{len(flags)}.so"
    options = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-I", include()]
    subprocess.run([compiler, *options, str(SOURCE), "-o", str(library)], check=True)
    return library


def include() -> str:
    """Return the folder of ``nvtx3/`` in the nvidia-nvtx wheel."""
    for name in ("nvidia-nvtx", "nvidia-nvtx-cu12"):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "nvToolsExt.h" and file.parent.name == "nvtx3":
                return str(Path(str(file.locate())).parents[1])
    pytest.skip("no NVTX headers (the nvidia-nvtx wheel is not installed)")


@dataclass(frozen=True)
class Event:
    """One NVTX call as the tool received it."""

    kind: str
    thread: int
    domain: str
    category: int = 0
    payload: int | None = None
    message: str = ""
    text: str = ""


@dataclass
class Heard:
    """The NVTX calls of one program, its ``result``, and its stderr."""

    events: list[Event]
    result: object
    stderr: str

    def of(self, *kinds: str, domain: str | None = None) -> list[Event]:
        return [e for e in self.events if e.kind in kinds and domain in (None, e.domain)]


def hear(program: str, library: Path | None, folder: Path, **environ: str) -> Heard:
    """Run Python code in a fresh process under the tool; the code may set ``result`` (JSON)."""
    log = folder / "nvtx.log"
    log.unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("NVTX_")}
    env |= {"PYTHONPATH": str(ROOT), "OPSCOPE_TEST_NVTX_LOG": str(log), **environ}
    if library is not None:
        env["NVTX_INJECTION64_PATH"] = str(library)
    code = f"result = None\n{program}\nimport json; print(json.dumps(result))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return Heard(read(log), json.loads(done.stdout.splitlines()[-1]), done.stderr)


def read(log: Path) -> list[Event]:
    names: dict[str, str] = {"0": ""}
    events = []
    for line in log.read_text().splitlines() if log.exists() else []:
        kind, thread, number, *rest = line.split(" ")
        if kind == "domain":
            names[number] = _text(rest[0])
        domain = names[number]
        if kind in ("push", "mark", "start"):
            category, payload, message, text = rest
            value = None if payload == "-" else int(payload)
            events.append(
                Event(kind, int(thread), domain, int(category), value, message, _text(text))
            )
        elif kind == "category":
            events.append(Event(kind, int(thread), domain, int(rest[0]), text=_text(rest[1])))
        elif kind == "end":
            events.append(Event(kind, int(thread), domain, payload=int(rest[0])))
        else:
            events.append(Event(kind, int(thread), domain, text=_text(rest[0]) if rest else ""))
    return events


def _text(hexadecimal: str) -> str:
    return "" if hexadecimal == "-" else bytes.fromhex(hexadecimal).decode()
