"""Keeping our own Python frames away from torch.compile's tracer."""

from __future__ import annotations

from typing import Any, Final, TypeVar

_Function = TypeVar("_Function")


def _strategies() -> Any:
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError:  # older torch
        return None

    def mark(code: Any, below: bool) -> None:
        follow = _FrameAction.SKIP if below else _FrameAction.DEFAULT
        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, follow))

    return mark


_mark: Final = _strategies()
#: Whether this torch lets frames be marked.
CAN_MARK: Final = _mark is not None


def untraced(function: _Function, below: bool = True) -> _Function:
    """``function``, its frames run as they are where torch.compile would compile them.

    That happens to a hook that is called between two graphs: compiled, it would think for good that
    it is part of a compilation. ``below``: what it calls is not compiled either; without, the user's
    code below still is. Where the function is traced as part of a graph, nothing changes.
    """
    if _mark is not None:
        _mark(function.__code__, below)  # type: ignore[attr-defined]
    return function
