"""Choose the model of a profile: the given one, or one beside the profile that has all its nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.onnx.model import Model, ModelError, OnnxMissing, read, with_origins
from opscope.readers.errors import BadInput

from .nodes import Explained, explained

#: Number of models beside a profile that are tried, the newest first, and the largest size tried.
_TRIED: Final = 8
_LARGEST_TRIED: Final = 256 << 20
#: Names that a message lists.
_NAMED: Final = 3


def of_given(
    path: str | os.PathLike[str], model: str | os.PathLike[str], nodes: pl.DataFrame
) -> tuple[Model, Explained]:
    """Return a given model and the calls that it explains. Raises BadInput if it is not the profile's."""
    try:
        model_read = read(model)
    except ModelError as error:
        raise BadInput(model, str(error)) from error
    result = explained(nodes, model_read)
    if len(result.missing) == result.known and result.known:
        named = ", ".join(map(repr, result.missing[:_NAMED]))
        more = len(result.missing) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        raise BadInput(
            model,
            f"not the model of {os.fspath(path)}, which ran the nodes {named}{rest}: it has none of them",
        )
    if result.unfit and not any(node is not None for node in result.nodes):
        name, there, here = result.unfit[0]
        raise BadInput(
            model,
            f"not the model of {os.fspath(path)}: its node {name!r} takes {there}, and {here} ran",
        )
    return _original_beside(Path(model), model_read, result, nodes)


def of_folder(path: Path, nodes: pl.DataFrame) -> tuple[Model, Explained, Path] | None:
    """Return the model beside a profile that has all its nodes, with shapes that fit; None without one."""
    if nodes.is_empty():
        return None
    for candidate in _candidates(path):
        try:
            model_read = read(candidate)
        except OnnxMissing:
            return None
        except ModelError:
            continue
        result = explained(nodes, model_read)
        if not result.missing and not result.unfit:
            model, result = _original_beside(candidate, model_read, result, nodes)
            return model, result, candidate
    return None


def _original_beside(
    path: Path, model: Model, result: Explained, nodes: pl.DataFrame
) -> tuple[Model, Explained]:
    """Return the model with the origins of its nodes, if its original lies beside it. A model is the original
    if it makes the same outputs from the same inputs, and its nodes explain fused ones."""
    if not model.saved:
        return model, result
    for candidate in _candidates(path):
        try:
            original = read(candidate)
        except ModelError:
            continue
        if original.saved or set(original.outputs) != set(model.outputs):
            continue
        if not set(model.inputs) <= set(original.inputs):
            continue
        model_with_origins = with_origins(model, original)
        if any(node.origins for node in model_with_origins.nodes):
            return model_with_origins, explained(nodes, model_with_origins)
    return model, result


def _candidates(path: Path) -> Iterator[Path]:
    try:
        there = [
            file for file in path.parent.iterdir() if file.suffix == ".onnx" and file.is_file()
        ]
        sized = [
            (file.stat().st_mtime, file) for file in there if file.stat().st_size <= _LARGEST_TRIED
        ]
    except OSError:
        return
    newest = sorted(sized, key=lambda pair: (-pair[0], pair[1].name))
    yield from [file for _, file in newest if file != path][:_TRIED]
