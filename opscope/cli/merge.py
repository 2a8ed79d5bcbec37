"""``opscope merge``: make the profile of a whole job from the partials of its ranks, or add jobs to a
fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    from opscope.profile import Merged, Profile

_FLEET = "Fleet"


Parts = Annotated[
    list[str],
    declared.Argument(
        metavar="PARTS",
        help="Folder (path or URL) of partials, or the partials themselves; with --fleet folders of"
        " partials, profiles and traces, each of a job.",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    declared.Option(
        "-o",
        "--output",
        metavar="JOB.opscope",
        help="Where the profile goes (path or URL).",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None,
    declared.Option(
        "--ranks",
        min=1,
        show_default=False,
        help="How many ranks the job has, if its traces do not say.",
    ),
]
Force = Annotated[bool, declared.Option("--force", help="Replace an existing profile.")]
Fleet = Annotated[
    str | None,
    declared.Option(
        "--fleet",
        metavar="FLEET",
        help="Add what each job cost to this dataset (folder or URL), by job and day.",
        rich_help_panel=_FLEET,
    ),
]
Job = Annotated[
    str | None,
    declared.Option(
        "--job",
        metavar="NAME",
        help="Name of the job in the fleet.  [name of the file or folder]",
        rich_help_panel=_FLEET,
        show_default=False,
    ),
]
Day = Annotated[
    str | None,
    declared.Option(
        "--day",
        metavar="YYYY-MM-DD",
        help="Its day in the fleet (UTC).  [that of its first event]",
        rich_help_panel=_FLEET,
        show_default=False,
    ),
]
Label = Annotated[
    list[str] | None,
    declared.Option(
        "--label",
        metavar="KEY=VALUE",
        help="A label of the job in the fleet (model=llama-7b); may be repeated.",
        rich_help_panel=_FLEET,
    ),
]
GpuHours = Annotated[
    float | None,
    declared.Option(
        "--gpu-hours",
        min=0,
        help="What the whole job took, GPUs times hours; the recorded time stands for it.  [that of the"
        " recorded time alone]",
        rich_help_panel=_FLEET,
        show_default=False,
    ),
]


def merge(
    parts: Parts,
    output: Output = None,
    expected: Ranks = None,
    strict: options.Strict = False,
    unrelated: options.Unrelated = False,
    force: Force = False,
    fleet: Fleet = None,
    job: Job = None,
    day: Day = None,
    label: Label = None,
    gpu_hours: GpuHours = None,
) -> None:
    """Merge the partials of a job's ranks into one profile, which opscope report, diff and load open.

    Its tables equal those of opscope report of all the files. Ranks that are missing or could not be read are
    named; --strict makes what could not be read an error. With --fleet what the job cost is added to a
    dataset of many jobs.
    """  # fmt: skip
    from . import fleet as fleets

    labels, when = fleets.labels_of(label or ()), fleets.day_of(day)
    if output is None and fleet is None:
        common.fail("say where the merged profile goes: -o JOB.opscope, or --fleet FLEET, or both")
    if fleet is None and (job or day or label or gpu_hours is not None):
        common.fail("--job, --day, --label and --gpu-hours are for --fleet FLEET")
    if output is None:
        each = [(part, _open(part, expected, strict, unrelated)) for part in parts]
        fleets.add(each, str(fleet), job, when, labels, gpu_hours)
        return
    profile = _merge(parts, expected, strict, unrelated)
    _save(profile, output, force)
    if fleet is not None:
        of = parts[0] if len(parts) == 1 else output
        fleets.add([(of, profile)], fleet, job, when, labels, gpu_hours)


def _open(location: str, expected: int | None, strict: bool, unrelated: bool) -> Profile | Merged:
    """Return the profile of a job: partials in a folder are merged, anything else is loaded."""
    from opscope.readers.errors import BadInput
    from opscope.scale import places
    from opscope.scale.identity import SUFFIX

    try:
        partial = location.endswith(SUFFIX) or any(
            name.endswith(SUFFIX) for name in places.names(location)
        )
    except BadInput:
        partial = False  # not a folder: ``load`` reports what is wrong with it
    return (
        _merge([location], expected, strict, unrelated)
        if partial
        else common.load([location], strict=strict, unrelated=unrelated)
    )


def _merge(parts: list[str], expected: int | None, strict: bool, unrelated: bool) -> Merged:
    from opscope.scale.merge import merge as merged

    profile = merged(
        parts[0] if len(parts) == 1 else parts,
        expected=expected,
        strict=strict,
        unrelated=unrelated,
    )
    for fault in profile.manifest["failed"]:
        common.say(f"left out: {fault['path']}: {fault['what']}")
    return profile


def _save(profile: Merged, output: str, force: bool) -> None:
    try:
        profile.save(output, force=force)
    except FileExistsError as error:
        common.fail(f"{error}; --force replaces it")
    except OSError as error:
        common.fail(f"{output}: {error.strerror or error}")
    which = profile.manifest
    common.say(f"wrote {output}: {which['read']:,} of {which['expected']:,} {which['of']}")
