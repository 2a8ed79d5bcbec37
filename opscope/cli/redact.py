"""``opscope redact``: a copy of a profile that may be sent to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import common


def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A profile, or any trace.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The profile to write.  [FILE-redacted]", show_default=False
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Leave out arguments, host names, serial numbers and folders of paths too.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Replace the profile where it exists.")
    ] = False,
) -> None:
    """Write a copy of FILE with passwords, tokens and keys taken out of its texts.

    What is known by its form or by the name before it is found; a secret that looks like any other word
    is not. Look at what you send.
    """
    from opscope.core.tables.redacted import redacted
    from opscope.profile import Profile

    target = _target(file, output)
    if target.exists() and not force:
        common.fail(f"{target}: exists; --force replaces it")
    profile = Profile(redacted(common.load([file]).trace, private))
    try:
        profile.save(target, force=force)
    except OSError as error:
        common.fail(f"{target}: not written: {error.strerror or error}")
    common.say(f"wrote {target}")


def _target(file: str, output: Path | None) -> Path:
    if output is None:
        stem = Path(file).name.partition(".")[0] or "profile"
        return Path(file).parent / f"{stem}-redacted.opscope"
    if not output.name:
        common.fail(f"--output {str(output)!r}: names no profile")
    return output if output.suffix == ".opscope" else output.with_name(output.name + ".opscope")
