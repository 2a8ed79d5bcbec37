"""The methods of a profile that ask its questions, each made from its question's record at first use.

The module of a question loads the analysis behind it. So the class holds a small placeholder for each method,
which loads the module once and then replaces itself by the method. ``methods.pyi`` has the types; it is made
by ``scripts/make_questions.py``, and a test compares it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, Final

from . import registry
from .index import QUESTIONS
from .record import CATEGORIES, Question

#: The arguments of ``select``, which every selectable method takes as well.
WHERE: Final = ("steps", "device", "rank", "layer", "range", "key")


class _Method:
    """A placeholder for a method that has not been used yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, owner: object | None, kind: type[Any]) -> Any:
        method = method_of(registry.question(self.name))
        setattr(Questions, self.name, method)
        return method if owner is None else method.__get__(owner, kind)


class Questions:
    """The methods that ask each question of ``core/question/index.py``."""


for _name in QUESTIONS:
    setattr(Questions, _name, _Method(_name))


def method_of(question: Question) -> Callable[..., Any]:
    """Return the method that asks the question: its parameters, its docstring with the frames' columns."""

    def method(self: Any, *given: Any, **named: Any) -> Any:
        if CATEGORIES in named and CATEGORIES not in question.signature:
            raise TypeError(f"{question.name}() has no argument {CATEGORIES!r}")
        where = {name: named.pop(name) for name in WHERE if name in named}
        if where and question.selectable:
            return self.select(**where).ask(question, *given, **named)
        return self.ask(question, *given, **named, **where)

    functools.update_wrapper(method, question.answer, assigned=("__doc__",), updated=())
    del method.__wrapped__  # type: ignore[attr-defined]
    method.__name__, method.__qualname__ = question.name, f"Questions.{question.name}"
    method.__module__ = question.answer.__module__
    method.__signature__ = _signature(question)  # type: ignore[attr-defined]
    if method.__doc__ is not None:
        method.__doc__ = documented(method.__doc__, question)
    return method


def _signature(question: Question) -> inspect.Signature:
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    where = inspect.Parameter("where", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[Where]")
    parameters = [own, *question.signature.values(), *([where] if question.selectable else ())]
    return inspect.Signature(parameters, return_annotation="pl.DataFrame")


def documented(said: str, question: Question) -> str:
    """Return the docstring ``said`` of a method, followed by the columns of each frame of the question."""
    pieces = [cleandoc(said)]
    for frame in question.frames:
        wide = max(len(column.name) for column in frame.columns)
        pieces += ["", f"``{frame.call}``: {frame.row}.", ""]
        pieces += [
            f"    {column.name:<{wide}}  {column.unit}: {column.meaning}"
            for column in frame.columns
        ]
    return "\n".join(pieces)
