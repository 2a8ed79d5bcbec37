"""The facts about layers in a model's configuration: the ``config.json`` beside its weights, read as data.
The keys are those of Hugging Face's configurations; a fact may have several keys, depending on the family
of the model. No model is recognised by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Ops that represent a whole layer of experts, whose weights are not among the arguments.
EXPERT_LAYERS: Final = ("vllm::moe_forward", "vllm::moe_forward_shared")
#: The one of these that also computes the shared experts.
WITH_SHARED: Final = "vllm::moe_forward_shared"
#: The parameter from which a layer of experts is priced. No parameter in a trace can have this name.
EXPERTS: Final = "~experts"
_HIDDEN: Final = ("hidden_size", "n_embd", "d_model")
_EXPERT_INNER: Final = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
_EXPERTS: Final = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_ACTIVE: Final = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
_HEADS: Final = ("num_attention_heads", "n_head", "num_heads")
_LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers")
#: Sub-configurations that hold the language model of a multimodal model.
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
#: Activations without a gate: two products per expert, not three.
_UNGATED: Final = ("relu", "relu2")
_LARGEST: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Weights:
    """How an expert's weights are stored: bits per element (0: as the input), and the bytes of the scale of
    each ``block`` of elements (0: none). ``products``: the dtype to which the input of their products is
    quantised, "" for none."""

    bits: int
    block: int = 0
    scale_bytes: int = 0
    products: str = ""

    def nbytes(self, elements: int) -> int:
        """Return the bytes of this many elements with their scales."""
        scales = -(-elements // self.block) * self.scale_bytes if self.block else 0
        return -(-elements * self.bits // 8) + scales


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes in a configuration; None if it lacks one.

    ``inner``: the intermediate size of an expert; ``shared``: the size of all shared experts together;
    ``active``: experts for each token; ``head``: the size of a head. ``windows``: the sliding window of each
    layer in keys, 0 for none; None if the configuration lacks them.
    """

    hidden: int | None
    inner: int | None
    experts: int | None
    active: int | None
    shared: int
    heads: int | None
    head: int | None
    layers: int | None
    gated: bool
    weights: Weights | None
    windows: tuple[int, ...] | None


def model_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Return the facts in a configuration; values of a wrong type count as absent."""
    facts = next((raw[name] for name in _NESTED if isinstance(raw.get(name), dict)), raw)
    inner = _first(facts, _EXPERT_INNER)
    hidden, heads = _first(facts, _HIDDEN), _first(facts, _HEADS)
    return ModelConfig(
        hidden=hidden,
        inner=inner,
        experts=_first(facts, _EXPERTS),
        active=_first(facts, _ACTIVE),
        shared=_shared(facts, inner),
        heads=heads,
        head=_first(facts, ("head_dim",)) or (hidden // heads if hidden and heads else None),
        layers=_first(facts, _LAYERS),
        gated=facts.get("hidden_act", facts.get("mlp_hidden_act")) not in _UNGATED,
        weights=_weights(facts.get("quantization_config", raw.get("quantization_config"))),
        windows=_windows(facts),
    )


def _first(facts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if (value := _count(facts.get(name))) is not None), None)


def _count(value: Any) -> int | None:
    """Return a positive integer of a plausible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value < _LARGEST else None


def _shared(facts: Mapping[str, Any], inner: int | None) -> int:
    stated = _first(facts, ("shared_expert_intermediate_size", "shared_intermediate_size"))
    shared = _first(facts, ("n_shared_experts", "num_shared_experts"))
    return stated or (shared or 0) * (inner or 0)


def _weights(quantization: Any) -> Weights | None:
    """Return how weights are stored; None if they are quantised in a way that is not known here."""
    if not isinstance(quantization, dict):
        return Weights(0)
    methods = {str(quantization.get(name)).lower() for name in ("quant_method", "quant_algo")}
    if "mxfp4" in methods:
        return Weights(4, 32, 1)
    if methods & {"nvfp4", "modelopt_fp4"}:
        return Weights(4, 16, 1, "f4e2m1")
    if "fp8" in methods:
        block = _block(quantization.get("weight_block_size"))
        return Weights(8, block, 4 if block else 0, "f8e4m3fn")
    if "compressed-tensors" in methods:
        return _compressed(quantization.get("config_groups"))
    bits = _count(quantization.get("bits", quantization.get("w_bit")))
    group = _count(quantization.get("group_size", quantization.get("q_group_size")))
    if methods & {"awq", "gptq", "gptq_marlin"} and bits in (2, 3, 4, 8):
        return Weights(bits, group or 0, 2)
    return None


#: By type and bits of weights: the bytes of a scale, and the dtype of products if the input has the same.
_COMPRESSED: Final = {
    ("float", 4): (1, "f4e2m1"), ("float", 8): (4, "f8e4m3fn"), ("int", 4): (2, ""), ("int", 8): (2, "i8")
}  # fmt: skip


def _compressed(groups: Any) -> Weights | None:
    """Return how the weights of ``compressed-tensors`` are stored, if all layers are of one group."""
    (group,) = groups.values() if isinstance(groups, dict) and len(groups) == 1 else ({},)
    stored, given = (
        part if isinstance(group, dict) and isinstance(part := group.get(name), dict) else {}
        for name in ("weights", "input_activations")
    )
    kind = (str(stored.get("type")), _count(stored.get("num_bits")))
    if kind not in _COMPRESSED:
        return None
    scale, products = _COMPRESSED[kind]
    block = _block(stored.get("block_structure")) or _count(stored.get("group_size")) or 0
    alike = kind == (given.get("type"), given.get("num_bits"))
    return Weights(kind[1] or 0, block, scale if block else 0, products if alike else "")


def _block(sizes: Any) -> int:
    """Return the elements of a two-dimensional block of weights, 0 for none."""
    is_block = isinstance(sizes, list) and len(sizes) == 2 and all(map(_count, sizes))
    return sizes[0] * sizes[1] if is_block else 0


def _windows(facts: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the sliding window of each layer; None if the configuration does not show which layers have
    one."""
    layers, window = _first(facts, _LAYERS), _count(facts.get("sliding_window"))
    if layers is None or layers > 4_096:
        return None
    if window is None or facts.get("use_sliding_window") is False:
        return (0,) * layers if "sliding_window" in facts else None
    kinds = facts.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    return (window,) * layers if kinds is None and "max_window_layers" not in facts else None
