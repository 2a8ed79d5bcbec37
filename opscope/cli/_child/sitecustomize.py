"""Loaded by every Python that ``opscope run`` starts: runs the user's own hook, then starts recording.

Any Python may meet this file, old ones and ones without opscope too: it must parse everywhere, leave
the process as it found it, and never raise what the user's own hook did not.
"""

import os
import sys


def _chain():  # type: ignore[no-untyped-def]
    # The sitecustomize that this one hides is run under its own name; the importer that loaded this
    # file needs some module under that name afterwards.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise  # theirs is there and broken: site.py reports it as it would without us
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _start():  # type: ignore[no-untyped-def]
    folder = os.environ.get("OPSCOPE_RUN_DIR")
    if not folder or sys.version_info < (3, 10):
        return
    try:
        from opscope.cli.child import start
    except ImportError as error:
        reason = "opscope cannot be imported there: %s" % (error,)  # noqa: UP031
    else:
        try:
            start(os.environ)
            return
        except Exception as error:  # noqa: BLE001  nothing of ours may end the user's program
            reason = "%s: %s" % (type(error).__name__, error)  # noqa: UP031
    try:
        with open(os.path.join(folder, "unrecorded-%d.txt" % os.getpid()), "w") as file:  # noqa: UP031
            file.write("%s\n%s\n" % (sys.executable, reason))  # noqa: UP031
    except (OSError, IOError):  # noqa: UP024  two classes in old Pythons
        pass  # the run's folder is gone: there is nobody left to tell


try:
    _chain()  # type: ignore[no-untyped-call]
finally:
    _start()  # type: ignore[no-untyped-call]
