"""Read many ranks with an executor: missing partials are made, existing ones stay as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from opscope.core import progress
from opscope.core.perf.devices.unnamed import UnknownDevice
from opscope.readers.errors import BadInput
from opscope.remote.urls import is_url, shown

from . import places
from .batches import batches
from .errors import EngineError
from .identity import Identity, identity_of, name_of
from .partial import write_failure
from .worker import Outcome, Refused, Write, read_batch, version

#: Names of the exceptions of a future whose worker died; names, so that no engine has to be imported.
_DIED: Final = {
    "BrokenProcessPool",  # concurrent.futures
    "KilledWorker",  # Dask, once its scheduler's limit of deaths is reached
    "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "LocalRayletDiedError",  # Ray
}  # fmt: skip
#: The begin of the error on a machine without this opscope, whatever exception wraps it.
_MISSING: Final = re.compile(r"No module named '(opscope[\w.]*)'")
#: Threads of a worker that sets no limit itself: engines start a process for each core.
_THREADS: Final = 1
_NAMED: Final = 5
#: Objects of a store that are requested at the same time.
_ASKED: Final = 16


@dataclass
class Mapped:
    """The result for the sources: the name of each partial, and why the others have none.

    ``kept`` counts partials that existed before, ``read`` those that were made now.
    """

    names: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    read: int = 0


def read_ranks(
    sources: Sequence[str | os.PathLike[str]],
    parts: str | os.PathLike[str],
    executor: Executor | None = None,
    *,
    workers: int | None = None,
    gpu: str | None = None,
    model: str | None = None,
    write: Write | None = None,
) -> Mapped:
    """Write the partial of each source into the folder ``parts`` (path or URL), unless it exists already.

    ``executor`` is any concurrent.futures.Executor whose workers see the sources and ``parts`` under the same
    names; None reads in this process, one after the other. ``workers`` is how many tasks it runs at once, if
    known. A source that cannot be read, or that ends its worker twice, is in ``failed``, with a note in
    ``parts``. Raises EngineError if the executor is lost or a worker has another version of opscope; finished
    partials stay, and the same call reads the rest. Raises UnknownDevice for an unknown ``gpu``.
    """
    location = _absolute(parts)
    options = {"gpu": gpu, "model": None if model is None else _absolute(model)}
    job = _Job(location, options, write)
    waiting = job.begin([_absolute(source) for source in sources])
    with progress.stage("reading ranks", len(sources), "ranks") as stage:
        stage.add(len(sources) - len(waiting))
        tasks = batches(waiting, workers)
        if executor is None:
            for task in tasks:
                job.take(read_batch(task, location, options, job.made_by, write))
                stage.add(len(task))
        else:
            job.run(executor, tasks, stage)
    return job.ended()


class _Job:
    """The state of a job: running tasks, results so far, and the files whose workers died."""

    def __init__(self, parts: str, options: dict[str, Any], write: Write | None) -> None:
        self.parts, self.options, self.write = parts, options, write
        self.made_by = version()
        self.mapped = Mapped()
        self._names: dict[str, str] = {}
        #: Files that were being read when a worker died.
        self._suspects: list[str] = []
        #: The files of each task, and whether it must run alone.
        self._pending: dict[Future[Any], tuple[tuple[str, ...], bool]] = {}
        #: Finished futures as they complete: to wait again for all of them each time is slow with many
        #: thousand tasks.
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()

    def begin(self, sources: Sequence[str]) -> dict[str, int | None]:
        """Return the sources without a partial, with their sizes in bytes (None: the store gives no size).

        Raises BadInput for a source that is given twice.
        """
        there = set(held(self.parts))
        name_of_source: dict[str, str] = {}
        waiting: dict[str, int | None] = {}
        for source, identity in zip(sources, _identities(sources), strict=True):
            if isinstance(identity, BadInput):
                self._fail(source, identity.what)
                continue
            name = name_of(identity, **self.options)
            if name in name_of_source:
                raise BadInput(
                    shown(source), "is given twice" if name_of_source[name] == source else
                    f"is the same file as {shown(name_of_source[name])}"
                )  # fmt: skip
            name_of_source[name] = source
            self._names[source] = name
            if name in there:
                self.mapped.names[source] = name
                self.mapped.kept += 1
            else:
                waiting[source] = identity.size
        return waiting

    def run(self, executor: Executor, tasks: list[tuple[str, ...]], stage: progress.Stage) -> None:
        """Run the tasks; then run the files of dead workers again, one file at a time and no other task
        beside it.

        Only then does a death identify its file: a task has several files, and Dask blames all tasks that
        wait at a worker for its death. A file that runs alone also gets all the memory.
        """
        try:
            for task in tasks:
                self._submit(executor, task)
            while self._pending or self._suspects:
                if not self._pending:
                    self._submit(executor, (self._suspects.pop(0),), alone=True)
                done = self._done.get()
                task, alone = self._pending.pop(done)
                before = len(self._suspects)
                self._finish(done, task, alone)
                stage.add(len(task) - (len(self._suspects) - before))
        finally:
            for future in self._pending:
                future.cancel()

    def _submit(self, executor: Executor, task: tuple[str, ...], alone: bool = False) -> None:
        try:
            future = executor.submit(
                read_batch, task, self.parts, self.options, self.made_by, self.write, _THREADS
            )
        except RuntimeError as error:  # BrokenProcessPool too: this executor takes no more tasks
            raise self._lost(task, error) from error
        self._pending[future] = (task, alone)
        future.add_done_callback(self._done.put)

    def _finish(self, done: Future[Any], task: tuple[str, ...], alone: bool) -> None:
        """Take the task's result. If a worker's death or an unknown error left files undone, these become
        suspects or are given up."""
        try:
            self.take(done.result())
        except CancelledError as error:
            raise self._lost(task, error) from error
        except (EngineError, UnknownDevice):
            raise
        except Exception as error:
            missing = _MISSING.search(str(error))
            if missing is not None:
                raise EngineError(
                    f"a scheduler or worker has no module {missing[1]}: install opscope"
                    f" {self.made_by[0]} on all machines"
                ) from error
            for source in task:
                if places.exists(self.parts, self._names[source]):  # written before the worker died
                    self.take([Outcome(source, self._names[source])])
                elif alone:
                    self._fail(source, _say(error))
                else:
                    self._suspects.append(source)

    def take(self, outcomes: Sequence[Outcome] | Refused) -> None:
        """Record the outcome of a batch. Raises EngineError if the worker refused it."""
        if isinstance(outcomes, Refused):
            raise EngineError(outcomes.what)
        for outcome in outcomes:
            if outcome.name is None:
                self._fail(outcome.source, outcome.failed or "cannot be read")
            else:
                self.mapped.names[outcome.source] = outcome.name
                self.mapped.read += 1

    def ended(self) -> Mapped:
        """Return the results of the sources in the order of the sources."""
        names = self.mapped.names
        self.mapped.names = {name: names[name] for name in self._names if name in names}
        return self.mapped

    def _fail(self, source: str, reason: str) -> None:
        self.mapped.failed[source] = reason
        write_failure(source, self.parts, reason, **self.options)

    def _lost(self, task: tuple[str, ...], error: BaseException) -> EngineError:
        beside = [
            source
            for future, (sources_held, _) in self._pending.items()
            if future.running()
            for source in sources_held
        ]
        inwork = list(dict.fromkeys([*task, *beside]))
        listed = ", ".join(shown(source) for source in inwork[:_NAMED])
        more = f" and {len(inwork) - _NAMED} more" if len(inwork) > _NAMED else ""
        have, all_ = len(self.mapped.names), len(self._names)
        return EngineError(
            f"the executor was lost ({type(error).__name__}) with {listed}{more} in work; {have} of {all_}"
            f" partials are known to be in {shown(self.parts)}: the same call makes the rest"
        )


def _identities(sources: Sequence[str]) -> list[Identity | BadInput]:
    """Return the identity of each source, or why it is unknown. Several are requested from a store at
    once, because each answer takes a round trip."""

    def one(source: str) -> Identity | BadInput:
        try:
            return identity_of(source)
        except BadInput as error:
            return error

    if not any(map(is_url, sources)):
        return list(map(one, sources))
    with ThreadPoolExecutor(_ASKED) as asking:
        return list(asking.map(one, sources))


def _say(error: Exception) -> str:
    if any(kind.__name__ in _DIED for kind in type(error).__mro__):
        return "its worker died each time that it was read"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def held(parts: str) -> list[str]:
    """The names of the files in the folder; empty if it does not exist yet."""
    if not is_url(parts):
        return places.names(parts) if os.path.isdir(parts) else []
    try:
        return places.names(parts)
    except BadInput as error:
        if "no such file" in error.what:  # an object store has no empty folders
            return []
        raise


def _absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path, for workers with another working folder."""
    text = os.fspath(path)
    return text if is_url(text) else os.path.abspath(text)


@contextmanager
def opened(
    jobs: int | None = None, dask: str | None = None, ray: str | None = None
) -> Iterator[tuple[Executor | None, int | None]]:
    """The executor that ``--jobs``, ``--dask`` or ``--ray`` asks for, and how many tasks it runs at once.

    At most one of them is given. Without any, or with one job, there is no executor: ranks are read in this
    process. Raises EngineError.
    """
    from . import clusters  # lazy: most jobs need no engine
    from .pool import ProcessPool

    if dask is not None:
        with clusters.dask(dask) as client:
            yield client
    elif ray is not None:
        with clusters.ray(ray) as client:
            yield client
    elif jobs is not None and jobs > 1:
        pool = ProcessPool(jobs)
        is_done = False
        try:
            yield pool, jobs
            is_done = True
        finally:
            pool.shutdown(wait=True, cancel_futures=not is_done)
    else:
        yield None, 1
