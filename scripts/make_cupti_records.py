"""Write tests/core/cupti/records.json.gz: records that C programs filled, with each version's own headers.

For each version of CUPTI's headers that changed a record, a C program gives every field of every kind of record
that opscope decodes a value of its own, writes the bytes, and tells what it reads back from each field. It knows
nothing of opscope's layouts, so that the decoder can be compared with it.

Usage: python scripts/make_cupti_records.py FOLDER [--download]   (FOLDER as of make_cupti_layouts.py)
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import make_cupti_layouts as headers

TARGET = Path(__file__).resolve().parents[1] / "tests/core/cupti/records.json.gz"
#: The first wheel of each release of CUDA that changed a record (the updates of a release in parentheses).
RELEASES = {
    "nvidia-cuda-cupti-cu11": ("11.7.101", "11.8.87"),
    "nvidia-cuda-cupti-cu12": (
        "12.0.90", "12.2.60", "12.3.52", "12.4.99", "12.5.39", "12.6.37", "12.8.57",
    ),
    "nvidia-cuda-cupti": ("13.0.48", "13.1.75", "13.2.23", "13.2.75", "13.3.35", "13.4.58", "13.5.25"),
}  # fmt: skip
#: Records of each kind.
EACH = 2
PRELUDE = r"""
#include <stdio.h>
#include <string.h>
#include <cupti.h>
static unsigned number; /* bytes that repeat after 251 of them: no two fields of a record are alike */
static void fill(void *to, size_t many) {
  for (size_t i = 0; i < many; i++) ((unsigned char *)to)[i] = (unsigned char)(1 + number++ % 251);
}
static void tell(const char *path, const void *from, size_t many) {
  printf("%s ", path);
  for (size_t i = 0; i < many; i++) printf("%02x", ((const unsigned char *)from)[i]);
  printf("\n");
}
#define FILL(path) { __typeof__(r.path) value; fill(&value, sizeof value); memcpy(&r.path, &value, sizeof value); }
#define TELL(path) { __typeof__(r.path) value; memcpy(&value, &r.path, sizeof value); tell(#path, &value, sizeof value); }
int main(int count, char **arguments) {
  FILE *file = fopen(arguments[1], "wb");
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--download", action="store_true", help="fetch the wheels that are missing")
    options = parser.parse_args()
    made = [
        filled(headers.includes(options.folder, package, version, options.download), version)
        for package, versions in RELEASES.items()
        for version in versions
    ]
    text = json.dumps(made, separators=(",", ":"))
    TARGET.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{TARGET}: {len(made)} versions, {TARGET.stat().st_size} bytes")


def filled(paths: list[Path], release: str) -> dict[str, object]:
    """Return a version's ``bytes`` (base64), and for each record in them its kind and the bytes of its fields
    as the C program read them (hexadecimal)."""
    text = headers.preprocessed(paths)
    bodies = dict(headers.structs_of(text))
    newest = {
        kind: name for kind, name in headers.newest(bodies, text).items() if kind in headers.USED
    }
    order = sorted(newest) * EACH
    random.Random(release).shuffle(order)
    lines = [PRELUDE, 'printf("version %d\\n", CUPTI_API_VERSION);']
    for kind in order:
        name = newest[kind]
        fields = [path for path, _ in headers.members(bodies[name], bodies) if path != "kind"]
        lines.append(
            f"{{ {name} r; memset(&r, 0xa5, sizeof r); r.kind = (CUpti_ActivityKind){kind};"
        )
        lines += [f"FILL({path})" for path in fields]
        lines.append(f'printf("record {kind}\\n"); TELL(kind)')
        lines += [f"TELL({path})" for path in fields]
        lines.append("fwrite(&r, sizeof r, 1, file); }")
    lines.append("return fclose(file); }")
    content, told = headers.output("\n".join(lines), paths)
    records: list[tuple[int, dict[str, str]]] = []
    version = 0
    for line in told:
        name, value = line.split(" ")
        if name == "version":
            version = int(value)
        elif name == "record":
            records.append((int(value), {}))
        else:
            records[-1][1][name] = value
    return {
        "cuda": ".".join(release.split(".")[:2]),
        "release": release,
        "version": version,
        "bytes": base64.b64encode(content).decode(),
        "records": records,
    }


if __name__ == "__main__":
    main()
