"""``opscope redact``: write a copy of a profile that can be sent to others."""

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
            help="Also remove arguments, host names, serial numbers and the folders of paths.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Replace the profile if it exists.")
    ] = False,
) -> None:
    """Write a copy of FILE without passwords, tokens and keys.

    It finds a secret by its form or by the name before it. It does not find a secret that looks like an
    ordinary word: look at what you send.
    """
    from opscope.core.tables.redacted import redacted
    from opscope.profile import Profile

    target = _target(file, output)
    if target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    profile = Profile(redacted(common.load([file]).trace, private))
    try:
        profile.save(target, force=force)
    except OSError as error:
        common.fail(f"{target} was not written: {error.strerror or error}")
    common.say(f"wrote {target}")


def _target(file: str, output: Path | None) -> Path:
    if output is None:
        stem = Path(file).name.partition(".")[0] or "profile"
        return Path(file).parent / f"{stem}-redacted.opscope"
    if not output.name:
        common.fail(f"--output {str(output)!r} is not a file name")
    return output if output.suffix == ".opscope" else output.with_name(output.name + ".opscope")
