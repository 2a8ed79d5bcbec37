"""Names for code that a person types: the cells of a notebook (``In [3]``) and the lines of a prompt."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

#: IPython's file names of cells, on a terminal and in older kernels; they contain the cell's number.
_NUMBERED: Final = re.compile(r"<ipython-input-(\d+)-\w+>\Z")
#: File names at Python's prompt from 3.13 on. Before 3.13, and for a program piped in, it is <stdin>.
_PROMPT: Final = re.compile(r"<python-input-(\d+)>\Z")
_DIGITS: Final = re.compile(r"\d+")
#: The file names under which IPython compiles a cell whose first line is a magic. Lines are counted from the
#: line after the magic; the calling frame is the cell itself.
_MAGICS: Final = {
    "<timed exec>": "%%time",
    "<timed eval>": "%%time",
    "<magic-timeit>": "%%timeit",
}


def cell(file: str) -> str | None:
    """Return ``In [3]`` for the file name of a cell's code; None for a file.

    Call this when the code is new: a cell that runs again has a new number, but in a kernel (which names
    cells by their text) the same file name.
    """
    match = _NUMBERED.match(file)
    if match:
        return f"In [{match[1]}]"
    if file == "<stdin>":
        return "stdin"
    match = _PROMPT.match(file)
    if match:
        return f"stdin [{match[1]}]"
    shell = _shell()
    if shell is None:
        return None
    if file in _MAGICS:
        return _MAGICS[file]
    named = getattr(shell.compile, "format_code_name", None)  # from IPython 8 on
    match = named and named(file)  # ("Cell", "In[3]")
    number = match and _DIGITS.search(match[1])
    return f"In [{number[0]}]" if number else None


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel, or a command started from one of its cells.

    A notebook keeps output as it was written, so a progress line cannot be overwritten.
    """
    # IPython's kernels set both variables; a user who sets PAGER=cat does not want animated output either
    return "JPY_PARENT_PID" in os.environ or os.environ.get("PAGER") == "cat"


def replaces(force: bool | None) -> bool:
    """Whether to replace an existing profile: ``force`` if given, else True in IPython and notebooks.

    There a cell is often run again, and the code that loads its profile means the last run.
    """
    return _shell() is not None if force is None else force


def _shell() -> Any:
    """Return IPython's shell of this process, or None."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()
