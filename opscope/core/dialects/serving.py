"""Read the names that inference servers give to their engine steps: prefill, decode, mixed, draft …

vLLM writes ``execute_context_1(888)_generation_16(16)`` (requests and tokens of each kind; earlier
``execute_new_1_cached_16``; with sums ``execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55…)``),
SGLang ``step[EXTEND bs=2 toks=512]`` and ``step[DECODE bs=16]``, ATOM ``decode[bs=117/128 tok=117 d=117]``,
TensorRT-LLM ``[Executor] _forward_step 12: 1 ctx reqs, 640 ctx tokens, 16 gen reqs``. opscope's adapters
write vLLM's form with sums after the library's name (``core/capture/engine_kind.py``). The numbers differ
from step to step; the names' common part is the kind of step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from opscope.core.schema import ENGINE_KINDS, ENGINE_STEP

PREFILL, DECODE, MIXED = "prefill", "decode", "prefill and decode"
VERIFY, DRAFT, IDLE = "verify", "draft", "idle"
VLLM, SGLANG, ATOM, TENSORRT_LLM = "vLLM", "SGLang", "ATOM", "TensorRT-LLM"
#: Sources of a step's kind: the program's own calls of ``opscope.step``; a word in a range's name.
OPSCOPE, NAMED = "opscope", "name"
LIMIT: Final = 512
#: A number, or several joined ones: tokens with their squares, or parts.
_NUMBERS: Final = re.compile(r"[0-9]+(?:[_.,/][0-9]+)*")
#: No step has a thousand million requests or tokens, and sums over many steps must fit into 64 bits.
_COUNT: Final = r"([0-9]{1,9})(?![0-9])"
_SUM: Final = r"([0-9]{1,15})(?![0-9])"


class Share(NamedTuple):
    """The share of one phase's requests in a step; None where the name does not give a value. ``queries``:
    tokens that are computed (Σq); ``keys``: tokens that they may attend to, including those in the cache
    (Σk); ``qq``, ``qk``: Σq² and Σq·k over the requests."""

    requests: int | None = None
    queries: int | None = None
    keys: int | None = None
    qq: int | None = None
    qk: int | None = None


NOTHING: Final = Share(0, 0, 0, 0, 0)


class EngineStep(NamedTuple):
    """One step of a server's engine, as its name tells it.

    ``kind``: PREFILL, DECODE, MIXED, VERIFY, DRAFT or IDLE. ``padded``: the number of requests to which the
    batch was padded. ``confidence``: below 1 where the name leaves the kind in doubt. ``both``: the figures
    of both phases together, if the name does not divide them.
    """

    server: str
    kind: str
    prefill: Share = NOTHING
    decode: Share = NOTHING
    padded: int | None = None
    confidence: float = 1.0
    both: Share = Share()


def engine_step(text: str) -> EngineStep | None:
    """Return the engine step that a range's name describes; None if it describes none."""
    if len(text) > LIMIT:
        return None
    # a long run has a name for each step: its first characters decide which form is tried
    for begin, forms in _BY_BEGIN:
        if text.startswith(begin):
            step = _first(forms, text)
            if step is not None:
                return step
    return _first(_FORMS, text) if _NUMBERS.search(text) else None


def _first(forms: Sequence[_Form], text: str) -> EngineStep | None:
    """Return the step from the first form that fits; None if none does."""
    for form, read in forms:
        match = form.search(text)
        if match and (step := read(match)) is not None:
            return step
    return None


_OWN: Final = re.compile(rf"{ENGINE_STEP}([a-z]+)((?: [a-z_]+=[0-9]{{1,15}})*)\Z")


def own_step(text: str) -> EngineStep | None:
    """Return the step of a mark from ``opscope.step(kind=…)``; None for any other text."""
    match = _OWN.match(text) if text.startswith(ENGINE_STEP) else None
    if match is None or match.group(1) not in ENGINE_KINDS:
        return None
    of_step, fields = match.group(1), _fields(match.group(2))
    requests, new, cached = (
        fields.get(name) for name in ("requests", "new_tokens", "cached_tokens")
    )
    if of_step == IDLE:
        return EngineStep(OPSCOPE, IDLE)
    if of_step == DECODE and new is None:
        new = requests
    keys = None if new is None or cached is None else new + cached
    share = Share(requests, new, keys)
    if of_step == "mixed":
        return EngineStep(OPSCOPE, MIXED, Share(), Share(), both=share)
    if requests is not None and requests in (1, new):  # one request, or one token for each request
        qq = None if new is None else new * new // max(requests, 1)
        qk = None if keys is None or new is None else keys * new // max(requests, 1)
        share = Share(requests, new, keys, qq, qk)
    if of_step == PREFILL:
        return EngineStep(OPSCOPE, PREFILL, prefill=share)
    return EngineStep(OPSCOPE, of_step, decode=share)


#: Ranges that a speculating server pushes beside its named steps. Without named steps, these names prove
#: nothing.
BESIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("draft", "draft_extend", "draft_forward", "EAGLE_DRAFT"), DRAFT),
        **dict.fromkeys(("EAGLE_VERIFY", "verify"), VERIFY),
    }
)


def kind(text: str) -> str | None:
    """Return the kind of a server's step in a range's name; None for other ranges and idle steps."""
    step = engine_step(text)
    return None if step is None or step.kind == IDLE else step.kind


def pattern(text: str) -> str:
    """Return the name with ``*`` for each of its numbers."""
    return _NUMBERS.sub("*", text)


def label(text: str) -> str | None:
    """Return one name for all steps of a kind that a server names in the same way; None for other ranges."""
    of_step = kind(text)
    return None if of_step is None else f"{of_step}: {pattern(text)}"


# ------------------------------------------------------------------------------------- the parts of a name


def _kind(prefill: Share, decode: Share) -> str:
    """Return the kind of a step with both phases: drafts are verified if decoding requests compute
    several tokens."""
    if prefill.requests:
        return MIXED if decode.requests else PREFILL
    if not decode.requests:
        return IDLE
    return VERIFY if (decode.queries or 0) > decode.requests else DECODE


def _prefill(requests: int, queries: int | None = None, qq: int | None = None) -> Share:
    """Return a prefill whose name gives no lengths of the cache."""
    if not requests:
        return NOTHING
    if queries is not None:
        most = queries * queries
        if requests == 1:
            qq = most
        elif qq is not None and not most <= qq * requests <= most * requests:
            qq = None  # such sums belong to no requests
    return Share(requests, queries, None, qq, None)


def _decode(requests: int, queries: int | None, keys: int | None = None) -> Share:
    """Return a decode; if each request computes one token, Σq² is the number of requests and Σqk is Σk."""
    if not requests:
        return NOTHING
    if queries != requests:
        return Share(requests, queries, keys, None, None)
    return Share(requests, queries, keys, requests, keys)


def _of_counts(server: str, prefill: Share, decode: Share) -> EngineStep:
    return EngineStep(server, _kind(prefill, decode), prefill, decode)


# --------------------------------------------------------------------------------------------- vLLM

_SUMS: Final = rf"\(sq{_COUNT}sk{_COUNT}sqsq{_SUM}sqsk{_SUM}\)"
_VLLM_SUMS: Final = re.compile(
    rf"(?:(transformers|onnxruntime_genai) )?"
    rf"execute_[0-9]+_context_{_COUNT}{_SUMS}_generation_{_COUNT}{_SUMS}"
)
_SUMS_BEGIN: Final = "execute_"
#: The same name for Polars, which has no look-ahead: after each number comes another character anyway.
WITH_SUMS: Final = "^" + _VLLM_SUMS.pattern.replace("(?![0-9])", "")
#: The libraries whose steps opscope's adapters name, by the adapter's name.
LIBRARIES: Final = {"transformers": "transformers", "onnxruntime_genai": "ONNX Runtime GenAI"}
_TOKENS: Final = rf"\({_COUNT}(?:_{_SUM})?\)"
_VLLM: Final = re.compile(
    rf"(?:execute_)?(?:[0-9]+_)?context_{_COUNT}{_TOKENS}_generation_{_COUNT}{_TOKENS}"
)
_VLLM_NEW: Final = re.compile(rf"execute_new_{_COUNT}_cached_{_COUNT}")
#: A request that is no longer new may still be in a chunk of its prefill.
_CHUNK_DOUBT: Final = 0.9


def _vllm_sums(match: re.Match[str]) -> EngineStep:
    library, *numbers = match.groups()
    counts = [int(text) for text in numbers]
    server = VLLM if library is None else LIBRARIES[library]
    return _of_counts(server, Share(*counts[:5]), Share(*counts[5:]))


def _vllm(match: re.Match[str]) -> EngineStep:
    of_context, tokens, squares, of_generation, generated = (
        None if text is None else int(text) for text in match.groups()[:5]
    )
    return _of_counts(
        VLLM, _prefill(of_context or 0, tokens, squares), _decode(of_generation or 0, generated)
    )


def _vllm_new(match: re.Match[str]) -> EngineStep:
    new, cached = int(match.group(1)), int(match.group(2))
    step = _of_counts(VLLM, _prefill(new), _decode(cached, None))
    return EngineStep(
        VLLM, step.kind, step.prefill, step.decode, confidence=_CHUNK_DOUBT if cached else 1.0
    )


# ------------------------------------------------------------------------------------- SGLang and ATOM

_SGLANG: Final = re.compile(r"step\[([A-Z_0-9]+)((?:\s[^\]]*)?)\]")
_ATOM: Final = re.compile(r"^(prefill|decode)\[([^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]")
_FIELD: Final = re.compile(r"(\w+)=([0-9]{1,15})(?![0-9])(?:/([0-9]{1,9}))?")
_SGLANG_KINDS: Final = {
    "EXTEND": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "DLLM_EXTEND": PREFILL,
    "DECODE": DECODE,
    "MIXED": MIXED,
    "TARGET_VERIFY": VERIFY,
    "VERIFY": VERIFY,
    "DRAFT_EXTEND": DRAFT,
    "DRAFT_EXTEND_V2": DRAFT,
    "IDLE": IDLE,
}


def _fields(text: str) -> dict[str, int]:
    return {name: int(value) for name, value, _ in _FIELD.findall(text)}


def _sums(fields: dict[str, int], phase: str, requests: int | None, tokens: int | None) -> Share:
    """Return one phase's share of SGLang's fields: ``c_sq=… c_sk=… c_sqsq=… c_sqsk=…``.

    Only a mixed step has ``c_sq`` and ``g_sq``; in other steps the batch or ``toks`` has these figures.
    """
    names = [f"{phase}_{name}" for name in ("sq", "sk", "sqsq", "sqsk")]
    if not any(name in fields for name in names):
        if requests is None:
            return Share(None, tokens)
        return _prefill(requests, tokens) if phase == "c" else _decode(requests, tokens)
    return Share(requests, fields.get(names[0], tokens), *(fields.get(name) for name in names[1:]))


def _sglang(match: re.Match[str]) -> EngineStep | None:
    of_mode = _SGLANG_KINDS.get(match.group(1))
    if of_mode is None:
        return None
    fields = _fields(match.group(2))
    batch, tokens = fields.get("bs"), fields.get("toks")
    if of_mode == IDLE:
        return EngineStep(SGLANG, IDLE)
    if of_mode == PREFILL:
        return EngineStep(SGLANG, PREFILL, prefill=_sums(fields, "c", batch, tokens))
    if of_mode == MIXED:
        context, generation = fields.get("c"), fields.get("g")
        both = Share(batch, tokens)  # the sums are known, but not always their parts
        if context is None and generation is None:
            return EngineStep(SGLANG, MIXED, Share(), Share(), both=both)
        rest = None if tokens is None or generation is None else max(tokens - generation, 0)
        prefill = _sums(fields, "c", context, rest)
        decode = _sums(fields, "g", generation, generation)
        if context is None or generation is None:
            return EngineStep(SGLANG, MIXED, prefill, decode, both=both)
        return _of_counts(SGLANG, prefill, decode)  # the last chunk of a prefill may be alone
    alone = batch if of_mode == DECODE and tokens is None else tokens
    # the name of a draft's extension gives its sums in the fields of a prefill
    decode = _sums(fields, "c" if of_mode == DRAFT and "c_sk" in fields else "g", batch, alone)
    if of_mode == DECODE:  # several tokens per request are drafts being verified
        of_mode = _kind(NOTHING, decode) if decode.requests else DECODE
    return EngineStep(SGLANG, of_mode, decode=decode)


def _atom(match: re.Match[str]) -> EngineStep | None:
    fields = _fields(match.group(2))
    batch, tokens = fields.get("bs"), fields.get("tok")
    if batch is None:
        return None
    padding = re.search(r"\bbs=[0-9]+/([0-9]{1,9})(?![0-9])", match.group(2))
    padded = int(padding.group(1)) if padding else None
    sums = (fields.get("sk"), fields.get("sqsq"), fields.get("sqsk"))
    detailed = any(value is not None for value in sums)
    if match.group(1) == "prefill":
        prefill = Share(batch, tokens, *sums) if detailed else _prefill(batch, tokens)
        return EngineStep(ATOM, PREFILL, prefill=prefill, padded=padded)
    decode = Share(batch, tokens, *sums) if detailed else _decode(batch, tokens)
    # requests in a prefill share the batch, but the name does not divide the tokens
    if fields.get("p"):
        parts = Share(fields["p"]), Share(fields.get("d"))
        return EngineStep(ATOM, MIXED, *parts, padded, both=Share(batch, tokens, sums[0]))
    return EngineStep(ATOM, _kind(NOTHING, decode), decode=decode, padded=padded)


# ------------------------------------------------------------------------------------- TensorRT-LLM

_TENSORRT_LLM: Final = re.compile(
    rf"_forward_step(?: [0-9]+)?: {_COUNT} ctx reqs(?:, {_COUNT} ctx tokens)?, {_COUNT} gen reqs"
    rf"(?:, {_COUNT} gen tokens)?"
)


def _tensorrt_llm(match: re.Match[str]) -> EngineStep:
    context, tokens, generation, generated = (
        None if text is None else int(text) for text in match.groups()
    )
    decode = _decode(generation or 0, generation if generated is None else generated)
    return _of_counts(TENSORRT_LLM, _prefill(context or 0, tokens), decode)


# ------------------------------------------------------------------------------------- other names

_FIRST: Final = r"context|ctx|prefill|extend|new"
_THEN: Final = r"generation|gen|decode|cached"
#: How many requests of either kind: the number is after its word, or before it.
_PAIRS: Final = tuple(
    (re.compile(form.format(_FIRST)), re.compile(form.format(_THEN)))
    for form in (
        r"(?<![a-z])(?:{})(?:[ _]?re?qs?)?[ _:=]{{1,2}}([0-9]{{1,9}})(?![0-9])",
        r"([0-9]{{1,9}})(?![0-9])[ _](?:{})(?![a-z])",
    )
)
#: Words that stand alone, in names that give no counts.
_WORD: Final = re.compile(r"(?<![a-z])(prefill|extend|decode|mixed)(?![a-z])")
_WORDS: Final = {"prefill": PREFILL, "extend": PREFILL, "decode": DECODE, "mixed": MIXED}
#: The size of the batch, in a name with one of the words.
_BATCH: Final = re.compile(
    r"(?<![a-z])(?:bs|batch(?:[ _]?size)?|re?qs?|requests)[ _:=]{1,2}([0-9]{1,9})(?![0-9])"
)
#: A word alone. It proves a step only if the word of the other phase occurs, too.
_BARE: Final = re.compile(
    r"(prefill|extend|decode|mixed)(?:[ _](?:step|forward|iteration|token))?", re.IGNORECASE
)
#: Ranges in which a server captures a graph (``capture_128_decode``), before it serves.
_CAPTURE: Final = "capture"
_WORD_DOUBT: Final = 0.8
_PAIR_DOUBT: Final = 0.9


def _other(match: re.Match[str]) -> EngineStep | None:
    lower = match.group(0).lower()
    if lower.startswith(_CAPTURE):
        return None
    for first, then in _PAIRS:
        begun, continued = first.search(lower), then.search(lower)
        if begun and continued:
            prefill = _prefill(int(begun.group(1)))
            decode = _decode(int(continued.group(1)), None)
            return EngineStep(
                NAMED, _kind(prefill, decode), prefill, decode, confidence=_PAIR_DOUBT
            )
    kinds = {_WORDS[word] for word in _WORD.findall(lower)}
    if len(kinds) != 1:
        return None
    of_word, batch = kinds.pop(), _BATCH.search(lower)
    requests = int(batch.group(1)) if batch else None
    share = Share(requests)
    return EngineStep(
        NAMED,
        of_word,
        NOTHING if of_word == DECODE else share if of_word == PREFILL else Share(),
        NOTHING if of_word == PREFILL else share if of_word == DECODE else Share(),
        confidence=_WORD_DOUBT,
    )


def bare_step(text: str) -> EngineStep | None:
    """Return the step that a word without counts may name; None for all other texts."""
    match = _BARE.fullmatch(text)
    return None if match is None else _other(match)


_Form: TypeAlias = "tuple[re.Pattern[str], Callable[[re.Match[str]], EngineStep | None]]"
#: The forms of names in the order in which they are tried, each with its reader.
_FORMS: Final[tuple[_Form, ...]] = (
    (_VLLM_SUMS, _vllm_sums),
    (_VLLM, _vllm),
    (_VLLM_NEW, _vllm_new),
    (_SGLANG, _sglang),
    (_ATOM, _atom),
    (_TENSORRT_LLM, _tensorrt_llm),
    (re.compile(r"(?s).+"), _other),
)
#: The forms that are tried first, by the beginning of a name.
_BY_BEGIN: Final[tuple[tuple[str, tuple[_Form, ...]], ...]] = (
    (_SUMS_BEGIN, _FORMS[:3]),
    ("step[", (_FORMS[3],)),
    ("[Executor]", (_FORMS[5],)),
)
