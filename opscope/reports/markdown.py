"""Escape texts for Markdown, so that they have no markup, mention nobody and control no terminal."""

from __future__ import annotations

from opscope.core.question import units


def escape(text: str) -> str:
    """Return the text so that Markdown shows it as it is, and mentions nobody."""
    safe = units.visible(text)
    for character, other in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b")):
        safe = safe.replace(character, other)
    return "".join(f"\\{c}" if c in "\\`*_[]|~#" else c for c in safe)


def code(text: str) -> str:
    """Return the text as code in a cell of a table."""
    return "`" + units.visible(text).replace("`", "'").replace("|", "\\|") + "`"
