"""Trajectories: whole conversations in a provider's format, from benchmarks or custom logs.

A list of messages; an object that has one as `messages`, `history`, `traj` or `trajectory`
(mini-swe-agent, SWE-agent, tau-bench); a list of such objects, or one per line. A request was sent
before each run of messages that the model made. Fields that an agent added to a chat message were
not sent and are removed; usage and time are taken from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import cast

from ..errors import PassedThrough, UnreadableRequest
from ..wire.base import FormatName
from ..wire.body import read_body
from ..wire.detect import detect_format
from ..wire.json import JSON, Object, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    Skipped,
    objects_in,
    parse_timestamp,
    parse_usage,
    text_at,
)
from .transcript_file import first_object, top_fields

AGENT = "trajectory"

_HISTORY_FIELDS = ("messages", "history", "traj", "trajectory")
_FILE_SUFFIXES = (".traj", ".traj.gz", ".traj.json", ".traj.json.gz")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
# Wire fields of a chat message, of OpenAI or of gateways.
_CHAT_FIELDS = frozenset(
    """
    annotations audio cache_control content function_call name provider_specific_fields reasoning
    reasoning_content reasoning_details refusal role thinking_blocks tool_call_id tool_calls
    """.split()  # noqa: SIM905 - reads better
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "reasoning"})


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file is a conversation, has one in a field, or lists such objects."""
    start = first_object(head)
    if not start.startswith(b"{"):
        return False
    fields = top_fields(start)
    if any(fields.get(field, b"").startswith(b"[") for field in _HISTORY_FIELDS):
        return True
    listed = head.lstrip().startswith(b"[") and not name.removesuffix(".gz").endswith(".jsonl")
    return name.endswith(_FILE_SUFFIXES) or (listed and "role" in fields)


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """A session for each conversation."""
    stem = PurePath(source).name.partition(".")[0]
    found, others = False, 0
    for number, (about, messages) in enumerate(_conversations(records)):
        if messages is None:
            others += 1
            continue
        found = True
        id = _conversation_id(about) or (f"{stem}:{number}" if number else stem)
        yield conversation_session(messages, about, id=id, source=source)
    if not found:
        yield Skipped(source, NO_REQUEST)
    elif others:
        yield Skipped(source, f"no conversation is in {others:,} of its records; the rest was read")


def _conversations(records: Iterable[JSON]) -> Iterator[tuple[JSON, list[JSON] | None]]:
    """Each record, or each object of a list, with the conversation in it."""
    for record in records:
        holders = cast(list[JSON], record) if isinstance(record, list) else [record]
        if _is_history(holders):
            yield None, holders
            continue
        for holder in holders:
            lists = [get(holder, (field,)) for field in _HISTORY_FIELDS]
            histories = [cast(list[JSON], one) for one in lists if isinstance(one, list)]
            yield holder, next((history for history in histories if _is_history(history)), None)


def _is_history(items: Sequence[JSON]) -> bool:
    """Check if these are messages or items, not steps or conversations."""
    first: JSON = items[0] if items else None
    if not isinstance(first, dict):
        return False
    holder = cast(Object, first)
    if any(isinstance(holder.get(field), list) for field in _HISTORY_FIELDS):
        return False
    return isinstance(holder.get("role", holder.get("type")), str)


def _conversation_id(about: JSON) -> str:
    """Return the conversation's id, as benchmarks and logs name it."""
    for name in ("id", "instance_id", "session_id", "conversation_id"):
        if text_at(about, name):
            return text_at(about, name)
    task, trial = get(about, ("task_id",)), get(about, ("trial",))
    if task is None:
        return ""
    return f"task-{task}" if trial is None else f"task-{task}-trial-{trial}"


def conversation_session(
    recorded: Sequence[JSON],
    about: JSON,
    *,
    id: str,
    source: str,
    format: FormatName | None = None,
    agent: str = AGENT,
) -> RecordedSession | Skipped:
    """One conversation with its requests; `format` where it is known."""
    try:
        detected = format or _detect_format(recorded)
    except (PassedThrough, UnreadableRequest) as why:
        return Skipped(source, f"conversation {id}: {why}")
    kept = [item for item in objects_in(list(recorded)) if _is_message(detected, item)]
    messages = [_wire_message(item) for item in kept] if detected == "openai-chat" else kept
    requests = tuple(_requests(detected, messages, kept, about))
    if not requests:
        return Skipped(source, f"conversation {id}: {NO_REQUEST}")
    left = len(recorded) - len(kept)
    notes = (f"{left:,} records that are no messages left out",) if left else ()
    return RecordedSession(
        id=id,
        agent=agent,
        format=detected,
        messages=messages,
        requests=requests,
        source=source,
        notes=notes,
    )


def _detect_format(messages: Sequence[JSON]) -> FormatName:
    """The format; words alone are the same in Chat Completions as anywhere."""
    try:
        return detect_format(read_body(list(messages)), None)
    except PassedThrough:
        if all(text_at(message, "role") in _ROLES for message in messages):
            return "openai-chat"
        raise


def _is_message(format: FormatName, item: Object) -> bool:
    """An agent may end its record with a message of its own kind."""
    if format in ("openai-chat", "anthropic"):
        return text_at(item, "role") in _ROLES
    return isinstance(item.get("role", item.get("type")), str)


def _wire_message(message: Object) -> Object:
    sent = {key: value for key, value in message.items() if key in _CHAT_FIELDS}
    ids = message.get("tool_call_ids")  # SWE-agent's, of which it sends the first
    if isinstance(ids, list) and ids and "tool_call_id" not in sent:
        sent["tool_call_id"] = cast(list[JSON], ids)[0]
    return sent


def _requests(
    format: FormatName, messages: Sequence[Object], recorded: Sequence[Object], about: JSON
) -> Iterator[RecordedRequest]:
    model = text_at(about, "model") or text_at(about, "info", "config", "model", "model_name")
    for at in range(1, len(messages)):
        if _is_model_made(format, messages[at]) and not _is_model_made(format, messages[at - 1]):
            yield _request(at, recorded[at], model or None)


def _request(cut: int, answer: Object, model: str | None) -> RecordedRequest:
    """Return the usage and time that an agent noted on the answer."""
    extra = answer.get("extra")
    response = get(extra, ("response",))
    times = (get(extra, ("timestamp",)), get(response, ("created",)), answer.get("timestamp"))
    time = next((found for found in map(parse_timestamp, times) if found is not None), None)
    usage = parse_usage(get(response, ("usage",)) or answer.get("usage"))
    return RecordedRequest(cut, time, usage, text_at(response, "model") or model)


def _is_model_made(format: FormatName, message: Object) -> bool:
    if format == "gemini":
        return message.get("role") == "model"
    if format == "openai-responses" and message.get("type", "message") != "message":
        return text_at(message, "type") in _CALLS
    return message.get("role") == "assistant"
