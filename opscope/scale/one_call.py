"""``opscope.load``: read one process, or many ranks with an executor and a merge."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Any

from opscope import profile as in_process
from opscope.core import progress as progress_of
from opscope.profile import Path, Profile
from opscope.readers.errors import BadInput, NoneReadable
from opscope.remote.urls import shown

from . import places
from .engines import Mapped, held, opened, read_ranks
from .errors import EngineError
from .merge import merge
from .partial import sources


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
    executor: Executor | int | None = None,
    parts: Path | None = None,
    unrelated: bool = False,
) -> Profile:
    """Open a trace or profile of any format, recognised by content; a list is the files of one job.

    A path may be a URL (``s3://``, ``gs://``, ``az://``, ``https://``; ``pip install 'opscope[cloud]'``), a
    pattern (``rank*.json.gz``) or a folder. Each file at a URL is copied to scratch, read and removed.
    If some of several files cannot be read, the others are: ``summary()`` says how many, ``notes()`` which
    files and why. If no file can be read, or with ``strict`` if any cannot, load raises
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

    Many ranks: ``executor`` is a number of processes on this machine, or any
    ``concurrent.futures.Executor`` (a Dask client's ``get_executor(retries=3, pure=False)``). Its workers
    write a small file for each rank into ``parts``, a folder or URL that all of them see under that name, and
    the profile is merged from these files: frames of totals, steps and collectives are those of a load
    without an executor; what needs single events raises opscope.errors.NotMerged. Ranks whose file is in
    ``parts`` already are not read again. Without ``parts`` the files are in scratch on this machine until the
    profile is made. Load raises opscope.errors.EngineError if the executor is lost or a worker has another
    version of opscope; what was written stays in ``parts``, and the same call goes on. ``counters``,
    ``model_config``, ``requests`` and ``power`` cannot be combined with it (ValueError).
    """
    if executor is None and parts is None:
        return in_process.load(
            path,
            gpu=gpu,
            strict=strict,
            lean=lean,
            model=model,
            counters=counters,
            model_config=model_config,
            requests=requests,
            power=power,
            progress=progress,
            unrelated=unrelated,
        )
    if counters is not None:
        raise ValueError(
            "counters are joined to single kernels, which partials of ranks do not hold"
        )
    if requests is not None or power is not None:
        raise ValueError(
            "requests and power are joined to single steps, which partials of ranks do not hold"
        )
    if model_config is not None:
        raise ValueError(
            "partials of ranks hold costs that are made without a model's configuration"
        )
    with ExitStack() as open_:
        open_.enter_context(progress_of.told(progress))
        if isinstance(executor, int):
            pool, workers = open_.enter_context(opened(jobs=executor))
        else:
            pool, workers = executor, _workers(executor)
        return of_ranks(
            path,
            pool,
            parts,
            workers=workers,
            gpu=gpu,
            strict=strict,
            model=model,
            unrelated=unrelated,
        )


def of_ranks(
    path: Path | Sequence[Path],
    executor: Executor | None,
    parts: Path | None = None,
    *,
    workers: int | None = None,
    gpu: str | None = None,
    strict: bool = False,
    model: Path | None = None,
    unrelated: bool = False,
    **more: Any,
) -> Profile:
    """Return the profile of the ranks that ``path`` names, read by the executor (None: in this process).

    ``workers`` is how many tasks it runs at once, if known. Raises BadInput, EngineError and UnknownDevice.
    """
    from opscope.remote.copied import scratch  # lazy: it is for files at URLs

    named = sources([path] if isinstance(path, (str, os.PathLike)) else path)
    with ExitStack() as open_:
        location = os.fspath(open_.enter_context(scratch()) if parts is None else parts)
        beside = None if model is None else os.fspath(model)
        mapped = read_ranks(
            named, location, executor, workers=workers, gpu=gpu, model=beside, **more
        )
        if not mapped.names:
            broken = [BadInput(shown(source), reason) for source, reason in mapped.failed.items()]
            raise broken[0] if len(broken) == 1 else NoneReadable(broken)
        _seen(mapped, location)
        merged = merge(
            [places.join(location, name) for name in mapped.names.values()],
            expected=list(mapped.names.values()),
            failed=[
                {"path": shown(source), "what": reason} for source, reason in mapped.failed.items()
            ],
            strict=strict,
            unrelated=unrelated,
        )
    return merged


def _seen(mapped: Mapped, location: str) -> None:
    """Raise EngineError if this process cannot find the partials that workers wrote."""
    lacking = {*mapped.names.values()} - {*held(location)}
    if lacking:
        raise EngineError(
            f"workers wrote {len(lacking):,} partials to {shown(location)}, and this machine does not see"
            " them:"
            " give a folder or URL that all machines see (--parts, parts=)"
        )


def _workers(executor: Executor | None) -> int | None:
    """Return how many tasks the executor runs at once, if it can be told."""
    if executor is None:
        return 1
    count = getattr(executor, "workers", None) or getattr(executor, "_max_workers", None)
    return count if isinstance(count, int) else None
