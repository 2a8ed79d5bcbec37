"""Every Python that ``opscope run`` starts loads this: run the user's own hook, then start recording.

Any Python may load this file, also an old one and one without opscope. So it must parse in every version,
leave the process as it was, and raise only what the user's own hook raises.
"""

import os
import sys


def _chain():  # type: ignore[no-untyped-def]
    # Run the sitecustomize that this file hides, under its own name. Some module of that name must
    # exist afterwards, for the importer that loaded this file.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise  # the user's file exists and is broken: site.py reports it as it would without us
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _start():  # type: ignore[no-untyped-def]
    folder = os.environ.get("OPSCOPE_RUN_DIR")
    if not folder or sys.version_info < (3, 10):
        return
    try:
        from opscope.cli.child import start
    except ImportError as error:
        reason = "this Python cannot import opscope: %s" % (error,)  # noqa: UP031
    else:
        try:
            start(os.environ)
            return
        except Exception as error:  # noqa: BLE001  no error of opscope may end the user's program
            reason = "%s: %s" % (type(error).__name__, error)  # noqa: UP031
    try:
        with open(os.path.join(folder, "unrecorded-%d.txt" % os.getpid()), "w") as file:  # noqa: UP031
            file.write("%s\n%s\n" % (sys.executable, reason))  # noqa: UP031
    except (OSError, IOError):  # noqa: UP024  two classes in old Pythons
        pass  # the run's folder is gone, so this cannot be reported


try:
    _chain()  # type: ignore[no-untyped-call]
finally:
    _start()  # type: ignore[no-untyped-call]
