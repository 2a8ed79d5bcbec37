"""Write opscope/core/cupti/records.json and calls.json: sizes, offsets and numbers that CUPTI's headers define.

For each version of the headers, a C program that includes them prints the size of each kind's record, and
where each field lies. The two files hold these facts only: no text of the headers.

Usage: python scripts/make_cupti_layouts.py FOLDER [--download]

FOLDER has a folder for each wheel, ``<package>-<version>``, with the wheel's headers. ``--download`` fetches
those that are missing (of each wheel only the headers are kept: 80 MB in all). Needs gcc.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "opscope/core/cupti"
#: The wheels of CUPTI's headers; what else their headers include comes from the wheels in HELPERS.
WHEELS = {
    "nvidia-cuda-cupti-cu11": ("11.7.101", "11.8.87"),
    "nvidia-cuda-cupti-cu12": (
        "12.0.90", "12.0.146", "12.1.62", "12.1.105", "12.2.60", "12.2.131", "12.2.142", "12.3.52",
        "12.3.101", "12.4.99", "12.4.127", "12.5.39", "12.5.82", "12.6.37", "12.6.68", "12.6.80",
        "12.8.57", "12.8.90", "12.9.19", "12.9.79",
    ),
    "nvidia-cuda-cupti": (
        "13.0.48", "13.0.85", "13.1.75", "13.1.115", "13.2.23", "13.2.75", "13.2.86", "13.3.35",
        "13.3.75", "13.4.58", "13.4.92", "13.5.25",
    ),
}  # fmt: skip
HELPERS = {
    "11": (("nvidia-cuda-runtime-cu11", "11.8.89"), ("nvidia-cuda-nvcc-cu11", "11.8.89")),
    "12": (("nvidia-cuda-runtime-cu12", "12.9.79"), ("nvidia-cuda-nvcc-cu12", "12.9.86")),
    "13": (("nvidia-cuda-runtime", "13.5.37"), ("nvidia-cuda-crt", "13.5.37")),
}
PLATFORMS = ("manylinux1", "manylinux2014", *(f"manylinux_2_{n}" for n in range(12, 40)))
#: The struct of each kind of record, without the number of its version: the newest is what CUPTI writes.
STRUCTS = {
    1: "Memcpy", 2: "Memset", 3: "Kernel", 4: "API", 5: "API", 6: "Event", 7: "Metric", 8: "Device",
    9: "Context", 10: "Kernel", 11: "Name", 12: "Marker", 13: "MarkerData", 14: "SourceLocator",
    15: "GlobalAccess", 16: "Branch", 17: "Overhead", 18: "CdpKernel", 19: "Preemption",
    20: "Environment", 21: "EventInstance", 22: "MemcpyPtoP", 23: "MetricInstance",
    24: "InstructionExecution", 25: "UnifiedMemoryCounter", 26: "Function", 27: "Module",
    28: "DeviceAttribute", 29: "SharedAccess", 30: "PCSampling", 31: "PCSamplingRecordInfo",
    32: "InstructionCorrelation", 33: "OpenAccData", 34: "OpenAccLaunch", 35: "OpenAccOther",
    36: "CudaEvent", 37: "Stream", 38: "Synchronization", 39: "ExternalCorrelation", 40: "NvLink",
    41: "InstantaneousEvent", 42: "InstantaneousEventInstance", 43: "InstantaneousMetric",
    44: "InstantaneousMetricInstance", 45: "Memory", 46: "Pcie", 47: "OpenMp", 48: "API",
    49: "Memory", 50: "MemoryPool", 51: "GraphTrace", 52: "Jit", 53: "DeviceGraphTrace",
    54: "MemDecompress", 55: "ConfidentialComputeRotation", 56: "GraphHostNode",
    57: "ComputeEngineCtxSwitch", 58: "HostLaunch", 59: "GreenContext",
}  # fmt: skip
#: Kinds of which all fields are written; of the others the size, so that walking does not stop at them.
USED = (
    1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 17, 20, 22, 25, 36, 37, 38, 39, 49, 50, 51, 53, 54, 56, 58, 59,
)  # fmt: skip
#: The kind whose struct has no number: later numbers of the same name are another kind's.
UNNUMBERED = (45,)
#: What the headers call a function that they do not tell yet; a later version has its name.
UNNAMED = re.compile(r"(cu|cuda|reserved)\d+(_v\d+)?(_ptsz)?")
PADDING = re.compile(r"(^|\.)(pad|padding|reserved)_?\d*$")

PRELUDE = r"""
#include <stdio.h>
#include <stddef.h>
#include <cupti.h>
#define LETTER(x) _Generic((x), uint8_t: "u", uint16_t: "u", uint32_t: "u", uint64_t: "u", \
    unsigned long long: "u", int8_t: "i", int16_t: "i", int32_t: "i", int64_t: "i", long long: "i", \
    char *: "s", const char *: "s", float: "f", double: "f", default: "V")
#define FIELD(S, path, x) printf("%s\t%s\t%s\t%zu\t%zu\t%zu\n", #S, #path, LETTER(x), \
    offsetof(S, path), sizeof(((S *)0)->path), sizeof(x));
int main(void) {
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--download", action="store_true", help="fetch the wheels that are missing")
    options = parser.parse_args()
    records, calls = facts(options.folder, options.download)
    for name, content in (("records.json", records), ("calls.json", calls)):
        text = json.dumps(content, indent=0) + "\n"
        (TARGET / name).write_text(text)
        print(f"{TARGET / name}: {len(text)} bytes")


def facts(folder: Path, download: bool = False) -> tuple[dict[str, object], dict[str, object]]:
    """Return the contents of records.json and of calls.json."""
    structs: dict[str, dict[str, object]] = {}
    versions: list[dict[str, object]] = []
    names: dict[str, dict[int, str]] = {"runtime": {}, "driver": {}}
    latest: dict[str, dict[int, str]] = {"runtime": {}, "driver": {}}
    renamed: dict[str, dict[str, dict[str, str]]] = {"runtime": {}, "driver": {}}
    for package, of in WHEELS.items():
        for version in of:
            paths = includes(folder, package, version, download)
            api, found = layouts(paths)
            kinds = {}
            for kind, (struct, layout) in found.items():
                key, number = struct, 2
                while (
                    structs.setdefault(key, layout) != layout
                ):  # a struct that has changed in place
                    key, number = f"{struct}#{number}", number + 1
                kinds[str(kind)] = key
            cuda = ".".join(version.split(".")[:2])
            entry = {"cuda": cuda, "version": api, "kinds": kinds}
            # a version whose records are those of the one before it: its updates, most of all
            if not versions or {k: versions[-1][k] for k in ("cuda", "version", "kinds")} != entry:
                versions.append(entry)
            for side, known in names.items():
                for number, name in calls(paths, side).items():
                    if UNNAMED.fullmatch(name):
                        continue
                    old = latest[side].get(number, name)
                    latest[side][number] = name
                    if known.setdefault(number, name) != name and old != name:
                        # the number stays, and the function's name changes
                        renamed[side].setdefault(str(api), {})[str(number)] = name
    told: dict[str, str] = {}
    for entry in versions:  # only what differs from the version before
        kinds = entry["kinds"]
        assert isinstance(kinds, dict)
        entry["kinds"] = {kind: key for kind, key in kinds.items() if told.get(kind) != key}
        gone = set(told) - set(kinds)
        if gone:
            sys.exit(f"{entry['cuda']} lacks kinds {sorted(gone)}")
        told = kinds
    listed: dict[str, object] = {
        side: {
            "names": " ".join(known.get(number, "-") for number in range(max(known) + 1)),
            "renamed": renamed[side],
        }
        for side, known in names.items()
    }
    return {"versions": versions, "structs": structs}, listed


def includes(folder: Path, package: str, version: str, download: bool) -> list[Path]:
    """Return the folders of headers that a version of CUPTI's headers needs, its own first."""
    wheels = [(package, version), *HELPERS[version.split(".")[0]]]
    paths = []
    for name, number in wheels:
        wheel = folder / f"{name}-{number}"
        if not wheel.is_dir():
            if not download:
                sys.exit(f"no folder {wheel}: give --download")
            fetch(wheel, name, number)
        paths += sorted({*wheel.glob("nvidia/*/include"), *wheel.glob("nvidia/*/*/*/include")})
    return paths


def fetch(wheel: Path, name: str, number: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
        command += ["--only-binary=:all:", "-d", place, f"{name}=={number}"]
        for platform in PLATFORMS:
            command += ["--platform", f"{platform}_x86_64"]
        subprocess.run(command, check=True)
        (found,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(found) as archive:
            headers = [each for each in archive.namelist() if each.endswith((".h", ".hpp"))]
            archive.extractall(wheel, headers)


def layouts(paths: list[Path]) -> tuple[int, dict[int, tuple[str, dict[str, object]]]]:
    """Return the number of the version, and for each kind the newest struct's name, size and fields."""
    text = preprocessed(paths)
    bodies = dict(structs_of(text))
    chosen = newest(bodies, text)
    lines = [PRELUDE, 'printf("version\\t%d\\n", CUPTI_API_VERSION);']
    for name in sorted(set(chosen.values())):
        lines.append(f'printf("{name}\\t%zu\\n", sizeof({name}));')
        used = any(chosen.get(kind) == name for kind in USED)
        for path, pointer in members(bodies[name], bodies) if used else ():
            if pointer:
                lines.append(f"FIELD({name}, {path}, (({name} *)0)->{path})")
            else:  # an array's letter is its element's
                lines.append(f"FIELD({name}, {path}, {element(name, path)})")
    lines.append("return 0; }")
    return printed(output("\n".join(lines), paths)[1], chosen)


def newest(bodies: dict[str, str], text: str) -> dict[int, str]:
    """Return the name of the newest struct of each kind that a version has."""
    found: dict[int, str] = {}
    for kind, base in STRUCTS.items():
        numbers = [
            int(number[1] or 1)
            for name in bodies
            if (number := re.fullmatch(rf"CUpti_Activity{base}(\d*)", name))
            and not (kind == 49 and not number[1])
        ]
        if numbers:
            last = 1 if kind in UNNUMBERED else max(numbers)
            found[kind] = f"CUpti_Activity{base}{last if last > 1 else ''}"
    known = {int(n) for n in re.findall(r"CUPTI_ACTIVITY_KIND_\w+\s*=\s*(\d+)", text)} - {0}
    if unknown := {number for number in known if number < 1 << 16} - set(STRUCTS):
        sys.exit(f"kinds {sorted(unknown)} are new: add them to STRUCTS")
    return {kind: name for kind, name in found.items() if kind in known}


def element(name: str, path: str) -> str:
    whole = f"(({name} *)0)->{path}"
    return f"*__builtin_choose_expr(__builtin_classify_type({whole}) == 5, {whole}, &{whole})"


def printed(
    lines: list[str], newest: dict[int, str]
) -> tuple[int, dict[int, tuple[str, dict[str, object]]]]:
    version, sizes = 0, {}
    fields: dict[str, list[str]] = {}
    for line in lines:
        parts = line.split("\t")
        if parts[0] == "version":
            version = int(parts[1])
        elif len(parts) == 2:
            sizes[parts[0]] = int(parts[1])
        else:
            struct, path, letter, offset, size, one = parts
            many = "" if size == one else f"x{int(size) // int(one)}"
            fields.setdefault(struct, []).append(f"{path}:{letter}{one}{many}@{offset}")
    found = {}
    for kind, name in newest.items():
        layout: dict[str, object] = {"size": sizes[name]}
        if name in fields:
            layout["fields"] = " ".join(fields[name])
        found[kind] = (name.removeprefix("CUpti_Activity"), layout)
    return version, found


def preprocessed(paths: list[Path]) -> str:
    flags = [f"-I{path}" for path in paths]
    done = subprocess.run(
        ["gcc", "-E", "-P", *flags, "-"],
        input="#include <cupti.h>\n",
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", done.stdout)


def structs_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each struct or union that has a typedef."""
    for found in re.finditer(r"\btypedef\s+(?:struct|union)\s*\w*\s*\{", text):
        end = closing(text, found.end())
        name = re.match(r"\s*(\w+)\s*;", text[end + 1 : end + 200])
        if name:
            yield name[1], text[found.end() : end]


def closing(text: str, at: int) -> int:
    """Return the place of the brace that closes the one just before ``at``."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


def members(body: str, bodies: dict[str, str], path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the path of each scalar, pointer or array in a struct, and whether it is a pointer."""
    at = 0
    while found := re.compile(r"\s*([^;{]*)([;{])").match(body, at):
        if found[2] == "{":
            end = closing(body, found.end())
            name = re.compile(r"\s*(\w*)\s*;").match(body, end + 1)
            assert name is not None
            inner = f"{path}{name[1]}." if name[1] else path
            yield from members(body[found.end() : end], bodies, inner)
            at = name.end()
            continue
        at = found.end()
        declared = re.fullmatch(r"(.*?)(\**)\s*(\w+)\s*(\[[^]]*\])?\s*", found[1], re.S)
        if declared is None or ":" in found[1]:  # bits: the union with them has the whole byte
            continue
        kind, stars, name_of, _ = declared.groups()
        kind = kind.replace("const", "").replace("struct", "").strip()
        whole = f"{path}{name_of}"
        if not stars and kind in bodies and kind.startswith("CUpti_"):
            yield from members(bodies[kind], bodies, whole + ".")
        elif not PADDING.search(whole):
            yield whole, bool(stars)


def output(program: str, paths: list[Path]) -> tuple[bytes, list[str]]:
    """Compile and run a C program; return what it wrote into its first argument's file, and its lines."""
    with tempfile.TemporaryDirectory() as place:
        source, binary, written = (Path(place, name) for name in ("made.c", "made", "written"))
        source.write_text(program)
        flags = [f"-I{path}" for path in paths]
        done = subprocess.run(
            ["gcc", "-std=gnu11", "-w", *flags, str(source), "-o", str(binary)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(done.stderr[:4000])
        told = subprocess.run(
            [str(binary), str(written)], check=True, capture_output=True, text=True
        )
        content = written.read_bytes() if written.exists() else b""
        return content, told.stdout.splitlines()


def calls(paths: list[Path], side: str) -> dict[int, str]:
    """Return the names of the runtime's or the driver's calls by CUPTI's number."""
    pattern = re.compile(rf"CUPTI_{side.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)\b")
    for path in paths:
        header = path / f"cupti_{side}_cbid.h"
        if header.is_file():
            return {
                int(number): name
                for name, number in pattern.findall(header.read_text())
                if name not in ("INVALID", "SIZE", "FORCE_INT")
            }
    sys.exit(f"no cupti_{side}_cbid.h in {paths}")


if __name__ == "__main__":
    main()
