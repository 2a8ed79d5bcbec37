"""Writes the table of columns in docs/reports.md anew. Usage: python scripts/column_docs.py"""

from pathlib import Path

from opscope.reports.content import COLUMNS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reports.md"
HEAD = "| column | meaning |\n|---|---|\n"


def table() -> str:
    return "".join(f"| `{name}` | {meaning} |\n" for name, meaning in COLUMNS.items())


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, _ = text.partition(HEAD)
    DOCUMENT.write_text(before + HEAD + table(), encoding="utf-8")
