"""How the code that a person types is called: the cells of a notebook, the lines of a prompt."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

#: IPython's own names of cells, on a terminal and in older kernels; the number is in it.
_NUMBERED: Final = re.compile(r"<ipython-input-(\d+)-\w+>\Z")
#: Python's prompt, from 3.13 on; before, and where a program comes in by a pipe, it is <stdin>.
_PROMPT: Final = re.compile(r"<python-input-(\d+)>\Z")
_DIGITS: Final = re.compile(r"\d+")
#: What IPython compiles the rest of a cell as, where its first line is a magic. Lines are counted from behind
#: that line; the frame above is the cell's own.
_MAGICS: Final = {
    "<timed exec>": "%%time",
    "<timed eval>": "%%time",
    "<magic-timeit>": "%%timeit",
}


def cell(file: str) -> str | None:
    """``In [3]`` for the file name of a cell's code; None for a file.

    A cell that runs again has another number, and in a kernel (whose cells are named by their text) the same
    file name: ask when the code is new.
    """
    found = _NUMBERED.match(file)
    if found:
        return f"In [{found[1]}]"
    if file == "<stdin>":
        return "stdin"
    found = _PROMPT.match(file)
    if found:
        return f"stdin [{found[1]}]"
    shell = _shell()
    if shell is None:
        return None
    if file in _MAGICS:
        return _MAGICS[file]
    named = getattr(shell.compile, "format_code_name", None)  # from IPython 8 on
    found = named and named(file)  # ("Cell", "In[3]")
    number = found and _DIGITS.search(found[1])
    return f"In [{number[0]}]" if number else None


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel, or a command that was typed in one of its cells.

    There the output is kept as it was written: nothing in it can be overwritten.
    """
    # IPython's kernels set both; a person who sets PAGER so has no wish for moving output either
    return "JPY_PARENT_PID" in os.environ or os.environ.get("PAGER") == "cat"


def replaces(force: bool | None) -> bool:
    """Whether a profile that exists is replaced: as ``force`` says, else where a person runs this process's
    code cell by cell. There a cell is run again, and what loads its profile means the last run."""
    return _shell() is not None if force is None else force


def _shell() -> Any:
    """IPython's shell of this process, if any."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()
