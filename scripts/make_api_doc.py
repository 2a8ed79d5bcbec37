"""Write docs/reference/api.md from docstrings and columns. Usage: python scripts/make_api_doc.py [--check]"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import opscope
from opscope import errors
from opscope.core.question import registry
from opscope.core.question.column import UNITS, Frame
from opscope.profile import Profile

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.md"
#: Attributes of a profile that are stable and not frames.
HELD = ("cpu_only", "device", "distinct", "is_light", "op_analyse", "save", "select", "selected")
#: The trace of a profile: its tables follow the profile format, the object around them may change.
HELD_PROVISIONALLY = ("trace",)
#: Attributes of a profile that only other parts of opscope use.
HELD_WITHIN = (
    "ask",
    "attribution",
    "call_names",
    "dlprof",
    "domains",
    "has_ranges",
    "merged_of",
    "of",
    "op_columns",
    "pyprof_pieces",
    "save_as",
    "keep_in",
    "spans",
)
#: Names that are public and may still change, by module.
PROVISIONAL: dict[str, tuple[str, ...]] = {
    "opscope.callbacks.keras": ("StepRange",),
    "opscope.callbacks.lightning": ("OpscopeCallback", "OpscopeProfiler"),
    "opscope.callbacks.mindspore": ("StepRange",),
    "opscope.callbacks.transformers": ("OpscopeCallback",),
    "opscope.core.perf": ("op", "Cost"),
    "opscope.core.perf.shapes": ("cost", "need", "promote", "result", "sizes"),
    "opscope.core.schema": ("OpCall", "TensorSpec"),
    "opscope.core.rangetext": ("format_call", "parse"),
    "opscope.scale.partial": ("write_partial", "partial_name"),
    "opscope.scale.merge": ("merge",),
}
HEAD = """# The Python interface

This page is written by `scripts/make_api_doc.py` from the docstrings and from the documented columns;
`help()` shows the same.

- **Public and stable**: the functions of `opscope`; `opscope.errors`; a profile's methods, with the names,
  units and meanings of their columns; the commands with their options, exit codes and JSON; the
  [profile format](../profile-format.md). A release may add to them. What it changes or takes away works for
  one more version, with a warning.
- **Provisional**: the names under [provisional](#provisional). A release may change them; its changelog then
  says so.
- **Not public**: every module, class and function that this page does not name, with or without an
  underscore. A release may change it without notice.

New columns may be added to a frame: ask for columns by name.
"""
UNITS_HEAD = "\n## Units\n\n| unit | meaning |\n|---|---|\n"
PROFILE_HEAD = "\n## A profile\n\n"
PROVISIONAL_HEAD = """
## Provisional

`profile.trace` has the trace's tables by name (`profile.trace["ranges"]`): Polars frames as the
[profile format](../profile-format.md) describes them. The entry point `opscope.adapters` names the adapters that
observe frameworks, `opscope.costs` modules with the costs of their ops. [adding-an-op.md](../adding-an-op.md)
shows the use of `opscope.core.perf`, [adding-an-adapter.md](../adding-an-adapter.md) that of both.

| name | meaning |
|---|---|
"""


def page() -> str:
    """The page's text."""
    return "".join(
        (
            HEAD,
            "\n## opscope\n",
            *(entry(f"opscope.{name}", getattr(opscope, name)) for name in opscope.__all__),
            "\n## opscope.errors\n\nImport them from there: `from opscope.errors import BadInput`.\n",
            *(entry(f"opscope.errors.{name}", getattr(errors, name)) for name in errors.__all__),
            PROFILE_HEAD,
            prose(described(Profile)),
            "\n",
            *(held(name) for name in HELD),
            *frames(),
            UNITS_HEAD,
            *(f"| {unit} | {means} |\n" for unit, means in UNITS.items()),
            PROVISIONAL_HEAD,
            *provisional(),
        )
    )


def entry(name: str, what: Any) -> str:
    """The section of a function or class: its signature and its docstring."""
    if inspect.isclass(what) and issubclass(what, Exception):
        base = what.__mro__[1].__name__
        return f"\n### {name}\n\nA {base}. {prose(described(what))}\n"
    return f"\n### {name}\n\n```text\n{name}{signature(what)}\n```\n\n{prose(described(what))}\n"


def held(name: str) -> str:
    """The section of a profile's property or method that does not return a frame."""
    what = inspect.getattr_static(Profile, name)
    call = f"profile.{name}" + (signature(what) if inspect.isfunction(what) else "")
    return f"\n### {call}\n\n{prose(described(what))}\n"


def frames() -> Iterator[str]:
    """The sections of the methods that return frames, in the order of the questions, with their columns."""
    methods: dict[str, list[Frame]] = {}
    for frame in registry.frames():
        methods.setdefault(frame.method, []).append(frame)
    for name, several in methods.items():
        method = getattr(Profile, name)
        # from this line on, the docstring lists the columns, which follow as tables
        columns_begin = f"\n``{several[0].call}``: {several[0].row}."
        said = described(method).partition(columns_begin)[0].rstrip()
        yield f"\n### profile.{name}{signature(method)}\n\n{prose(said)}\n"
        for n, frame in enumerate(several):
            alike = next((one for one in several[:n] if one.columns[1:] == frame.columns[1:]), None)
            if alike is not None:
                own, other = frame.columns[0].name, alike.columns[0].name
                columns = f"the columns of `{alike.call}` with `{own}` for `{other}`"
                yield f"\n`{frame.call}`: {frame.row}; {columns}.\n"
                continue
            yield f"\n`{frame.call}`: {frame.row}.\n\n| column | unit | meaning |\n|---|---|---|\n"
            for column in frame.columns:
                meaning = column.meaning.replace("|", "\\|")
                yield f"| `{column.name}` | {column.unit} | {meaning} |\n"


def provisional() -> Iterator[str]:
    """A row for each provisional name: the first sentence of its docstring."""
    for module, names in PROVISIONAL.items():
        for name in names:
            said = " ".join(docstring(module, name).split("\n\n")[0].split())
            yield f"| `{module}.{name}` | {prose(said).replace('|', chr(92) + '|')} |\n"


def docstring(module: str, name: str) -> str:
    """The docstring of ``module.name``, from the source, as a library that it imports may be missing.

    Raises LookupError if the module or the name does not exist.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"there is no module {module}")
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    package = (
                        module if spec.submodule_search_locations else module.rpartition(".")[0]
                    )
                    there = ("." * node.level) + (node.module or "")
                    return docstring(importlib.util.resolve_name(there, package), alias.name)
    raise LookupError(f"{module} has no {name}")


def described(what: Any) -> str:
    """The docstring without its indentation. Raises ValueError if there is none."""
    text = inspect.getdoc(what)
    if not text:
        raise ValueError(f"{what} has no docstring")
    return text


def signature(what: Callable[..., Any]) -> str:
    """The parameters without ``self``, with types and defaults as in the source, and the return type."""
    found = inspect.signature(what)
    parts, named = [], False
    for one in found.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not named:
            parts.append("*")
        named = named or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        star = "*" if one.kind is one.VAR_POSITIONAL else ""
        kind = "" if one.annotation is one.empty else f": {annotation(one.annotation)}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        parts.append(f"{star}{one.name}{kind}{default}")
    gives = found.return_annotation
    back = "" if gives is found.empty or inspect.isclass(what) else f" -> {annotation(gives)}"
    return f"({', '.join(parts)}){back}"


def annotation(what: Any) -> str:
    """The name of a type for the reader."""
    text = what if isinstance(what, str) else getattr(what, "__name__", str(what))
    return re.sub(r"\bPath\b", "str | os.PathLike[str]", text)


def prose(text: str) -> str:
    """A docstring as Markdown: double backquotes become single ones."""
    return re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)


def main() -> int:
    """Write the page, or with ``--check`` print whether it is up to date."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print("up to date" if same else f"{PAGE} is not up to date: run scripts/make_api_doc.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
