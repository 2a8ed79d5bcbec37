"""Start the program under ``nsys profile`` with opscope's own streams, and tell opscope how it ends.

``nsys profile`` replaces the program's streams by pipes, writes to them itself, and returns 0 when
``--duration`` is over while the program still runs. So it starts this script, which imports nothing of
opscope and runs by ``python -I -S``: starter.py STDIN STDOUT STDERR STATUS COMMAND [ARGS]..., with numbers of
inherited files. It writes lines to STATUS: ``starter PID``, ``pid PID`` and ``exit WAITSTATUS``, or ``failed
ERRNO``.
"""

import os
import signal
import sys


def main() -> int:
    # signals are for the program, which is in this process group; a handler of Python, unlike SIG_IGN, is
    # not inherited
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    files = [int(word) for word in sys.argv[1:5]]
    status, command = files.pop(), sys.argv[5:]
    for index, file in enumerate(files):
        os.dup2(file, index)
    for file in files:
        os.close(file)
    os.set_inheritable(status, False)
    os.write(status, b"starter %d\n" % os.getpid())
    try:
        # Python ignores these two signals, and the program would inherit that
        child = os.posix_spawnp(
            command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except OSError as error:
        os.write(status, b"failed %d\n" % (error.errno or 0))
        return 127
    os.write(status, b"pid %d\n" % child)
    _, ended = os.waitpid(child, 0)
    os.write(status, b"exit %d\n" % ended)
    code = os.waitstatus_to_exitcode(ended)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
