"""Classify Python files: the user's code, a library that may define the model, or internals.

From a call's stack, opscope keeps the user's frames and, before them, the innermost frame of a library:
``transformers/models/bert/modeling_bert.py:364 < train.py:20``. Internals are packages that run every model
(frameworks, trainers, launchers) or help to write one (einops): their lines are the same for all layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from opscope.core.schema import Frame

#: The most frames of the user that are kept of a stack; one frame of a library comes before them.
LIMIT: Final = 3
#: Files that torch.compile generates: a folder of two letters and a hash, wherever its cache is.
GENERATED: Final = re.compile(r"[/\\][a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py\Z")
#: The folder of installed packages, at the end of any path.
_INSTALLED: Final = re.compile(r"^(?:.*[/\\])?(?:site|dist)-packages[/\\]")
#: Packages whose lines show nothing about a model: frameworks, trainers, launchers, helpers and test tools.
_NAMES: Final = (
    "torch functorch torchgen torch_xla triton tensorflow tensorboard keras tf_keras tensorflow_estimator"
    " jax jaxlib flax optax chex orbax mindspore onnxruntime tensorrt"
    " accelerate lightning pytorch_lightning lightning_fabric lightning_utilities deepspeed horovod"
    " fastai ignite composer ray apex transformer_engine xformers flash_attn bitsandbytes liger_kernel peft"
    " numpy scipy pandas polars cupy numba einops opt_einsum jaxtyping beartype typeguard decorator"
    " wrapt tqdm absl six typing_extensions packaging nvtx opscope"
    " pytest _pytest pluggy hypothesis IPython ipykernel hydra fire click typer debugpy coverage"
)
_INTERNALS: Final = frozenset(_NAMES.split())
#: Parts of libraries that define no model: trainers, generation loops, wrappers and patches.
_DRIVERS: Final = re.compile(
    r"^(?:transformers/(?!models/)|trl/trainer/|sentence_transformers/(?:trainer|fit)"
    r"|diffusers/(?:utils|training_utils)"
    r"|timm/(?:utils|scheduler|optim|data)/|torchvision/(?:transforms|datasets|io)/)"
)
#: Libraries of models. They identify a library's file by a path without its folder, as Kineto writes it.
_OF_MODELS: Final = (
    "transformers/", "diffusers/", "timm/", "torchvision/", "torchaudio/", "torchtune/", "trl/",
    "peft/", "accelerate/", "lightning/", "pytorch_lightning/", "sentence_transformers/",
    "keras_hub/", "keras_nlp/", "keras_cv/",
)  # fmt: skip

#: A frame of a stack: file, line, function.
StackFrame: TypeAlias = "tuple[str, int, str]"
#: opscope's own code: its wrappers around the user's functions, and what starts and stops a recording; and
#: adapters in packages of their own (``opscope_openvino``).
_OURS: Final = (
    *(f"/opscope/{room}/" for room in ("adapters", "backends", "callbacks", "cli", "core")),
    "-packages/opscope_",
)
_FOREIGN_PARTS: Final = ("site-packages", "dist-packages", "/lib/python3", "<", *_OURS)
_FOREIGN_STARTS: Final = (
    "torch/",
    "<",
    "threading.py",
    "multiprocessing/",
    "importlib",
    "runpy.py",
)


def library_file(path: str) -> str | None:
    """Return ``timm/models/resnet.py`` for a file of an installed library; None for others and internals."""
    match = _INSTALLED.match(path)
    inside = (path[match.end() :] if match else path).replace("\\", "/")
    if not match and not inside.startswith(_OF_MODELS):
        return None
    package = inside.partition("/")[0].removesuffix(".py")
    if package in _INTERNALS or _DRIVERS.match(inside):
        return None
    return inside


def is_internal_package(name: str) -> bool:
    """Whether a package's lines show nothing about a model: a framework, a trainer, a launcher, a helper."""
    return name in _INTERNALS


def has_models(name: str) -> bool:
    """Whether a package is a library of models though it has an adapter: some of its files define a model."""
    return f"{name}/" in _OF_MODELS


def is_library_s(path: str) -> bool:
    """Whether the file belongs to an installed package, internals included."""
    return bool(_INSTALLED.match(path)) or path.startswith(_OF_MODELS)


def select_frames(users: Iterable[tuple[Frame, bool]], limit: int = LIMIT) -> tuple[Frame, ...]:
    """Return the frames to keep: up to ``limit`` of the user's, and before them the innermost of a library.

    ``users`` gives frames, innermost first, each with True if it is the user's and False if a library's.
    """
    frames: list[Frame] = []
    own = 0
    for frame, is_users in users:
        if is_users:
            frames.append(frame)
            own += 1
            if own == limit:
                break
        elif not frames:
            frames.append(frame)
    return tuple(frames)


def is_user_file(path: str) -> bool:
    """Whether this file is the user's own code, not a library's."""
    return not path.startswith(_FOREIGN_STARTS) and not any(part in path for part in _FOREIGN_PARTS)


def is_ours(path: str) -> bool:
    """Whether the file is opscope's own."""
    return any(part in path for part in _OURS)


def is_user_s(path: str) -> bool:
    """Whether the file is the user's own, given known folders of libraries and of the user."""
    return not is_library_s(path) and is_user_file(path) and not GENERATED.search(path)


def kept_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames to keep of a stack (innermost first): see ``select_frames``."""
    return select_frames(owned for owned in map(_with_owner, frames) if owned is not None)


def _with_owner(frame: Frame) -> tuple[Frame, bool] | None:
    file, line = frame
    if is_library_s(file):
        inside = library_file(file)
        return None if inside is None else ((inside, line), False)
    return (frame, True) if is_user_file(file) else None


def parse_stack(text: str) -> list[StackFrame]:
    """Return the frames of a stack written as in ``host_samples``, innermost first; malformed lines are
    left out."""
    frames = []
    for line in text.split("\n"):
        parts = line.split("\t")
        if len(parts) == 3 and parts[1].isdecimal() and len(parts[1]) < 10:
            frames.append((parts[0], int(parts[1]), parts[2]))
    return frames
