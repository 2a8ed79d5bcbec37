"""The options of many ranks: who reads them, and where the small file of each one is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import common

if TYPE_CHECKING:
    from opscope.profile import Profile

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        metavar="N",
        help="Read the ranks with N processes on this machine.",
        show_default=False,
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Read the ranks on the Dask cluster of this scheduler (tcp://, tls://). Whoever controls the"
        " scheduler can run code here and on the workers.",
        show_default=False,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Read the ranks on this Ray cluster (auto, HOST:PORT, ray://; local: one of this machine's"
        " own). Whoever controls the cluster can run code here and on the workers.",
        show_default=False,
    ),
]
Parts = Annotated[
    str | None,
    typer.Option(
        "--parts",
        metavar="DIR",
        help="Folder or URL, which all workers see, for a small file of each rank. A rank whose file is there"
        " is not read again.",
        show_default=False,
    ),
]


def asked(jobs: int | None, dask: str | None, ray: str | None, parts: str | None) -> list[str]:
    """Return the options that were given. Ends the command if two of them exclude each other."""
    given = {"--jobs": jobs, "--dask": dask, "--ray": ray, "--parts": parts}
    named = [name for name, value in given.items() if value is not None]
    engines = [name for name in named if name != "--parts"]
    if len(engines) > 1:
        common.fail(f"{' and '.join(engines)} cannot be combined: one of them reads the ranks")
    return named


def load(
    paths: list[str],
    jobs: int | None,
    dask: str | None,
    ray: str | None,
    parts: str | None,
    gpu: str | None = None,
    strict: bool = False,
    model: str | None = None,
) -> Profile:
    """Return the profile of the ranks in ``paths``, merged from their partials. Raises EngineError.

    What cannot be read is named on stderr; with ``strict`` it is an error (BadInput). An unknown
    ``gpu`` ends the command.
    """
    from opscope.core.perf.devices.unnamed import UnknownDevice
    from opscope.scale.engines import opened
    from opscope.scale.one_call import of_ranks

    try:
        with opened(jobs, dask, ray) as (executor, workers):
            profile = of_ranks(
                paths, executor, parts, workers=workers, gpu=gpu, strict=strict, model=model
            )
    except UnknownDevice as error:
        common.fail(f"--gpu {error}")
    common.say_left_out(profile)
    return profile
