"""``opscope redact``: write a copy of a profile that can be sent to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opscope.remote.errors import NotReached
from opscope.remote.urls import is_url

from . import common, declared, options


def redact(
    file: Annotated[str, declared.Argument(metavar="FILE", help="A profile, or any trace.")],
    output: Annotated[
        str | None,
        declared.Option(
            "-o",
            "--output",
            help="The profile to write, at a path or URL.  [FILE-redacted]",
            show_default=False,
        ),
    ] = None,
    private: Annotated[
        bool,
        declared.Option(
            "--private",
            help="Also remove arguments, host names, serial numbers and the folders of paths.",
        ),
    ] = False,
    force: options.Force = False,
) -> None:
    """Write a copy of FILE without passwords, tokens and keys.

    It finds a secret by its form or by the name before it. It does not find a secret that looks like an
    ordinary word: look at what you send.
    """
    from opscope.core.tables.redacted import redacted
    from opscope.profile import Profile

    target = _target(file, output)
    if isinstance(target, Path) and target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    profile = Profile(redacted(common.load([file]).trace, private))
    try:
        profile.save(target, force=force)
    except NotReached as error:
        common.fail(f"{error.url} was not written: {error.what}")
    except FileExistsError:
        common.fail(f"{target} exists; --force replaces it")
    except OSError as error:
        common.fail(f"{target} was not written: {error.strerror or error}")
    common.say(f"wrote {target}")


def _target(file: str, output: str | None) -> Path | str:
    """Return where to write: a path, or a URL as it was given."""
    if output is None:
        stem = common.stem(file)
        folder = Path() if is_url(file) else Path(file).parent
        return folder / f"{stem}-redacted.opscope"
    if is_url(output):
        return output if output.endswith(".opscope") else f"{output.rstrip('/')}.opscope"
    path = Path(output)
    common.refuse_name(path)
    return path if path.suffix == ".opscope" else path.with_name(path.name + ".opscope")
