"""Tokens of a request's system prompt and tool definitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..cache_scope import current_scope
from ..providers.base import Codec
from ..tokens import TokenCounter, part_tokens
from ..wire.base import FormatName, RequestBody

_MAX_HEADS = 64
_HEAD_TOKENS: dict[tuple[FormatName, TokenCounter, str, bytes, bytes], int] = {}


def head_tokens(body: RequestBody, codec: Codec, counter: TokenCounter) -> int:
    """Tokens of system prompt and tool definitions, which hardly ever change."""
    if body.fields is None:
        return 0
    key = (
        codec.name,
        counter,
        field_signature(body, codec.head_fields),
        body.head_bytes(codec.head_fields),
        current_scope(),
    )
    known = _HEAD_TOKENS.get(key)
    if known is None:
        known = sum(part_tokens(part, counter) for part in codec.decode_head(body.fields))
        if len(_HEAD_TOKENS) >= _MAX_HEADS:
            _HEAD_TOKENS.clear()
        _HEAD_TOKENS[key] = known
    return known


def field_signature(body: RequestBody, names: Sequence[str]) -> str:
    """Type of the body and the fields present: not part of the bytes of the head."""
    present = [name for name in names if name in body.fields] if body.fields is not None else None
    return f"{type(body).__name__} {present}"
