"""The short names of kernels, as CUPTI gives them: no return type, namespace, template or arguments."""

from __future__ import annotations

import re
from typing import Final

#: Scopes without a name, whose brackets hold no template and no arguments.
_UNNAMED: Final = re.compile(
    r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\}|`anonymous namespace')::"
)
_BARE: Final = re.compile(r"[\w$~.@-]+\Z")
#: Longer names are a stranger's; their own text stands for them.
_LONGEST: Final = 65_536


def short_name(name: str) -> str:
    """Return ``gemm`` for ``void lib::gemm<float>(float *)``; a name without C++ in it stays as it is."""
    if _BARE.match(name) or len(name) > _LONGEST:
        return name
    plain = _without_brackets(_UNNAMED.sub("", name))
    name_part = re.split(r"::|\s", plain.strip())[-1] if plain is not None else ""
    return name_part if _BARE.match(name_part) else name


def _without_brackets(text: str) -> str | None:
    """Return the text up to its arguments, without what is in angle brackets; None if they do not match."""
    kept: list[str] = []
    depth = begin = 0
    for match in re.finditer(r"[<>()]", text):
        sign, position = match.group(), match.start()
        if sign == ">" and text[position - 1 : position] == "-":
            continue
        if sign in "<(":
            if not depth:
                kept.append(text[begin:position])
                if sign == "(" and any(part.strip() for part in kept):
                    return "".join(kept)
            depth += 1
        else:
            depth -= 1
            begin = position + 1
            if depth < 0:
                return None
    return None if depth else "".join((*kept, text[begin:]))
