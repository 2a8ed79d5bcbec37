"""Write docs/features.md from tests/features.toml. Usage: python scripts/make_features.py [--check]

A row is done if it has claims, which tests/test_features.py holds; what it lacks and what was not seen here stand
beside it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "tests" / "features.toml"
PAGE = ROOT / "docs" / "features.md"
TABLES = ("sections", "reasons", "inputs")
HEAD = """# What opscope does, row by row

Each row is something that a predecessor offers, or that none does (section F). A row is done when its commands do
what it claims: `tests/test_features.py` runs each of them and compares its claims, which `tests/features.toml` has
beside it. `scripts/make_features.py` makes this page. FILE is a trace of the shared folder.
"""


def read() -> dict[str, Any]:
    """The tables ``sections``, ``reasons`` and ``inputs``, and each row by its number."""
    return tomllib.loads(ROWS.read_text("utf-8"))


def rows(features: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: row for name, row in features.items() if name not in TABLES}


def state(row: dict[str, Any], reasons: dict[str, str]) -> str:
    """What may be said of a row: done, partly, or not shown."""
    words = "not shown" if not row["checks"] else "partly" if row.get("lacks") else "done"
    parts = [f"lacks: {row['lacks']}"] if row.get("lacks") else []
    parts += [
        f"not seen here: {part} ({reasons[why]})" for why, part in row.get("unseen", {}).items()
    ]
    return "; ".join([words + (f": {row['note']}" if row.get("note") else ""), *parts])


def command(check: dict[str, Any]) -> str:
    """A check as a user would type it, or the test that shows it."""
    if "test" in check:
        return f"`{check['test']}`"
    if "code" in check:
        lines = [line for line in check["code"].splitlines() if line and "import" not in line]
        return f"`{lines[0] if lines else check['code']}`"
    return f"`{re.sub(r'[{](?!lenet|keras|mindspore|jax|tensorflow|cnn)[a-z0-9]+[}]', 'FILE', check['run'])}`"


def page() -> str:
    features = read()
    lines = [HEAD]
    for letter, title in features["sections"].items():
        lines += [
            f"## {letter}. {title}",
            "",
            "| | feature | state | shown by |",
            "|---|---|---|---|",
        ]
        for name, row in rows(features).items():
            if name[0] == letter:
                shown = "; ".join(dict.fromkeys(map(command, row["checks"])))
                for example, path in features["inputs"].items():
                    shown = shown.replace(f"{{{example}}}", path)
                cells = (name, row["feature"], state(row, features["reasons"]), shown)
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text("utf-8") != text:
        sys.exit(
            "docs/features.md is not what tests/features.toml says: python scripts/make_features.py"
        )


if __name__ == "__main__":
    main()
