"""What comes from others: a lock of CI's packages with hashes, an audit of them, and a list of what is bundled.

    python scripts/supply_chain.py lock [ENV …]    # requirements/ENV.txt, from the environments that tox made
    python scripts/supply_chain.py install ENV …   # tox's pip install; with OPSCOPE_LOCK=1 the lock goes first
    python scripts/supply_chain.py audit           # pip-audit and npm audit of what is locked (tox -e audit)
    python scripts/supply_chain.py bundled [--check]   # the table in SECURITY.md

The lock holds for the Python and platform in its first line, CI's; elsewhere it is not used. A build with a
version of its own, as torch's for the CPU, has no hash that holds elsewhere: the lock says so, and tox.ini has
its version.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = ROOT / "requirements"
PAGE: Final = ROOT / "SECURITY.md"
ENVIRONMENTS: Final = (
    "lint", "core", "torch", "tensorflow", "jax", "mindspore", "onnxruntime", "viewer",
)  # fmt: skip
#: Extras that no environment of CI installs, only those that are asked for by name: nothing locks them.
ON_DEMAND: Final = ("cloud", "cloud-test", "cluster", "cluster-test", "ray", "gpu")
HERE: Final = f"# Python {sys.version_info.major}.{sys.version_info.minor}, {platform.system()} {platform.machine()}"
TABLE: Final = "| file | SHA-256 | holds |\n|---|---|---|\n"


def lock(environment: str) -> None:
    """Write the lock of one of tox's environments: what is installed there, with the registry's hashes."""
    folder = Path(os.environ.get("TOX_WORK_DIR", ROOT / ".tox")) / environment
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    frozen = subprocess.run(
        [*pip, "freeze"], check=True, capture_output=True, text=True
    ).stdout.split("\n")
    pinned = [
        line
        for line in frozen
        if re.fullmatch(r"[\w.\-]+==[\w.]+", line) and not line.startswith("opscope==")
    ]
    # what another folder of this machine offers is nothing that others can check
    public = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL")
    }
    with tempfile.TemporaryDirectory() as scratch:
        wanted, report = Path(scratch, "wanted.txt"), Path(scratch, "report.json")
        wanted.write_text("\n".join(pinned))
        command = [
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            "--report",
            str(report),
        ]
        subprocess.run(
            [*pip, *command, "-r", str(wanted)],
            check=True,
            env={**public, "PIP_CONFIG_FILE": os.devnull},
        )
        entries = json.loads(report.read_text())["install"]
    lines = [HERE]
    own = sorted(
        {re.split(r"[= ]", line)[0] for line in frozen if re.search(r"==[\w.]+\+| @ ", line)}
        - {"opscope"}
    )
    lines += [f"# without a hash, as it is a build of its own: {name}" for name in own]
    for entry in sorted(entries, key=lambda entry: entry["metadata"]["name"].lower()):
        digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(
            f"{entry['metadata']['name']}=={entry['metadata']['version']} --hash=sha256:{digest}"
        )
    LOCKS.mkdir(exist_ok=True)
    (LOCKS / f"{environment}.txt").write_text("\n".join(lines) + "\n")


def install(environment: str, arguments: list[str]) -> int:
    """Install as tox asks; where the lock is asked for and holds here, its packages first, with their hashes."""
    # Python compiles what is imported. To compile all of torch at once takes two thirds of its installation.
    pip = [sys.executable, "-I", "-m", "pip", "install", "--no-compile"]
    path, stamp = LOCKS / f"{environment}.txt", Path(sys.prefix, "locked.txt")
    if (
        os.environ.get("OPSCOPE_LOCK") == "1"
        and path.exists()
        and path.read_text().startswith(HERE + "\n")
        and (not stamp.exists() or stamp.read_bytes() != path.read_bytes())
    ):
        locked = subprocess.run(
            [*pip, "--require-hashes", "--no-deps", "-r", str(path)], check=False
        )
        if locked.returncode:
            return locked.returncode
        stamp.write_bytes(path.read_bytes())  # to look at each package again takes seconds
    return subprocess.run([*pip, *arguments], check=False).returncode


def audit() -> int:
    """Say of each lock, and of the viewer's, what is known of its packages. Returns 1 for a known fault."""
    worst = 0
    for path in sorted(LOCKS.glob("*.txt")):
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "-r",
            str(path),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        try:
            packages = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            print(
                f"{path.stem}: no answer: {(done.stderr.strip() or 'nothing was said').splitlines()[-1]}"
            )
            continue
        skipped = sum("skip_reason" in package for package in packages)
        faults = [
            f"{package['name']} {package['version']}: {fault['id']}"
            for package in packages
            for fault in package.get("vulns", ())
        ]
        worst = max(worst, bool(faults))
        print(
            f"{path.stem}: of {len(packages)} packages {len(faults)} known faults, {skipped} of which nothing is known",
            *faults,
            sep="\n  ",
        )
    done = subprocess.run(
        ["npm", "audit", "--json", "--package-lock-only"],
        cwd=ROOT / "web",
        check=False,
        capture_output=True,
        text=True,
    )
    try:
        counts = json.loads(done.stdout)["metadata"]["vulnerabilities"]
    except (ValueError, KeyError):
        print("viewer's bundle: no answer: the registry refuses the question")
        return worst
    print(f"viewer's bundle: {counts['total']} known faults")
    return max(worst, bool(counts["total"]))


def bundled() -> str:
    """Return the table of what the package holds of others: files, their hashes, whose code or data, licences."""
    static = ROOT / "opscope/viewer/static"
    text = (static / "THIRD_PARTY.txt").read_text("utf-8")
    packages = ", ".join(
        f"{name} ({licence})"
        for name, licence in re.findall(r"^(\S+ \d[\w.]*) \(([^)\n]+)\)$", text, re.M)
    )
    holds = {"viewer.js": packages, "viewer.css": packages, "THIRD_PARTY.txt": "their licences"}
    rows = [
        (path, holds.get(path.name, "own code"))
        for path in sorted(static.iterdir())
        if path.is_file()
    ]
    for path in sorted((ROOT / "opscope").rglob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        if isinstance(data, dict) and "licence" in data:
            source, licence = data["source"].partition(";")[0], data["licence"].splitlines()[0]
            rows.append((path, f"{source} ({licence})"))
    lines = [
        f"| `{path.relative_to(ROOT)}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` | {what} |\n"
        for path, what in rows
    ]
    before, _, rest = PAGE.read_text("utf-8").partition(TABLE)
    return before + TABLE + "".join(lines) + rest[rest.index("\n## ") :]


def main() -> int:
    """Do what the first argument says."""
    verb, *arguments = sys.argv[1:] or ["--help"]
    if verb == "lock":
        for environment in arguments or ENVIRONMENTS:
            lock(environment)
    elif verb == "install":
        return install(arguments[0], arguments[1:])
    elif verb == "audit":
        return audit()
    elif verb == "bundled" and arguments == ["--check"]:
        return PAGE.read_text("utf-8") != bundled()
    elif verb == "bundled":
        PAGE.write_text(bundled(), "utf-8")
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
