"""Remove what must not leave the machine: secrets in command lines and texts, and on request host and paths.

A secret is recognised by the form that its issuer gives it, by its position (a URL's user, a header, an
option of a program), or by the name before it. The last word of a name decides (``--wandb_key``,
``dbpassword``), so the values of names that only refer to a secret (``--token-file``, ``--max-tokens``) stay.
Forms and words are data: ``secrets.json``, which ``scripts/make_secret_forms.py`` makes of a detector's
rules. Every pattern takes time proportional to the text, and only a bounded part of the text is searched.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

HIDDEN: Final = "<redacted>"
#: Replaces the arguments of a command in a private profile.
LEFT_OUT: Final = "<arguments left out>"
#: The end of a text that was too long to be searched as a whole.
CUT_END: Final = " more characters left out>"
#: Characters of a text that are searched; the rest is left out. A source file is searched in such pieces.
_LONGEST: Final = 1 << 16
#: Stands between the words of a command while forms are searched in all of it; patterns take it for a space.
_BETWEEN: Final = "\x1f"
#: Stands for the names of secrets among the numbers of forms.
_NAMED: Final = -1
#: A value is judged by this many of its characters.
_JUDGED: Final = 160
#: Characters at which a text may be cut without cutting a secret in half.
_CUTS: Final = " \t\n\"'`&;,<>(){}[]"


class Sureness(IntEnum):
    """How surely the value after a name is a secret."""

    NOT = 0
    #: The name has other meanings (``key``, ``session``): the value must look drawn by chance.
    IF_DRAWN = 1
    #: The name mostly means a secret (``token``, ``pass``): the value must mix letters and digits.
    IF_MIXED = 2
    #: The name always means a secret: any value but a switch, a path, a placeholder or an expression.
    SURE = 3


#: Patterns are compiled when a text first needs them: most programs need few.
_re: Final = functools.cache(re.compile)


@functools.cache
def _data() -> dict[str, Any]:
    """Return the forms and words, read when a first text is searched."""
    # not by importlib.resources, which a program that is ending would have to import
    text = Path(__file__).with_name("secrets.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    data["words"] = {name: frozenset(words) for name, words in data["words"].items()}
    data["endings"] = tuple(data["words"]["endings"])
    data["options"] = {program: tuple(options) for program, options in data["options"].items()}
    return data


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of the data: of what surrounds a secret, or of a value that is none."""
    return _re(_data()["patterns"][name])


@functools.cache
def _names() -> re.Pattern[str]:
    return _re(rf"(?i:{_data()['phrases']})|[^\W\d][\w.\-]{{0,127}}")


#: Programs whose --user is a user and a group, until "login".
_ACCOUNTS: Final = ("login -p",)


@functools.lru_cache(4096)
def sureness(name: str) -> Sureness:
    """Return how surely a name (of an option, a variable, a key) says that its value is a secret."""
    kinds = _data()["words"]
    if name.lower() in kinds["sure"]:
        return Sureness.SURE  # scripts whose vowels are combining marks, which would split names
    words = _words(name)
    while len(words) > 1 and (words[-1] in kinds["forms"] or words[-1].isdigit()):
        words.pop()
    named = words[-1:] == ["secret"] and kinds["references"].intersection(words)
    if not words or named or words[-1].startswith("nopass"):
        return Sureness.NOT
    *before, last = words
    if last in ("token", "tokens") or (last in ("key", "keys")):
        kind = _token_or_key(before, last)
        return min(kind, Sureness.IF_MIXED) if last == "keys" else kind  # ssh_keys: [me, you]
    joined = _re(_data()["joined"])
    if (
        last in kinds["sure"]
        or "_".join(words).endswith(_data()["endings"])
        or joined.fullmatch(last)
    ):
        return Sureness.SURE
    for end in ("token", "key"):
        if last.endswith(end) and last not in kinds["mixed"]:  # identitytoken, sortkey
            return _token_or_key([*before, last.removesuffix(end)], end)
    if last in kinds["mixed"]:
        # DB_PASS, db_pass, pw; but custom_pass belongs to a compiler, and conv_pw is a layer
        owned = name.isupper() or bool(kinds["owners"].intersection(before))
        sure = owned and bool(before) if last == "pass" else last == "pw" and (owned or not before)
        return Sureness.SURE if sure else Sureness.IF_MIXED
    if last in kinds["random"] or "".join(words[-2:]) == "sessionid":
        return Sureness.IF_DRAWN
    if last in ("code", "codes") and kinds["codes"].intersection(before):
        return Sureness.SURE
    about = last in kinds["about"] or last.removesuffix("s") in kinds["about"]
    if not about and any(word in kinds["passwords"] for word in before):
        return Sureness.SURE  # passwort_datenbank, mot_de_passe_admin
    pairs = zip(before, words[1:], strict=False)
    if not (kinds["sure"] - {"pin"}).intersection(before) and not any(
        joined.fullmatch(a + b) for a, b in pairs
    ):
        return Sureness.NOT
    # DB_PASSWORD_EU, secret_for_x: a secret's name, then words of the user or words about the secret
    return Sureness.IF_DRAWN if about else Sureness.IF_MIXED


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case."""
    words: list[str] = []
    for part in re.split(r"[_\W]+", name):
        if part.isascii():
            words += map(str.lower, re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", part))
        else:
            humps = zip(" " + part, part, strict=False)
            spaced = (" " * (a.islower() and b.isupper()) + b for a, b in humps)
            words += _lower("".join(spaced)).split()
    return words


def _lower(text: str) -> str:
    return text.lower().replace("\u0307", "")  # left over from the lower case of a Turkish capital


def _token_or_key(before: list[str], last: str) -> Sureness:
    kinds = _data()["words"]
    if last.startswith("token"):
        doors = {"api", "auth", "access", "secret", "refresh", "bearer", "hf", "hub", "personal"}
        if doors.intersection(before):
            return Sureness.SURE
        other = last == "tokens" or kinds["language"].intersection(before)
        return Sureness.NOT if other else Sureness.IF_MIXED
    if not before:
        return Sureness.IF_DRAWN if last == "key" else Sureness.NOT
    if before[-1] in kinds["tables"]:
        return Sureness.NOT
    joined = re.fullmatch(_data()["joined"], before[-1] + "key")
    return Sureness.SURE if joined else Sureness.IF_DRAWN


def is_secret(name: str) -> bool:
    """Whether the words of a name say that its value may be a secret."""
    return sureness(name) > Sureness.NOT


def redact(command: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command with all secrets hidden; their number stays the same."""
    pairs = zip(command, _arguments(command, Counter()), strict=True)
    words = tuple(redact_text(old) if old == new else new for old, new in pairs)
    line = _BETWEEN.join(words)
    if line.count(_BETWEEN) >= len(words) or len(line) > _LONGEST:
        return words
    for number in _likely(_lower(" ".join(words)))[0]:
        shown = _formed(line, [number], Counter())
        if shown.count(_BETWEEN) == line.count(_BETWEEN):  # a value of several words stays
            line = shown
    return tuple(line.split(_BETWEEN))


def redact_text(text: str) -> str:
    """Return ``text``, cut at 65,536 characters, without secrets, known by form, position or name."""
    if len(text) <= _LONGEST:
        return _search(text, Counter())
    cut = max(text.rfind(char, _LONGEST >> 1, _LONGEST) for char in _CUTS)
    cut = cut if cut > 0 else _LONGEST >> 1
    return f"{_search(text[:cut], Counter())}… <{len(text) - cut:,}{CUT_END}"


def redact_source(text: str) -> tuple[str, dict[str, int]]:
    """Return the text of a source file with its secrets hidden, and how many were hidden of which kind."""
    counts, pieces, at = Counter[str](), list[str](), 0
    while at < len(text):
        end = len(text) if len(text) - at <= _LONGEST else text.rfind("\n", at, at + _LONGEST) + 1
        end = end if end > at else at + _LONGEST
        pieces.append(_search(text[at:end], counts))
        at = end
    return "".join(pieces), dict(counts)


def private(command: Sequence[str]) -> tuple[str, ...]:
    """Return the program's file name, and ``LEFT_OUT`` in place of the arguments if it has any."""
    if not command:
        return ()
    first = os.path.basename(command[0].replace("\\", "/"))
    return (first,) if len(command) == 1 else (first, LEFT_OUT)


def private_text(text: str) -> str:
    """Return ``text`` without secrets and without folders of absolute paths; file names stay."""
    return _pattern("folders").sub("", redact_text(text))


def _search(text: str, counts: Counter[str]) -> str:
    """Return ``text`` with the secrets hidden, counting each by its kind."""
    numbers, named = _likely(_lower(text))
    text = _formed(text, numbers, counts)
    if named:
        text = _hide(text, list(_headers(text)), counts)
        text = _hide(text, list(_named(text)), counts)
    return _in_words(text, counts) if _pattern("needs words").search(text) else text


def _formed(text: str, numbers: list[int], counts: Counter[str]) -> str:
    """Return ``text`` without the secrets that have one of these forms or a position of their own."""
    for number in numbers:
        kind, _, pattern = _data()["forms"][number]
        form = _re(pattern)
        group = "value" if form.groupindex else 0
        spans = [
            (kind, *match.span(group))
            for match in form.finditer(text)
            if not _pattern("placeholder").fullmatch((match[group] or "").rpartition(":")[2])
        ]
        text = _hide(text, spans, counts)
    return text


def _in_words(text: str, counts: Counter[str]) -> str:
    """Return ``text`` as the shell splits it into words, with the secrets of options hidden."""
    matches = list(_pattern("shell word").finditer(text))
    hidden = _arguments([match[0] for match in matches], counts, shell=True)
    pieces, at = [], 0
    for match, word in zip(matches, hidden, strict=True):
        pieces += [text[at : match.start()], word]
        at = match.end()
    return "".join([*pieces, text[at:]])


def _likely(lower: str) -> tuple[list[int], bool]:
    """Return the forms that may occur in the text, in order, and whether the name of a secret may occur."""
    pairs = _pairs().keys() & {*itertools.pairwise(lower), *zip(lower, strict=False)}
    numbers = {number for pair in pairs for word, number in _pairs()[pair] if word in lower}
    return sorted(numbers - {_NAMED}), _NAMED in numbers


@functools.cache
def _pairs() -> dict[tuple[str, ...], list[tuple[str, int]]]:
    """Return the keywords and the numbers of their forms by the keywords' first two characters.

    A text contains few of these pairs, so most keywords need no search.
    """
    pairs: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    words = [
        (word, number) for number, (_, words, _) in enumerate(_data()["forms"]) for word in words
    ]
    for word, number in [*words, *((hint, _NAMED) for hint in _data()["hints"])]:
        pairs.setdefault(tuple(word[:2]), []).append((word, number))
    return pairs


def _hide(text: str, spans: list[tuple[str, int, int]], counts: Counter[str]) -> str:
    """Return ``text`` with the spans (kind, start, end) replaced; of spans that overlap, the first."""
    pieces, at = [], 0
    for kind, start, end in spans:
        if start < at or end <= start or text[start:end] == HIDDEN:
            continue
        counts[kind] += 1
        pieces += [text[at:start], HIDDEN]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _headers(text: str) -> Iterator[tuple[str, int, int]]:
    at = 0
    for match in _pattern("header").finditer(text):
        if match.start() < at:
            continue
        quote = text[match.start() - 1 : match.start()]
        end = text.find(quote, match.end()) if quote in ("'", '"') and quote else -1
        line = _re(r"[^\r\n]*").match(text, match.end())
        at = last = end if end >= 0 else line.end() if line else len(text)
        value = text[match.end() : last]
        switch = value.lower() in _data()["words"]["switches"]
        if not switch and not _pattern("placeholder").fullmatch(value):
            yield "header", match.end(), last
    for match in _pattern("basic").finditer(text):
        try:
            if re.search(rb"[:\0]", base64.b64decode(match["value"] + "==")):
                yield "header", *match.span("value")
        except binascii.Error:
            continue
    for match in _pattern("bearer").finditer(text):
        sure = Sureness.IF_MIXED if match["name"].lower() == "bearer" else Sureness.IF_DRAWN
        if _worth(match["value"], sure, True):
            yield "header", *match.span("value")


def _named(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the values after the names of secrets, as (kind, start, end), in order."""
    at = 0
    variables = frozenset(_re(r"(?m)^[ \t]*([a-z_]\w*)[ \t]*=[ \t]*[a-z_][\w.]*\(").findall(text))
    while name := _names().search(text, at):
        at = name.end()
        sure = sureness(name[0])
        sign = _pattern("sign").match(text, at) if sure else None
        if sign is None or (sign["comma"] and not _is_pair(text, name, sign)):
            continue
        if name[0].lower() == "pin" and not re.match(r"\W*\d[\d ]{2,}", text[sign.end() : at + 40]):
            continue  # of a board, or of a package
        before = text[max(0, name.start() - 1) : name.start()]
        if before == sign[0] == ":" or (sign["close"] and text.startswith("::", name.start() - 2)):
            continue  # an address of parts: arn:…:secret:x, "AWS::…::ApiKey": x
        near = text[max(0, name.start() - _JUDGED) : name.start()]
        if name[0].lower() in ("pass", "pw") and _pattern("user").search(near):
            sure = Sureness.SURE
        follows = sign["colon"] and before == " " and text[name.start() - 2].isalnum()
        if follows and sure == Sureness.IF_MIXED:
            sure = Sureness.IF_DRAWN  # "backward pass: layer3" is prose
        if before == " " and sure == Sureness.IF_DRAWN and _is_of_table(text, name.start()):
            continue  # "cache key: 5f2a…"
        inner = sign["element"] and not sign["close"] and "</" not in sign[0]
        reads = sign["call"] and _pattern("reads").search(name[0])
        if reads or (inner and before not in ("<", ":")):
            continue
        if (sign["call"] or sign["prose"] is not None) and sure < Sureness.SURE:
            continue
        if sign["prose"] == "" and not _alone(text, sign.end(), name):
            continue
        for start, end in _values(text, sign.end(), sure, name[0], before, sign):
            if text[start:end] in variables and start == sign.end():
                continue  # hashed_password=hashed
            yield "named value", start, end
            at = max(at, end)


def _is_of_table(text: str, at: int) -> bool:
    """Whether the word before position ``at`` says that it is a key of a table."""
    word = re.search(r"([a-z]+)(?: \w+ from)? $", text[max(0, at - 20) : at], re.I)
    return word is not None and word[1].lower() in _data()["words"]["tables"]


def _is_pair(text: str, name: re.Match[str], sign: re.Match[str]) -> bool:
    """Whether a quoted name and the text after it are a pair, ("password", "…"), not two elements of a
    list."""
    quote = _pattern("quote").match(text, sign.end())
    if not sign["close"] or "]" in sign[0] or quote is None:
        return False
    ends = _re(r"\s{0,40},?\s{0,40}[)\]]").match(text, _inside(text, quote)[2])
    before = text[max(0, name.start() - 80) : name.start()]
    option = before.endswith("-")
    before = before.rstrip("-\"'`\\rbfu").rstrip()
    single = before[-1:] in ("(", "[", ",") and before[-2:-1] not in ("'", '"')
    setter = re.search(r"(?i)(?:set|put|add|store|write|define)\w*\((?:[^()]*,)?$", before)
    if setter and text.startswith(",", _inside(text, quote)[2]):
        return True  # setenv("PASSWORD", "…", 1)
    return ends is not None and bool(single or option or setter)


def _values(
    text: str, at: int, sure: Sureness, name: str, before: str, sign: re.Match[str]
) -> Iterator[tuple[int, int]]:
    """Yield the spans of the value at ``at``: all parts of a concatenated one."""
    if sure >= Sureness.IF_MIXED and (sign["colon"] or sign["equal"]):
        block = _pattern("block").match(text, at) or _pattern("items").match(text, at)
        if block is None and sure == Sureness.SURE and sign["colon"] and _alone(text, at, sign):
            block = _pattern("next line").match(text, at)
        if block is not None:
            yield from (
                line.span(1)
                for line in _re(r"[ \t]*(?:- )?([^\n]*)\n?").finditer(text, *block.span(1))
                if line[1] and (text[at] in "|>" or _is_literal(line[1], sure, name))
            )
            return
    # user, password = "…", "…"
    left = text[max(0, sign.start() - _JUDGED) : sign.start()]
    inside = sign["equal"] is not None and _pattern("several").search(left) is not None
    last = _words(name)[-1:]
    for _ in range(8):
        opening = _pattern("open").match(text, at) or (
            _pattern("call").match(text, at) if sure == Sureness.SURE else None
        )
        if opening is None:
            break
        inside = inside or opening[0][-1:] != "="
        at = opening.end()
    if text.startswith("{", at) and sure >= Sureness.IF_MIXED and (sign["colon"] or sign["equal"]):
        braces = _pattern("braces").match(text, at)
        pairs = _re(r"[:=]\s{0,4}\"([^\"]*)\"|[:=]\s{0,4}'([^']*)'")
        for entry in pairs.finditer(text, at, braces.end() if braces else at):
            judged = sure if sure == Sureness.SURE else Sureness.IF_DRAWN
            if _is_literal(entry[1] or entry[2] or "", judged, name):
                yield entry.span(1 if entry[1] is not None else 2)
        return
    first = True
    spans: list[tuple[int, int]] = []
    while (quote := _pattern("quote").match(text, at)) and not (
        first and sign["close"] is None and quote[1] == before
    ):
        start, end, at = _inside(text, quote)
        pair = last == ["auth"] and ((inside and not first) or ":" in text[start:end])
        if sure and (pair or last == ["pw"]):
            sure = Sureness.SURE  # auth=("user", "…"), pw="…"
        if _is_literal(text[start:end], sure, name):
            spans.append((start, end))
        first = False
        more = _pattern("join inside" if inside or sign["call"] else "join").match(text, at)
        if more is None:
            break
        at = more.end()
    # set_password("service", "user", "…")
    yield from spans[-1:] if sign["call"] else spans
    if not first or sign["comma"] or sign["call"]:
        return
    if inside and sign["equal"] and " " in sign[0]:
        return  # user, password = args
    other = _pattern("else").match(text, at)
    if other is not None and (quote := _pattern("quote").match(text, other.end())):
        start, end, _ = _inside(text, quote)
        if _is_literal(text[start:end], sure, name):
            yield start, end
        return
    yield from _bare(text, at, sure, name, before, sign)


def _bare(
    text: str, at: int, sure: Sureness, name: str, before: str, sign: re.Match[str]
) -> Iterator[tuple[int, int]]:
    """Yield the span of a value without quotes, unless it is an expression or a reference."""
    if sign["element"]:
        end = text.find("]]>" if "CDATA" in sign[0] else "</", at)
        label = text[at:end].lower() in _data()["words"]["passwords"]
        if not label and _is_literal(text[at:end], sure, name):
            yield at, end
        return
    value = _pattern("bare").match(text, at, at + _JUDGED)
    if value is not None and re.match(r"[A-Za-z_]\w*=(?!=)", value[0]) and text[at - 1] == "(":
        return  # the name of an argument
    empty = sign[0] == "= " and name.isupper() and _pattern("command").match(text, at)
    if value is None or empty or (sign["equal"] or "").strip() in ("==", "!=", "===", "!=="):
        return  # PASSWORD= python train.py
    if value[0].isidentifier() and name.startswith(("self.", "this.", "cls.")):
        return  # self.password = given
    if _is_expression(text[at : value.end() + 1].rstrip(" \n;,)}\"'!")):
        # of a shell, or below a section's line of an INI file, where nothing is an expression
        plain = text.endswith((f"export {name}", f"ARG {name}", f"ENV {name}"), 0, sign.start())
        assigned = (before, sign[0]) in (("", "="), ("\n", "="))
        plain = plain or bool(assigned and _pattern("command").match(text, at))
        plain = plain or (before, sign[0]) == ("{", ":=")
        plain = plain or bool(re.match(r"\)\w", text[value.end() : value.end() + 2]))  # a(7)b
        if not plain and not _pattern("section").search(text, max(0, at - 2000), at):
            return
    typed = sign["colon"] and _pattern("typed").match(text, at, at + 80)
    shell = name.isupper() and sign[0] == "=" and not value[0].isupper()  # DB_SECRET=key_of_us
    if sure == Sureness.IF_MIXED and _words(name)[-1:] == ["auth"] and _login(value[0]):
        sure = Sureness.SURE
    code = value[0] in _data()["words"]["bare"] or _re(r"[a-z]+(_[a-z]+)+[,)]").match(text, at)
    if (
        typed
        or (code and not name.isupper())
        or (_is_name(value[0], name) and not shell)
        or (sign["typed"] and _words(value[0])[-1:] == _words(name)[-1:])
        or not _worth(value[0], sure, False)
    ):
        return
    if sign["colon"] and sure == Sureness.SURE and _alone(text, at, sign):
        line = _pattern("line").match(text, at)  # a line of YAML: a phrase without quotes
        if line is not None and line.end() > value.end():
            prose = _pattern("prose").fullmatch(line[0]) or _is_message(line[0])
            if _worth(line[0], sure, True) and not prose:
                yield at, line.end()
            return
    # Environment="PASSWORD=a phrase", UID=sa;PWD=a phrase;
    phrase = None
    if sign["equal"] and before in ("'", '"', ";"):
        phrase = _re(_data()["patterns"]["until"].replace("~", before)).match(text, at)
    elif sign["equal"] and sure == Sureness.SURE and _alone(text, at, sign):
        phrase = _pattern("phrase").match(text, at)
        if phrase is not None and _pattern("prose").fullmatch(phrase[0]):
            phrase = None
    yield (phrase or _pattern("bare").match(text, at) or value).span()


def _is_name(value: str, name: str) -> bool:
    """Whether a value is a name: the same one, or that of another secret: password=db_password."""
    value = value.lstrip("@:$")
    if name.lstrip("-") in ("secret", "secrets"):
        value = value.replace("-", "_")  # --secret=db-pass
    dotted = _pattern("reference").fullmatch(value)  # config.get("db.password")
    value = value.rpartition(".")[2] if dotted else value
    same = value.lower() in (name.lower(), re.split(r"[.\-]", name.lower())[-1])
    if same or _words(value) == _words(name):
        return True
    several = dotted or len(_words(value)) > 1 or value.lower().endswith(name.lower())
    header = _pattern("header name").fullmatch(value)
    numbered = re.search(r"\d\D?\d|^[A-Z][a-z]+\d", value)
    named = header or (several and value.isidentifier() and not numbered)
    return bool(named) and sureness(value) > Sureness.NOT


def _is_literal(value: str, sure: Sureness, name: str) -> bool:
    """Whether to hide a value in quotes, which cannot be a variable's name."""
    return (
        _worth(value, sure, True)
        and not _pattern("closed").match(value[:_JUDGED])
        and not _is_message(value)
        and (bool(re.search(r"\d", value)) or not _is_name(value, name))
    )


def _is_message(value: str) -> bool:
    """Whether a value says something of passwords: "Passwords do not match"."""
    words = {*_words(value[:_JUDGED])}
    known = [words & _data()["words"][kind] for kind in ("passwords", "speech")]
    mostly = value[:1].isupper() or len(words) < 2 * len(known[0] | known[1])
    return all(known) and mostly and value.count(" ") > (3 if re.search(r"\d", value) else 0)


def _is_expression(value: str) -> bool:
    """Whether an unquoted value is an attribute, a call or an item: args.password, tokens[i]."""
    if re.match(r"[A-Za-z_][\w.]*\((?:$|[\w\"'*)])", value):
        return True
    item = _pattern("reference").fullmatch(value) or re.match(r"[A-Za-z_][\w.]*\[", value)
    constant = value.rpartition(".")[2]  # process.env.E2E_PWD
    named = "_" in constant and is_secret(constant)
    return bool(item) and (named or not any(char.isdigit() for char in value.partition("[")[0]))


def _alone(text: str, at: int, last: re.Match[str]) -> bool:
    """Whether only the name is before the sign in the line, as in YAML."""
    start = text.rfind("\n", max(0, at - _JUDGED), at) + 1
    alone = _re(r"[ \t]*(?:- )?[\"']?[^\s:=\"']*[\"']?$").match(
        text, start, last.end() if last.re is _names() else last.start()
    )
    return alone is not None


def _inside(text: str, quote: re.Match[str]) -> tuple[int, int, int]:
    """Return the start and end of the quoted text, and the position after it; the closing quote may be
    missing."""
    mark, start = quote[1], quote.end()
    end = text.find(mark, start)
    while end > 0 and len(mark) == 1 and text[end - 1] == "\\" and text[end - 2] != "\\":
        end = text.find(mark, end + 1)
    while mark == "'" and end > 0 and text.startswith("'\\''", end):  # a quote in a shell's quotes
        end = text.find(mark, end + 4)
    stop = text.find("\n", start)
    if (
        len(mark) == 1
        and mark != "`"
        and stop >= 0
        and (end < 0 or (stop < end and text[stop - 1] != "\\"))
    ):
        return start, stop, stop
    return (start, len(text), len(text)) if end < 0 else (start, end, end + len(mark))


def _worth(value: str, sure: Sureness, quoted: bool) -> bool:
    """Whether to hide a value after a name of this sureness."""
    bare = value[:_JUDGED].strip().strip("\"'\\").rstrip("`")
    if not bare or HIDDEN in bare or bare.lower().lstrip("-?+") in _data()["words"]["switches"]:
        return False
    aside = _pattern("placeholder").fullmatch(bare.lstrip("-")) or _pattern("path").fullmatch(bare)
    if aside or (not quoted and re.fullmatch(r"[<{\[][A-Za-z]+", bare)):
        return False  # the latter begins <a phrase>
    if _pattern("number").fullmatch(bare):
        return sure == Sureness.SURE and len(bare) > 3
    if sure == Sureness.SURE:
        return len(bare) > 1 and not bare.startswith((",", ")", "+ "))
    return _mixed(bare) if sure == Sureness.IF_MIXED else _drawn(bare)


def _mixed(value: str) -> bool:
    """Whether a value has letters and digits, or is long and has no pattern of words."""
    letters, digits = re.search(r"[^\W\d_]", value), re.search(r"\d", value)
    if letters and digits:
        return len(value) > 5 and not re.search(r"[(\[]", value)
    return len(value) > 19 and bool(re.search(r"[a-z].*[A-Z]", value)) and value.isalnum()


def _drawn(value: str) -> bool:
    """Whether a value looks drawn by chance: letters and digits change several times within a word."""
    if re.search(r"[\s(\[{]|::", value) or _pattern("uuid").fullmatch(value):
        return False
    for piece in re.split(r"[._:/\-]", value) if len(value) < 100 else [value]:
        changes = len(re.findall(r"[^\W\d_](?=\d)|\d(?=[^\W\d_])", piece))
        if (
            changes > 1
            and len(re.findall(r"\d", piece)) > 1
            and (len(piece) > 15 or (len(piece) > 6 and piece.lower() != piece != piece.upper()))
        ):
            return True
    return False


def _arguments(command: Sequence[str], counts: Counter[str], shell: bool = False) -> Iterator[str]:
    """Yield each word of a command, with the secret hidden that its option or the word before announces.
    ``shell``: the words come from a text, which may hold several commands or none."""
    takes = Sureness.NOT  # the sureness that the next word is a secret
    several = login = False
    options: tuple[str, ...] = ()
    setting = 0  # number of words after which a name may come
    for number, argument in enumerate(command):
        if shell and argument in _data()["ends"]:
            takes, several, login, setting, options = Sureness.NOT, False, False, 0, ()
            yield argument
            continue
        parts = _pattern("quoted").fullmatch(argument)
        first, quote, word, end = parts.groups() if parts else ("", "", argument, "")
        if parts is None and command[number - 1][-1:] == ",":
            takes = Sureness.NOT  # add_argument("-p", "--password", help=…)
        hidden = ""
        literal = not shell or "'" in argument  # no shell replaces its variables any more
        word = word if shell or " " in word else _pattern("dollar").sub("", word)
        named = command[number - 1] == "--secret" and _is_known(word)  # --secret dbPassword S
        option = word[:2] == "--" or (
            word[:1] == "-" and (len(word) < 3 or _next_sureness(word, ()) == Sureness.SURE)
        )
        if takes and not named and not option:
            later = takes == Sureness.IF_MIXED and command[number - 1][:1] == "-"
            worth = _worth(word, Sureness.IF_DRAWN if later else takes, literal or quote != "")
            hidden = HIDDEN if worth else _login(word, options) if login else ""
            takes = takes if several else Sureness.NOT
        else:
            hidden = _with_value(word, options, shell, literal) or _login(word, options) * login
            if not hidden and " " in word:
                hidden = _in_words(word, counts) if quote else _in_quotes(word, counts)
            # wandb login --relogin KEY
            rest = word[:1] == "-" and takes == Sureness.IF_MIXED
            takes = _next_sureness(word, options) or (takes if rest else Sureness.NOT)
            # PROGRAM -u USER -p PASSWORD, but not -p PORT
            port = re.fullmatch(r"[\d.:/\-]*", [*command[number + 1 : number + 2], ""][0])
            if word in ("-p", "-P") and not port and not {"-p=", "no -p"}.intersection(options):
                user = command[max(0, number - 2)] in _data()["logins"]
                takes = Sureness.SURE if user and command[number - 1][-3:] != ".py" else takes
            several = word.endswith("s") and not shell
            if setting and word[:1] != "-":
                setting -= 1
                after = [*command[number + 2 : number + 3], "-"][0]
                if "=" not in word and (not shell or after in _data()["ends"] or after[0] == "-"):
                    takes = max(takes, sureness(word))
            if not takes and _is_known(word):
                takes = Sureness.IF_MIXED  # connect net password S, create x secret_access_key S
            login = word in _data()["logins"] and options != _ACCOUNTS
            login = login or bool({f":{word}", f",{word}"}.intersection(options))
            login = login or (":-u" in options and bool(re.fullmatch(r"-[A-Za-z]+u", word)))
        options = _data()["options"].get(word.lstrip("!%($`#").rpartition("/")[2], options)
        if word in _data()["setters"]:
            setting = 2 if word == "modify" else 1
        if word == "login":
            options = tuple(option.removeprefix("login ") for option in options)
        if hidden and hidden != word:
            counts["option"] += 1
        yield f"{first}{quote}{hidden}{quote}{end}" if hidden else argument


def _is_known(word: str) -> bool:
    """Whether a word is a name that only secrets have."""
    several = len(_words(word)) > 1 or word.lower() in _data()["words"]["passwords"]
    return several and word.isidentifier() and sureness(word) == Sureness.SURE


def _in_quotes(word: str, counts: Counter[str]) -> str:
    """Return a word that quotes commands, with their secrets hidden: run('mysql -p…')."""
    quoted = _re(r"(?<=\")[^\"\n]*(?=\")|(?<=')[^'\n]*(?=')")
    return str(quoted.sub(lambda part: _in_words(part[0], counts), word))


def _next_sureness(word: str, options: tuple[str, ...]) -> Sureness:
    """Return how surely the next word is a secret."""
    if word in options:
        return Sureness.SURE
    if word in ("login", "authtoken"):
        return Sureness.IF_MIXED
    if word[:1] != "-" or not re.fullmatch(r"(?!-p[A-Z]+$)-{1,2}\d?[^\W\d][\w.\-]{0,127}", word):
        return Sureness.NOT
    return _of_option(word)


def _of_option(name: str) -> Sureness:
    """Return the sureness of an option's name, which is rarely called a token for nothing."""
    sure, words = sureness(name), _words(name)
    of_compiler = words[-1:] == ["pass"] and len(words) > 1  # --opt-pass O3
    return Sureness.SURE if sure == Sureness.IF_MIXED and not of_compiler else sure


def _with_value(word: str, options: tuple[str, ...], shell: bool, literal: bool) -> str:
    """Return the word with the secret inside it hidden: ``--key=…``, ``-p…``, ``-ume:…``, ``pass:…``."""
    name, equals, value = word.partition("=")
    if equals and re.fullmatch(r"(?:--\d)?[-+~/]{0,2}[^\W\d][\w.\-]{0,127}", name):
        if name in _data()["logins"] and options != _ACCOUNTS and (hidden := _login(value)):
            return f"{name}={hidden}"
        sure = _of_option(name) if name[0] == "-" else Sureness.NOT if shell else sureness(name)
        meant = _is_name(value, name) and (shell or not re.search(r"\d", value))
        if (name[0] != "-" or name == "--secret") and (meant or _is_expression(value)):
            return ""
        return f"{name}={HIDDEN}" if sure and _worth(value, sure, literal) else ""
    for option in options:
        short, value = option.strip("=:"), word[2:]
        variable = re.match(r'<[\w -]+>$|"*\$|PASS(?:WORD)?$', value) and not literal
        if len(short) == 2 and word.startswith(short) and len(word) > 3 and not variable:
            return short + (HIDDEN if option[0] != ":" else _login(value) or value)
    if word.startswith("pass:") and "-passin" in options:
        return f"pass:{HIDDEN}"
    return ""


def _login(word: str, options: tuple[str, ...] = ()) -> str:
    """Return ``user:password`` (or ``user%password``) with the password hidden, or ""."""
    comma = ",-u" in options and "," in word
    user, sign, password = word.partition("," if comma else ":" if ":" in word else "%")
    harmless = (
        not password
        or (password.isdigit() and (user.isdigit() or len(password) < 4))
        or "//" in word
        or (sign == "%" and not user[:1].isalnum())
        or bool(_pattern("placeholder").fullmatch(password))
    )
    return f"{user}{sign}{HIDDEN}" if sign and not harmless else ""
