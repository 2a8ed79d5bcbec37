"""Who imports whom in opscope, with what import-linter does not see: imports by name, packages' own files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import opscope

PACKAGE = Path(opscope.__file__).parent
#: Folders of the ground: both sides agree on what is in them.
GROUND = ("cupti",)
#: Rooms of core from the ground up; what lies in ``core`` itself is the ground.
FLOORS = (
    "dialects",
    "question",
    "tables",
    "perf",
    "hlo",
    "onnx",
    "attribution",
    "job",
    "analysis",
    "dlprof",
    "advice",
    "pyprof",
)


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """For each module those of the package that it imports when it runs, at its top or in a function."""
    known = modules(package)
    return {
        name: {found for full in _named(name, path) if (found := _known(full, known))} - {name}
        for name, path in known.items()
    }


def _known(full: str, known: dict[str, Path]) -> str:
    while full and full not in known:
        full = full.rpartition(".")[0]
    return full


def _named(name: str, path: Path) -> Iterator[str]:
    within = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _that_run(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = within.split(".")[: len(within.split(".")) - node.level + 1]
            start = ".".join(base if node.level else []) + "." * bool(node.level and node.module)
            for alias in node.names:
                yield f"{start}{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (one.value for one in node.args
                        if isinstance(one, ast.Constant) and isinstance(one.value, str))  # fmt: skip


def _that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All below ``tree`` but what only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from _that_run(other)
            continue
        yield node
        yield from _that_run(node)


def circles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """The sets of modules that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_now: list[str] = []
    found: list[frozenset[str]] = []
    numbers = count()

    def visit(name: str) -> None:
        number[name] = lowest[name] = next(numbers)
        open_now.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in open_now:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            at = open_now.index(name)
            if len(open_now) - at > 1:
                found.append(frozenset(open_now[at:]))
            del open_now[at:]

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_no_modules_import_each_other_in_a_circle():
    assert [sorted(one) for one in circles(imports())] == []


def test_a_circle_is_found_however_it_is_imported(tmp_path):
    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from . import b\n")
    (package / "b.py").write_text("def late():\n    from made.c import value\n")
    (package / "c.py").write_text(
        "import importlib\nimportlib.import_module('made.a')\nvalue = 1\n"
    )
    (package / "d.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .e import E\n"
    )
    (package / "e.py").write_text("from .d import D\n")
    assert circles(imports(package)) == [frozenset({"made.a", "made.b", "made.c"})]


def room_of(name: str) -> str | None:
    """The room of core, ``ground`` for what lies in core itself; None elsewhere."""
    parts = name.split(".")
    if parts[1:2] != ["core"] or len(parts) == 2:
        return None
    room = (PACKAGE / "core" / parts[2]).is_dir() and parts[2] not in GROUND
    return parts[2] if room else "ground"


def test_every_room_of_core_has_its_floor():
    rooms = {path.name for path in (PACKAGE / "core").iterdir() if (path / "__init__.py").is_file()}
    assert rooms == {*FLOORS, *GROUND, "capture"}


def test_each_room_of_core_rests_on_those_below_it_alone():
    height = {name: floor for floor, name in enumerate(("ground", *FLOORS))}
    wrong = []
    for name, others in imports().items():
        for other in others:
            mine, theirs = room_of(name), room_of(other)
            if mine is None or theirs is None or mine == theirs:
                continue
            if mine == "capture":
                right = theirs == "ground"
            else:
                right = theirs != "capture" and height[theirs] < height[mine]
            if not right:
                wrong.append(f"{name} -> {other}")
    assert wrong == []


def test_an_import_in_a_function_says_why_it_is_not_at_the_top():
    """``# lazy: ...`` in its line or above it, once a function; commands and the public API import late by design."""
    silent = []
    for name, path in modules().items():
        if (
            name.startswith(("opscope.cli", "opscope.reports", "opscope.adapters"))
            or name == "opscope"
        ):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for function in ast.walk(ast.parse("\n".join(lines))):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            body = "\n".join(lines[function.lineno - 1 : function.end_lineno])
            own = [node for node in ast.walk(function) if isinstance(node, ast.ImportFrom)
                   and (node.level or (node.module or "").startswith("opscope"))]  # fmt: skip
            if own and "# lazy: " not in body:
                silent.append(f"{name}.{function.name}")
    assert silent == []


def test_no_module_takes_the_name_of_something_in_its_package():
    """Python binds a module in its package when it is first imported: what had the name there is then gone."""
    taken = []
    for name, path in modules().items():
        if path.name != "__init__.py" or name == "opscope":
            continue
        submodules = {
            one.stem if one.is_file() else one.name
            for one in path.parent.iterdir()
            if one.suffix == ".py" or (one / "__init__.py").is_file()
        }
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                taken += [f"{name}.{node.name}"] if node.name in submodules else []
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                for one in node.names:
                    bound = one.asname or one.name
                    # the module itself, or what is in it: then it is imported by now, and binds no more
                    own = (node.level == 1 and not node.module) or node.module == name
                    if (
                        bound in submodules
                        and not own
                        and not (node.level == 1 and node.module == bound)
                    ):
                        taken.append(f"{name}.{bound}")
    assert taken == []
