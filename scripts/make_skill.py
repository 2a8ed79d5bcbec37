"""Write opscope/agents/SKILL.md from the calls and questions. Usage: python scripts/make_skill.py [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from opscope.agents.skill import skill  # noqa: E402

PAGE = ROOT / "opscope" / "agents" / "SKILL.md"


def main() -> int:
    """Write the file, or say whether it is what it should be."""
    text = skill()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
