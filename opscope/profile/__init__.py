"""Load traces as a Profile, whose methods answer the questions, and compare two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from os.path import lexists
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from weakref import finalize

import polars as pl

from opscope import readers
from opscope.core import progress as progress_of
from opscope.core.attribution.capture_traces import without_captures
from opscope.core.job.clocks import aligned
from opscope.core.not_merged import NotMerged
from opscope.core.perf.devices.unnamed import name_devices
from opscope.core.tables.trace import MODEL_CONFIG, UNRELATED
from opscope.readers import at_urls
from opscope.readers.profile import profile_folder
from opscope.remote.urls import is_pattern, is_url, shown

from .profile import ANALYSIS, MERGED, Path, Profile, show_by

#: Files that are joined to a trace, by parameter.
_Files: TypeAlias = "Mapping[str, Path | None]"
#: What joins each, by module and function.
_JOINED: Final[Mapping[str, tuple[str, str]]] = {
    "counters": ("opscope.readers.ncu.joined", "with_counters"),
    "requests": ("opscope.readers.request_logs", "with_requests"),
    "power": ("opscope.readers.power_samples", "with_power"),
}
__all__ = ["Merged", "Path", "Profile", "diff", "load", "show_by"]

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opscope.core.analysis.diff.reduced import Ending

    from .merged import Merged
    from .selected import Where


def __getattr__(name: str) -> object:
    if name == "Merged":
        from .merged import Merged  # lazy: few profiles are of merged ranks

        return Merged
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(
    path: Path | Sequence[Path],
    *,
    gpu: str | None = None,
    strict: bool = False,
    lean: bool = False,
    model: Path | None = None,
    counters: Path | None = None,
    model_config: Path | None = None,
    requests: Path | None = None,
    power: Path | None = None,
    progress: Callable[[str, int, int | None], object] | None = None,
    unrelated: bool = False,
) -> Profile:
    """Open a trace or profile of any format, recognised by content; a list is the files of one job.

    A path may be a URL (``s3://``, ``gs://``, ``az://``, ``https://``; ``pip install 'opscope[cloud]'``), a
    pattern (``rank*.json.gz``) or a folder. Each file at a URL is copied to scratch, read and removed. If
    some of several files cannot be read, the others are loaded: ``summary()`` says how many, ``notes()``
    which files and why. If no file can be read, or with ``strict`` if any cannot, load raises
    opscope.errors.BadInput, which names the file and what is wrong. ``gpu`` (``"H100 SXM"``) names devices
    that the trace does not name; load raises opscope.errors.UnknownDevice if it does not know that GPU.
    ``lean`` leaves out columns that no total needs, such as how kernels were launched (grid, registers …),
    from formats for which this saves much: half of the kernels' data in an Nsight Systems export. ``model``
    is what ran, where the trace only names it: the ONNX model of a profile of ONNX Runtime (best the
    optimised one that it saved; without it a model beside the profile is used if it has all its nodes), or
    the layer info of a TensorRT engine beside a trace of Nsight Systems. Load raises BadInput if it is
    another's. ``counters`` is a file of hardware counters that Nsight Compute measured in another run of the
    same program, its CSV or its report: they are joined to the kernels by name and order, and ``notes()`` say
    what was not joined. ``model_config`` is the ``config.json`` of the model that a server ran: it prices
    layers of experts, whose weights no trace records, and tells sliding windows. ``requests`` is a server's
    log of its requests (a CSV, spans of OpenTelemetry, vLLM's lines), ``power`` a CSV of samples of GPUs'
    power: both are put on the trace's clock. ``progress`` is called as ``progress(stage, done, total)`` while
    the files are read, in bytes (a total of None: it is not known); what it raises ends the load. Nothing is
    printed.

    Files that contradict that they are of one job (two processes of one rank, other world sizes, Unix times
    far apart) raise BadInput; with ``unrelated`` they are side by side, and no clock is aligned.
    """
    with progress_of.told(progress):
        config = None if model_config is None else _model_config(model_config)
        beside = {"counters": counters, "requests": requests, "power": power}
        profile = _load(path, gpu, strict, lean, model, beside, unrelated)
        return profile if config is None else _with_config(profile, config)


def _model_config(path: Path) -> dict[str, Any]:
    """Return the model's configuration, read before the traces, which take longer. Raises BadInput."""
    from opscope.readers import model_config  # lazy: few need it

    with at_urls.local(path) as copy:
        return model_config.read(cast(Path, copy))


def _with_config(profile: Profile, config: dict[str, Any]) -> Profile:
    """Return the profile with the model's configuration; stored costs, which were computed without it, are
    dropped."""
    if profile.merged_of is not None:
        raise NotMerged("kernels")
    profile.trace.origin[MODEL_CONFIG] = config
    profile._forget()
    return profile


def _load(
    path: Path | Sequence[Path],
    gpu: str | None,
    strict: bool,
    lean: bool,
    model: Path | None,
    beside: _Files,
    unrelated: bool,
) -> Profile:
    if is_url(path):
        at_url = _load_url(cast(str, path), strict, lean, model)
        if at_url is not None:
            return _beside(at_url, gpu, beside)
    is_saved = (
        isinstance(path, (str, PathLike))
        and not (is_url(path) or (is_pattern(path) and not lexists(path)))
        and readers.format_of(path) == "profile"
    )
    if is_saved and model is None:
        trace, stored, meta = profile_folder.read(cast(Path, path))
        if MERGED in meta:
            from .merged import Merged, checked  # lazy: few profiles are of merged ranks

            profile: Profile = Merged(trace, stored, checked(cast(Path, path), meta))
            profile._path = fspath(cast(Path, path))
            return _beside(profile, gpu, beside)
        fits = meta.get("analysis") == ANALYSIS
        profile = Profile(trace, stored if fits else None)
        profile.keep_in(cast(Path, path))
        profile._opened(fspath(cast(Path, path)), bool(stored) and not fits, True)
    else:
        trace = readers.open(path, strict=strict, lean=lean, model=model, unrelated=unrelated)
        profile = Profile(
            trace if trace.origin.get(UNRELATED) else aligned(without_captures(trace))
        )
    return _beside(profile, gpu, beside)


def _beside(profile: Profile, gpu: str | None, beside: _Files) -> Profile:
    """Return the profile with devices named and with the data joined that was recorded beside it."""
    for name, path in beside.items():
        if path is None:
            continue
        if profile.merged_of is not None:
            raise NotMerged("kernels")
        module, function = _JOINED[name]
        join = getattr(import_module(module), function)  # lazy: few need it
        before = profile
        with at_urls.local(path) as copy:
            profile = Profile(join(before.trace, copy), before._stored)
        profile._path, profile._anew, profile._kept = before._path, before._anew, before._kept
    if gpu is not None and name_devices(profile.trace, gpu) and profile.merged_of is None:
        profile._forget()
    return profile


def _load_url(url: str, strict: bool, lean: bool, model: Path | None) -> Profile | None:
    """Return the saved profile at ``url``; None for anything else there. Raises BadInput.

    Its tables are read when they are asked for, so the local copy is removed together with the profile.
    """
    if is_pattern(url):
        return None
    location = at_urls.listed(url)[0]
    if not location.is_folder or not at_urls.entries(url)[0]:
        return None
    files_at_hand = ExitStack()
    try:
        copy = files_at_hand.enter_context(at_urls.at_hand(url, location))
        profile = load(copy, strict=strict, lean=lean, model=model)
        if profile._path is None:  # a recording: all of it was read
            at_urls.name_urls(profile.trace, location, copy)
            files_at_hand.close()
        else:
            profile._opened(shown(url), profile._older, False)  # the copy is removed
            finalize(profile, files_at_hand.close)
        return profile
    except BaseException as error:
        # the copy's own handler names the URL in the error
        if not files_at_hand.__exit__(type(error), error, error.__traceback__):
            raise
        raise AssertionError("unreachable") from error


def diff(
    a: Profile | Path | Sequence[Path],
    b: Profile | Path | Sequence[Path],
    by: str = "part",
    *,
    gpu: str | None = None,
    **where: Unpack[Where],
) -> pl.DataFrame:
    """What changed from run ``a`` to run ``b``, as ``profile.diff`` tells it: means per step, in ns.

    ``a`` and ``b`` are profiles, paths, or lists of the files of one job; ``by`` is ``part``, ``cause``,
    ``op``, ``kernel``, ``run`` or
    ``step``. Of paths, one profile at a time is in memory. ``gpu`` names devices that a trace does not name.
    ``steps=(3, 8)`` and the other arguments of ``profile.select`` select in both. Raises ValueError for
    another ``by`` and if nothing is selected, opscope.errors.BadInput for a file that cannot be read.
    """
    from opscope.core.analysis.diff.tables import compare  # lazy: few profiles are compared

    from . import difference as differences

    if by not in differences.BY:
        raise ValueError(f"by must be {', '.join(differences.BY)}, not {by!r}")

    def begun(source: Profile | Path | Sequence[Path], how: str) -> Ending:
        profile = source if isinstance(source, Profile) else load(source, gpu=gpu)
        reduction = profile.select(**where)._reducing(how)
        del profile
        differences.give_up()  # before the other profile is read
        return reduction

    return differences.table(compare(partial(begun, a), partial(begun, b)), by)
