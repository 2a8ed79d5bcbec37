"""Notice every address beyond this machine that this process asks for or connects to."""

from __future__ import annotations

import ipaddress
import sys

asked_outside: list[str] = []
_watching = [False]


def watch() -> None:
    """Note from now on, in ``asked_outside``; a hook of this kind stays until the process ends."""
    if not _watching[0]:
        _watching[0] = True
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple) -> None:
    if event == "socket.getaddrinfo":
        _note(args[0])
    elif event == "socket.connect" and isinstance(args[1], tuple):
        _note(args[1][0])


def _note(host: object) -> None:
    text = host.decode() if isinstance(host, bytes) else host
    if not isinstance(text, str) or text in ("", "localhost"):
        return
    try:
        outside = not ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        outside = True
    if outside:
        asked_outside.append(text)


def main() -> None:
    """Run ``opscope`` with the arguments of this program, and fail if it asks outside."""
    from opscope.cli.start import run

    watch()
    status = run()
    sys.exit(f"asked outside: {asked_outside}" if asked_outside else status)


if __name__ == "__main__":
    main()
