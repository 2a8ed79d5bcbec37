"""Write docs/ops.md from the registry of cost models. Usage: python scripts/make_ops_doc.py [--check]"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from opscope.core import perf

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
HEAD = """# Ops with a cost model

{count} names of ops, in {families} families, have a model of their FLOPs and bytes. For {without} more names
no call shows the cost, for the given reason (`null: …`). `scripts/make_ops_doc.py` writes this page from the
registry; `opscope doctor --ops` prints the same in a terminal, and [adding-an-op.md](adding-an-op.md) shows
how to add an op.

What counts: a contraction has 2 FLOPs per multiply-add and none for its bias; an addition, multiplication,
division, comparison, selection, root or elementary function has 1; moving, casting and viewing have 0. Bytes
are the traffic that no implementation can avoid: each tensor once, repeated dimensions once, and for a gather
only the elements that it touches; an in-place op reads and writes. A cost that the call does not show is
null, with a reason. For sparse tensors every cost is null, except of products with a dense matrix if the text
has the number of stored elements, and of ops that touch no element.

Overloads (`aten::sum.dim_IntList`), in-place forms (`aten::add_`) and the names of the API
(`torch.nn.functional.linear`, `Tensor.add_`) have the same models.
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
    """Write the page, or with ``--check`` print whether it is up to date."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print("up to date" if same else f"{PAGE} is not up to date: run scripts/make_ops_doc.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
