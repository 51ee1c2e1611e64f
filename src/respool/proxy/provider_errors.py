"""Providers' error responses, classified: overflow with its numbers, invalid, rate and others.

Codes count before texts. Texts are searched in the error's own message only, as the rest of a body
may repeat what the client sent. The texts are from the providers' documentation and users' reports.
Wordings drift, so each has a plainer pattern behind it without numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, cast

import msgspec
from msgspec import Struct

from ..errors import MAX_VALUE
from ..pricing import is_plausible_factor
from ..regex import lazy_compile
from ..wire.json import JSON, Object, get
from .decoders import LenientDecoder

ErrorKind = Literal["overflow", "invalid", "too_large", "rate", "auth", "overloaded", "other"]

MAX_BODY_BYTES: Final = 256 * 1024  # of an error that are read
MAX_TEXT_CHARS: Final = 8 * 1024  # of its message

_MAX_DEPTH = 4  # gateways put an error into the message of another
_EXCERPT_CHARS = 300


class ProviderError(Struct, frozen=True):
    """The classification of an error response.

    `invalid` may be the fault of a projection. `overflow`: the prompt is too long for the context
    window; `too_large`: the body has too many bytes; `auth`: the key, the account or its balance.
    """

    kind: ErrorKind
    code: str = ""  # the provider's own
    message: str = ""  # its start
    limit: int | None = None  # tokens of the context window that the error names
    count: int | None = None  # tokens of the prompt, as the provider counted them
    output: int = 0  # tokens that the limit must hold beside the prompt
    max_bytes: int | None = None  # of a body

    @property
    def max_prompt(self) -> int | None:
        """The tokens that a prompt may have, by the provider's count."""
        return None if self.limit is None else max(0, self.limit - self.output)

    def max_prompt_by(self, counted: int) -> int | None:
        """The same by another counter, which counted `counted` tokens for this prompt."""
        limit = self.max_prompt
        if limit is None or not self.count or counted <= 0:
            return limit
        if not is_plausible_factor(self.count / counted):
            return limit
        return limit * counted // self.count


def classify_error(
    status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> ProviderError:
    """Classify a response with an error status; never raises.

    The format does not matter: gateways and model servers have error shapes of their own.
    """
    value, text = _read(headers, body)
    errors = list(_errors(value))
    texts = [text_of for error in errors if (text_of := _message(error))] or [text]
    text = "\n".join(texts)[:MAX_TEXT_CHARS]
    codes = [code for error in errors for code in _codes(error)]
    found = ProviderError("other", codes[0] if codes else "", texts[-1][:_EXCERPT_CHARS])
    kind = _kind(status, codes, text)
    if kind == "overflow":
        return _with_numbers(found, errors, text)
    if kind == "too_large":
        return msgspec.structs.replace(found, kind=kind, max_bytes=_max_bytes(text))
    return msgspec.structs.replace(found, kind=kind)


def _kind(status: int, codes: list[str], text: str) -> ErrorKind:
    named = {_KINDS[code] for code in codes if code in _KINDS}
    for kind in _PRECEDENCE:
        # A 400 may repeat words of the request; there only a code means a rate limit.
        silent = kind == "rate" and status in (400, 422)
        if kind in named or (kind in _TEXTS and not silent and _TEXTS[kind].search(text)):
            return kind
    if status in _STATUSES:
        return _STATUSES[status]
    return "invalid" if status >= 500 and _TEMPLATE.search(text) else "other"


# --- the error body ----------------------------------------------------------------------------


def _read(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> tuple[JSON, str]:
    """The body as JSON (None if it is not), and as text."""
    encoding = ",".join(
        value.decode("latin-1") for name, value in headers if name.lower() == b"content-encoding"
    )
    decoder = LenientDecoder(encoding, MAX_BODY_BYTES)
    data = b"".join(decoder.feed(body[:MAX_BODY_BYTES]))
    return _json(data), data[: 4 * MAX_TEXT_CHARS].decode("utf-8", "replace")[:MAX_TEXT_CHARS]


def _json(data: bytes | str) -> JSON:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _errors(value: JSON, deep: int = 0) -> Iterator[Object]:
    """The objects in a body that describe an error, the outermost first."""
    if deep > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in cast(list[JSON], value)[:_MAX_DEPTH]:
            yield from _errors(one, deep + 1)
    elif isinstance(value, dict):
        error = cast(Object, value)
        yield error
        inner = [error.get("error"), error.get("errors"), get(error, ("metadata", "raw"))]
        for one in (*inner, error.get("message"), error.get("detail"), error.get("details")):
            held = _json(one) if isinstance(one, str) and one[:1] in "{[" else one
            yield from _errors(held, deep + 1)


def _message(error: Object) -> str:
    for name in ("message", "detail", "error"):
        found = error.get(name)
        if isinstance(found, str):
            return found
    return ""


def _codes(error: Object) -> Iterator[str]:
    """The codes of an error, the most specific first."""
    found = [error.get(name) for name in ("code", "error_code", "reason", "type", "__type")]
    for name in (*found, error.get("status"), error.get("err_type")):
        if isinstance(name, str) and name not in ("", "error") and not name.isdigit():
            yield name[:200]


# --- the classification ------------------------------------------------------------------------

# An exhausted quota names tokens per minute and reads like an overflow, so rates come first.
_PRECEDENCE: tuple[ErrorKind, ...] = (
    "rate",
    "overflow",
    "too_large",
    "auth",
    "overloaded",
    "other",
)

_KINDS: dict[str, ErrorKind] = {
    "context_length_exceeded": "overflow",  # OpenAI, Azure, Groq
    "exceed_context_size_error": "overflow",  # llama.cpp
    "model_context_window_exceeded": "overflow",  # z.ai
    "context_window_exceeded": "overflow",
    "request_too_large": "too_large",  # Anthropic
    "request_body_too_large_after_decoding": "too_large",
    "rate_limit_error": "rate",
    "rate_limit_exceeded": "rate",
    "insufficient_quota": "rate",
    "ramp_limit_exceeded": "rate",
    "RESOURCE_EXHAUSTED": "rate",
    "ThrottlingException": "rate",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "invalid_api_key": "auth",
    "API_KEY_INVALID": "auth",
    "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth",
    "AccessDeniedException": "auth",
    "overloaded_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "UNAVAILABLE": "overloaded",
    "ServiceUnavailableException": "overloaded",
    "not_found_error": "other",
    "model_not_found": "other",
    "NOT_FOUND": "other",
}

_STATUSES: dict[int, ErrorKind] = {
    400: "invalid",
    422: "invalid",
    401: "auth",
    402: "auth",
    403: "auth",
    407: "auth",
    413: "too_large",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}

_NUMBER = r"\d[\d,]{0,14}"


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern for a text with named numbers; … matches a few words, a blank any whitespace."""
    made: list[str] = []
    for piece in re.split(r"(<\w+>|…|\s+)", text):
        if piece[:1] == "<" and piece[-1:] == ">":
            made.append(_NUMBER if piece == "<any>" else f"(?P<{piece[1:-1]}>{_NUMBER})")
        elif piece == "…":
            made.append(r".{1,80}?")
        else:
            made.append(r"\s{1,8}" if piece.isspace() else re.escape(piece))
    return lazy_compile("".join(made), re.IGNORECASE | re.DOTALL)


_OVERFLOWS: tuple[re.Pattern[str], ...] = tuple(
    _pattern(text)
    for text in (
        # Anthropic, also through Bedrock and gateways
        "prompt is too long: <count> tokens > <limit> maximum",
        "input length and `max_tokens` exceed context limit: <count> + <output> > <limit>",
        "input length and max_tokens exceed context limit: <count> + <output> > <limit>",
        # Gemini and Vertex
        "input token count (<count>) exceeds the maximum number of tokens allowed (<limit>)",
        "input token count exceeds the maximum number of tokens allowed <limit>",
        "input token count exceeds the maximum number of tokens allowed (<limit>)",
        "input token count is <count> but model only supports up to <limit>",
        # OpenAI
        "maximum context length is <limit> tokens…your messages resulted in <count> tokens",
        "exceed the configured limit of <limit> tokens…your messages resulted in <count> tokens",
        # vLLM, from the newest to the oldest
        "length is <limit> tokens…you requested <output> output tokens…contains <count> input",
        "length is <limit> tokens…you requested <output> output tokens…at least <count> input",
        "length is <limit> tokens…you requested <output> output tokens",
        "you passed <count> input tokens and requested <output> output tokens…only <limit> tokens",
        "requested <output> output tokens…context length is only <limit> tokens",
        "is too large: <output>…length is <limit> tokens and your request has <count> input tokens",
        "maximum context length is <limit> tokens…your request has <count> input tokens",
        "prompt (length <count>)…longer than the maximum model length of <limit>",
        # OpenAI's older text, which DeepSeek, OpenRouter and others have too
        "length is <limit> tokens…you requested <total> tokens (…<output> in the completion)",
        "length is <limit> tokens…you requested <total> tokens (…<output> for the completion",
        "length is <limit> tokens…requested about <total> tokens (…<output> in the output)",
        "context length is <limit> tokens…you requested <count> tokens",
        "context length is <limit> tokens…you requested about <count> tokens",
        # SGLang, Together, Poolside
        "context length of <limit> tokens…<count> tokens from the input messages and <output>",
        "input (<count> tokens) is longer than the model's context length (<limit> tokens)",
        "input length (<count> tokens) exceeds the maximum allowed length (<limit> tokens)",
        "input length (<count>) exceeds model's maximum context length (<limit>)",
        "input length <count> exceeds the maximum allowed input length of <limit> tokens",
        # llama.cpp
        "(<count> tokens) exceeds the available context size (<limit> tokens)",
        "(<count> tokens) is larger than the max context size (<limit> tokens)",
        # xAI, Mistral, Moonshot, Copilot, TGI, LM Studio, DashScope and others
        "maximum prompt length is <limit> but the request contains <count> tokens",
        "maximum prompt length is <limit> tokens…your request has <count> prompt tokens",
        "prompt contains <count> tokens…too large for model with <limit> maximum context length",
        "exceeded model token limit: <limit> (requested: <count>)",
        "prompt token count of <count> exceeds the limit of <limit>",
        "must be <= <limit>. given: <count> `inputs` tokens and <output> `max_new_tokens`",
        "`inputs` must have less than <limit> tokens. given: <count>",
        "keep the first <count> tokens…context length of only <limit> tokens",
        "range of input length should be [<any>, <limit>]",
        "prompt has <count> tokens, but the configured context size is <limit> tokens",
        # fallbacks for changed wordings
        "maximum context length is <limit>",
        "maximum context length of <limit>",
    )
)

_TEXTS: dict[ErrorKind, re.Pattern[str]] = {
    "rate": lazy_compile(
        r"tokens per min|requests per min|rate[ _-]limit|too many requests|throttl", re.IGNORECASE
    ),
    "overflow": lazy_compile(
        "|".join(
            (
                "prompt is too long",
                "exceed context limit",
                "exceeds? (?:the )?(?:model's )?(?:context window|maximum context|context length)",
                "exceeds the available context size",
                "larger than the max context size",
                "(?:maximum|max) (?:context|prompt) length (?:is|of|by)",
                "longer than the (?:model's|maximum model|context) (?:context )?length",
                "greater than the context length",
                "context[ _](?:length|window)[ _]exceeded",
                "context window exceeds",
                "contextwindowexceedederror",
                "exceeds the maximum number of tokens allowed",
                "input token count is \\d{1,12} but model only supports",
                "exceed the configured limit of",
                "exceeded model token limit",
                "context length is only",
                "context length of only",
                "input is too long for requested model",
                "input tokens exceeded",
                "exceeds the maximum allowed (?:input )?length",
                "prompt token count of \\d{1,12} exceeds the limit",
                "too large for model with",
                "prompt too long; exceeded",
                "the configured context size is",
                "range of input length should be",
                "`max_new_tokens` must be <=",
                "`inputs` must have less than",
                "reduce the length of (?:the|your) (?:messages|prompt|input)",
            )
        ),
        re.IGNORECASE,
    ),
    "too_large": lazy_compile(
        r"payload size exceeds the limit|maximum request body size"
        r"|exceeds the maximum (?:allowed number of bytes|size)|request entity too large"
        r"|request payload is too large",
        re.IGNORECASE,
    ),
    "auth": lazy_compile(
        r"api key not valid|credit balance is too low|user location is not supported", re.IGNORECASE
    ),
}

# Servers that render a prompt by a template answer 500 if the template refuses a history.
_TEMPLATE = lazy_compile(
    r"roles must alternate|failed to parse tool call arguments|jinja|chat template"
    r"|parser for this template",
    re.IGNORECASE,
)

_BYTES = lazy_compile(rf"(?:limit: |body size )({_NUMBER})", re.IGNORECASE)


def _with_numbers(found: ProviderError, errors: list[Object], text: str) -> ProviderError:
    """An overflow with the numbers that it names, if they are consistent."""
    limit, count, output = _fields(errors) or _named(text)
    if limit is not None and count is not None and count + output < limit:
        limit, count, output = (
            None,
            None,
            0,
        )  # the prompt would have fitted: the numbers mean something else
    return ProviderError("overflow", found.code, found.message, limit, count, output)


def _fields(errors: list[Object]) -> tuple[int | None, int | None, int] | None:
    """The numbers that llama.cpp puts beside its message."""
    for error in errors:
        limit, count = error.get("n_ctx"), error.get("n_prompt_tokens")
        if isinstance(limit, int) and isinstance(count, int) and 0 < limit <= MAX_VALUE:
            return limit, count, 0
    return None


def _named(text: str) -> tuple[int | None, int | None, int]:
    for pattern in _OVERFLOWS:
        found = pattern.search(text)
        if found is not None:
            numbers = {name: _number(text) for name, text in found.groupdict().items()}
            limit, output = numbers.get("limit"), numbers.get("output") or 0
            total, count = numbers.get("total"), numbers.get("count")
            return limit, count if total is None else max(0, total - output), output
    return None, None, 0


def _number(text: str | None) -> int | None:
    number = int(text.replace(",", "")) if text else 0
    return number if 0 < number <= MAX_VALUE else None


def _max_bytes(text: str) -> int | None:
    found = _BYTES.search(text)
    return _number(found[1]) if found else None
