"""Remove what must not leave the machine: secrets in command lines and texts, and on request host and paths.

A name is split into words and its last word decides (``--wandb_key``, ``HF_TOKEN``), so that names that only
refer to a secret (``--token-file``, ``--max-tokens``, ``--tokenizer``) stay. The patterns of tokens follow
their issuers' documentation. Every pattern takes time proportional to the length of the text.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

HIDDEN: Final = "<redacted>"
#: Replaces the arguments of a command in a private profile.
LEFT_OUT: Final = "<arguments left out>"
#: Longer texts are cut before they are searched: Linux allows no longer argument.
_LONGEST: Final = 1 << 17

_SECRETS: Final = frozenset(
    [
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "pw",
        "pass",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "creds",
        "apikey",
        "apikeys",
        "authtoken",
        "accesstoken",
        "bearer",
        "cookie",
        "cookies",
        "authorization",
        "auth",
        "signature",
        "sig",
        "jwt",
        "pat",
        "passkey",
    ]
)
#: Words after a secret's word that only say how the secret is encoded.
_FORMS: Final = frozenset(
    [
        "value",
        "text",
        "string",
        "str",
        "data",
        "b64",
        "base64",
        "raw",
        "plain",
        "env",
        "header",
        "json",
    ]
)
#: Words before "token" and "key" that mean tokens of language models and keys of tables, not credentials.
_LANGUAGE: Final = frozenset(
    [
        "pad",
        "eos",
        "bos",
        "unk",
        "mask",
        "sep",
        "cls",
        "special",
        "image",
        "img",
        "video",
        "audio",
        "vision",
        "start",
        "end",
        "stop",
        "next",
        "last",
        "first",
        "begin",
        "max",
        "min",
        "num",
        "n",
        "per",
        "each",
        "extra",
        "new",
        "added",
        "prompt",
        "output",
        "input",
        "task",
        "class",
        "register",
        "think",
        "separator",
        "cache",
        "total",
    ]
)
_TABLES: Final = frozenset(
    [
        "sort",
        "partition",
        "primary",
        "foreign",
        "cache",
        "group",
        "order",
        "dict",
        "index",
        "lookup",
        "label",
        "feature",
        "features",
        "text",
        "image",
        "img",
        "input",
        "inputs",
        "output",
        "outputs",
        "column",
        "field",
        "prompt",
        "target",
        "loss",
        "metric",
        "data",
        "checkpoint",
        "map",
        "row",
        "join",
        "query",
        "public",
        "state",
        "audio",
        "video",
        "caption",
        "response",
    ]
)
#: Values of switches, which are no secrets.
_SWITCHES: Final = frozenset(
    ["true", "false", "none", "null", "yes", "no", "on", "off", "auto", "0", "1"]
)
#: Options of curl and others whose value is ``user:password``.
_LOGINS: Final = frozenset(("-u", "--user", "--proxy-user", "--userpwd"))

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAME: Final = r"[A-Za-z][\w.\-]{0,127}"
#: name = value or name: value, in JSON (also escaped), YAML, a URL's query, an assignment.
_PAIR: Final = re.compile(
    rf"(?:(?<![\w.\-])-{{0,2}}|(?<=%22))(?P<name>{_NAME})"
    r"(?:\\*[\"'])?(?:%22)?\s{0,4}(?:[:=]|%3[dDaA])\s{0,4}"
)
_PAIR_VALUE: Final = re.compile(
    r"\[[^\]]*\]?|\{[^{}]*\}?|\\+\"[^\"\\]*|\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s&;,'\"}\])\\]+"
)
#: An option and its value in a shell command.
_OPTION: Final = re.compile(rf"(?<!\S)(?P<name>--?{_NAME})\s{{1,4}}")
_OPTION_VALUE: Final = re.compile(r"\"[^\"]*\"?|'[^']*'?|[^\s\-]\S*")
_HEADER: Final = re.compile(
    r"(?i)\b(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z0-9-]{0,40}?(?:key|token|auth|secret))"
    r"(?P<sign>\s{0,4}:\s{0,4})(?P<value>[^\"'\r\n]+)"
)
_BEARER: Final = re.compile(r"(?i)\b(?P<name>bearer)(?P<sign>\s{1,4})(?P<value>[\w.~+/=\-]{6,})")
_LOGIN: Final = re.compile(r"\b(?P<name>login)(?P<sign>\s{1,4})(?P<value>[A-Za-z0-9_\-]{20,})")
#: user:password@ before a host; in a URL everything before the last @.
_URL_USER: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9+.\-]{0,30})(?P<sign>://)(?P<value>[^/\s?#'\"]*)@"
)
_USER: Final = re.compile(
    r"(?<![\w/@.])(?P<name>[A-Za-z][\w.+\-]{0,63})(?P<sign>:)(?P<value>[^\s/@:'\"]{1,256})@(?=[\w\[])"
)
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-[\w\-]{8,}|sk_(?:live|test)_\w{10,}|rk_(?:live|test)_\w{10,}"  # OpenAI, Anthropic, Stripe
    r"|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w\-]{8,}"
    r"|xox[abeprs]-[\w\-]{8,}|xapp-[\w\-]{8,}|hooks\.slack\.com/services/[\w/]+"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"  # AWS
    r"|AIza[\w\-]{30,}|ya29\.[\w\-]{10,}|GOCSPX-[\w\-]{10,}"  # Google
    r"|nvapi-[\w\-]{10,}|npm_[A-Za-z0-9]{20,}|pypi-[\w\-]{16,}|dop_v1_[a-f0-9]{16,}"
    r"|SG\.[\w\-]{10,}\.[\w\-]{10,}|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|dapi[a-f0-9]{30,}"
    r"|wandb_v1_[\w\-]{10,}|local-[a-f0-9]{40}|hvs\.[\w\-]{10,}|tskey-[\w\-]{10,}|lin_api_\w{10,}"
    r"|eyJ[\w\-]{8,}(?:\.[\w\-]+){0,4}"  # a JSON web token
    r")"
)
_KEY_BLOCK: Final = re.compile(r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*")
_PATH: Final = re.compile(r"(?<![\w/:.])(?:[A-Za-z]:[\\/]|/|~/|\\\\)(?:[^\s:'\",;()<>|]+[\\/])+")


def is_secret(name: str) -> bool:
    """Whether the words of a name (of an option, a variable, a key) say that its value is a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1] in _FORMS or words[-1].isdigit()):
        words.pop()
    if not words:
        return False
    *before, last = words
    if last in ("token", "tokens"):
        doors = {"api", "auth", "access", "secret", "refresh", "bearer", "hf", "hub", "personal"}
        if last == "tokens" and not doors.intersection(before):
            return False
        return not _LANGUAGE.intersection(before)
    if last in ("key", "keys"):
        return not (before and before[-1] in _TABLES) and (last == "key" or bool(before))
    return last in _SECRETS


def redact(command: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command with every secret in them hidden; their number stays the same."""
    return tuple(_redact(command))


def redact_text(text: str) -> str:
    """Return ``text`` with secrets hidden that are recognised by their form or by the name before them."""
    text = text[:_LONGEST]
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _URL_USER.sub(rf"\g<name>://{HIDDEN}@", text)
    text = _TOKEN.sub(HIDDEN, text)
    for pattern in (_HEADER, _BEARER, _LOGIN):
        text = pattern.sub(rf"\g<name>\g<sign>{HIDDEN}", text)
    text = _USER.sub(rf"\g<name>:{HIDDEN}@", text)
    text = _hide(_PAIR, _PAIR_VALUE, text)
    return _hide(_OPTION, _OPTION_VALUE, text) if " " in text else text


def private(command: Sequence[str]) -> tuple[str, ...]:
    """Return the program's file name, and ``LEFT_OUT`` in place of the arguments if it has any."""
    if not command:
        return ()
    first = os.path.basename(command[0].replace("\\", "/"))
    return (first,) if len(command) == 1 else (first, LEFT_OUT)


def private_host(host: str, boot: str | None) -> str:
    """Return a name that is the same for all processes of a machine and does not identify the machine."""
    key = hashlib.sha256((boot or "").encode()).digest()
    return "host-" + hashlib.blake2s(host.encode(), key=key, digest_size=4).hexdigest()


def private_text(text: str) -> str:
    """Return ``text`` without secrets and without the folders of absolute paths; file names stay."""
    return _PATH.sub("", redact_text(text))


def _hide(names: re.Pattern[str], values: re.Pattern[str], text: str) -> str:
    """Return ``text`` with the values after those ``names`` hidden whose words mean a secret.

    After any other name the search continues in its value: ``--env=TOKEN=…``, ``--url=…?token=…``.
    """
    pieces: list[str] = []
    at = 0
    while secret := names.search(text, at):
        end = secret.end()
        pieces.append(text[at:end])
        value = values.match(text, end) if is_secret(secret["name"]) else None
        if value is not None:
            bare = value[0].strip("\"'\\")
            switch = bare in ("", HIDDEN) or bare.lower() in _SWITCHES
            pieces.append(value[0] if switch else _in_its_quotes(value[0]))
            end = value.end()
        at = end
    return "".join(pieces) + text[at:]


def _in_its_quotes(value: str) -> str:
    """Return the replacement of a secret ``value``, with the quotes that it had."""
    open_ = re.match(r"\\*[\"']?", value)
    quote = "" if open_ is None or not open_[0].endswith(("'", '"')) else open_[0]
    # the closing quote of an escaped pair is not part of the value
    return f"{quote}{HIDDEN}{quote if len(quote) == 1 and value[-1] == quote else ''}"


def _redact(command: Sequence[str]) -> Iterator[str]:
    hiding = False  # the previous option takes a secret
    several = False  # it may take several
    login = False
    for argument in command:
        if hiding and not _is_option(argument):
            keep = argument.lower() in _SWITCHES
            hiding = several
            yield argument if keep else HIDDEN
            continue
        hiding = False
        name, equals, value = argument.partition("=")
        if login and ":" in argument:
            yield f"{argument.partition(':')[0]}:{HIDDEN}"
        elif equals and _plain(name) and is_secret(name) and value.lower() not in _SWITCHES:
            yield f"{name}={HIDDEN}" if value else argument
        else:
            hiding = not equals and argument.startswith("-") and _plain(name) and is_secret(name)
            several = hiding and argument.endswith("s")
            yield redact_text(argument)
        login = argument in _LOGINS
        if argument == "login":
            hiding = True


def _plain(name: str) -> bool:
    """Whether this is just a name: an option, a variable, a key of an override."""
    return re.fullmatch(rf"[-+~/]{{0,2}}{_NAME}", name) is not None


def _is_option(argument: str) -> bool:
    """Whether the argument begins with two dashes: a secret may begin with one dash, but hardly with two."""
    return argument.startswith("--")
