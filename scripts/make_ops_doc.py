"""Write docs/ops.md from the registry of cost models. Usage: python scripts/make_ops_doc.py [--check]"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from opscope.core import perf

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
HEAD = """# Ops with a cost model

{count} names of ops have a model of their FLOPs and bytes, {families} families; of {without} more it is
known that no call tells them, and why (`null: …`). This page is written by `scripts/make_ops_doc.py` from
the registry; `opscope doctor --ops` prints the same on a terminal, and [adding-an-op.md](adding-an-op.md)
says how to add one.

What counts: a contraction is 2 FLOPs a multiply-add and nothing for its bias; an addition,
multiplication, division, comparison, selection, root or elementary function is 1; moving, casting and
viewing are 0. Bytes are the traffic that no implementation avoids: each tensor once, repeated
dimensions once, of a gather what it touches; an op in place reads and writes. What a call does not
tell is null with a reason. Of sparse tensors that is all but products with a dense matrix, where the
text has how many elements are stored, and what touches no element.

Overloads (`aten::sum.dim_IntList`), in-place forms (`aten::add_`) and the API's names
(`torch.nn.functional.linear`, `Tensor.add_`) find the same models.
"""


def page() -> str:
    """The page's text."""
    entries = sorted(
        perf.entries().values(), key=lambda entry: (entry.family, entry.source, entry.name)
    )
    known = [entry for entry in entries if not entry.source.startswith("null: ")]
    families = len({entry.family for entry in known})
    head = HEAD.format(count=len(known), families=families, without=len(entries) - len(known))
    parts = [head]
    for family, members in groupby(entries, key=lambda entry: entry.family):
        parts.append(f"\n## {family}\n\n| counted as | ops |\n|---|---|\n")
        for source, same in groupby(members, key=lambda entry: entry.source):
            names = ", ".join(f"`{entry.name}`" for entry in same)
            parts.append(f"| {source.replace('|', '/')} | {names} |\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or with ``--check`` say whether it is what the registry says."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print("up to date" if same else f"{PAGE} is not: run scripts/make_ops_doc.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
