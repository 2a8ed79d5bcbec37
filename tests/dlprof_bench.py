"""Run ``opscope dlprof`` as a user does: in a folder with a program, with or without an ``nsys`` on PATH."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests import dlprof_double
from tests.nvtx_tool import ROOT

V2020, V2022, V2023 = "2020.4.3.7-10543b6", "2022.4.2.1-df9881f", "2023.4.4.54-234433681190v0"
TRAIN = """
import sys, opscope
for n in range(4):
    opscope.step(n)
    with opscope.annotate(f"work {n}"):
        pass
opscope.shutdown()
print("out", *sys.argv[1:])
print("err", file=sys.stderr)
sys.exit(3)
"""
#: Runs opscope with the double of the reports and, if told, as on a machine with an NVIDIA GPU.
_RUN = """
import sys
from tests import dlprof_double
{double}
{gpu}
from opscope.cli import main
main()
"""
_GPU = "from opscope.backends import machine; machine._vendor = lambda root: 'nvidia'"


@dataclass
class Bench:
    """A folder with ``train.py``; ``tool`` is the injection library by which the stand-in hears ranges."""

    folder: Path
    tool: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    double: bool = True

    def __post_init__(self) -> None:
        (self.folder / "train.py").write_text(TRAIN)
        (self.folder / "bin").mkdir(exist_ok=True)
        self.script("python", f'exec "{sys.executable}" "$@"')

    def script(self, name: str, line: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def nsys(self, version: str = V2023) -> Bench:
        """Put a stand-in for nsys on PATH."""
        fake = ROOT / "tests" / "fake_nsys.py"
        self.script("nsys", f'exec "{sys.executable}" -I "{fake}" "{version}" "$@"')
        return self

    def environ(self, **more: str) -> dict[str, str]:
        hidden = ("NVTX_", "NSYS_", "QUADD_", "FAKE_NSYS", "OPSCOPE_", "OMPI_", "PMI")
        env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        real = shutil.which("nsys")
        rest = [
            one
            for one in os.environ["PATH"].split(os.pathsep)
            if real is None or one != os.path.dirname(real)
        ]
        path = os.pathsep.join((str(self.folder / "bin"), *rest))
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        env |= {"PYTHONPATH": modules, "PATH": path, "CUDA_VISIBLE_DEVICES": "0"}
        if self.tool is not None:
            env["FAKE_NSYS_TOOL"] = str(self.tool)
        return {**env, **self.env, **more}

    def opscope(
        self, *words: object, gpu: bool = False, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``opscope WORDS`` in the folder."""
        double = "dlprof_double.install()" if self.double else ""
        code = _RUN.format(double=double, gpu=_GPU if gpu else "")
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            cwd=self.folder,
            env=self.environ(**more),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def dlprof(
        self, *words: object, gpu: bool = False, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return self.opscope("dlprof", *words, gpu=gpu, **more)

    def here(self, *words: object) -> tuple[int, str]:
        """Run ``opscope dlprof WORDS``, which begins no program, in this process; return status and output."""
        from opscope.cli.start import run

        told, before = io.StringIO(), sys.modules.get(dlprof_double.NAME)
        with contextlib.ExitStack() as stack:
            stack.callback(os.chdir, os.getcwd())
            os.chdir(self.folder)
            line = ["opscope", "dlprof", *map(str, words)]
            stack.enter_context(mock.patch.object(sys, "argv", line))
            stack.enter_context(mock.patch.dict(os.environ, self.environ(), clear=True))
            stack.enter_context(contextlib.redirect_stderr(told))
            stack.enter_context(contextlib.redirect_stdout(told))
            try:
                if self.double:
                    dlprof_double.install()
                return run(), told.getvalue()
            finally:
                dlprof_double.put(before)

    @property
    def asked(self) -> dict[str, str]:
        """The options that the stand-in for nsys was given."""
        return json.loads((self.folder / "asked.json").read_text())

    def left(self, folder: str = ".") -> list[str]:
        """The files that were written, hidden ones included."""
        ours = ("bin", "train.py", "asked.json", "nsys-ended", "over")
        return sorted(p.name for p in (self.folder / folder).iterdir() if p.name not in ours)
