"""Readers of trace files, one package per format; ``open`` chooses the reader by the file's content."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.core import progress
from opscope.remote.urls import is_pattern, is_url, shown

from . import at_urls
from .base import Reader
from .errors import TRUNCATED, BadInput, NoneReadable, NotATrace, SeveralRuns
from .formats import CONTAINERS, UNFINISHED, Found, find

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.remote.listed import Found as AtUrl

#: How many archives of a folder a message names.
_NAMED: Final = 8
#: Prefix of a profile's files that hold results, which are not read when profiles are joined.
NOT_READ: Final = "extra."

#: Tables that describe a run; none has rows for kernels, copies or ranges.
_DESCRIBING: Final = frozenset({"processes", "threads", "clocks", "devices", "notes"})
#: Formats whose readers explain why a file is empty.
_EXPLAINED: Final = frozenset({"nsys", "recording", "profile", CONTAINERS, UNFINISHED})

__all__ = ["BadInput", "NoneReadable", "Reader", "format_of", "open", "traces_in"]


def open(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    strict: bool = True,
    lean: bool = False,
    model: str | os.PathLike[str] | None = None,
    unrelated: bool = False,
) -> Trace:
    """Return the trace in a file or folder of any format; several files are the ranks of one job, joined.

    A folder is an opscope profile, a recording that was not analysed yet, an export of Nsight Systems, or
    the files of many ranks. Raises BadInput, which names the file and what is wrong with it. Without
    ``strict``, the readable ones of several files are read, and the complaints about the others are in
    ``origin["failed"]`` and in the notes. ``lean`` leaves out columns that no total needs, where that
    saves much (Nsight Systems). ``model`` is what ran, where the trace only names it: an ONNX model, or the
    layer info of a TensorRT engine. Files that contradict that they are of one job raise BadInput; with
    ``unrelated`` they are side by side. A path may be a URL (``s3://``, ``gs://``, ``az://``, ``https://``):
    each file is copied to scratch, read and removed. Patterns (``rank*.json.gz``) are expanded, locally too.
    """
    if is_url(model):
        with at_urls.local(model) as copy:
            return open(path, strict=strict, lean=lean, model=copy, unrelated=unrelated)
    beside = None if model is None else Path(model)
    if not isinstance(path, (str, os.PathLike)):
        return _read_all(path, "an empty list of files", strict, lean, beside, unrelated)
    if is_url(path) and not is_pattern(path):
        return _open_url(at_urls.listed(str(path))[0], strict, lean, beside, unrelated)
    if is_pattern(path) and not os.path.lexists(path):
        found_all = at_urls.expanded([path])
        if len(found_all) == 1:
            return open(found_all[0], strict=strict, lean=lean, model=model, unrelated=unrelated)
        return _read_all(
            found_all, f"{os.fspath(path)}: no traces", strict, lean, beside, unrelated
        )
    location = Path(path)
    match = find(location)
    if match is None:
        inside, archives = parted(location)
        none = "" if inside else f"{location}: {none_in(location, archives)}"
        if not unrelated:
            _refuse_runs(location, inside)
        joined = _read_all(inside, none, strict, lean, beside, unrelated)
        if archives:
            note = f"archives in the folder were not read: {', '.join(archives[:_NAMED])}"
            joined.note("warning", note, len(archives))
        return joined
    with progress.reading([location], without=NOT_READ):
        trace = _read(match, location, strict, lean, beside)
        progress.read_whole(location)
    _refuse_nothing(match, location, trace)
    if match.name == "profile":
        return trace  # impossible times were removed before the profile was saved
    from opscope.core.tables.doubled import without_doubles  # lazy: they load Polars
    from opscope.core.tables.impossible import without_impossible

    sound = without_impossible(without_doubles(trace))
    if not sound.has("samples"):
        return sound
    from opscope.core.perf.sampled_counters import with_shares  # lazy: few traces have samples

    return with_shares(sound)


def _read(match: Found, location: Path, strict: bool, lean: bool, beside: Path | None) -> Trace:
    def open_copy(inside: Path) -> Trace:
        return open(inside, strict=strict, lean=lean, model=beside)

    if match.name == CONTAINERS:
        from . import unpacking  # lazy: it loads decoders

        return unpacking.read(location, find, open_copy)
    if match.name == UNFINISHED:
        from . import unfinished  # lazy: few databases are

        return unfinished.read(location, open_copy)
    if beside is not None and match.takes_model:
        return match.read(location, lean, beside)
    # a recording may have several processes, and one of them may be damaged
    if match.name == "recording" and not strict:
        from .recording.reader import collect  # lazy: it loads Polars

        trace = collect(location)
    else:
        trace = match.read(location, lean)
    if beside is None:
        return trace
    from .beside import with_model  # lazy: it loads Polars

    return with_model(trace, beside)


def _refuse_runs(location: Path, inside: Sequence[Path]) -> None:
    """Raise SeveralRuns if several of MindSpore's outputs in a folder have the same rank."""
    outputs = [path for path in inside if path.is_dir() and format_of(path) == "mindspore"]
    if len(outputs) > 1:
        from .mindspore.files import rank_twice  # lazy: few folders hold several

        rank = rank_twice(outputs)
        if rank is not None:
            raise SeveralRuns(location, rank, outputs)


def _refuse_nothing(found: Found, location: Path, trace: Trace) -> None:
    """Raise BadInput for a file without any row of work, because its report would look healthy."""
    if found.name in _EXPLAINED or any(
        len(trace.tables[name]) for name in trace.present - _DESCRIBING
    ):
        return
    notes = trace["notes"].filter(severity="warning")["what"].cast(str)
    told = sorted(notes, key=lambda what: "left out" not in what)
    tool = trace.origin.get("tool") or trace.origin.get("format") or found.name
    what = f"a file of {tool} without any kernel, op, range or call"
    raise BadInput(location, ": ".join([what, *told[:1]]))


def _read_all(
    paths: Iterable[str | os.PathLike[str]],
    none: str,
    strict: bool,
    lean: bool,
    model: Path | None,
    unrelated: bool,
) -> Trace:
    """Join the traces in ``paths``, each of which may be a pattern; ``none``: the message if there is no
    path."""
    listed = at_urls.expanded(paths)
    if any(map(is_url, listed)):  # each reports progress of its copying, then of its reading
        return _join(listed, none, strict, lean, model, unrelated)
    with progress.reading(listed, without=NOT_READ):
        return _join(listed, none, strict, lean, model, unrelated)


def _open_url(
    at_url: AtUrl,
    strict: bool,
    lean: bool,
    model: Path | None,
    unrelated: bool,
    of_folder: bool = False,
) -> Trace:
    """Return the trace at a URL: a file, a profile, or a folder of the ranks of one job. Raises BadInput, and
    NotATrace for an unrecognised file in a folder (``of_folder``)."""

    def read(local: Path) -> Trace:
        if of_folder:
            try:
                format_of(local)
                if _is_archive(local):
                    raise BadInput(local, "an archive")
            except BadInput as error:
                raise NotATrace(error.path, error.what) from error
        return open(local, strict=strict, lean=lean, model=model, unrelated=unrelated)

    if not at_url.is_folder:
        return at_urls.read(at_url, read)
    is_dump, entries = at_urls.entries(at_url.url)
    if is_dump:
        return at_urls.read(at_url, read)
    traces: list[AtUrl] = []
    for entry in entries:
        if not entry.is_folder or at_urls.entries(entry.url)[0]:
            traces.append(entry)
    none = f"{shown(at_url.url)}: a folder without traces"
    urls = [trace.url for trace in traces]
    return _join(urls, none, strict, lean, model, unrelated, of_folder=True)


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the file's format: a package here, or another package's entry point; ``folder``
    for a folder that may contain traces. Raises BadInput."""
    match = find(Path(path))
    return "folder" if match is None else match.name


def _is_archive(path: Path) -> bool:
    """Whether the file is an archive, or packs something other than a trace. Raises BadInput."""
    if format_of(path) != CONTAINERS:
        return False
    from . import unpacking  # lazy: it loads decoders

    return not unpacking.has_trace(path, find)


def traces_in(folder: Path) -> list[Path]:
    """Return the files and profiles in a folder whose first bytes are those of a trace, in order of name."""
    return parted(folder)[0]


def parted(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the traces in a folder, and the names of archives in it, which are not opened."""
    paths_found: list[Path] = []
    archives: list[str] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        try:
            if format_of(entry) == "folder":
                continue
            if _is_archive(entry):
                archives.append(entry.name)
            else:
                paths_found.append(entry)
        except BadInput:  # a log or a README beside the traces
            continue
    return paths_found, archives


def none_in(folder: Path, archives: Sequence[str]) -> str:
    """Return the message about a folder that has only these archives and no trace."""
    if not archives:
        from . import foreign  # lazy: few folders are refused

        return f"a folder without traces{foreign.of_folder(folder, format_of)}"
    names = ", ".join(archives[:_NAMED])
    return f"a folder without traces, but with archives ({names}); give one alone, or unpack them"


def _join(
    paths: Sequence[str | os.PathLike[str]],
    none: str,
    strict: bool,
    lean: bool,
    model: Path | None,
    unrelated: bool,
    of_folder: bool = False,
) -> Trace:
    """Join the traces in ``paths``; ``of_folder``: leave out files that are not traces, such as logs."""
    from opscope.core.tables.identity import Conflict, join  # lazy: it loads Polars

    if not paths:
        where, _, message = none.rpartition(": ")
        raise BadInput(where or "()", message)
    of_engines, paths = _of_engines([path if is_url(path) else Path(path) for path in paths])
    # two engines may have been built with the same options
    _refuse_twice(of_engines, content=False)
    _refuse_twice(paths)
    parts: list[Trace] = []
    names: list[str] = []
    failed: list[BadInput] = []
    cut: dict[BadInput, Trace] = {}
    seen: list[AtUrl] = []
    if of_engines and model is not None:
        raise BadInput(
            model,
            "files of a TensorRT engine take no model: give the engine's layer info as one of the files",
        )
    if of_engines:
        from . import tensorrt  # lazy: it loads decoders

        traces, failed = tensorrt.read_together(of_engines)
        if failed and (strict or not (traces or paths)):
            raise failed[0] if strict or len(failed) == 1 else NoneReadable(failed)
        parts += traces
        names += [str(next(iter(part.origin.get("paths") or of_engines))) for part in traces]
    for path in paths:
        try:
            if is_url(path):
                remote = at_urls.listed(str(path))[0]
                seen.append(remote)
                at_urls.same_content(seen)
                part = _open_url(remote, strict, lean, model, unrelated, of_folder)
            else:
                part = open(path, strict=strict, lean=lean, model=model, unrelated=unrelated)
            for name in part.tables:  # a profile reads its tables lazily: read them now
                part[name]
            if TRUNCATED in part.origin:
                cut[BadInput(path, alone(part))] = part
            else:
                parts.append(part)
                names.append(shown(os.fspath(path)))
        except NotATrace:
            continue
        except at_urls.GivenTwice:
            raise
        except BadInput as error:
            if strict or (len(paths) == 1 and not of_engines):
                raise
            failed.append(error)
    if parts:  # beside complete ranks, a truncated one would seem to wait, or to be fast
        if cut and strict:
            raise next(iter(cut))
        failed += cut
    else:
        parts += cut.values()
        names += [shown(error.path) for error in cut]
    if not parts and not failed:
        raise BadInput(*none.split(": ", 1))
    if not parts:
        raise failed[0] if len(failed) == 1 else NoneReadable(failed)
    trace = join(parts, names, unrelated)
    if isinstance(trace, Conflict):
        raise BadInput(trace.path, trace.what)
    inner = [part.origin for part in parts]
    trace.origin["files"] = len(failed) + sum(origin.get("files", 1) for origin in inner)
    lost = [{"path": fault.path, "what": fault.what} for fault in failed]
    lost += [item for origin in inner for item in origin.get("failed", ())]
    if lost:
        trace.origin["failed"] = lost
    for one in failed:
        trace.note("error", f"left out: {one}")
    return trace


def alone(trace: Trace) -> str:
    """Return the message about a truncated trace among files that must be complete."""
    how = trace.origin[TRUNCATED].removeprefix("truncated: ")
    return f"truncated: {how} (given alone, what it holds is read)"


def _of_engines(
    paths: Sequence[str | os.PathLike[str]],
) -> tuple[list[Path], list[str | os.PathLike[str]]]:
    """Separate the files of TensorRT engines, several of which belong to one engine, from all others."""
    ours: list[Path] = []
    others: list[str | os.PathLike[str]] = []
    for path in paths:
        if not isinstance(path, Path):  # a URL: its file is opened by itself
            others.append(path)
            continue
        try:
            match = None if path.is_dir() else find(path)
        except BadInput:  # opening it reports the error
            match = None
        (ours if match is not None and match.ours and match.name == "tensorrt" else others).append(
            path
        )
    return ours, others


def _refuse_twice(paths: Sequence[str | os.PathLike[str]], content: bool = True) -> None:
    """Raise BadInput where two paths are the same file or have equal content: they would count twice.

    Without ``content``, equal content under two names is allowed.
    """
    seen: dict[tuple[int, int], str] = {}
    sizes: dict[int, list[str]] = {}
    for path in [os.fspath(path) for path in paths]:
        try:
            status = os.stat(path)
        except OSError:  # opening it reports the error
            continue
        same = seen.get((status.st_dev, status.st_ino))
        if same is not None:
            raise BadInput(path, "given twice" + (f" (as {same})" if same != path else ""))
        seen[status.st_dev, status.st_ino] = path
        if not content:
            continue
        files_of_path = _content(Path(path))
        size = sum(os.path.getsize(file) for file in files_of_path)
        for other in sizes.get(size, ()):
            if size and _equal(files_of_path, _content(Path(other))):
                raise BadInput(path, f"has the same content as {other}: it would count twice")
        sizes.setdefault(size, []).append(path)


def _content(path: Path) -> list[Path]:
    """Return the file itself, or the files of a profile in order; nothing for any other folder and for a
    non-file."""
    if path.is_file():
        return [path]
    if not (path / "meta.json").is_file():
        return []
    return sorted(file for file in path.rglob("*") if file.is_file())


def _equal(files: list[Path], other: list[Path]) -> bool:
    return (
        len(files) == len(other)
        and all(
            first.name == second.name or len(files) == 1
            for first, second in zip(files, other, strict=True)
        )
        and all(
            filecmp.cmp(first, second, shallow=False)
            for first, second in zip(files, other, strict=True)
        )
    )
