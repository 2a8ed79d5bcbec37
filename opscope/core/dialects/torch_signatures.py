"""The names of positional arguments of PyTorch's Python functions, for markers that give arguments in order.

Only functions whose cost depends on such an argument are here. The names are those of the signatures of
``torch``, ``torch.nn.functional`` and ``torch.Tensor``, which have been the same since PyTorch 1.0 where
both have a function (a method's first argument is the tensor itself).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

_CONV: Final = "input weight bias stride padding dilation groups"
_TRANSPOSED: Final = "input weight bias stride padding output_padding groups dilation"
_MAX_POOL: Final = "input kernel_size stride padding dilation ceil_mode return_indices"
_AVG_POOL: Final = "input kernel_size stride padding ceil_mode count_include_pad divisor_override"
_SIGNATURES: Final = {
    "conv1d conv2d conv3d": _CONV,
    "conv_transpose1d conv_transpose2d conv_transpose3d": _TRANSPOSED,
    "max_pool1d max_pool2d max_pool3d": _MAX_POOL,
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices": _MAX_POOL,
    "avg_pool1d avg_pool2d avg_pool3d": _AVG_POOL,
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": "input output_size",
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": "input output_size",
    "softmax log_softmax cumsum cumprod": "input dim",
    "sum mean": "input dim keepdim",
    "index_select gather": "input dim index",
    "topk": "input k dim",
    "dropout": "input p training",
    "einsum": "equation",
    "randperm": "n",
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal",
}


def _by_name() -> Iterator[tuple[str, tuple[str, ...]]]:
    for names, signature in _SIGNATURES.items():
        for name in names.split():
            yield name, tuple(signature.split())


_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(dict(_by_name()))


def argument(module: str, function: str, position: int) -> str:
    """Return the name of a positional argument, ``arg3`` if it is not known."""
    names = _ARGUMENTS.get(function, ()) if _is_torch(module) else ()
    return names[position] if position < len(names) else f"arg{position}"


def _is_torch(module: str) -> bool:
    return module in ("torch", "Tensor") or module.startswith("torch.")
