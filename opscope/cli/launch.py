"""Run the user's command as a shell would: streams, exit status and signals pass through."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence

#: Signals that a user may send to opscope's process id to stop or steer the program.
FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
    if hasattr(signal, name)
)
#: ``si_code`` of a signal that the operating system sent: a key pressed at the terminal.
SI_KERNEL = 0x80


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    signals: Collection[signal.Signals] = (),
    started: Callable[[int], None] = lambda pid: None,
) -> int:
    """Run ``command`` to its end and return its status as a shell does (128 + signal number).

    ``started`` is called with the child's process id once it runs.

    The child is in opscope's process group, so a signal from the terminal reaches it directly. A signal
    sent to opscope's process alone is passed on to the child alone. The signals ``signals`` stay blocked
    after the command ends, so that none arrives before the caller handles them. Raises OSError if the
    command cannot be started.
    """
    waits = hasattr(signal, "sigwaitinfo")
    status = _posix(command, env, signals, started) if waits else _portable(command, env, started)
    return 128 - status if status < 0 else status


def _posix(
    command: Sequence[str],
    env: Mapping[str, str],
    signals: Collection[signal.Signals],
    started: Callable[[int], None],
) -> int:
    # Signals are blocked and waited for, not handled: none is lost between the fork and the wait, and
    # siginfo names the sender, which a handler does not learn.
    awaited = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    # if an inherited SIGCHLD is ignored, the operating system reaps the child and its status is lost
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        started(child.pid)
        while True:
            status = child.poll()
            if status is not None:
                return status
            info = signal.sigwaitinfo(awaited)
            if info.si_signo == signal.SIGCHLD or info.si_code == SI_KERNEL:
                continue
            child.send_signal(info.si_signo)
    finally:
        _drain(awaited)
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, {*before, *signals})


def _drain(awaited: set[signal.Signals]) -> None:
    """Discard the signals still pending: they were meant for the child, which has ended."""
    while signal.sigtimedwait(awaited, 0) is not None:
        pass


def _portable(
    command: Sequence[str], env: Mapping[str, str], started: Callable[[int], None]
) -> int:
    # no siginfo on this platform: a key press reaches the child directly, and a SIGTERM is passed on
    child = subprocess.Popen(list(command), env=dict(env))
    started(child.pid)
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, ours)
        signal.signal(signal.SIGTERM, terminated)


def hooked_environment(
    env: Mapping[str, str], hook: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return ``env`` with ``settings``, and with the folder ``hook`` first on Python's path.

    If opscope is not installed but imported from a source tree, that folder comes second, so that the
    child imports the same opscope.
    """
    path = [hook]
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.basename(home) not in ("site-packages", "dist-packages"):
        path.append(home)
    if env.get("PYTHONPATH"):
        path.append(env["PYTHONPATH"])  # unchanged: an empty entry means the working folder
    return {**env, **settings, "PYTHONPATH": os.pathsep.join(path)}


def name_of(command: Sequence[str]) -> str:
    """Return a name for the profile of ``command``: its script's, its module's, or the program's."""
    for number, word in enumerate(command[1:], start=1):
        if word.endswith(".py"):
            return os.path.splitext(os.path.basename(word))[0]
        if word == "-m" and number + 1 < len(command):
            # the script of ``python -m torch.distributed.run train.py`` is train.py
            scripts = [rest for rest in command[number + 2 :] if rest.endswith(".py")]
            return name_of(["", scripts[0]]) if scripts else command[number + 1].split(".")[-1]
    name = os.path.basename(command[0])
    return os.path.splitext(name)[0] or "program"


def explain_start_failure(error: OSError, command: Sequence[str]) -> tuple[str, int]:
    """Return one line about a command that did not start, and the status that a shell would return."""
    if not command[0]:
        return "'': command not found", 127
    if isinstance(error, FileNotFoundError):
        reason = "its interpreter (named in its first line) or its loader was not found"
        return f"{command[0]}: {reason if shutil.which(command[0]) else 'command not found'}", 127
    return f"{command[0]}: {error.strerror or error}", 126


#: Options of Python whose value is the next word.
_TAKES_NEXT = ("-W", "-X", "--check-hash-based-pycs")
#: Seconds to look for a module: enough on any disk.
_LOOKING_S = 10


def never_began(command: Sequence[str], status: int) -> bool:
    """Return whether the program itself never ran: the command, or Python's script or module, is missing.

    The shell or Python has printed an error by then.
    """
    if status in (126, 127):
        return True
    if status == 0 or not os.path.basename(command[0]).startswith(("python", "pypy")):
        return False
    words = iter(command[1:])
    for word in words:
        if word in _TAKES_NEXT:
            next(words, None)
        elif word == "-m":
            return not _has_module(command[0], next(words, ""))
        elif word == "-c" or word == "-":
            return False
        elif not word.startswith("-"):
            return not os.path.exists(word)
    return False


def _has_module(python: str, module: str) -> bool:
    """Return whether ``python`` finds the module's package; True if that cannot be found out."""
    look = (
        "import importlib.util, sys; sys.path[0] = ''; "
        "sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    )
    package = module.partition(".")[0]
    if not package:
        return True
    try:
        lookup = subprocess.run(
            [python, "-c", look, package], capture_output=True, timeout=_LOOKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return lookup.returncode != 1 or bool(lookup.stderr)
