"""Gemini's `countTokens` may hold a whole request in one member: that is what is looked at."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from ..forwarding.handling import Incoming, Outgoing

_MEMBER: Final = "generateContentRequest"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def inner_of(incoming: Incoming) -> bytes | None:
    """The request inside another, if it is all that the other holds."""
    if incoming.format != "gemini" or incoming.operation != "count":
        return None
    try:
        found = _members.decode(incoming.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return bytes(found[_MEMBER]) if found.keys() == {_MEMBER} else None


def wrapped(outgoing: Outgoing) -> Outgoing:
    """The same with what goes up inside another again."""
    if outgoing.body is None:
        return outgoing
    return replace(outgoing, body=b'{"%s":%s}' % (_MEMBER.encode(), outgoing.body))
