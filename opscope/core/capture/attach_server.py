"""Listens for ``opscope attach`` in a program that was started attachable.

A thread of its own sleeps in ``poll`` until somebody connects, and costs nothing meanwhile. As with the idle
writer's thread, Python's ``threading`` does not list it, no signal is handled on it, and it does not exist
while the process forks.
"""

from __future__ import annotations

import _thread
import atexit
import json
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from . import attach_place, idle
from .attach_protocol import MAX_ANSWER, MAX_REQUEST, PATIENCE_S, Refused, line, parsed

_log = logging.getLogger(__name__)


class Server:
    """Answers requests with ``answer(request)`` from ``start`` to ``stop``, one after the other.

    ``answer`` may raise Refused. ``tick()`` is called between requests and returns the seconds until it is
    to be called again, or None; it must not raise.
    """

    def __init__(
        self, answer: Callable[[dict[str, Any]], dict[str, Any]], tick: Callable[[], float | None]
    ) -> None:
        self._answer = answer
        self._tick = tick
        self.place: attach_place.Place | None = None
        self._folder = -1
        self._listener: socket.socket | None = None
        #: The process that listens.
        self.pid = 0
        self._wake: tuple[int, int] | None = None
        self._running: Any = None
        self._system_id = 0
        self._ident = 0
        self._ended = True

    def start(self) -> None:
        """Begin to listen. Raises OSError if no folder or no socket can be made for it."""
        if not attach_place.SUPPORTED:
            raise OSError("this system does not tell who is at the other end of a socket")
        folder, descriptor = attach_place.prepare()
        attach_point = attach_place.own(folder)
        try:
            # a leftover socket of this name belongs to this very process, before an exec
            attach_place.remove(descriptor, attach_point.name)
            self._listener = attach_place.listen(descriptor, attach_point)
        except BaseException:  # Ctrl-C too leaves nothing behind, and is raised again
            os.close(descriptor)
            raise
        self._folder, self.place, self.pid = descriptor, attach_point, os.getpid()
        atexit.register(self.stop)
        idle.pause_for_forks(self)
        self._begin()

    def stop(self) -> None:
        """Stop listening, and remove the socket. A second call does nothing."""
        attach_point, listener = self.place, self._listener
        if attach_point is None or listener is None:
            return
        self.place = self._listener = None
        atexit.unregister(self.stop)
        self._end()
        listener.close()
        if os.getpid() == self.pid:
            attach_place.remove(self._folder, attach_point.name)
        os.close(self._folder)

    def pause(self) -> None:
        """End the thread until ``resume``, and wait until the system has removed it, because a fork
        follows."""
        if self._running is not None and _thread.get_ident() != self._ident:
            task = f"/proc/self/task/{self._system_id}"
            self._end()
            until = time.monotonic() + idle.GONE_S
            while os.path.exists(task) and time.monotonic() < until:
                time.sleep(0.0001)

    def resume(self) -> None:
        """Listen again after a fork; in the child, close the parent's descriptors."""
        if self._listener is None:
            return
        if os.getpid() == self.pid:
            self._begin()
            return
        self._running = None
        self.stop()

    # ---------------------------------------------------------------- the thread

    def _begin(self) -> None:
        if self._running is not None:
            return
        self._wake = os.pipe()
        self._ended = False
        running = _thread.allocate_lock()
        running.acquire()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            # a new thread inherits the signal mask of the thread that starts it
            signal.pthread_sigmask(signal.SIG_BLOCK, idle.blocked())
            self._ident = _thread.start_new_thread(self._work, (running, self._wake[0]))
            self._running = running
        except RuntimeError as error:  # no resources for a thread, or Python is shutting down
            _log.info("opscope: nobody can attach: no thread can be started: %s", error)
            self._close_pipe()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _end(self) -> None:
        running, self._running = self._running, None
        self._ended = True
        if running is None or self._wake is None:
            return
        if _thread.get_ident() == self._ident:
            return  # the thread ends by itself
        os.write(self._wake[1], b"x")
        if running.acquire(timeout=idle.STOP_S):
            self._close_pipe()

    def _close_pipe(self) -> None:
        pipe, self._wake = self._wake, None
        for descriptor in pipe or ():
            os.close(descriptor)

    def _work(self, running: Any, wake: int) -> None:
        try:
            self._system_id = _thread.get_native_id()
            listener = self._listener
            if listener is None:
                return
            waiting = select.poll()
            waiting.register(wake, select.POLLIN)
            waiting.register(listener, select.POLLIN)
            while not self._ended:
                left = self._tick()
                events = waiting.poll(None if left is None else max(0.0, left) * 1000)
                # a byte in the pipe makes the thread end
                if (
                    any(descriptor == listener.fileno() for descriptor, _ in events)
                    and len(events) == 1
                ):
                    self._serve(listener)
        except Exception:  # noqa: BLE001 - a fault of ours must not be the program's
            _log.exception("opscope: nobody can attach to this program any more")
        finally:
            running.release()

    def _serve(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the client is gone
            return
        with connection:
            try:
                self._converse(connection)
            except OSError:  # likewise
                return

    def _converse(self, connection: socket.socket) -> None:
        # the kernel recorded the user at the connection; a request of another user is not even read
        _, user, _ = attach_place.peer(connection)
        if user != os.geteuid():
            connection.settimeout(PATIENCE_S)
            connection.sendall(line({"error": "only the user whose program this is may attach"}))
            return
        try:
            answer = self._answer(parsed(_receive(connection)))
        except Refused as refused:
            answer = {"error": str(refused)}
        except Exception as error:  # noqa: BLE001 - the client gets the error, the program continues
            answer = {"error": f"{type(error).__name__}: {error}"}
        data = line(answer)
        if len(data) > MAX_ANSWER:
            data = line({"error": "the answer is too long"})
        connection.settimeout(PATIENCE_S)
        connection.sendall(data)


def _receive(connection: socket.socket) -> bytes:
    """Return the line that arrives within ``PATIENCE_S``, without its end. Raises Refused, OSError."""
    data, until = b"", time.monotonic() + PATIENCE_S
    while b"\n" not in data:
        left = until - time.monotonic()
        if left <= 0:
            raise Refused("the request took too long")
        connection.settimeout(left)
        try:
            more = connection.recv(MAX_REQUEST + 1 - len(data))
        except TimeoutError:
            raise Refused("the request took too long") from None
        data += more
        if not more:
            break
        if len(data) > MAX_REQUEST:
            raise Refused(f"the request is longer than {MAX_REQUEST} bytes")
    return data.partition(b"\n")[0]


def ask(
    attach_point: attach_place.Place, request: dict[str, Any], seconds: float = 30.0
) -> dict[str, Any]:
    """Send a request to the program at ``attach_point`` and return its answer.

    Raises Refused with the program's reason, ConnectionRefusedError if it is gone, OSError.
    """
    with attach_place.connect(attach_point, seconds) as connection:
        connection.sendall(line(request))
        data = b""
        while b"\n" not in data and len(data) <= MAX_ANSWER:
            more = connection.recv(MAX_ANSWER + 1 - len(data))
            if not more:
                break
            data += more
    try:
        answer = json.loads(data)
    except ValueError:
        raise ConnectionRefusedError("the program ended before it answered") from None
    if not isinstance(answer, dict):
        raise Refused("the answer is not valid")
    if "error" in answer:
        raise Refused(str(answer["error"]))
    return answer
