"""Requests in which nothing can be compacted, found without a fold."""

from __future__ import annotations

from typing import cast

from msgspec import Struct

from ..policy import Policy
from ..providers.base import Codec
from ..tokens import part_tokens
from ..transcript import Part
from ..wire.base import RequestBody
from ..wire.json import Object
from .context import Context

# The members of a message that is nothing but text, in any format.
_TEXT_MEMBERS = frozenset({"type", "role", "content", "parts"})


class PlainRequest(Struct, frozen=True):
    """A request that goes out as it came, whatever was sent before."""

    prefix: bytes  # the hash of its only boundary
    tokens: int  # head included
    head: int
    output: int  # tokens that it asks for
    is_bound: bool


def find_plain_text(body: RequestBody, codec: Codec, policy: Policy) -> Part | None:
    """Return the text of a history that is nothing else; None: something may be done to it.

    The first message of the user is protected, no model has answered it, and a text that is not
    blank needs no repair.
    """
    if len(body) != 1 or body.breakpoint_rows() or _is_always_changed(policy):
        return None
    message: object = body.message(0)
    if not isinstance(message, dict) or not _TEXT_MEMBERS.issuperset(cast(Object, message)):
        return None
    if cast(Object, message).get("role") != "user":
        return None
    parts = list(codec.decode(0, cast(Object, message)))
    if len(parts) != 1 or parts[0].kind != "text" or not parts[0].text.strip():
        return None
    return parts[0]


def plain_request(context: Context, text: Part, prefix: bytes) -> PlainRequest:
    """The request of a plain text."""
    return PlainRequest(
        prefix=prefix,
        tokens=context.head + part_tokens(text, context.counters.fast),
        head=context.head,
        output=context.output_tokens,
        is_bound=context.binding.is_bound,
    )


def _is_always_changed(policy: Policy) -> bool:
    """Return whether a policy may change any request: by passes of the user's own, for example."""
    has_own = any(not isinstance(one, str) for one in policy.passes or ())
    return has_own or policy.budget is not None or policy.rendering != "calls"
