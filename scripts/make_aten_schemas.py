"""Write opscope/core/dialects/aten_schemas.json from the schemas of the installed torch.

Usage: python scripts/make_aten_schemas.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import torch

TARGET = Path(__file__).resolve().parents[1] / "opscope/core/dialects/aten_schemas.json"
#: Namespaces whose ops a profiler records; the others are compiler-internal.
NAMESPACES = ("aten",)
MARKS = {"tensor": "*", "tensors": "+", "scalar": ""}


def kind(argument_type: str) -> str:
    plain = argument_type.replace("Optional[", "").replace("]", "").replace("?", "")
    if "Tensor" not in plain:
        return "scalar"
    listed = "List[" in argument_type or "[]" in argument_type
    return "tensors" if listed else "tensor"


def composite(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The ops that PyTorch does by calling others, in every overload that returns its result, and in some."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key

    def decomposes(full: str) -> bool:
        own = ("CompositeExplicitAutograd", "AutogradCPU", "CPU")
        return has(full, "CompositeImplicitAutograd") and not any(has(full, key) for key in own)

    overloads = defaultdict(list)
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        if namespace in NAMESPACES and "out" not in overload:
            overloads[base.removesuffix("_")].append(full)
    shares = {base: {decomposes(full) for full in overloads[base]} for base in names}
    return (
        sorted(base for base, kinds in shares.items() if kinds == {True}),
        sorted(base for base, kinds in shares.items() if len(kinds) == 2),
    )


def main() -> None:
    # TorchScript's own overloads (``aten::add.int``, ``list.index``) are not dispatched, so no profiler
    # records them
    dispatched = set(torch._C._dispatch_get_all_op_names())
    overloads = defaultdict(lambda: defaultdict(list))
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        full = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if namespace in NAMESPACES and full in dispatched:
            arguments = [(a.name, kind(str(a.type))) for a in schema.arguments]
            overloads[name][len(arguments)].append((schema.overload_name, arguments))
    table = {}
    for name, by_arity in sorted(overloads.items()):
        lines = []
        for _, found in sorted(by_arity.items()):
            # the default overload first, then the one with the most tensors
            found.sort(key=lambda item: (item[0] != "", -sum(k != "scalar" for _, k in item[1])))
            for _, arguments in found:
                line = " ".join(MARKS[kind] + argument for argument, kind in arguments)
                if line not in lines:
                    lines.append(line)
        table[name] = lines
    whole, part = composite(table)
    parts = {
        "torch": torch.__version__.split("+")[0],
        "composite": whole,
        "partly_composite": part,
        "aten": table,
    }
    text = json.dumps(parts, indent=0)
    TARGET.write_text(text + "\n")
    print(f"{TARGET}: {len(table)} ops, {len(text)} bytes")


if __name__ == "__main__":
    main()
