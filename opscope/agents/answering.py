"""Make a call by its name, and its answer as JSON in the budget; an expected error is an answer as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from opscope.core.not_merged import NotMerged
from opscope.core.perf.devices.unnamed import UnknownDevice
from opscope.core.question.parameters import WrongParameter
from opscope.core.question.suggest import unknown
from opscope.core.refusals import refusal
from opscope.readers.errors import BadInput

from . import calls
from .answer import TOKENS, as_json, clip, text
from .call import Asked
from .runs import NotOpened, Runs

#: Bytes of an error: less than the least answer has.
_ERROR: Final = 500
#: Errors caused by the arguments or the file; their message says everything.
EXPECTED: Final = (BadInput, NotMerged, NotOpened, OSError, UnknownDevice, WrongParameter)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call as JSON has it; ``error``: whether it says why there is none."""

    content: Mapping[str, Any]
    error: bool = False

    @property
    def text(self) -> str:
        """The answer as compact JSON."""
        return text(self.content)


def reply(runs: Runs, name: str, given: Mapping[str, Any]) -> Reply:
    """Make the call ``name`` with these arguments and return its answer; wrong arguments give an answer
    too."""
    try:
        return _reply(runs, name, given)
    except EXPECTED as error:
        said = refusal(error) if isinstance(error, OSError) else str(error)
        return Reply({"call": name[:40], "error": clip(_with_names(runs, said), _ERROR)}, True)


def _reply(runs: Runs, name: str, given: Mapping[str, Any]) -> Reply:
    try:
        call = calls.call(name)
    except KeyError:
        raise WrongParameter(unknown("call", name[:40], calls.NAMES)) from None
    asked = Asked(call, runs, call.check(given))
    return Reply(as_json(call.answer(asked), int(asked.given.get("tokens", TOKENS))))


def _with_names(runs: Runs, said: str) -> str:
    """Return an error that names files relative to the user's folders, and not where these lie."""
    for root in runs.roots or ():
        real = root.resolve()
        folder = real if real.is_dir() else real.parent
        said = said.replace(f"{folder}/", "")
    return said
