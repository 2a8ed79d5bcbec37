"""Where attachable programs have their sockets: a folder that only its user can enter.

A socket is named by its process: ``PID-START.sock``, with the start time of the process, because process ids
are reused. Folder and socket are reached through a descriptor of the folder that was checked
(``core/owned_folder.py``), so nobody can put another folder in its place meanwhile.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.core import owned_folder

from . import process

#: The environment variable that names another folder for the sockets.
FOLDER: Final = "OPSCOPE_ATTACH_DIR"
#: Advice where no folder can be used.
WAY_OUT: Final = f"{FOLDER} names another folder, for the program and for opscope attach"
_SOCKET: Final = re.compile(r"(\d+)-(\d+)\.sock")
_CREDENTIALS: Final = struct.Struct("3i")
#: Whether this system identifies the process at the other end of a socket.
SUPPORTED: Final = hasattr(socket, "SO_PEERCRED") and os.path.isdir("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Place:
    """A program's socket: its folder, its name there, and the process."""

    folder: Path
    name: str
    pid: int
    start_time: int

    @property
    def path(self) -> Path:
        """The socket's path, for people."""
        return self.folder / self.name


def folders() -> list[Path]:
    """Return the folders in which sockets may be, the one for new sockets first."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return [Path(chosen).absolute()]
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders_listed = [Path(runtime, "opscope-attach")] if runtime and os.path.isdir(runtime) else []
    folders_listed.append(Path(f"/run/user/{user}/opscope-attach"))
    folders_listed += [Path("/tmp"), Path(tempfile.gettempdir()).resolve()]
    named = [
        path if path.name == "opscope-attach" else path / f"opscope-attach-{user}"
        for path in folders_listed
    ]
    return list(dict.fromkeys(path for path in named if path.parent.is_dir()))


def prepare() -> tuple[Path, int]:
    """Return the folder for a new socket, made if it is missing, and its checked descriptor.

    Raises the last OSError if no folder is usable.
    """
    failed: OSError | None = None
    for folder in folders():
        try:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            return folder, owned_folder.open_folder(folder, private=True)
        except OSError as error:
            failed = error
    raise failed or OSError("there is no folder for sockets")


def refusals() -> list[str]:
    """Return why some folders of sockets cannot be searched, a line each."""
    reasons = []
    for folder in folders():
        try:
            os.close(owned_folder.open_folder(folder, private=True))
        except FileNotFoundError:
            continue
        except OSError as error:
            reasons.append(str(error))
    return reasons


def own(folder: Path) -> Place:
    """Return the place of this process's socket."""
    who = process.current()
    return Place(folder, f"{who.pid}-{who.start_time}.sock", who.pid, who.start_time)


def through(descriptor: int, name: str) -> str:
    """Return the path of ``name`` in this descriptor's folder; it is short, as paths of sockets must be."""
    return f"/proc/self/fd/{descriptor}/{name}"


def listen(descriptor: int, attach_point: Place) -> socket.socket:
    """Return the listening socket at ``attach_point``. Raises OSError. It gets its final name once it
    listens: earlier, it would be taken for a dead program's socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    new = f"{attach_point.name}.new"
    try:
        remove(descriptor, new)
        listener.bind(through(descriptor, new))
        os.chmod(new, 0o600, dir_fd=descriptor)
        listener.listen(8)
        os.rename(new, attach_point.name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        listener.setblocking(False)
    except BaseException:
        # after a Ctrl-C too nothing is left behind; the exception is raised again
        listener.close()
        raise
    return listener


def connect(attach_point: Place, seconds: float) -> socket.socket:
    """Return a connection to the program at ``attach_point``, which is this user's.

    Raises ConnectionRefusedError if the program is gone, PermissionError if it is another user's, OSError.
    """
    with owned_folder.opened(attach_point.folder, private=True) as folder:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(seconds)
            connection.connect(through(folder, attach_point.name))
            _, user, _ = peer(connection)
            if user != os.geteuid():
                raise PermissionError(f"{attach_point.path} belongs to another user's program")
        except BaseException:
            # after a Ctrl-C too nothing is left behind; the exception is raised again
            connection.close()
            raise
        return connection


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """Return the process, user and group at the other end, as recorded by the kernel."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, group = _CREDENTIALS.unpack(data)
    return pid, user, group


def remove(descriptor: int, name: str) -> None:
    """Remove a socket; it is no error if it does not exist."""
    try:
        os.unlink(name, dir_fd=descriptor)
    except FileNotFoundError:
        return


def places() -> Iterator[Place]:
    """Yield the sockets of this user's living programs; sockets of dead ones are removed. A socket is dead if
    nothing listens. Its process id proves nothing, as the process may be in another container."""
    for folder in folders():
        try:
            descriptor = owned_folder.open_folder(folder, private=True)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(descriptor)):
                match = _SOCKET.fullmatch(name)
                if match is None:
                    continue
                attach_point = Place(folder, name, int(match[1]), int(match[2]))
                try:
                    connect(attach_point, 1.0).close()
                except ConnectionRefusedError:
                    remove(descriptor, name)
                    continue
                except OSError:  # the program is busy, or the socket was removed meanwhile
                    if not _exists(descriptor, name):
                        continue
                yield attach_point
        finally:
            os.close(descriptor)


def _exists(descriptor: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True
