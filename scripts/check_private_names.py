"""Print which private names that opscope uses are gone from wheels of frameworks; the wheels are not run.

Usage: python scripts/check_private_names.py WHEEL_OR_SITE_PACKAGES …   (wheels of any platform)

The names, and what is lost without each, stand in opscope/adapters/private_names.toml. A name is looked for in the
syntax of its module, then in its text (JAX 0.12 has the syntax of Python 3.12), and a symbol in the bytes of its library.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "opscope" / "adapters" / "private_names.toml"
#: Folders of opscope's that hook frameworks.
ROOMS = ("adapters", "backends", "callbacks")
#: Modules of frameworks that are private without an underscore.
PRIVATE = ("tensorflow.python", "keras.src", "onnxruntime.capi")
STATES = ("there", "text", "gone")
FRAMEWORKS = (
    *("torch", "triton", "tensorflow", "jax", "jaxlib", "keras", "grain"),
    *("onnxruntime", "mindspore", "transformers"),
)
#: A file by which a framework is known.
_OF = {name: (f"{name}/__init__.py", f"{name}/_src/__init__.py") for name in FRAMEWORKS}
_OF |= {"python": ("ast.py",), "tensorflow": ("tensorflow/python/__init__.py",)}
_BY_NAME = ("getattr", "hasattr", "setattr")
#: Beginnings of names that are Python's, promised by its documentation, or opscope's.
_OURS = ("__", "_asdict", "_fields", "_opscope")
_SUFFIXES = (".py", "/__init__.py", ".pyi", "/__init__.pyi")


def table(path: Path = TABLE) -> dict[str, dict[str, str]]:
    """Return the names by framework, each with what is lost without it."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    made: dict[str, dict[str, str]] = toml.loads(path.read_text("utf-8"))
    return made


# ------------------------------------------------------------------------------- in wheels


class Files:
    """The files of a wheel, or of a folder of installed packages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wheel = None if path.is_dir() else zipfile.ZipFile(path)
        self._names = frozenset(self._wheel.namelist() if self._wheel else ())

    def has(self, name: str) -> bool:
        return name in self._names if self._wheel else (self._path / name).is_file()

    def read(self, name: str) -> bytes:
        return self._wheel.read(name) if self._wheel else (self._path / name).read_bytes()

    def library(self, stem: str) -> str | None:
        """Return the file of an extension module, whatever its Python and platform."""
        if self.has(f"{stem}.so"):
            return f"{stem}.so"
        names = self._names or [
            str(file.relative_to(self._path)) for file in self._path.glob(f"{stem}.*.so")
        ]
        return next(
            (name for name in names if re.fullmatch(re.escape(stem) + r"\..*so", name)), None
        )

    @lru_cache(maxsize=512)  # noqa: B019 - of a script that ends
    def tree(self, name: str) -> ast.Module:
        try:
            return ast.parse(self.read(name))
        except SyntaxError:  # of a newer Python: its text is left
            return ast.Module([], [])

    @lru_cache(maxsize=4)  # noqa: B019
    def bytes(self, name: str) -> bytes:
        return self.read(name)


def state(files: Files, name: str) -> str:
    """Return ``there``, ``text`` (only as a word of the module's text) or ``gone``; of `A | B` the better."""
    return min((_state(files, way) for way in name.split(" | ")), key=STATES.index)


def _state(files: Files, name: str) -> str:
    if name.startswith("sys."):  # of Python's own, in C
        return "there" if hasattr(sys, name[4:]) else "gone"
    file, colon, text = name.partition(": ")
    if colon:
        stem = file.removesuffix(".so")
        path = files.library(stem) if file.endswith(".so") else file if files.has(file) else None
        return "there" if path and text.encode() in files.bytes(path) else "gone"
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        stem, rest = "/".join(parts[:count]), parts[count:]
        sources = [stem + suffix for suffix in _SUFFIXES if files.has(stem + suffix)]
        if sources and any(_binds(files, source, rest) for source in sources):
            return "there"
        if sources and any(
            re.search(rb"\b%s\b" % rest[-1].encode(), files.read(source)) for source in sources
        ):
            return "text"
        library = files.library(stem)
        if library and (not rest or rest[-1].encode() in files.bytes(library)):
            return "there"
        if sources or library:
            return "gone"
    return "gone"


def _binds(files: Files, source: str, rest: list[str]) -> bool:
    """Whether a module binds a name, or a class in it an attribute, by definition, assignment or import."""
    if not rest:
        return True
    body: list[ast.stmt] = files.tree(source).body
    for depth, part in enumerate(rest):
        found = [node for node, bound in _bindings(body) if bound == part]
        if not found:
            return depth > 0 and any(_of_bases(files, source, rest[:depth], part))
        if depth == len(rest) - 1:
            return True
        kinds = [node for node in found if isinstance(node, ast.ClassDef)]
        if not kinds:
            return False
        body = kinds[-1].body
    return True


def _of_bases(files: Files, source: str, owner: list[str], part: str) -> Iterator[bool]:
    """Whether a base of the class in the same module binds the attribute."""
    kinds = [n for n in ast.walk(files.tree(source)) if isinstance(n, ast.ClassDef)]
    for kind in kinds:
        if kind.name == owner[-1]:
            for base in kind.bases:
                if isinstance(base, ast.Name) and base.id != kind.name:
                    yield _binds(files, source, [base.id, part])


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[ast.AST, str]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node, node.name
            if not isinstance(node, ast.ClassDef):  # what a method sets on its object
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                        yield inner, inner.attr
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield node, (alias.asname or alias.name).split(".")[0]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for inner in (inner for target in targets for inner in ast.walk(target)):
                if isinstance(inner, ast.Name):
                    yield node, inner.id
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _bindings(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _bindings(handler.body)


# ----------------------------------------------------------------------------- in opscope


def uses(rooms: tuple[str, ...] = ROOMS) -> dict[str, set[str]]:
    """Return each private name that opscope uses, with the lines: ``a.b._c``, or ``_c`` of some object.

    A name counts by a module's path, an import, an attribute and a text of ``getattr``. Names that opscope's own
    classes have are left out where they are attributes of an object.
    """
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for room in rooms
        for path in sorted((ROOT / "opscope" / room).rglob("*.py"))
    }
    ours = {name for tree in trees.values() for name in _members(tree)}
    made: dict[str, set[str]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            for name in _names(node, ours):
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                made.setdefault(name, set()).add(where)
    return made


def _members(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield item.name
                elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield item.target.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) in ("self", "cls")
        ):
            yield node.attr


def _names(node: ast.AST, ours: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if _is_path(node.value):
            yield node.value
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_path(alias.name))
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        paths = (f"{node.module}.{alias.name}" for alias in node.names)
        yield from filter(_is_path, paths)
    elif isinstance(node, ast.Attribute) and _is_private(node.attr):
        owner = ast.unparse(node.value)
        if owner not in ("self", "cls"):
            path = f"{owner}.{node.attr}"
            if owner.split(".")[0] in FRAMEWORKS:
                yield path
            elif node.attr not in ours:
                yield node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _BY_NAME and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and _is_private(str(name.value)):
            yield str(name.value)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith(_OURS) and name.isidentifier()


def _is_path(text: str) -> bool:
    parts = text.split(".")
    return (
        len(parts) > 1
        and parts[0] in FRAMEWORKS
        and all(part.isidentifier() for part in parts)
        and (text.startswith(PRIVATE) or any(map(_is_private, parts)))
    )


def is_listed(name: str, names: set[str]) -> bool:
    """Whether a use is in the table: as a whole, as the beginning of a row, or a row as its beginning."""
    rows = {way for row in names for way in row.split(" | ")}
    if "." not in name:
        return any(name in re.split(r"[./: ]+", row) for row in rows)
    texts = {row.partition(": ")[2] for row in rows}
    return name.rpartition(".")[2] in texts or any(
        row == name or row.startswith(f"{name}.") or name.startswith(f"{row}.") for row in rows
    )


def main(paths: list[Path]) -> int:
    if not paths:
        sys.exit(__doc__)
    rows, lost = table(), 0
    states = []
    for path in [Path(ast.__file__).parent, *paths]:
        files = Files(path)
        for framework, names in rows.items():
            if any(files.has(name) for name in _OF[framework]):
                states += [(framework, path.name, name, state(files, name)) for name in names]
    for framework, origin, name, found in states:
        if found == "gone":
            lost += 1
            print(f"{origin}: {name} is gone: {rows[framework][name]}")
    for origin in dict.fromkeys(origin for _, origin, _, _ in states):
        found = [state for _, source, _, state in states if source == origin]
        text = f"; {found.count('text')} as text only" if "text" in found else ""
        print(f"{origin}: {len(found) - found.count('gone')} of {len(found)} names{text}")
    return min(lost, 1)


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
