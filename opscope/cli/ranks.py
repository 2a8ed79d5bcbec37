"""The options for many ranks: who reads them, and where their small files are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    from opscope.profile import Profile

Jobs = Annotated[
    int | None,
    declared.Option(
        "--jobs",
        min=1,
        metavar="N",
        help="Read the ranks with N processes on this machine.",
        show_default=False,
    ),
]
Dask = Annotated[
    str | None,
    declared.Option(
        "--dask",
        metavar="ADDRESS",
        help="Read the ranks on the Dask cluster of this scheduler (tcp://, tls://). Whoever controls the"
        " scheduler can run code here and on the workers.",
        show_default=False,
    ),
]
Ray = Annotated[
    str | None,
    declared.Option(
        "--ray",
        metavar="ADDRESS",
        help="Read the ranks on this Ray cluster (auto, HOST:PORT, ray://; local: one of this machine's"
        " own). Whoever controls the cluster can run code here and on the workers.",
        show_default=False,
    ),
]
Parts = Annotated[
    str | None,
    declared.Option(
        "--parts",
        metavar="DIR",
        help="Folder or URL, which all workers see, for a small file of each rank. A rank whose file is there"
        " is not read again.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Engine:
    """Who reads the ranks, and where their small files are kept."""

    jobs: Jobs = None
    dask: Dask = None
    ray: Ray = None
    parts: Parts = None

    def given(self) -> list[str]:
        """Return the options that were given. Ends the command if two of them exclude each other."""
        values = {
            "--jobs": self.jobs,
            "--dask": self.dask,
            "--ray": self.ray,
            "--parts": self.parts,
        }
        named = [name for name, value in values.items() if value is not None]
        engines = [name for name in named if name != "--parts"]
        if len(engines) > 1:
            common.fail(f"{' and '.join(engines)} cannot be combined: one of them reads the ranks")
        return named

    def load(self, paths: list[str], reading: options.Reading) -> Profile:
        """Return the profile of the ranks in ``paths``, merged from their partials. Raises EngineError. Files
        that cannot be read are named on stderr; if ``reading`` is strict they are an error (BadInput). An
        unknown GPU ends the command."""
        from opscope.core.perf.devices.unnamed import UnknownDevice
        from opscope.scale.engines import opened
        from opscope.scale.one_call import of_ranks

        try:
            with opened(self.jobs, self.dask, self.ray) as (executor, workers):
                profile = of_ranks(
                    paths,
                    executor,
                    self.parts,
                    workers=workers,
                    gpu=reading.gpu,
                    strict=reading.strict,
                    model=reading.model,
                    unrelated=reading.unrelated,
                )
        except UnknownDevice as error:
            common.fail(f"--gpu {error}")
        common.say_left_out(profile)
        return profile
