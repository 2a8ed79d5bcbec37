"""The NVTX sink of one domain: registered strings, categories, and the check that a tool really listens."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from opscope.core.rangetext import CUT, DOMAIN_TEST
from opscope.core.schema import CATEGORIES, CATEGORY_ID

_log = logging.getLogger(__name__)

#: Largest number of distinct texts registered in a domain: NVTX cannot unregister a string.
MAX_REGISTERED: Final = 65_536
#: The variable in which a tool names the library for the NVTX headers to load. nsys sets it as well.
INJECTION: Final = "NVTX_INJECTION64_PATH"

#: The first release that sets a payload and pushes in one call.
MIN_NVTX: Final = (0, 2, 15)

_warned: set[str] = set()
#: Whether a domain had to be made by hand: the domains that the package nvtx makes are silent in this
#: process.
forced_domains = False


def attached(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the NVTX tool that this process was started under, or ``None``.

    A path that does not exist gives ``None``: the NVTX headers then disable themselves silently.
    """
    path = environ.get(INJECTION)
    return path if path and Path(path).exists() else None


def open_domain(name: str, anew: bool = False) -> Any | None:
    """Return the live ``nvtx.Domain`` of that name, or ``None`` if no tool listens.

    ``anew``: make a domain without registered texts, instead of the one that the package has cached.

    The ``nvtx`` package decides once, by ``nvtxDomainIsEnabled``, whether a domain is live, and
    otherwise returns a silent dummy. Its releases 0.2.12 to 0.2.17 get 0 from Nsight Systems 2022
    and 2023 although the tool records ranges correctly. So a dummy counts as "nothing listens" only if no
    tool is attached. If a tool is attached, the domain is made by hand; if the package's internals do not
    allow that, one warning says that nothing will be recorded.
    """
    if os.environ.get("NVTX_DISABLE"):
        return None
    try:
        from nvtx import Domain  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        try:
            from nvtx._lib import Domain
        except ImportError:
            return None
    tool = attached()
    if not _recent_enough():
        if tool is not None:
            _warn_once(
                f"the NVTX tool {tool} is attached, but the installed nvtx package is too old: no "
                f"NVTX range will be recorded. Install nvtx {'.'.join(map(str, MIN_NVTX))} or newer."
            )
        return None
    domain = None if anew else Domain(name)
    if type(domain) is Domain:
        return domain
    if tool is None:
        return None
    global forced_domains
    try:
        from nvtx._lib.lib import DomainHandle

        forced = object.__new__(Domain)
        forced.handle = DomainHandle(name)
        Domain.__init__(forced, name)
        forced.mark(forced.get_event_attributes(message=DOMAIN_TEST))
    except Exception as error:  # noqa: BLE001 - whatever another release raises here means "cannot be forced"
        _warn_once(
            f"the NVTX tool {tool} is attached, but the installed nvtx package gives a dummy domain "
            f"and opscope could not replace it ({error!r}): no NVTX range will be recorded. "
            "Install nvtx 0.2.15 to 0.2.17, which are known to work."
        )
        return None
    forced_domains = True
    return forced


def _recent_enough() -> bool:
    from importlib.metadata import PackageNotFoundError, version  # lazy: the import takes 7 ms

    try:
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", version("nvtx"))
    except PackageNotFoundError:
        return True  # it is not an installed package: someone put it there on purpose
    return match is None or tuple(map(int, match.groups())) >= MIN_NVTX


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        _log.warning("%s", message)


class NvtxSink:
    """Makes the event attributes of one live domain, and bounds the number of texts in nvtx's own cache."""

    __slots__ = ("_fallback", "_registered", "domain", "name")

    def __init__(self, name: str, domain: Any) -> None:
        self.name = name
        self.domain = domain
        self._registered: set[str] = set()
        self._fallback: set[str] = set()
        # The package numbers categories in the order of their first use.
        for category in CATEGORIES:
            number = domain.get_category_id(category)
            if number != CATEGORY_ID[category]:
                _warn_once(
                    f"NVTX category {category} of domain {name} has the wrong number {number}"
                )

    def attributes(
        self, text: str, shorter: tuple[str, ...], category: str | None, payload: int | None = None
    ) -> Any:
        """Return attributes with ``text`` as a registered string, and with the payload if there is one.

        The package sends registered strings only. So beyond the bound, the first of ``shorter`` that can
        still be registered is sent instead of the text (an op's name, device and source, then its bare
        name, each marked as cut). In all, twice the bound is registered, and the last text always can be.
        """
        registered = self._registered
        if text not in registered:
            if len(registered) < MAX_REGISTERED:
                registered.add(text)
            else:
                _warn_once(
                    f"over {MAX_REGISTERED} distinct texts in NVTX domain {self.name}: further ops have only "
                    "their name and source, further ranges only what precedes the first number in their name"
                )
                text = self._shorter(shorter)
        # A C string ends at its first NUL; lone surrogates have no UTF-8.
        message = text.replace("\0", "\\0").encode("utf-8", "replace")
        return self.domain.get_event_attributes(
            message=message,
            category=0 if category is None else CATEGORY_ID[category],
            payload=payload,
        )

    def _shorter(self, texts: tuple[str, ...]) -> str:
        fallback = self._fallback
        for number, text in enumerate(texts):
            # half of the room is reserved for the shortest text
            room = MAX_REGISTERED if number == len(texts) - 1 else MAX_REGISTERED // 2
            if text in fallback or len(fallback) < room:
                fallback.add(text)
                return text
        return CUT
