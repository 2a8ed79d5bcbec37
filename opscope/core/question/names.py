"""Shorten names for a narrow column, so that different names stay different.

A name is split into words. The words that it shares with other names of the column are replaced first, by
an ellipsis; the words that distinguish it are kept longest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from os.path import commonprefix
from typing import Any, Final, Literal

from opscope.core.dialects.demangle import demangled

from . import units

Cut = Literal["end", "start"]
#: The smallest part that is dropped as a whole: a word of a name, an argument (``f32[64,3], i64[64]``), a
#: frame (``a.py:1 < b.py:2``); for plain text, a letter.
Parts = Literal["text", "words", "arguments", "frames"]

#: Characters of a name that are read at most: the longest real names have 6,000.
_READ: Final = 8_192
#: The most words into which a name is split; the rest of the name is one more word.
_WORDS: Final = 400
#: A word longer than ``_LONG`` is split into parts of at least ``_SHORT`` characters.
_LONG: Final = 24
_SHORT: Final = 4
_WORD: Final = re.compile(r"[\w#]+[^\w#]*|[^\w#]+")
#: Words that say least about what a kernel does.
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
    """Return each text in at most ``width`` characters; different texts stay different where possible.

    If parts distinguish equally well, those at the end are dropped first (``cut`` "start": those at the
    start). A suffix such as ``, backward and 3 others`` stays.
    """
    if width <= 0 or all(len(text) <= width for text in texts):
        return list(texts)
    distinct = list(dict.fromkeys(texts))
    if width < 8 or parts == "text":
        short_of_text = {text: _plain(text, width, cut) for text in distinct}
    else:
        short_of_text = _together(distinct, width, cut, parts)
    if width < 8:
        return [short_of_text[text] for text in texts]
    by_short: dict[str, list[str]] = {}
    for text in distinct:
        by_short.setdefault(short_of_text[text], []).append(text)
    # texts in use: names that fit, and short forms of a single name
    taken = {text for text in distinct if len(text) <= width}
    taken.update(short for short, group in by_short.items() if len(group) == 1)
    for group in by_short.values():
        if len(group) > 1:
            short_of_text |= _apart(group, width, taken)
    return [short_of_text[text] for text in texts]


def _plain(text: str, width: int, cut: Cut) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if cut == "end" else "…" + text[len(text) - width + 1 :]


def _words(text: str, parts: Parts) -> list[str]:
    words = [word for word in _PARTS.get(parts, _WORD).findall(text[:_READ]) if word]
    if parts == "words":
        words = [
            part for word in words for part in (_syllables(word) if len(word) > _LONG else (word,))
        ]
    if len(words) > _WORDS or len(text) > _READ:
        words = words[:_WORDS]
        words.append(text[sum(map(len, words)) :])
    return words


def _syllables(word: str) -> list[str]:
    """Split a long word after its underscores; a part that is too short joins the part before it."""
    parts: list[str] = []
    for part in _PART.findall(word):
        if parts and len(part.rstrip("_")) < _SHORT:
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def _together(texts: list[str], width: int, cut: Cut, parts: Parts) -> dict[str, str]:
    """Shorten the texts: drop first the words that most texts share, last the words that distinguish a
    text."""
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
    short_of_text = {}
    for text, found in words.items():
        room = width - len(ends[text])
        if sum(map(len, found)) <= room:
            short_of_text[text] = text
            continue
        distinguishing, node = [], tree
        for word in found:
            # the first word is not a branch: names that begin differently differ in later words too
            apart = parts == "words" and len(node) > 1
            distinguishing.append(apart and node is not tree and word[-2:] != "::")
            node = node[word]
        weights = shared if parts == "words" else Counter()
        short_of_text[text] = _without(found, distinguishing, weights, room, cut) + ends[text]
    return short_of_text


def _without(
    words: list[str], distinguishing: list[bool], shared: Counter[str], room: int, cut: Cut
) -> str:
    """Join the words that fit in ``room`` characters, with an ellipsis for each gap."""
    last = len(words) - 1
    # the first word of a name (after its namespaces) says most; in a path, the last word does
    head = last if cut == "start" else next((n for n in range(last) if words[n][-2:] != "::"), 0)
    sooner = 1 if cut == "start" else -1
    order = sorted(
        range(len(words)),
        key=lambda n: (
            distinguishing[n],
            n == head,
            bool(shared) and words[n][-2:] != "::" and _PLAIN.match(words[n]) is None,
            -shared[words[n]],
            sooner * n,
        ),
    )
    included = [True] * len(words)

    def added_length(n: int) -> int:
        """Return how many characters the word ``n`` adds, given that an ellipsis may replace it."""
        gaps = (n > 0 and not included[n - 1]) + (n < last and not included[n + 1])
        return len(words[n]) + gaps - 1

    length, turn = sum(map(len, words)), 0
    while length > room and turn < len(order):
        length -= added_length(order[turn])
        included[order[turn]] = False
        turn += 1
    if length > room:
        return _plain("".join(words), room, cut)
    for n in reversed(order[:turn]):  # restore dropped words that still fit
        if length + added_length(n) <= room:
            length += added_length(n)
            included[n] = True
    text, gap = "", False
    for word, keep in zip(words, included, strict=True):
        if keep:
            text += word
        elif not gap:
            text += "…"
        gap = not keep
    return text if any(included) else _plain("".join(words), room, cut)


def _apart(texts: list[str], width: int, taken: set[str]) -> dict[str, str]:
    """Distinguish texts that were shortened to the same: show where they differ, else number them.

    No result is one of ``taken``, to which the results are added; a text that fits stays.
    """
    part = len(commonprefix(texts))  # noqa: RUF071 - of characters; in Python a loop over 1 MB takes 6 s
    head = min(part, width // 3)
    short_of_text: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for text in texts:
        if len(text) <= width:
            short_of_text[text] = text
            continue
        rest = text[part:]
        short = text[: width - 1] + "…" if part <= head else f"{text[:head]}…{rest}"
        if len(short) > width:
            short = short[: width - 1] + "…"
        plain = short
        while short in taken:
            seen[plain] += 1
            number = f" #{seen[plain] + 1}"
            short = plain[: width - len(number) - 1].rstrip("…") + "…" + number
        taken.add(short)
        short_of_text[text] = short
    return short_of_text


# ---------------------------------------------------------------------------------- kernels

_SPACES: Final = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|at::native|at::detail|at::cuda|c10|std)::|\bvoid "
)
#: ``{lambda(int)#2}`` of GCC, ``[lambda(int) (instance 2)]`` of NVCC: the number identifies the lambda.
_LAMBDA: Final = re.compile(
    r"(?:::)?[{\[]\s*lambda\([^(){}\[\]]*\)\s*(?:#|\(instance )(\d+)\)?\s*[}\]]"
)
_CALLED: Final = re.compile(r"::operator\s*\(\)\s*(?=\(|$)")
_CAST: Final = re.compile(
    r"\((?:unsigned |signed )?(?:int|bool|long|char|short|long long)\)(?=-?\w)"
)
_SUFFIX: Final = re.compile(r"\b(\d+)(?:u|ul|l|ull)\b")


def kernel(name: object) -> str:
    """Return a kernel's name in short form: without signatures and the common namespaces.

    Its template arguments stay, because they show what the kernel does.
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
    """Return the text without the parentheses, and their content, that follow a name or a ``>`` directly."""
    outside: list[str] = []
    depth = 0
    for at, letter in enumerate(text):
        if letter == "(" and (
            depth or (at and (text[at - 1].isalnum() or text[at - 1] in "_>#})"))
        ):
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        elif not depth:
            outside.append(letter)
    return "".join(outside) if not depth else text


# ---------------------------------------------------------------------------------- layers

_NUMBER: Final = re.compile(r"\d+")


def layer_patterns(layers: Sequence[str]) -> dict[str, str]:
    """Map each layer to its pattern, with ``*`` for each number in which similar layers differ.

    ``h.0.mlp`` and ``h.1.mlp`` become ``h.*.mlp``. A number that all of them share stays: ``Qwen2MLP`` does
    not become ``Qwen*MLP``.
    """
    alike: dict[str, list[str]] = {}
    for layer in layers:
        alike.setdefault(_NUMBER.sub("*", layer), []).append(layer)
    pattern_of_layer = {}
    for group in alike.values():
        numbers = [_NUMBER.findall(layer) for layer in group]
        vary = [len(set(column)) > 1 for column in zip(*numbers, strict=True)]
        for layer in group:
            between = _NUMBER.split(layer)
            own = (
                "*" if varies else n for varies, n in zip(vary, _NUMBER.findall(layer), strict=True)
            )
            pattern_of_layer[layer] = "".join(
                a + b for a, b in zip_longest(between, own, fillvalue="")
            )
    return pattern_of_layer


# ---------------------------------------------------------------------------------- source lines


def short_source(frames: object) -> str:
    """Return the innermost source line without its folders, and the next one if it is in another file:
    ``train.py:42``, ``bert.py:364 < train.py:42``."""
    places = [
        frame_text.strip('"').replace("\\", "/").rpartition("/")[2]
        for frame_text in units.text(frames).split(" < ")[:2]
    ]
    files = {frame_text.rpartition(":")[0] for frame_text in places}
    return " < ".join(places[: len(files)])
