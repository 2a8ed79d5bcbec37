"""Write core/question/index.py's missing lines and methods.pyi. Usage: python scripts/make_questions.py [--check]

Questions are found in the modules of opscope/core that define ``QUESTION``. A new one is added behind the last
question of its module's folder, its reports likewise; what is gone is removed. The order of lines is kept.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "opscope" / "core"
INDEX = CORE / "question" / "index.py"
STUB = CORE / "question" / "methods.pyi"
_HEAD = '''"""The methods of a profile that ask its questions. Made by scripts/make_questions.py."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl
from typing_extensions import Unpack

from opscope.core.analysis.device.idle import By
from opscope.core.question.record import Question
from opscope.profile.selected import Where

WHERE: Final[tuple[str, ...]]

def method_of(question: Question) -> Callable[..., Any]: ...
def documented(said: str, question: Question) -> str: ...

class Questions:
    """The methods that ask each question of ``core/question/index.py``."""

'''


def modules() -> list[str]:
    """The modules of core that define a QUESTION."""
    paths = sorted(
        path
        for path in CORE.rglob("*.py")
        if re.search(r"^QUESTION = ", path.read_text("utf-8"), re.MULTILINE)
    )
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def records() -> dict[str, tuple[str, object]]:
    """Each question by name: its module and its record."""
    found = {}
    for module in modules():
        record = import_module(module).QUESTION
        for question in record if isinstance(record, tuple) else (record,):
            if found.setdefault(question.name, (module, question))[0] != module:
                sys.exit(
                    f"{question.name!r} is a question of {module} and {found[question.name][0]}"
                )
    return found


def ordered(known: list[str], wanted: dict[str, str]) -> list[str]:
    """The names of ``wanted`` in the order of ``known``, a new one behind the last of its folder."""
    order = [name for name in known if name in wanted]
    for name, module in wanted.items():
        if name in order:
            continue
        folder = module.rpartition(".")[0]
        near = [n for n, other in enumerate(order) if wanted[other].rpartition(".")[0] == folder]
        order.insert(near[-1] + 1 if near else len(order), name)
    return order


def index() -> str:
    """The text of index.py."""
    from opscope.core.question import index as old

    found = records()
    names = ordered(list(old.QUESTIONS), {name: module for name, (module, _) in found.items()})
    of = {report.name: name for name in names for report in found[name][1].reports}
    shown = ordered(list(old.REPORTS), {report: found[name][0] for report, name in of.items()})
    all_reports = [report for name in names for report in found[name][1].reports]
    of_one("name", [(n, one.name) for one in all_reports for n in (one.name, *one.aliases)])
    words = of_one("word", [(one.by, one.name) for one in all_reports if one.by is not None])
    divisions = [word for word in old.DIVISIONS if word in words]
    divisions += [word for word in words if word not in divisions]
    text = INDEX.read_text("utf-8")
    tables = {
        "QUESTIONS": [f'    "{name}": "{found[name][0]}",' for name in names],
        "REPORTS": [f'    "{name}": "{of[name]}",' for name in shown],
        "DIVISIONS": [f'    "{word}": "{words[word]}",' for word in divisions],
    }
    for table, lines in tables.items():
        inside = "\n".join(lines)
        text = re.sub(
            rf"({table}: Final\[dict\[str, str\]\] = \{{\n).*?(\n\}})",
            lambda match, inside=inside: match[1] + inside + match[2],
            text,
            flags=re.DOTALL,
        )
    return text


def of_one(kind: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The report of each name, or word of --by. Exits for one that two reports have."""
    owner: dict[str, str] = {}
    for name, report in pairs:
        if name in owner:
            sys.exit(f"{name!r} is a {kind} of two reports: {owner[name]!r} and {report!r}")
        owner[name] = report
    return owner


def stub() -> str:
    """The text of methods.pyi."""
    from opscope.core.question import methods

    lines = []
    for name, (_, question) in sorted(records().items()):
        if name == "diff":  # of two profiles: Profile has the method itself
            continue
        signature = written(inspect.signature(methods.method_of(question)))
        doc = inspect.cleandoc(question.answer.__doc__ or "").splitlines()
        body = "\n".join(
            [f'        """{doc[0]}', *(f"        {line}".rstrip() for line in doc[1:])]
        )
        end = '"""' if len(doc) == 1 else '\n        """'
        lines.append(f"    def {name}{signature}:\n{body}{end}\n")
    made = _HEAD + "\n".join(lines)
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--stdin-filename",
        str(STUB),
        "-",
    ]
    return subprocess.run(command, input=made, capture_output=True, text=True, check=True).stdout


def written(signature: inspect.Signature) -> str:
    """The signature as a stub has it: annotations without quotes, defaults left out."""
    words, keyword = [], False
    for name, kind in signature.parameters.items():
        if kind.kind is kind.KEYWORD_ONLY and not keyword and "*" not in "".join(words):
            words.append("*")
            keyword = True
        star = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(kind.kind, "")
        about = "" if kind.annotation is kind.empty else f": {kind.annotation}"
        default = "" if kind.default is kind.empty else " = ..."
        words.append(f"{star}{name}{about}{default}")
    return f"({', '.join(words)}) -> {signature.return_annotation}"


def main() -> int:
    """Write the files, or with ``--check`` print which are not up to date."""
    sys.path.insert(0, str(ROOT))
    stale = []
    for path, make in ((INDEX, index), (STUB, stub)):
        text = make()
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path)
            if "--check" not in sys.argv[1:]:
                path.write_text(text, "utf-8")
    if "--check" in sys.argv[1:] and stale:
        print(*(f"{path} is not up to date" for path in stale), sep="\n")
        print("run scripts/make_questions.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
