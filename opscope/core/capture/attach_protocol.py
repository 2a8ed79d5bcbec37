"""The messages between ``opscope attach`` and an attachable program: each sends one line of JSON, then
closes. A request is ``{"command": "start", "steps": 10, "seconds": 60}``; the other commands are ``stop``,
``dump`` and ``status``, without arguments. An answer has ``error`` if the command was not carried out."""

from __future__ import annotations

import json
from typing import Any, Final

COMMANDS: Final = ("start", "stop", "dump", "status")
#: The largest request and the largest answer, in bytes.
MAX_REQUEST: Final = 4096
MAX_ANSWER: Final = 65_536
#: A client has this many seconds to send its request, and to receive its answer.
PATIENCE_S: Final = 2.0
#: The most steps and seconds of one capture.
MOST_STEPS: Final = 1_000_000
MOST_SECONDS: Final = 3600.0


class Refused(Exception):
    """A request was refused; the text says why."""


def parsed(line: bytes) -> dict[str, Any]:
    """Return a request, checked. Raises Refused for anything else."""
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Refused("the request is not a line of JSON") from None
    if not isinstance(request, dict) or request.get("command") not in COMMANDS:
        raise Refused(f"the commands are {', '.join(COMMANDS)}")
    command = request["command"]
    keys_allowed = {"command", "steps", "seconds"} if command == "start" else {"command"}
    if set(request) - keys_allowed:
        raise Refused(f"{command} has no {sorted(set(request) - keys_allowed)[0]!r:.40}")
    steps, seconds = request.get("steps"), request.get("seconds")
    if steps is not None and not (type(steps) is int and 1 <= steps <= MOST_STEPS):
        raise Refused(f"steps are a number from 1 to {MOST_STEPS}")
    if seconds is not None and not (
        isinstance(seconds, (int, float))
        and not isinstance(seconds, bool)
        and 0 < seconds <= MOST_SECONDS
    ):
        raise Refused(f"seconds are a number above 0, at most {MOST_SECONDS:g}")
    return {"command": command, "steps": steps, "seconds": seconds}


def line(message: dict[str, Any]) -> bytes:
    """Return a request or an answer as the bytes to send."""
    return json.dumps(message).encode() + b"\n"
