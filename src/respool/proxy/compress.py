"""Compaction as a service for gateways: messages in, messages out, nothing is sent upstream.

`POST /v1/compress` is what the Headroom plug-ins of LiteLLM, Portkey and 9router call; the other
path is LiteLLM's `generic_guardrail_api`. Gateways put messages back by their position. So each
message stays in its place, and no pass runs that takes whole messages out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..engine import FormatName
from ..policy import Policy, default_pass_names
from ..wire.json import get
from .access import grant_in
from .asgi import ProxyError, Receive, Scope, Send, request_from, send_response
from .compactor import Compactor, Mode
from .decoders import BodyTooLarge, UndecodableBody, decode_in_thread
from .forward import Downstream
from .middleware import InFlight, ParsedRequest
from .recorder import Recorder
from .server_options import TransferLimits

COMPRESS: Final = "/v1/compress"
GUARDRAIL: Final = "/beta/litellm_basic_guardrail_api"  # LiteLLM puts it behind the base URL
_REMOVING: Final = frozenset(
    {"superseded_writes", "superseded_edits", "fold_exchanges", "old_reasoning"}
)
_OPTIONS: Final = frozenset({"config", "token_budget", "gateway"})  # Headroom's own
_ANTHROPIC_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking")
_UNNAMED: Final = "tool"  # a call that the gateway keeps back
_JSON: Final = (b"content-type", b"application/json")
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_fields = msgspec.json.Decoder(dict[str, Raw])
_rows = msgspec.json.Decoder(list[Raw])
_row = msgspec.json.Decoder(dict[str, Any])
_log = logging.getLogger(__name__)


class BorrowedRecorder(Recorder):
    """A recorder whose store another one closes."""

    def close(self) -> None:
        """Write what waits."""
        self.stop()


def in_place(policy: Policy) -> Policy:
    """The same policy without the passes that take out whole messages."""
    passes = default_pass_names() if policy.passes is None else policy.passes
    return policy.replace(passes=tuple(one for one in passes if one not in _REMOVING))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that go back, and what was done; the fields are Headroom's."""

    messages: list[Raw]
    tokens_before: int  # estimated
    tokens_after: int
    tokens_saved: int = 0
    compression_ratio: float = 1.0  # after / before
    transforms_applied: list[str] = []  # reasons of edits
    ccr_hashes: list[str] = []  # none: the originals are not at Headroom's /v1/retrieve
    compression_skipped: bool = False
    skip_reason: str = ""  # a code


class CompressEndpoints:
    """Answers gateways with compacted messages; if that fails, with those that came."""

    def __init__(
        self, compactor: Compactor, limits: TransferLimits, mode: Callable[[], Mode]
    ) -> None:
        self._compactor, self._limits, self._mode = compactor, limits, mode
        self.stop, self.routes = compactor.stop, {COMPRESS: self.compress, GUARDRAIL: self.guard}

    async def compress(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in Headroom's shape."""
        fields = await self._read(scope, receive, "messages")
        messages = _list_in(fields, "messages")
        given = {name: fields[name] for name in fields.keys() - _OPTIONS - {"messages"}}
        answer = await self._compacted(scope, messages, given)
        await send_response(send, 200, msgspec.json.encode(answer), _JSON)

    async def guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in the shape of LiteLLM's guardrails; models' responses stay as they are."""
        fields = await self._read(scope, receive, "structured_messages")
        fields = {name: raw for name, raw in fields.items() if bytes(raw) != b"null"}
        verdict: dict[str, Any] = {"action": "NONE"}
        is_response = bytes(fields.get("input_type", b"")) == b'"response"'
        if "structured_messages" in fields and not is_response:
            messages = _list_in(fields, "structured_messages")
            given = {name: fields[name] for name in ("model", "tools") if name in fields}
            rows = (await self._compacted(scope, messages, given)).messages
            if list(map(bytes, rows)) != list(map(bytes, messages)):
                verdict = {"action": "GUARDRAIL_INTERVENED", "structured_messages": rows}
        await send_response(send, 200, msgspec.json.encode(verdict), _JSON)

    async def _read(self, scope: Scope, receive: Receive, name: str) -> dict[str, Raw]:
        """The fields of a request's body."""
        if scope["method"] != "POST":
            raise ProxyError(405, "method", "messages to compact are sent with POST.")
        limit = self._limits.body_bytes
        encoding = request_from(scope).named.get(b"content-encoding", b"").decode("latin-1")
        downstream, body = Downstream(receive, self._limits.idle_seconds), bytearray()
        try:
            while (chunk := await downstream.read()) is not None:
                body += chunk
                if len(body) > limit:
                    raise BodyTooLarge
            decoding = decode_in_thread(bytes(body), encoding, limit)
            return _fields.decode(await asyncio.wrap_future(decoding))
        except BodyTooLarge:
            raise ProxyError(413, "body", f"a body has at most {limit:,} bytes.") from None
        except UndecodableBody:
            raise ProxyError(400, "body", "the body does not match its encoding.") from None
        except _UNREADABLE:
            raise _wrong(name) from None

    async def _compacted(
        self, scope: Scope, messages: list[Raw], fields: Mapping[str, Raw]
    ) -> Answer:
        try:
            asked = await asyncio.to_thread(_conversation, messages, fields)
            self._compactor.switch(self._mode())
            head = request_from(scope)
            place = ("POST", head.path, head.query, head.headers)
            request = ParsedRequest(*place, asked.format, "generate", None, None, asked.body)
            grant = grant_in(scope)
            over = grant.exceeded is not None
            request = replace(request, team=grant.team, is_over_quota=over)
            flight = await self._compactor.request_parsed(request)
            answer = await asyncio.to_thread(_answer, messages, asked, flight)
            self._compactor.response_started(flight, 200, ())
            self._compactor.ended(flight, "complete")
        except (*_UNREADABLE, TypeError):
            return _unchanged(messages, "unreadable")
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("The messages of a gateway could not be compacted")
            return _unchanged(messages, "failed")
        return answer


# --- messages as a request ---------------------------------------------------------------------


class _Conversation(msgspec.Struct, frozen=True):
    """The request that decides on messages, and the place of its rows among them."""

    format: FormatName
    field: str  # that holds the rows
    body: bytes
    rows: list[Raw]
    places: list[int]  # -1: not among the messages


def _conversation(messages: list[Raw], fields: Mapping[str, Raw]) -> _Conversation:
    """The request with these messages; raises if they cannot be read."""
    read = [_row.decode(raw) for raw in messages]
    format = _format_of(read, fields)
    rows, places = messages, list(range(len(messages)))
    calls = {id for one in read for id in _call_ids(one)}
    lone = (one for one in read if one.get("role") == "tool")
    if format == "openai-chat" and any(str(one.get("tool_call_id")) not in calls for one in lone):
        rows, places = _with_calls(messages, read)
    field = "input" if format == "openai-responses" else "messages"
    body = msgspec.json.encode({**fields, field: rows})
    return _Conversation(format, field, body, rows, places)


def _format_of(messages: list[dict[str, Any]], fields: Mapping[str, Raw]) -> FormatName:
    if "previous_response_id" in fields or any("role" not in one for one in messages):
        return "openai-responses"
    contents = (one["content"] for one in messages if isinstance(one.get("content"), list))
    blocks = (block for content in contents for block in cast(list[Any], content))
    is_anthropic = any(get(block, ("type",)) in _ANTHROPIC_BLOCKS for block in blocks)
    return "anthropic" if is_anthropic else "openai-chat"


def _call_ids(message: dict[str, Any]) -> list[str]:
    return [str(get(call, ("id",))) for call in message.get("tool_calls") or ()]


def _with_calls(messages: list[Raw], read: list[dict[str, Any]]) -> tuple[list[Raw], list[int]]:
    """The results, each with a call: LiteLLM's Headroom plug-in keeps the calls back.

    Other messages are left out. The plug-in sends some of them in one turn and not in another,
    and the same results must be compacted in the same way.
    """
    results = [at for at, one in enumerate(read) if one.get("role") == "tool"]
    opening = {"role": "user", "content": f"[results from {read[results[0]].get('tool_call_id')}]"}
    rows, places = [Raw(msgspec.json.encode(opening))], [-1]
    for at in results:
        function = {"name": read[at].get("name") or _UNNAMED, "arguments": "{}"}
        call = {"id": read[at].get("tool_call_id"), "type": "function", "function": function}
        made = {"role": "assistant", "content": None, "tool_calls": [call]}
        rows += (Raw(msgspec.json.encode(made)), messages[at])
        places += (-1, at)
    return rows, places


# --- the answer --------------------------------------------------------------------------------


def _answer(messages: list[Raw], asked: _Conversation, flight: InFlight) -> Answer:
    """The messages with those of the projection in their places."""
    decision, before = flight.decision, flight.decision.tokens_before
    if flight.body is None:
        reason = "" if flight.summary is None else flight.summary.fallback
        return _unchanged(messages, reason, before)
    rows = _rows.decode(_fields.decode(flight.body)[asked.field])
    if list(map(_place, asked.rows)) != list(map(_place, rows)):
        return _unchanged(messages, "moved", before)
    found = list(messages)
    for at, row in zip(asked.places, rows, strict=True):
        if at >= 0:
            found[at] = row
    saved = max(0, before - decision.tokens_after)
    return Answer(
        messages=found,
        tokens_before=before,
        tokens_after=before - saved,
        tokens_saved=saved,
        compression_ratio=round((before - saved) / before, 4) if before else 1.0,
        transforms_applied=sorted({edit.reason for edit in decision.edits}),
    )


def _place(row: Raw) -> list[Any]:
    """What a message must keep, whatever it says."""
    one = _row.decode(row)
    return [*map(one.get, ("role", "type", "tool_call_id", "call_id")), *_call_ids(one)]


def _unchanged(messages: list[Raw], reason: str, tokens: int = 0) -> Answer:
    made = Answer(messages=messages, tokens_before=tokens, tokens_after=tokens)
    return replace(made, compression_skipped=bool(reason), skip_reason=reason)


def _list_in(fields: Mapping[str, Raw], name: str) -> list[Raw]:
    try:
        return _rows.decode(fields[name])
    except (*_UNREADABLE, KeyError):
        raise _wrong(name) from None


def _wrong(name: str) -> ProxyError:
    return ProxyError(400, "body", f"the body is JSON: `{name}`, a list of messages, and `model`.")
