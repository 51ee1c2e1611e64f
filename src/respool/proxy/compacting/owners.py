"""Whose request it is, which session it belongs to and which conversation, without keeping a key.

Hashes are keyed: who has the store cannot try keys against them without its salt, and the ids of
one owner's conversations tell nothing of another's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ...compaction.fold import chain_prefix, initial_prefix
from ...providers.registry import PROVIDERS
from ...wire.base import Fields, FormatName, RequestBody
from ...wire.json import get
from ...wire.layout import cached_on_fields

ANONYMOUS: Final = "anonymous"

_LONGEST_ID = 256  # characters of a session's id; a longer one is none
_LONGEST_USER = 4096

Headers = Iterable[tuple[bytes, bytes]]


class Conversation(Struct, frozen=True):
    """Which conversation a request belongs to, as its owner's hashes.

    Two conversations may open with the same words, so they are told apart by the first thing that
    the model said. A request before that has only its opening, by which the next one finds it.
    """

    opening: str  # all that stands before the model's first output
    id: str | None = None  # the same with that output; None: there is none yet


# --- the owner ---------------------------------------------------------------------------------


def owner_of(headers: Headers, query: bytes, salt: bytes) -> str:
    """The hash of the key that a request is sent with; one without a key is anonymous.

    The salt is the store's own secret. A token that a login renews is another key afterwards: what
    it says of its account is not checked here, and must not open another's conversations.
    """
    if not salt:
        raise ValueError("The salt of the owners' hashes is empty; it must hold a secret.")
    key = next(_keys(list(headers), query), None)
    return ANONYMOUS if key is None else _hash(salt, "owner", key)


def _keys(headers: list[tuple[bytes, bytes]], query: bytes) -> Iterator[bytes]:
    """The keys that a request carries, in the order in which one is believed."""
    yield from _values(headers, b"x-api-key")
    yield from _values(headers, b"api-key")  # Azure's
    for value in _values(headers, b"authorization"):
        yield _credential(value)
    yield from _values(headers, b"x-goog-api-key")
    for name, value in parse_qsl(query.decode("latin-1"), errors="surrogateescape"):
        if name == "key":
            yield value.encode("utf-8", "surrogateescape")


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> Iterator[bytes]:
    for name, value in headers:
        if name.lower() == wanted and (told := value.strip()):
            yield told


_AWS = re.compile(rb"Credential=([^/,\s]{1,200})")


def _credential(authorization: bytes) -> bytes:
    """What of the header is the same with every request; AWS signs each one anew."""
    scheme, _, rest = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip() or authorization
    found = _AWS.search(authorization) if scheme.lower().startswith(b"aws4-") else None
    return found[1] if found else authorization


# --- the session -------------------------------------------------------------------------------

_SESSION_HEADERS = (
    b"x-claude-code-session-id",
    b"session-id",  # Codex; its older versions with an underscore
    b"session_id",
    b"thread-id",
    b"x-session-id",  # opencode
    b"x-qwen-code-session-id",
)
_SESSION_NAMES = frozenset(_SESSION_HEADERS)
_OLD_USER = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")  # Claude Code before it was JSON


def group_of(headers: Headers, fields: Fields | None, owner: str) -> str | None:
    """The hash of the session's id that a client sends along; it groups conversations only."""
    held = [one for one in headers if one[0].lower() in _SESSION_NAMES]
    named = (value.decode("latin-1") for name in _SESSION_HEADERS for value in _values(held, name))
    found = (next(named, None) if held else None) or _session_in(fields)
    if not found or len(found) > _LONGEST_ID:
        return None
    return _hash(owner.encode(), "session", found.encode("utf-8", "surrogatepass"))


def _session_in(fields: Fields | None) -> str | None:
    """The session's id in the body, where a client puts it there."""
    return cached_on_fields(fields, "session", lambda: _session_told(fields)) if fields else None


def _session_told(fields: Fields) -> str | None:
    user = get(fields.get("metadata"), ("user_id",))
    if isinstance(user, str) and len(user) <= _LONGEST_USER:
        session = get(_json(user), ("session_id",))
        if isinstance(session, str):
            return session
        old = _OLD_USER.search(user)
        if old is not None:
            return old[1]
    key = fields.get("prompt_cache_key")
    return key if isinstance(key, str) else None


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


# --- the conversation --------------------------------------------------------------------------


def conversation_of(body: RequestBody, format: FormatName, owner: str) -> Conversation:
    """The conversation of a request: what extends it, or forks from it later, has the same id."""
    prefix, first = _opened(body, format)
    opening = _hash(owner.encode(), "opening", prefix)
    if first == len(body):
        return Conversation(opening)
    prefix = chain_prefix(prefix, body.identities(first, first + 1))
    return Conversation(opening, _hash(owner.encode(), "conversation", prefix))


def opening_of(body: RequestBody, format: FormatName, owner: str) -> str:
    """The opening of a request's conversation alone."""
    return _hash(owner.encode(), "opening", _opened(body, format)[0])


def _opened(body: RequestBody, format: FormatName) -> tuple[bytes, int]:
    """The hash of all that stands before the model's first output, and where that stands."""
    codec, count = PROVIDERS[format].codec, len(body)
    first = 0
    while first < count and not codec.is_model_made(body.message(first)):
        first += 1
    prefix = initial_prefix(format)
    return (chain_prefix(prefix, body.identities(0, first)) if first else prefix), first


def _hash(salt: bytes, what: str, data: bytes) -> str:
    """A keyed hash; the same data gives another one for each purpose."""
    key = salt if len(salt) <= 64 else hashlib.blake2b(salt).digest()
    return hashlib.blake2b(data, digest_size=16, key=key, person=what.encode()).hexdigest()
