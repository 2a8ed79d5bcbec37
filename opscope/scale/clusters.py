"""Dask and Ray as executors. Both run whatever their scheduler sends: whoever controls it can run code
here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from .errors import EngineError
from .worker import bounds

_T = TypeVar("_T")
#: Attempts at a task that raised, with Dask; errors in a file's content are results and are not tried again.
RETRIES: Final = 3
_CONNECT: Final = "20s"
#: Seconds between two checks whether a scheduler has workers.
_LOOK: Final = 10.0
_log: Final = logging.getLogger(__name__)


@contextmanager
def dask(address: str) -> Iterator[tuple[Executor, int | None]]:
    """Connect to the Dask scheduler at ``address``; yield its executor and the number of its workers'
    threads.

    ``tls://`` takes certificates from Dask's configuration. Raises EngineError.
    """
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError as error:
        raise EngineError(
            f"Dask is not installed: pip install 'opscope[cluster]' ({error})"
        ) from error
    if address.startswith("tls:"):
        try:
            certified = Security().get_connection_args("client").get("ssl_context") is not None
        except (OSError, ValueError) as error:
            # a certificate file is missing or holds no certificate
            raise EngineError(f"{address}: Dask's certificates: {_say(error)}") from error
        if not certified:
            raise EngineError(
                f"{address}: certificates are needed, and Dask's configuration names none"
                " (distributed.comm.tls.ca-file, client.cert, client.key)"
            )
    try:
        client = Client(address, set_as_default=False, timeout=_CONNECT, name="opscope")
    except Exception as error:
        raise EngineError(f"no Dask scheduler at {address}: {_say(error)}") from error
    with client, _watch(client, address):
        threads: int = sum(client.nthreads().values())
        # pure=False: with pure, a batch submitted again would get its earlier result
        yield client.get_executor(retries=RETRIES, pure=False), threads


@contextmanager
def _watch(client: Any, address: str) -> Iterator[None]:
    """Warn when the scheduler has no workers. Waiting is right if workers start on demand, but endless if
    nobody starts any."""
    over = threading.Event()

    def watch() -> None:
        reason_told = False
        while not over.wait(_LOOK):
            try:
                lacks = not client.nthreads()
            except Exception as error:  # noqa: BLE001 - whoever waits for a result gets the error
                _log.debug("%s is not asked for its workers any more: %s", address, _say(error))
                return
            if lacks and not reason_told:
                _log.warning("the Dask scheduler at %s has no workers: waiting for some", address)
            reason_told = lacks

    thread = threading.Thread(target=watch, name="opscope-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LOOK)


@contextmanager
def ray(address: str) -> Iterator[tuple[Executor, int | None]]:
    """Connect to the Ray cluster at ``address``; yield its executor and the number of its CPUs.

    An address is ``auto``, ``HOST:PORT`` or ``ray://…``; ``local`` starts Ray on this machine until the end.
    Raises EngineError.
    """
    import os

    # disable Ray's usage statistics, which are sent by default
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray as library
    except ImportError as error:
        raise EngineError(f"Ray is not installed: pip install 'opscope[ray]' ({error})") from error
    if library.is_initialized():
        yield RayExecutor(), _cpus(library)
        return
    try:
        library.init(
            address,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"env_vars": bounds(1)},
            **({"include_dashboard": False} if address == "local" else {}),
        )
    except Exception as error:
        raise EngineError(f"no Ray cluster at {address}: {_say(error)}") from error
    try:
        yield RayExecutor(), _cpus(library)
    finally:
        library.shutdown()


class RayExecutor(Executor):
    """Runs each call as a Ray task of one CPU, on the cluster that ``ray.init`` connected to."""

    def __init__(self) -> None:
        import ray as library

        # no retries by Ray, which would let the task kill three more workers; the caller decides which tasks
        # are tried again
        self._call = library.remote(num_cpus=1, max_retries=0)(_call)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run ``fn`` on a worker; the future raises Ray's WorkerCrashedError if that one dies."""
        done: Future[_T] = self._call.remote(fn, args, kwargs).future()
        return done


def _call(fn: Callable[..., _T], args: Any, kwargs: Any) -> _T:
    return fn(*args, **kwargs)


def _cpus(library: Any) -> int | None:
    return int(library.cluster_resources().get("CPU", 0)) or None


def _say(error: BaseException) -> str:
    """Return the first line of the error; libraries put tracebacks and advice about themselves on further
    lines."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__
