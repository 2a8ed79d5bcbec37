"""Write docs/reference/ops.md and the table of the ops' modules from what the modules of cost models register.

Usage: python scripts/make_ops_doc.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from opscope.core import perf
from opscope.core.perf import places, registry

TABLE = Path(places.__file__).with_name(places.FILE)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "ops.md"
HEAD = """# Ops with a cost model

{count} names of ops, in {families} families, have a model of their FLOPs and bytes. For {without} more names
no call shows the cost, for the given reason (`null: …`). `scripts/make_ops_doc.py` writes this page from the
registry; `opscope doctor --ops` prints the same in a terminal, and [adding-an-op.md](../adding-an-op.md) shows
how to add an op.

What counts: a contraction has 2 FLOPs per multiply-add and none for its bias; an addition, multiplication,
division, comparison, selection, root or elementary function has 1; moving, casting and viewing have 0. Bytes
are the traffic that no implementation can avoid: each tensor once, repeated dimensions once, and for a gather
only the elements that it touches; an in-place op reads and writes. A cost that the call does not show is
null, with a reason. For sparse tensors every cost is null, except of products with a dense matrix if the text
has the number of stored elements, and of ops that touch no element.

- **Bias.** `aten::linear`, `aten::addmm`, convolutions and the products of every framework read their bias and
  count no FLOPs for it, as `torch.utils.flop_counter` and the definition of MFU do.
- **Attention** counts every pair of a query and a key, under a causal mask or a window too, as
  `torch.utils.flop_counter` does; `masked_flops` has the part that an efficient kernel skips. That is so of every
  name, forward and backward. Where the lengths of packed sequences are data, the cost is null, and the reason has
  bounds of the FLOPs.
- **Complex numbers** count their real operations: a multiply-add 8, a sum 2, a product 6, a quotient 11.
- **A number of the program** (`x + 1.0`) is no operand: nothing is read for it.
- **Nested ops.** One level counts, for time and cost alike ([decisions](../decisions/analysis.md)): of PyTorch's
  operators the one that is a kernel of its own, with what that kernel calls; on a GPU the op that launched the work.
  A DTensor's op counts with the shapes that it has on its rank; runs with fake tensors, and copies of what is right
  already (`aten::to`), cost nothing.
- **Convolutions** have every weight for every result, padding included, and transposed ones every weight for every
  element of their input, results that are cropped included. So have their gradients. `torch.utils.flop_counter` and
  TensorFlow's profiler count so, too; XLA's own count leaves out the padding (203,136 of 221,184 FLOPs for 3 x 3
  weights on 16 x 16, `SAME`).

Overloads (`aten::sum.dim_IntList`), in-place forms (`aten::add_`) and the names of the API
(`torch.nn.functional.linear`, `Tensor.add_`) have the same models.
"""


class Registrations(dict[str, Any]):
    """A registry's dict that notes by module the names that are put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.by_module: defaultdict[str, list[str]] = defaultdict(list)

    def __setitem__(self, name: str, value: Any) -> None:
        """Note the name for the module whose line registers it: the first outside the registry."""
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] == registry.__name__:
            frame = frame.f_back
        module = frame.f_globals["__name__"].removeprefix("opscope.core.perf.")
        self.by_module[module].append(name)
        super().__setitem__(name, value)


def table() -> str:
    """Return the table's text, from what each module registers when it is imported."""
    places.places = lambda: places.Places({}, {})
    registry._ENTRIES = models = Registrations()
    registry._WITH_FORWARD = gradients = Registrations()
    registry._BACKWARD = backward = Registrations()
    backward.by_module = gradients.by_module
    for module in places.modules():
        import_module(f"opscope.core.perf.{module}")
    made = {"models": _sorted(models.by_module), "gradients": _sorted(gradients.by_module)}
    return json.dumps(made, indent=0) + "\n"


def _sorted(by_module: dict[str, list[str]]) -> dict[str, list[str]]:
    return {module: sorted({*names}) for module, names in sorted(by_module.items())}


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
    """Write both files, or with ``--check`` print whether they are up to date."""
    texts = {TABLE: table(), PAGE: page()}  # the table first: it loads the modules
    if "--check" not in sys.argv[1:]:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        return 0
    old = [
        path
        for path, text in texts.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    for path in old:
        print(f"{path} is not up to date: run scripts/make_ops_doc.py")
    if not old:
        print("up to date")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
