"""The file systems of fsspec behind the URLs, and their failures in words."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from .errors import NotReached
from .urls import SCHEMES, scheme_of

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
#: The number of tries in all, and the seconds before the second one, which double with each further one.
TRIES: Final = 3
_PAUSE: Final = 0.5
#: Secrets that a store's error text may hold: keys, tokens, signatures.
_SECRET: Final = re.compile(
    r"(?i)((?:signature|sig|token|secret|password|access.?key(?:.?id)?|credential|authorization|account.?key)"
    r"[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;<>]+"
)
_QUERY: Final = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")
#: Texts of the stores' errors, and what they mean. The classes differ by store and version; the codes do not.
_MEANINGS: Final = (
    (r"NoSuchBucket|bucket does not exist|No such bucket|ContainerNotFound|container does not exist",
     "no such bucket"),
    (r"NoSuchKey|BlobNotFound|\b404\b|Not Found", "no such file"),
    (r"AccessDenied|Forbidden|\b403\b|AuthorizationFailure|AuthenticationFailed|Anonymous caller|\b401\b",
     "access denied; credentials are those that fsspec finds"),
    (r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken", "the credentials were refused"),
    (r"NoCredentials|Unable to locate credentials|Must provide either a connection_string",
     "no credentials were found; fsspec looks for them"),
)  # fmt: skip
#: Classes of errors after which another try may help: nothing was refused.
_PASSING: Final = (ConnectionError, TimeoutError)
_PASSING_NAMES: Final = re.compile(
    r"Connect|Timeout|Disconnected|Payload|IncompleteRead|ServiceUnavailable|SlowDown|ResponseStream|EndpointConnection"
)
_UNREACHED: Final = re.compile("Connector|EndpointConnection|ConnectTimeout|ServiceRequestError")
_PASSING_TEXT: Final = re.compile(
    r"\b50[0234]\b|SlowDown|InternalError|ServiceUnavailable|reset by peer|ContentLengthError|not enough data"
)


def store(url: str) -> Any:
    """Return fsspec's file system of ``url``, without cached listings: only the current state counts. Raises
    NotReached where its package is not installed or cannot be set up."""
    scheme = scheme_of(url) or ""
    named = _account(url)
    try:
        import fsspec

        filesystem = fsspec.filesystem(
            {"s3a": "s3", "gcs": "gs", "az": "abfs"}.get(scheme, scheme),
            use_listings_cache=False,
            **named,
        )
    except ImportError as error:
        raise NotReached(
            url,
            f"{scheme}:// is opened by fsspec with {SCHEMES[scheme]}: pip install 'opscope[cloud]' ({error})",
        ) from error
    except Exception as error:
        raise NotReached(url, in_words(error)) from error
    if named:
        # a connection string in the environment wins over the account in the URL
        reached = getattr(getattr(filesystem, "service_client", None), "account_name", None)
        if reached is not None and reached != named["account_name"]:
            raise NotReached(
                url, f"the credentials that fsspec finds are of another account ({reached})"
            )
    return filesystem


def path_in(opened_store: Any, url: str) -> str:
    """Return the path of ``url`` as its file system names it."""
    scheme, colon, rest = url.partition(":")  # fsspec knows schemes in lower case only
    return str(opened_store._strip_protocol(scheme.lower() + colon + rest))


def below(opened_store: Any, path: str) -> dict[str, Any]:
    """Return the files in the folder and below by name, with the store's details of each. The path of a file
    gives only that file, with adlfs without details."""
    infos = opened_store.find(path, detail=True)
    return infos if isinstance(infos, dict) else {str(name): {"name": str(name)} for name in infos}


def _account(url: str) -> dict[str, str]:
    """The storage account that ``abfss://container@account.dfs.core.windows.net/…`` names."""
    if scheme_of(url) not in ("abfs", "abfss"):
        return {}
    host_part = url.partition("://")[2].partition("/")[0]
    _, at, host = host_part.partition("@")
    return {"account_name": host.partition(".")[0]} if at else {}


def in_words(error: BaseException) -> str:
    """Return why a store failed, in one line without credentials."""
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 10:
        chain.append(chain[-1].__cause__)
    if any(_unreached(cause) for cause in chain):  # some stores report it as a missing file
        return f"the server cannot be reached ({type(chain[-1]).__name__})"
    text = " ".join(f"{type(cause).__name__}: {cause}" for cause in chain)[:4_000]
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, text):
            return meaning
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "access denied; credentials are those that fsspec finds"
    plain = _SECRET.sub(r"\1…", _QUERY.sub(r"\1", " ".join(str(error).split())))
    return f"{type(error).__name__}: {plain[:300]}" if plain else type(error).__name__


def _unreached(error: BaseException) -> bool:
    return isinstance(error, (ConnectionError, TimeoutError)) or (
        _UNREACHED.search(type(error).__name__) is not None
    )


def passing(error: BaseException) -> bool:
    """Return whether another try may help: the connection or the server failed, and nothing was refused."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _PASSING) or _PASSING_NAMES.search(type(cause).__name__):
            return True
        if not isinstance(cause, (FileNotFoundError, PermissionError)) and _PASSING_TEXT.search(
            str(cause)
        ):
            return True
        cause = cause.__cause__
    return False


def tried(url: str, act: Callable[[], _T], tries: int = TRIES) -> _T:
    """Return what ``act`` returns, after at most ``tries`` tries. Raises NotReached with the last reason."""
    pause = _PAUSE
    for left in range(tries - 1, -1, -1):
        try:
            return act()
        except NotReached:
            raise
        except Exception as error:
            if left == 0 or not passing(error):
                said = "" if not passing(error) else f" ({tries} tries)"
                raise NotReached(url, in_words(error) + said) from error
            _log.info("opscope: %s; trying again", in_words(error))
            time.sleep(pause)
            pause *= 2
    raise AssertionError("unreachable")


def known_class(scheme: str) -> Any:
    """Return fsspec's class for the scheme; None if the scheme's package is not installed."""
    import fsspec

    try:
        return fsspec.get_filesystem_class(scheme)
    except ImportError:
        return None
