"""Names in a narrow column: shortened where they are alike, never where that would make two the same.

A name is taken apart into words. What other names of the column share goes first, an ellipsis in its
place; the words in which it parts from others stay to the last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final, Literal

from opscope.core.dialects.demangle import demangled

from . import units

Cut = Literal["end", "start"]
#: What is left out whole: the words of a name, arguments (``f32[64,3], i64[64]``), frames (``a.py:1 <
#: b.py:2``); of a text letters.
Parts = Literal["text", "words", "arguments", "frames"]

#: Characters of a name that are looked at: the longest real ones have 6,000.
_READ: Final = 8_192
#: Words of a name that are told apart; the rest is one more.
_WORDS: Final = 400
#: A word longer than that is taken apart, into parts no shorter than this.
_LONG: Final = 24
_SHORT: Final = 4
_WORD: Final = re.compile(r"[\w#]+[^\w#]*|[^\w#]+")
#: Words that say least of what a kernel does.
_PLAIN: Final = re.compile(
    r"(?:float|double|half|__half|BFloat16|bfloat16_t|__nv_bfloat16|Half|int|unsigned|long|bool|char|void|true|false"
    r"|[aA]rray|OpaqueType|binary_internal|memory|T\d*|[\d#]+)\W*\Z"
)
_PART: Final = re.compile(r"[^_]+_*|_+")
_PARTS: Final = {
    "arguments": re.compile(r".*?(?:, |\Z)", re.DOTALL),
    "frames": re.compile(r".*?(?: < |\Z)", re.DOTALL),
}
_ENDING: Final = re.compile(
    r"(?:, (?:backward|optimizer|input))?(?: and [\d,]+ others?\Z| \([\d,]+\)\Z|\Z)"
)


def shortened(
    texts: Sequence[str], width: int, cut: Cut = "end", parts: Parts = "text"
) -> list[str]:
    """Each text in at most ``width`` characters; different ones stay different where they can.

    Of what is equally telling the end goes first, or the start. What stands at a text's end (``, backward
    and 3 others``) stays.
    """
    if width <= 0 or all(len(text) <= width for text in texts):
        return list(texts)
    distinct = list(dict.fromkeys(texts))
    if width < 8 or parts == "text":
        made = {text: _plain(text, width, cut) for text in distinct}
    else:
        made = _together(distinct, width, cut, parts)
    if width < 8:
        return [made[text] for text in texts]
    again: dict[str, list[str]] = {}
    for text in distinct:
        again.setdefault(made[text], []).append(text)
    for group in again.values():
        if len(group) > 1:
            made |= _apart(group, width)
    return [made[text] for text in texts]


def _plain(text: str, width: int, cut: Cut) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if cut == "end" else "…" + text[len(text) - width + 1 :]


def _words(text: str, parts: Parts) -> list[str]:
    found = [one for one in _PARTS.get(parts, _WORD).findall(text[:_READ]) if one]
    if parts == "words":
        found = [
            part for one in found for part in (_syllables(one) if len(one) > _LONG else (one,))
        ]
    if len(found) > _WORDS or len(text) > _READ:
        found = found[:_WORDS]
        found.append(text[sum(map(len, found)) :])
    return found


def _syllables(word: str) -> list[str]:
    """A long word at its underscores; what is too short to be told by itself is with what is before."""
    parts: list[str] = []
    for part in _PART.findall(word):
        if parts and len(part.rstrip("_")) < _SHORT:
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def _together(texts: list[str], width: int, cut: Cut, parts: Parts) -> dict[str, str]:
    """The texts shortened: words that many share first, words in which one parts from another last."""
    words, ends = {}, {}
    for text in texts:
        end = _ENDING.search(text)
        ends[text] = end.group() if end and len(end.group()) < width // 2 else ""
        words[text] = _words(text[: len(text) - len(ends[text])], parts)
    shared = Counter(word for found in words.values() for word in set(found))
    tree: dict[str, Any] = {}
    for found in words.values():
        node = tree
        for word in [*found, ""]:
            node = node.setdefault(word, {})
    made = {}
    for text, found in words.items():
        room = width - len(ends[text])
        if sum(map(len, found)) <= room:
            made[text] = text
            continue
        telling, node = [], tree
        for word in found:
            # how names begin parts the unlike: what follows does too
            apart = parts == "words" and len(node) > 1
            telling.append(apart and node is not tree and word[-2:] != "::")
            node = node[word]
        weights = shared if parts == "words" else Counter()
        made[text] = _without(found, telling, weights, room, cut) + ends[text]
    return made


def _without(
    words: list[str], telling: list[bool], shared: Counter[str], room: int, cut: Cut
) -> str:
    """The words without as many as it takes, an ellipsis for each gap."""
    last = len(words) - 1
    # what a name begins with says what it is, but for namespaces; a path's end which one
    head = last if cut == "start" else next((n for n in range(last) if words[n][-2:] != "::"), 0)
    sooner = 1 if cut == "start" else -1
    order = sorted(
        range(len(words)),
        key=lambda n: (
            telling[n],
            n == head,
            bool(shared) and words[n][-2:] != "::" and _PLAIN.match(words[n]) is None,
            -shared[words[n]],
            sooner * n,
        ),
    )
    kept = [True] * len(words)

    def more(n: int) -> int:
        """How much longer it is with the word ``n`` than without, whose place an ellipsis may take."""
        gaps = (n > 0 and not kept[n - 1]) + (n < last and not kept[n + 1])
        return len(words[n]) + gaps - 1

    length, turn = sum(map(len, words)), 0
    while length > room and turn < len(order):
        length -= more(order[turn])
        kept[order[turn]] = False
        turn += 1
    if length > room:
        return _plain("".join(words), room, cut)
    for n in reversed(order[:turn]):  # what finds room after all
        if length + more(n) <= room:
            length += more(n)
            kept[n] = True
    text, gap = "", False
    for word, keep in zip(words, kept, strict=True):
        if keep:
            text += word
        elif not gap:
            text += "…"
        gap = not keep
    return text if any(kept) else _plain("".join(words), room, cut)


def _apart(texts: list[str], width: int) -> dict[str, str]:
    """Texts that came out the same: each from where they part; what is still the same is numbered."""
    part = 0
    while all(len(text) > part for text in texts) and len({text[part] for text in texts}) == 1:
        part += 1
    head = min(part, width // 3)
    made: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for text in texts:
        rest = text[part:]
        short = text[: width - 1] + "…" if part <= head else f"{text[:head]}…{rest}"
        if len(short) > width:
            short = short[: width - 1] + "…"
        seen[short] += 1
        if seen[short] > 1:
            number = f" #{seen[short]}"
            short = short[: width - len(number) - 1].rstrip("…") + "…" + number
        made[text] = short
    return made


# ---------------------------------------------------------------------------------- kernels

_SPACES: Final = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|at::native|at::detail|at::cuda|c10|std)::|\bvoid "
)
#: ``{lambda(int)#2}`` of GCC, ``[lambda(int) (instance 2)]`` of NVCC: a number tells which.
_LAMBDA: Final = re.compile(
    r"(?:::)?[{\[]\s*lambda\([^(){}\[\]]*\)\s*(?:#|\(instance )(\d+)\)?\s*[}\]]"
)
_CALLED: Final = re.compile(r"::operator\s*\(\)\s*(?=\(|$)")
_CAST: Final = re.compile(
    r"\((?:unsigned |signed )?(?:int|bool|long|char|short|long long)\)(?=-?\w)"
)
_SUFFIX: Final = re.compile(r"\b(\d+)(?:u|ul|l|ull)\b")


def kernel(name: object) -> str:
    """A kernel's name as people say it: without signatures and the namespaces that all have.

    Its template arguments stay, as they tell what it does.
    """
    text = units.text(name if not isinstance(name, str) else demangled(name))[:_READ]
    text = _SPACES.sub("", text)
    for _ in range(16):
        short = _LAMBDA.sub(r"#\1", text)
        if short == text:
            break
        text = short
    text = _CAST.sub("", _CALLED.sub("", text))
    text = _without_signatures(text).replace(" const", "").replace("> >", ">>").replace("> >", ">>")
    return _SUFFIX.sub(r"\1", text).strip() or units.text(name)


def _without_signatures(text: str) -> str:
    """The text without what stands in parentheses right after a name or a ``>``."""
    kept: list[str] = []
    depth = 0
    for at, letter in enumerate(text):
        if letter == "(" and (
            depth or (at and (text[at - 1].isalnum() or text[at - 1] in "_>#})"))
        ):
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        elif not depth:
            kept.append(letter)
    return "".join(kept) if not depth else text


# ---------------------------------------------------------------------------------- layers

_NUMBER: Final = re.compile(r"\d+")


def layer_patterns(layers: Sequence[str]) -> dict[str, str]:
    """Each layer with ``*`` for the numbers in which those like it differ: ``h.0.mlp``, ``h.1.mlp`` are ``h.*.mlp``.

    A number that all of them have stays: ``Qwen2MLP`` is no ``Qwen*MLP``.
    """
    alike: dict[str, list[str]] = {}
    for layer in layers:
        alike.setdefault(_NUMBER.sub("*", layer), []).append(layer)
    made = {}
    for group in alike.values():
        numbers = [_NUMBER.findall(layer) for layer in group]
        vary = [len(set(column)) > 1 for column in zip(*numbers, strict=True)]
        for layer in group:
            between = _NUMBER.split(layer)
            own = (
                "*" if varies else n for varies, n in zip(vary, _NUMBER.findall(layer), strict=True)
            )
            made[layer] = "".join(a + b for a, b in zip_longest(between, own, fillvalue=""))
    return made


# ---------------------------------------------------------------------------------- source lines


def short_source(frames: object) -> str:
    """The innermost line without its folders, and the next where that is in another file:
    ``train.py:42``, ``bert.py:364 < train.py:42``."""
    places = [
        place.strip('"').replace("\\", "/").rpartition("/")[2]
        for place in units.text(frames).split(" < ")[:2]
    ]
    files = {place.rpartition(":")[0] for place in places}
    return " < ".join(places[: len(files)])
