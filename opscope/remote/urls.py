"""Recognise the URLs that opscope opens, and name them without their secrets."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import urlsplit

#: The schemes that are opened, with the package of fsspec's that opens them. No other text is a URL: a
#: file may be called ``a:b``.
SCHEMES: Final = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
    "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp",
}  # fmt: skip
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MAGIC: Final = re.compile(r"[*?\[]")


def is_url(path: object) -> bool:
    """Return whether ``path`` is a text that begins with one of ``SCHEMES`` and ``://``."""
    return isinstance(path, str) and scheme_of(path) in SCHEMES


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case; None if the text has none."""
    match = _URL.match(path)
    return match[1].lower() if match else None


def is_web(url: str) -> bool:
    """Return whether ``url`` is one file of a web server, which lists nothing."""
    return scheme_of(url) in ("http", "https")


def is_pattern(path: str | os.PathLike[str]) -> bool:
    """Return whether the path has ``*``, ``?`` or ``[``; in the URL of a web server they mean themselves."""
    text = os.fspath(path)
    return not (is_url(text) and is_web(text)) and _MAGIC.search(text) is not None


def shown(url: str) -> str:
    """Return the URL as messages and profiles name it: without user, password, query and fragment.

    The query of a signed URL is a credential.
    """
    if not is_url(url):
        return url
    head, _, rest = url.partition("://")
    if is_web(url):
        rest = re.split(r"[?#]", rest, maxsplit=1)[0]
        host, slash, path = rest.partition("/")
        rest = host.rpartition("@")[2] + slash + path
    elif scheme_of(url) not in ("abfs", "abfss"):  # there the text before the @ is a container
        host, slash, path = rest.partition("/")
        rest = host.rpartition("@")[2] + slash + path
    return f"{head}://{rest}"


def name_of(url: str) -> str:
    """Return the last part of the URL's path, safe as the name of a file: never empty, no separator."""
    path = urlsplit(url).path if is_web(url) else url
    name = path.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[\x00-\x1f/\\]", "_", name)[-200:]
    return name if name.strip(". ") else "file"
