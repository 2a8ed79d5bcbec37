"""A stand-in for a compiler that takes no time: it logs each library and copies one that was built before."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then out="$2"; fi
    shift
done
name=$(basename "$out")
name="${{name%%.so.*}}.so"
echo "$name" >> "{log}"
cp "{libraries}/$name" "$out"
"""


class Compiler:
    """The stand-in: the environment variables that select it, and the libraries that it made."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self._log = folder / "compiled"
        script = folder / "compiler"
        script.write_text(_SCRIPT.format(log=self._log, libraries=libraries))
        script.chmod(0o755)
        cache = str(folder / "cache")
        self.environment = {"OPSCOPE_CACHE": cache, "CC": str(script), "CXX": str(script)}
        # the sampler of stacks belongs to no framework
        self.environment["OPSCOPE_STACKS"] = "0"

    @property
    def made(self) -> list[str]:
        """The names of the compiled libraries without their suffixes, one per compilation; not of the one that
        writes the ranges of every framework."""
        lines = self._log.read_text().split() if self._log.exists() else []
        return [line.rpartition("-")[0] for line in lines if not line.startswith("ranges-")]
