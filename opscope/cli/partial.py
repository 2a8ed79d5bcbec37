"""``opscope partial``: reduce each rank's trace to a small file, from which the job's profile is merged."""

from __future__ import annotations

from typing import Annotated

from . import common, declared, options

Files = Annotated[
    list[str],
    declared.Argument(
        metavar="FILE",
        help="A profile or a trace of any supported format, by path, URL or pattern; each gets a partial"
        " of its own.",
        show_default=False,
    ),
]


def partial(
    file: Files,
    output: Annotated[
        str,
        declared.Option(
            "-o",
            "--output",
            metavar="PARTS",
            help="Folder (path or URL) that gets the partials.",
            show_default=False,
        ),
    ],
    gpu: options.Gpu = None,
    model: options.Model = None,
    advice: Annotated[
        bool,
        declared.Option(
            "--advice",
            help="Also keep what to change in each file's run and what it would save (for fleets); this takes"
            " about as long as reading.",
        ),
    ] = False,
    force: Annotated[
        bool, declared.Option("--force", help="Make partials again that are there already.")
    ] = False,
    unrelated: options.Unrelated = False,
) -> None:
    """Reduce each FILE to a partial: a small file with sums over its ranges, kernels and collectives.

    opscope merge PARTS makes the profile of the whole job from the partials. A file whose partial exists
    already, of the same version, size and analysis, is not read again. A file that cannot be read is noted in
    PARTS, the others are read, and the exit code is 2; so it is if the files are not of one job.
    """
    from opscope.core.perf.devices.unnamed import UnknownDevice
    from opscope.readers.errors import BadInput
    from opscope.scale import places
    from opscope.scale.merge import refuse_strangers
    from opscope.scale.partial import partial_name, sources, write_failure, write_partial

    failed, names = 0, []
    files = sources(file)
    for one in files:
        try:
            name = partial_name(one, gpu=gpu, model=model, advice=advice)
            if not force and places.exists(output, name):
                common.say(f"there already: {places.join(output, name)}")
            else:
                write_partial(one, output, gpu=gpu, model=model, advice=advice, force=force)
                common.say(f"wrote {places.join(output, name)}")
            names.append(places.join(output, name))
        except UnknownDevice as error:
            common.fail(f"--gpu {error}")
        except BadInput as error:
            common.say(str(error))
            write_failure(one, output, error.what, gpu=gpu, model=model, advice=advice)
            failed += 1
    if failed:
        common.fail(f"{failed} of {len(files)} files could not be read")
    if len(names) > 1:
        refuse_strangers(names, unrelated)
