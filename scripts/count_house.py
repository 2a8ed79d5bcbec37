"""Count the shape of the package: its size, its functions, what a question touches, its words.

Usage: python scripts/count_house.py [--json] [--against BEFORE.json] [--collect] [--root CHECKOUT]

A question is a public method of Profile that returns a frame. ``--collect`` has pytest count the tests, which
takes a minute. The trace whose report is measured lies in OPSCOPE_SHARED, by default ../shared.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRACE = "data/kineto/alexnet_cuda_sync_a100.json.gz"
#: Names that say nothing of what they stand for.
VAGUE = {"one", "found", "place", "known", "many", "made", "whole", "what", "held", "told"}
#: Participles that do not end in -ed. No "read", "cut", "put", "set": they are verbs too.
IRREGULAR = {
    "begun", "bound", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "felt", "found",
    "given", "gone", "grown", "held", "hidden", "kept", "known", "laid", "left", "lost", "made", "meant",
    "met", "paid", "said", "seen", "sent", "shown", "spent", "spun", "taken", "taught", "thought", "thrown",
    "told", "written",
}  # fmt: skip
#: Words in -ed that are no participles.
VERBS = {
    "bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed", "succeed",
}  # fmt: skip
#: First words of a name that asks whether something is so.
ASKS = {"are", "can", "has", "have", "is", "must", "not", "was"}
#: Tokens that are no code by themselves.
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Value = int | float | str | None


@dataclass(frozen=True)
class Source:
    """A Python file: its path below the package, its text, tree, and the lines and words of its code."""

    path: Path
    text: str
    tree: ast.Module
    code_lines: int
    words: frozenset[str]

    @classmethod
    def read(cls, path: Path, package: Path) -> Source:
        """Read a file of the package."""
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        docs = docstring_lines(tree)
        lines: set[int] = set()
        words: set[str] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT or token.start[0] in docs:
                continue
            lines.update(range(token.start[0], token.end[0] + 1))
            words.update(re.findall(r"\w+", token.string))
        return cls(path.relative_to(package), text, tree, len(lines), frozenset(words))

    @property
    def room(self) -> str:
        """The top-level folder, or the file itself where it is in none."""
        return self.path.parts[0]

    def functions(self) -> Iterator[Function]:
        """Yield every function and method."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node

    def bindings(self) -> Iterator[str]:
        """Yield every name that is bound: assignments, loops, comprehensions, arguments but self and cls."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                yield node.arg


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, Function)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def is_participle(name: str) -> bool:
    """Whether a function's name begins or ends with a participle, as ``joined`` or ``matched_kernels``."""
    words = name.strip("_").split("_")
    if words[0] in ASKS:
        return False
    return any(
        word in IRREGULAR or (word.endswith("ed") and len(word) > 3 and word not in VERBS)
        for word in (words[0], words[-1])
    )


def quantile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * round(share * 100) // 100) - 1, 0)] if ordered else 0


def percent(part: int, total: int) -> float:
    """Return the share in percent, with one decimal."""
    return round(100 * part / total, 1) if total else 0.0


def count_sources(sources: Sequence[Source]) -> dict[str, Value]:
    """Count files, lines, functions, and names that are vague or participles."""
    lines = {source.path.as_posix(): source.text.count("\n") for source in sources}
    largest = max(lines, key=lambda path: lines[path])
    functions = [function for source in sources for function in source.functions()]
    lengths = [(function.end_lineno or 0) - function.lineno + 1 for function in functions]
    bindings = [name for source in sources for name in source.bindings()]
    return {
        "files": len(sources),
        "lines of code": sum(source.code_lines for source in sources),
        "lines with all": sum(lines.values()),
        "largest file, lines": lines[largest],
        "largest file": largest,
        "functions": len(functions),
        "function lines, median": quantile(lengths, 0.5),
        "function lines, p95": quantile(lengths, 0.95),
        "function lines, max": max(lengths, default=0),
        "bindings": len(bindings),
        "bindings with vague names, %": percent(
            sum(name in VAGUE for name in bindings), len(bindings)
        ),
        "functions named by participles, %": percent(
            sum(is_participle(function.name) for function in functions), len(functions)
        ),
    }


def count_questions(sources: Sequence[Source], questions: Sequence[str]) -> dict[str, Value]:
    """Count the files and the rooms in whose code a question's name stands."""
    files, rooms = [], []
    for question in questions:
        naming = [source for source in sources if question in source.words]
        files.append(len(naming))
        rooms.append(len({source.room for source in naming}))
    return {
        "questions": len(questions),
        "files of a question, median": quantile(files, 0.5),
        "files of a question, p90": quantile(files, 0.9),
        "rooms of a question, median": quantile(rooms, 0.5),
        "rooms of a question, p90": quantile(rooms, 0.9),
    }


PROFILE = """
import inspect, json
from opscope.profile import Profile
names = [
    name for name, method in inspect.getmembers(Profile, inspect.isfunction)
    if name[0] != "_" and "DataFrame" in str(inspect.signature(method).return_annotation)
]
print(json.dumps([names, len(Profile.__mro__)]))
"""
MODULES = """
import contextlib, io, json, runpy, sys
sys.argv = ["opscope", "report", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()):
    try:
        runpy.run_module("opscope", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
print(json.dumps(sum(name.partition(".")[0] == "opscope" for name in sys.modules)))
"""


def ask_python(root: Path, code: str, *args: str) -> str:
    """Run the code with the package of ``root``; return what it prints. Raises CalledProcessError."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=root,  # Python looks there first
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def count_words(root: Path) -> dict[str, Value]:
    """Count the words of the texts."""
    texts = {name: [root / f"{name}.md"] for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING")}
    texts["docs"] = sorted((root / "docs").rglob("*.md"))
    return {
        f"words of {name}": sum(
            len(path.read_text("utf-8").split()) for path in paths if path.exists()
        )
        for name, paths in texts.items()
    }


def count_tests(root: Path, collect: bool) -> dict[str, Value]:
    """Count the test functions and, with ``collect``, the tests that pytest makes of them."""
    functions = sum(
        isinstance(node, Function) and node.name.startswith("test")
        for path in (root / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    counts: dict[str, Value] = {"test functions": functions}
    if collect:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-qq",
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        counted = re.findall(r"^\S+\.py: (\d+)$", done.stdout, re.MULTILINE)
        counts["tests collected"] = sum(map(int, counted))
        # most need a framework that is not installed
        counts["test files not collected"] = len(re.findall(r"^ERROR ", done.stdout, re.MULTILINE))
    return counts


def count_contracts(root: Path) -> int:
    """Return the number of import-linter's contracts."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((root / "pyproject.toml").read_text("utf-8"))
    return len(project.get("tool", {}).get("importlinter", {}).get("contracts", ()))


def count(root: Path, trace: Path, collect: bool) -> dict[str, Value]:
    """Return every number of the checkout ``root``, by what it counts."""
    package = root / "opscope"
    sources = [Source.read(path, package) for path in sorted(package.rglob("*.py"))]
    questions, ancestors = json.loads(ask_python(root, PROFILE))
    modules = json.loads(ask_python(root, MODULES, str(trace))) if trace.exists() else None
    return {
        **count_sources(sources),
        **count_questions(sources, questions),
        "classes in the MRO of Profile": ancestors,
        f"our modules that a report of {trace.name} loads": modules,
        "import-linter contracts": count_contracts(root),
        **count_words(root),
        **count_tests(root, collect),
    }


def table(now: dict[str, Value], before: dict[str, Value] | None) -> list[str]:
    """Return a line for each number, beside that of before where there is one."""
    names = list(dict.fromkeys((*now, *(before or ()))))
    columns = [names]
    columns += [
        [spell(numbers.get(name)) for name in names] for numbers in (before, now) if numbers
    ]
    if before:
        columns[0], columns[1], columns[2] = (
            [head, *column] for head, column in zip(("", "before", "now"), columns, strict=True)
        )
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in zip(*columns, strict=True)
    ]


def spell(value: Value) -> str:
    """Return the number with commas; a dash where there is none."""
    return "–" if value is None else value if isinstance(value, str) else f"{value:,}"


def main() -> int:
    """Print the table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--against", type=Path, metavar="BEFORE", help="JSON to print beside it")
    parser.add_argument("--collect", action="store_true", help="have pytest count the tests")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to count")
    given = parser.parse_args()
    shared = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared"))
    numbers = count(given.root.resolve(), shared.resolve() / TRACE, given.collect)
    if given.json:
        print(json.dumps(numbers, indent=1))
        return 0
    before = json.loads(given.against.read_text("utf-8")) if given.against else None
    print("\n".join(table(numbers, before)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
